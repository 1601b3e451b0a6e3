"""Edits as generated Python: one function per list, copying only the containers on the way to a change.

Owns what each verb does. A container is never written to unless this run made it: the top level is copied once per run,
containers below it where an item really changes, so a document that no edit applies to comes back as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from tollgate.config.load import Node, Scalar, text_in, walk
from tollgate.mapping.directives import when
from tollgate.mapping.edits import values
from tollgate.mapping.edits.place import Place, Slot, loop
from tollgate.mapping.edits.reading import Edit, Entry
from tollgate.mapping.emit import Code
from tollgate.mapping.harmless import NO_LOSS
from tollgate.mapping.paths import Descend, Every, Slice, Step, has_item
from tollgate.mapping.reads import Reads
from tollgate.mapping.scalars import lower_words
from tollgate.mapping.scope import Scope, Site, Unit, Var

NEVER_LOST = frozenset({"model", "stream", "stream_options"})
"""Fields that are the gateway's own business: it sets them whatever the caller said."""
_WHOLE = re.compile(r"\$(?:parent)?(?![\w.\[$])")
"""`$` or `$parent`, and nothing below it."""


class EditWriter:
    """Writes the function of one edit list."""

    def __init__(self, unit: Unit, scope: Scope, *, lossy: bool) -> None:
        self.unit = unit
        self.scope = scope
        self.lossy = lossy
        self._translated: set[str] = set()
        """Top-level fields an earlier edit has read: taking one out afterwards loses nothing."""
        self._all_translated = False
        """An earlier edit has put the whole document somewhere."""

    def write(self, name: str, edits: Iterable[Edit], line: int) -> None:
        """`name(D, C)`: the document after the edits."""
        code = self.unit.module.function(f"{name}(D, C)", line)
        code.add("d, own = D, False", line)
        for edit in edits:
            reads = Reads()
            if edit.when is None:
                self._apply(code, edit, reads)
            else:
                place = self._place(code, edit.when.mark.line, reads)
                with place.block(f"if {when.test(place.site, edit.when).py}"):
                    self._apply(code, edit, reads)
            if edit.verb in ("set", "default"):
                self._translated |= set(reads.fields)
                self._all_translated = self._all_translated or reads.whole
        code.add("return d", line)

    def _place(self, code: Code, line: int, reads: Reads) -> Place:
        """A fresh name for the document as it is now, so that nothing read before an edit is taken for current."""
        name = code.temp("doc")
        code.add(f"{name} = d", line)
        scope = self.scope.with_names(Var("", name, (reads,), True, True))
        return Place(Site(self.unit, code, scope), name, line)

    def _apply(self, code: Code, edit: Edit, reads: Reads) -> None:
        if edit.verb == "keep":
            self._keep(code, edit)
        elif edit.verb == "refuse":
            place = self._place(code, edit.mark.line, reads)
            assert isinstance(edit.value, Scalar)
            place.add(f"C.refuse({lower_words(place.site, edit.value).py}, {edit.param!r})")
        for entry in together(edit.entries) if edit.verb == "drop" else edit.entries:
            place = self._place(code, entry.mark.line, reads)
            if entry.steps:
                self._top(place, edit, entry)
            else:
                self._whole(place, edit, entry, reads)

    def _whole(self, place: Place, edit: Edit, entry: Entry, reads: Reads) -> None:
        """Another object in the place of the document. What of a request it does not take up is told."""

        def put(made: str) -> None:
            new = place.temp("n")
            place.add(f"{new} = {made}")
            with place.block(f"if type({new}) is dict"):
                if self.lossy and not reads.whole and not self._all_translated:
                    known = NEVER_LOST | self._translated | reads.fields.keys()
                    with place.block(f"for gone in d.keys() - {self.unit.module.constant(frozenset(known))}"):
                        place.add(f"if d[gone] not in {NO_LOSS!r}: C.lose(gone)")
                place.add(f"d, own = {new}, False")  # it may be a part of the one before

        self._value(Slot(place, place.document, place.document, put), edit, entry)

    def _value(self, slot: Slot, edit: Edit, entry: Entry) -> None:
        """The verb's work on one value. A `set` that says why tells a loss where it replaces something."""

        def put(made: str) -> None:
            self._lose(slot.place, entry, f"{slot.value} is not None and {slot.value} != {made}")
            slot.put(made)

        assert entry.value is not None
        values.write(replace(slot, put=put) if edit.verb == "set" and edit.why else slot, edit.verb, entry.value)

    def _keep(self, code: Code, edit: Edit) -> None:
        wanted = self.unit.module.constant(frozenset(edit.keys))
        line = edit.mark.line
        with code.block(f"if not d.keys() <= {wanted}", line):
            if self.lossy and not self._all_translated:
                known = self.unit.module.constant(NEVER_LOST | frozenset(self._translated))
                with code.block(f"for gone in d.keys() - {wanted} - {known}", line):
                    code.add(f"if d[gone] not in {NO_LOSS!r}: C.lose(gone)", line)
            code.add(f"d, own = {{key: value for key, value in d.items() if key in {wanted}}}, True", line)

    # -- the way to a place

    def _top(self, place: Place, edit: Edit, entry: Entry) -> None:
        first, rest = entry.steps[0], entry.steps[1:]
        if not isinstance(first, str):
            new = self._inside(place, place.document, entry.steps, edit, entry)
            with place.block(f"if {new} is not {place.document}"):
                place.add(f"d, own = {new}, True")
            return
        again = _holds_whole(entry.value)
        if not rest:
            self._leaf(place, "d", first, edit, entry, lambda: self._own_top(place, again=again))
            return
        value = place.temp("v")
        place.add(f"{value} = d.get({first!r})")
        new = self._below(place, value, rest, edit, entry)
        with place.block(f"if {new} is not {value}"):
            self._own_top(place, again=again)
            place.add(f"d[{first!r}] = {new}")

    def _own_top(self, place: Place, *, again: bool) -> str:
        """Code that makes `d` writable; `again`: also where it is, because the value holds it as it was."""
        with nullcontext() if again else place.block("if not own"):
            place.add("d, own = {**d}, True")
        return "d"

    def _below(self, place: Place, value: str, steps: tuple[Step, ...], edit: Edit, entry: Entry) -> str:
        """As `_inside`; an object that is not there is made where the edit puts a value into it."""
        if edit.verb in ("set", "default") and isinstance(steps[0], str):
            start = place.temp("v")
            place.add(f"{start} = EMPTY if {value} is None else {value}")
            new = self._inside(place, start, steps, edit, entry)
            with place.block(f"if {new} is EMPTY"):
                place.add(f"{new} = {value}")
            return new
        return self._inside(place, value, steps, edit, entry)

    def _inside(self, place: Place, value: str, steps: tuple[Step, ...], edit: Edit, entry: Entry) -> str:
        """Code that leads `steps` into local `value`; returns the local that holds it changed, or the very same."""
        first, rest = steps[0], steps[1:]
        new = place.temp("n")
        place.add(f"{new} = {value}")
        if isinstance(first, Descend):
            change = self._function(place, (first.key, *rest), edit, entry)
            place.add(f"{new} = everywhere({value}, {change}, {place.document}, C)")
        elif isinstance(first, str):
            with place.block(f"if type({value}) is dict"):
                if not rest:
                    self._leaf(place, value, first, edit, entry, lambda: self._own(place, new, value))
                else:
                    item = place.temp("v")
                    place.add(f"{item} = {value}.get({first!r})")
                    changed = self._below(place, item, rest, edit, entry)
                    with place.block(f"if {changed} is not {item}"):
                        self._put(place, new, value, repr(first), changed)
        elif edit.verb == "drop" and not rest:
            self._drop_items(place, value, new, first, entry)
        else:
            key, item = place.temp("k"), place.temp("x")
            with self._each(place, value, first, key, item):
                if rest:
                    changed = self._inside(place, item, rest, edit, entry)
                    with place.block(f"if {changed} is not {item}"):
                        self._put(place, new, value, key, changed)
                else:
                    slot = Slot(place, item, value, lambda made: self._put(place, new, value, key, made))
                    self._value(slot, edit, entry)
        return new

    def _leaf(self, place: Place, owner: str, last: str, edit: Edit, entry: Entry, own: Callable[[], str]) -> None:
        """The last field of a path in the object `owner`, and those that are taken out of it together."""
        fields = [(last, entry), *((str(one.steps[-1]), one) for one in entry.beside)]
        any_of = self.unit.module.constant(frozenset(key for key, _ in fields)) if entry.beside else ""
        with place.block(f"if not {any_of}.isdisjoint({owner})") if any_of else nullcontext():
            for key, one in fields:
                self._field(place, owner, key, edit, one, own)

    def _each(self, place: Place, value: str, step: Step, key: str, item: str) -> AbstractContextManager[None]:
        """A loop over what a list step finds; `key` is the place of `item` in `value`."""
        if isinstance(step, int):
            pairs = f"(({step}, {value}[{step}]),) if type({value}) is list and {has_item(value, step)} else ()"
        elif isinstance(step, Slice):
            pairs = f"tuple(enumerate({value}))[{step.start}:{step.stop}] if type({value}) is list else ()"
        else:
            pairs = f"enumerate({value}) if type({value}) is list else {value}.items() if type({value}) is dict else ()"
        return loop(place, f"for {key}, {item} in {pairs}", step, item)

    def _own(self, place: Place, new: str, value: str) -> str:
        with place.block(f"if {new} is {value}"):
            place.add(f"{new} = {value}.copy()")
        return new

    def _put(self, place: Place, new: str, value: str, key: str, made: str) -> None:
        self._own(place, new, value)
        place.add(f"{new}[{key}] = {made}")

    def _function(self, place: Place, steps: tuple[Step, ...], edit: Edit, entry: Entry) -> str:
        """A function of its own for `..`: what the edit does to one object, wherever that stands."""
        name = self.unit.module.fresh("below")
        code = self.unit.module.function(f"{name}(x, doc, C)", place.line)
        old = place.site.scope.names[""]
        scope = place.site.scope.with_names(Var("", "doc", old.places, True, True))
        inner = Place(Site(self.unit, code, scope), "doc", place.line)
        key = steps[0]
        inner.add(f"if type(x) is not dict or {key!r} not in x: return x")
        inner.add(f"return {self._inside(inner, 'x', steps, edit, entry)}")
        return name

    # -- what is done there

    def _field(self, place: Place, owner: str, key: str, edit: Edit, entry: Entry, own: Callable[[], str]) -> None:
        """The verb's work on field `key` of the object in local `owner`; `own` makes it writable and names it."""
        if edit.verb == "rename":
            assert isinstance(entry.value, Scalar)
            to = str(entry.value.value)
            with place.block(f"if {key!r} in {owner}"):
                held, moved = own(), place.temp("v")
                place.add(f"{moved} = {held}.pop({key!r})")
                with place.block(f"if {moved} is not None or {to!r} not in {held}"):
                    place.add(f"{held}[{to!r}] = {moved}")
        elif edit.verb == "drop":
            with place.block(f"if {key!r} in {owner}"):
                self._lose(place, entry, f"{owner}[{key!r}] not in {NO_LOSS!r}")
                place.add(f"del {own()}[{key!r}]")
        else:
            value = place.temp("v")
            place.add(f"{value} = {owner}.get({key!r})")

            def put(made: str) -> None:
                place.add(f"{own()}[{key!r}] = {made}")

            def take_out() -> None:
                self._lose(place, entry)
                place.add(f"{own()}.pop({key!r}, None)")

            parent = place.document if owner == "d" else owner
            self._value(Slot(place, value, parent, put, take_out), edit, entry)

    def _drop_items(self, place: Place, value: str, new: str, step: Step, entry: Entry) -> None:
        """Items of a list (or fields of an object) taken out by place or filter."""
        key, item, gone = place.temp("k"), place.temp("x"), place.temp("g")
        place.add(f"{gone} = set()")
        with self._each(place, value, step, key, item):
            place.add(f"{gone}.add({key})")
        with place.block(f"if {gone}"):
            self._lose(place, entry)
            if isinstance(step, int) and step < 0:
                place.add(f"{gone} = {{len({value}) + {step}}}")
            with place.block(f"if type({value}) is list"):
                place.add(f"{new} = [x for k, x in enumerate({value}) if k not in {gone}]")
            with place.block("else"):
                place.add(f"{new} = {{k: x for k, x in {value}.items() if k not in {gone}}}")

    def _lose(self, place: Place, entry: Entry, condition: str = "") -> None:
        """On a request, tell that something of the caller's is gone, unless it was read before or was never theirs."""
        first = entry.steps[0] if entry.steps else ""
        if not self.lossy or self._all_translated or first in self._translated:
            return
        if len(entry.steps) == 1 and first in NEVER_LOST:
            return
        with place.block(f"if {condition}") if condition else nullcontext():
            place.add(f"C.lose({lost_name(entry)!r})")


def _holds_whole(value: Node | None) -> bool:
    """Whether a value may hold the document itself, or the object it is put into."""
    return value is not None and any(_WHOLE.search(text_in(node) or "") for node in walk(value))


def together(entries: Iterable[Entry]) -> list[Entry]:
    """What is taken out of the same object, or the same objects of a list, as one entry: they are looked at once."""
    made: list[Entry] = []
    places: dict[tuple[Step, ...], int] = {}
    for entry in entries:
        way = entry.steps[:-1]
        last = entry.steps[-1] if entry.steps else None
        if not isinstance(last, str) or not all(isinstance(step, str | Every) for step in way):
            made.append(entry)
        elif way in places:
            first = made[places[way]]
            made[places[way]] = replace(first, beside=(*first.beside, entry))
        else:
            places[way] = len(made)
            made.append(entry)
    return made


def lost_name(entry: Entry) -> str:
    """The path as a loss list names it: `messages.name` for `$.messages[*].name`."""
    words = []
    for step in entry.steps:
        if isinstance(step, str):
            words.append(step)
        elif isinstance(step, Descend):
            words.append(step.key)
    return ".".join(words) or entry.text
