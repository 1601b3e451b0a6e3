"""Reports what the edits of a request remove as lost, unless an earlier edit has moved it (`moves.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from tollgate.config.load import plain
from tollgate.mapping.edits.moves import ALWAYS, Move, Rest, RestOfFields, is_whole
from tollgate.mapping.edits.place import Place
from tollgate.mapping.edits.reading import VERBS, Edit, Entry
from tollgate.mapping.harmless import NO_LOSS
from tollgate.mapping.paths import Descend
from tollgate.mapping.reads import Reads

NEVER_LOST = frozenset({"model", "stream", "stream_options"})
"""Fields that the gateway always sets itself, whatever the caller sends."""


@dataclass(frozen=True, slots=True)
class OwnFields:
    """Fields at the top that edits put into a request out of nothing that its caller said: taken out again, they are
    no loss of the caller's, unless the request came with such a field."""

    put: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    """Fields that also hold what was read elsewhere in the request."""
    whole: bool = False
    """Another document took the place of the request."""

    def __or__(self, other: OwnFields) -> OwnFields:
        return OwnFields(self.put | other.put, self.others | other.others, self.whole or other.whole)

    def callers(self, lost: Iterable[str], request: Mapping[str, Any]) -> list[str]:
        """Of the losses of a request, those that are its caller's."""
        own = frozenset() if self.whole else self.put - self.others - request.keys()
        return [name for name in lost if name.partition(".")[0] not in own]


class Losses:
    """The losses of one edit list while its code is written; none if it is not a request's."""

    def __init__(self, *, of_request: bool) -> None:
        self._of_request = of_request
        self._moves: list[Move] = []
        self.own = OwnFields()

    def may_move(self, edit: Edit) -> bool:
        """Whether it must be known at run time if the edit's condition held, because it may move something."""
        return self._of_request and VERBS[edit.verb].puts

    def made(self, edit: Edit, reads: Reads, ran: str) -> None:
        """An edit has been written, which read `reads` of the document; local `ran` says if it ran."""
        if VERBS[edit.verb].puts:
            tops = [_top(entry) for entry in edit.entries]
            named, whole = frozenset(top for top in tops if top is not None), None in tops
            some = _reads(reads)
            if whole and edit.when is None:
                self._moves.clear()  # they moved things within a document that is gone
            self.own |= OwnFields(others=named, whole=whole) if some else OwnFields(named, whole=whole)
            if some and self._of_request:
                self._moves.append(Move(reads, [entry.steps for entry in edit.entries], ran))
        elif edit.verb == "rename":
            self.own |= OwnFields(others=frozenset(str(plain(e.value)) for e in edit.entries if e.value is not None))

    def report(self, place: Place, entry: Entry, value: str, condition: str = "") -> None:
        """Write code that reports `value`, which an edit removes, unless it was moved before or is never lost."""
        if not self._of_request or len(entry.steps) == 1 and entry.steps[0] in NEVER_LOST:
            return
        inside = any(isinstance(step, Descend) for step in entry.steps)  # of a function, which sees no locals of ours
        known = [(move, move.of(entry.steps)) for move in self._moves if not inside or move.ran == ALWAYS]
        moved = [(move.ran, places) for move, places in known if places]
        if any(ran == ALWAYS and is_whole(places) for ran, places in moved):
            return
        with place.block(f"if {condition}") if condition else nullcontext():
            if not moved:
                place.add(f"C.lose({lost_name(entry)!r})")
                return
            rest = place.site.unit.module.constant(Rest(lost_name(entry), [places for _, places in moved]), "rest_")
            place.add(f"{rest}({value}, ({''.join(f'{ran}, ' for ran, _ in moved)}), C)")

    def report_all_but(self, place: Place, kept: frozenset[str], reads: Reads | None = None) -> None:
        """Write code that reports all of the document except the `kept` fields, and what this edit `reads` itself."""
        if not self._of_request:
            return
        moves = self._moves if reads is None else [*self._moves, Move(reads, ())]
        known = place.site.unit.module.constant(NEVER_LOST | kept)
        with place.block("for gone in d"), place.block(f"if gone not in {known} and d[gone] not in {NO_LOSS!r}"):
            if not moves:
                place.add("C.lose(gone)")
                return
            rest = place.site.unit.module.constant(RestOfFields(moves), "rest_")
            place.add(f"{rest}(gone, d[gone], ({''.join(f'{move.ran}, ' for move in moves)}), C)")


def lost_name(entry: Entry) -> str:
    """The path as the loss list has it: `messages.name` for `$.messages[*].name`."""
    words = [step.key if isinstance(step, Descend) else step for step in entry.steps]
    return ".".join(word for word in words if isinstance(word, str)) or entry.text


def _top(entry: Entry) -> str | None:
    """The field at the top that a path leads to, or into."""
    return entry.steps[0] if entry.steps and isinstance(entry.steps[0], str) else None


def _reads(reads: Reads) -> bool:
    """Whether anything of the document is read there."""
    return bool(
        reads.whole or reads.fields or reads.items or reads.links or reads.looks or reads.switches or reads.made
    )
