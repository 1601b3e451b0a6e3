"""Generates the code of one path of an edit: the way there, and the verb's work at its end."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from tollgate.config.load import Scalar, plain, text_in, walk
from tollgate.mapping.edits import values
from tollgate.mapping.edits.losses import Losses
from tollgate.mapping.edits.place import Place, Slot
from tollgate.mapping.edits.reading import VERBS, Edit, Entry
from tollgate.mapping.harmless import NO_LOSS
from tollgate.mapping.mentions import mentions
from tollgate.mapping.path_code import loop, reads_of
from tollgate.mapping.paths import Descend, Slice, Step, has_item
from tollgate.mapping.reads import Places, Reads
from tollgate.mapping.scope import Site, Var

_WHOLE = re.compile(r"\$(?:parent)?(?![\w.\[$])")
"""`$` or `$parent`, and nothing below it."""
TAKING = ("drop", "harmless")
"""The verbs that take something out."""
Own = Callable[[], str]
"""Writes the code that makes an object writable; returns the local that holds it."""


@dataclass(frozen=True, slots=True)
class EntryWriter:
    """Writes the code of one path of an edit into `place`."""

    place: Place
    edit: Edit
    entry: Entry
    losses: Losses

    def write(self, reads: Reads) -> None:
        """Write all of it; `reads` is what the edit reads of the document."""
        steps = self.entry.steps
        if not steps:
            self._document(reads)
        elif isinstance(steps[0], str):
            self._field_of_document(steps[0], steps[1:])
        else:
            place = self.place
            new = self._inside(place.document, steps)
            with place.block(f"if {new} is not {place.document}"):
                place.add(f"d, own = {new}, True")

    # -- the way

    def _document(self, reads: Reads) -> None:
        """Replace the whole document by another object. What this does not read of a request is reported as lost."""
        place = self.place

        def put(made: str) -> None:
            new = place.temp("n")
            place.add(f"{new} = {made}")
            with place.block(f"if type({new}) is dict"):
                self.losses.report_all_but(place, frozenset(), reads)
                place.add(f"d, own = {new}, False")  # it may be a part of the previous document

        self._value(Slot(place, place.document, place.document, put))

    def _field_of_document(self, field: str, rest: tuple[Step, ...]) -> None:
        place = self.place

        def own() -> str:
            with nullcontext() if self._holds_whole() else place.block("if not own"):
                place.add("d, own = {**d}, True")
            return "d"

        if not rest:
            self._leaf("d", field, own)
            return
        value = place.temp("v")
        place.add(f"{value} = d.get({field!r})")
        new = self._below(value, rest)
        with place.block(f"if {new} is not {value}"):
            own()
            place.add(f"d[{field!r}] = {new}")

    def _holds_whole(self) -> bool:
        """Whether the edit's value may contain the document itself, or the object it is put into. These are then
        copied even if this run made them, so that the value keeps them as they were."""
        value = self.entry.value
        return value is not None and any(_WHOLE.search(text_in(node) or "") for node in walk(value))

    def _below(self, value: str, steps: tuple[Step, ...]) -> str:
        """As `_inside`, but a missing object is created if the edit puts a value into it."""
        if not VERBS[self.edit.verb].puts or not isinstance(steps[0], str):
            return self._inside(value, steps)
        place = self.place
        start = place.temp("v")
        place.add(f"{start} = EMPTY if {value} is None else {value}")
        new = self._inside(start, steps)
        with place.block(f"if {new} is EMPTY"):
            place.add(f"{new} = {value}")
        return new

    def _inside(self, value: str, steps: tuple[Step, ...]) -> str:
        """Code that follows `steps` inside local `value`; returns the local that holds the changed value, or the
        same one."""
        place, first, rest = self.place, steps[0], steps[1:]
        new = place.temp("n")
        place.add(f"{new} = {value}")
        if isinstance(first, Descend):
            change = self._function((first.key, *rest))
            place.add(f"{new} = everywhere({value}, {change}, {place.document}, C)")
        elif isinstance(first, str):
            with place.block(f"if type({value}) is dict"):
                self._field_of(value, new, first, rest)
        elif self.edit.verb in TAKING and not rest:
            self._drop_items(value, new, first)
        else:
            self._items_of(value, new, first, rest)
        return new

    def _field_of(self, value: str, new: str, field: str, rest: tuple[Step, ...]) -> None:
        """One field of the object `value`."""
        if not rest:
            self._leaf(value, field, lambda: self._own(new, value))
            return
        place = self.place
        item = place.temp("v")
        place.add(f"{item} = {value}.get({field!r})")
        changed = self._below(item, rest)
        with place.block(f"if {changed} is not {item}"):
            self._put(new, value, repr(field), changed)

    def _items_of(self, value: str, new: str, step: Step, rest: tuple[Step, ...]) -> None:
        """The items of `value` that a list step finds."""
        place = self.place
        key, item = place.temp("k"), place.temp("x")
        with self._each(value, step, key, item):
            if rest:
                changed = self._inside(item, rest)
                with place.block(f"if {changed} is not {item}"):
                    self._put(new, value, key, changed)
            else:
                self._value(Slot(place, item, value, lambda made: self._put(new, value, key, made)))

    def _each(self, value: str, step: Step, key: str, item: str) -> AbstractContextManager[None]:
        """A loop over what a list step finds; `key` is the index or name of `item` in `value`."""
        if isinstance(step, int):
            pairs = f"(({step}, {value}[{step}]),) if type({value}) is list and {has_item(value, step)} else ()"
        elif isinstance(step, Slice):
            pairs = f"tuple(enumerate({value}))[{step.start}:{step.stop}] if type({value}) is list else ()"
        else:
            pairs = f"enumerate({value}) if type({value}) is list else {value}.items() if type({value}) is dict else ()"
        return loop(self.place.site, f"for {key}, {item} in {pairs}", step, item, self.place.line)

    def _function(self, steps: tuple[Step, ...]) -> str:
        """A function of its own for `..`: the edit's effect on one object, wherever it is."""
        place, site = self.place, self.place.site
        name = site.unit.module.fresh("below")
        code = site.unit.module.function(f"{name}(x, doc, C)", place.line)
        scope = site.scope.with_names(Var("", "doc", site.scope.names[""].places, present=True, kind="object"))
        inner = Place(Site(site.unit, code, scope), "doc", place.line)
        inner.add(f"if type(x) is not dict or {steps[0]!r} not in x: return x")
        inner.add(f"return {replace(self, place=inner)._inside('x', steps)}")
        return name

    def _own(self, new: str, value: str) -> str:
        with self.place.block(f"if {new} is {value}"):
            self.place.add(f"{new} = {value}.copy()")
        return new

    def _put(self, new: str, value: str, key: str, made: str) -> None:
        self._own(new, value)
        self.place.add(f"{new}[{key}] = {made}")

    # -- what is done at its end

    def _leaf(self, owner: str, last: str, own: Own) -> None:
        """The last field of the path in the object `owner`, and the fields that are removed together with it."""
        fields = [(last, self.entry), *((str(one.steps[-1]), one) for one in self.entry.beside)]
        any_of = self.place.site.unit.module.constant(frozenset(key for key, _ in fields)) if fields[1:] else ""
        with self.place.block(f"if not {any_of}.isdisjoint({owner})") if any_of else nullcontext():
            for key, one in fields:
                replace(self, entry=one)._field(owner, key, own)

    def _field(self, owner: str, key: str, own: Own) -> None:
        """The verb's work on field `key` of the object in local `owner`."""
        place = self.place
        if self.edit.verb == "rename":
            self._rename(owner, key, own)
            return
        if self.edit.verb in TAKING:
            with place.block(f"if {self._is_there(owner, key)}"):
                if self.edit.verb == "drop":
                    self.losses.report(place, self.entry, f"{owner}[{key!r}]", f"{owner}[{key!r}] not in {NO_LOSS!r}")
                elif all(isinstance(step, str) for step in self.entry.steps):
                    place.add(f"C.spare({'.'.join(map(str, self.entry.steps))!r})")
                place.add(f"{own()}.pop({key!r}, None)")  # it may be named twice
            return
        value = place.temp("v")
        place.add(f"{value} = {owner}.get({key!r})")

        def put(made: str) -> None:
            place.add(f"{own()}[{key!r}] = {made}")

        def take_out() -> None:
            self.losses.report(place, self.entry, value)
            place.add(f"{own()}.pop({key!r}, None)")

        self._value(Slot(place, value, place.document if owner == "d" else owner, put, take_out))

    def _is_there(self, owner: str, key: str) -> str:
        """Whether the field is there to be taken out: with the value that the edit names, if it names one."""
        if self.entry.value is None:
            return f"{key!r} in {owner}"
        value = self.place.site.unit.module.constant(plain(self.entry.value, floats=True))
        return f"same({owner}.get({key!r}), {value})"

    def _rename(self, owner: str, key: str, own: Own) -> None:
        assert isinstance(self.entry.value, Scalar)
        place, to = self.place, str(self.entry.value.value)
        with place.block(f"if {key!r} in {owner}"):
            held, moved = own(), place.temp("v")
            place.add(f"{moved} = {held}.pop({key!r})")
            with place.block(f"if {moved} is not None or {to!r} not in {held}"):
                place.add(f"{held}[{to!r}] = {moved}")

    def _value(self, slot: Slot) -> None:
        """The verb's work on one value. A `set` with a `why` reports a loss if it replaces something."""

        def put(made: str) -> None:
            replaced = f"{slot.value} is not None and {slot.value} != {made}"
            self.losses.report(slot.place, self.entry, slot.value, replaced)
            slot.put(made)

        assert self.entry.value is not None
        slot = replace(slot, parent_places=self._parent())
        target = replace(slot, put=put) if self.edit.verb == "set" and self.edit.why else slot
        values.write(target, self.edit.verb, self.entry.value)

    def _parent(self) -> Places:
        """Where in the document the object is that `$parent` reads; nowhere if the value does not read it."""
        steps, places = self.entry.steps, self.place.site.scope.names[""].places
        if self.entry.value is None or not mentions(self.entry.value, "parent"):
            return ()
        return () if any(isinstance(step, Descend) for step in steps) else reads_of(places, steps[:-1])

    def _drop_items(self, value: str, new: str, step: Step) -> None:
        """Remove items of a list (or fields of an object) by index or filter."""
        place = self.place
        key, item, gone = place.temp("k"), place.temp("x"), place.temp("g")
        place.add(f"{gone} = set()")
        with self._each(value, step, key, item):
            place.add(f"{gone}.add({key})")
        with place.block(f"if {gone}"):
            if self.edit.verb == "drop":
                with place.block(f"for {key} in sorted({gone}, key=str)"):
                    self.losses.report(place, self.entry, f"{value}[{key}]")
            if isinstance(step, int) and step < 0:
                place.add(f"{gone} = {{len({value}) + {step}}}")
            with place.block(f"if type({value}) is list"):
                place.add(f"{new} = [x for k, x in enumerate({value}) if k not in {gone}]")
            with place.block("else"):
                place.add(f"{new} = {{k: x for k, x in {value}.items() if k not in {gone}}}")
