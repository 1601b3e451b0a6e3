"""Generates the Python of edits: one function per list, which copies only the containers that lead to a change.

A container is only written to if this run made it: the top level (`d`) is copied once per run (`own` is then True),
containers below it where an item really changes. So a document to which no edit applies is returned as it is. What a
verb does at the end of a path is in `entry.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tollgate.config.load import Scalar
from tollgate.mapping.directives import when
from tollgate.mapping.edits.entry import TAKING, EntryWriter
from tollgate.mapping.edits.losses import Losses, OwnFields
from tollgate.mapping.edits.moves import ALWAYS
from tollgate.mapping.edits.place import Place
from tollgate.mapping.edits.reading import Edit, Entry
from tollgate.mapping.emit import Code
from tollgate.mapping.paths import Every, Step
from tollgate.mapping.reads import Reads
from tollgate.mapping.scalars import lower_words
from tollgate.mapping.scope import Scope, Site, Unit, Var


class EditWriter:
    """Writes the function of one edit list."""

    def __init__(self, unit: Unit, scope: Scope, *, of_request: bool) -> None:
        self._unit = unit
        self._scope = scope
        self._losses = Losses(of_request=of_request)

    def write(self, name: str, edits: Iterable[Edit], line: int) -> OwnFields:
        """`name(D, C)`: returns the document after the edits. Gives the fields that are not the caller's."""
        code = self._unit.module.function(f"{name}(D, C)", line)
        code.add("d, own = D, False", line)
        for edit in edits:
            reads = Reads()
            if edit.when is None:
                self._apply(code, edit, reads)
                self._losses.made(edit, reads, ALWAYS)
                continue
            place = self._place(code, edit.when.mark.line, reads)
            test = when.test(place.site, edit.when).py
            ran = code.temp("ran") if self._losses.may_move(edit) else ""
            if ran:
                place.add(f"{ran} = False")
            with place.block(f"if {test}"):
                self._apply(code, edit, reads)
                if ran:
                    place.add(f"{ran} = True")
            self._losses.made(edit, reads, ran)
        code.add("return d", line)
        return self._losses.own

    def _place(self, code: Code, line: int, reads: Reads) -> Place:
        """A new local for the document as it is now, so that values read before an edit are not taken for current
        ones."""
        name = code.temp("doc")
        code.add(f"{name} = d", line)
        scope = self._scope.with_names(Var("", name, (reads,), present=True, kind="object"))
        return Place(Site(self._unit, code, scope), name, line)

    def _apply(self, code: Code, edit: Edit, reads: Reads) -> None:
        if edit.verb == "keep":
            self._keep(Place(Site(self._unit, code, self._scope), "d", edit.mark.line), frozenset(edit.keys))
        elif edit.verb == "refuse":
            place = self._place(code, edit.mark.line, reads)
            assert isinstance(edit.value, Scalar)
            place.add(f"C.refuse({lower_words(place.site, edit.value).py}, {edit.param!r})")
        for entry in together(edit.entries) if edit.verb in TAKING else edit.entries:
            place = self._place(code, entry.mark.line, reads)
            EntryWriter(place, edit, entry, self._losses).write(reads)

    def _keep(self, place: Place, keys: frozenset[str]) -> None:
        kept = self._unit.module.constant(keys)
        with place.block(f"if not d.keys() <= {kept}"):
            self._losses.report_all_but(place, keys)
            place.add(f"d, own = {{key: value for key, value in d.items() if key in {kept}}}, True")


def together(entries: Iterable[Entry]) -> list[Entry]:
    """Merge entries that take something out of the same object, or of the same objects of a list: these are then
    read once."""
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
