"""Reports what the edits of a request remove as lost, unless an earlier edit has read it to put it elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from tollgate.config.load import plain
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
        self._moved: set[str] = set()
        """Top-level fields that an earlier edit has read: removing them afterwards loses nothing."""
        self._all_moved = False
        """An earlier edit has put the whole document somewhere."""
        self.own = OwnFields()

    def made(self, edit: Edit, reads: Reads) -> None:
        """An edit has been written, which read `reads` of the document."""
        if VERBS[edit.verb].puts:
            self._moved |= set(reads.fields)
            self._all_moved = self._all_moved or reads.whole
            tops = [_top(entry) for entry in edit.entries]
            named, whole = frozenset(top for top in tops if top is not None), None in tops
            self.own |= OwnFields(others=named, whole=whole) if _reads(reads) else OwnFields(named, whole=whole)
        elif edit.verb == "rename":
            self.own |= OwnFields(others=frozenset(str(plain(e.value)) for e in edit.entries if e.value is not None))

    def report(self, place: Place, entry: Entry, condition: str = "") -> None:
        """Write code that reports what an edit removes, unless it was read before or is never lost."""
        first = entry.steps[0] if entry.steps else ""
        if not self._of_request or self._all_moved or first in self._moved:
            return
        if len(entry.steps) == 1 and first in NEVER_LOST:
            return
        with place.block(f"if {condition}") if condition else nullcontext():
            place.add(f"C.lose({lost_name(entry)!r})")

    def report_all_but(self, place: Place, kept: frozenset[str]) -> None:
        """Write code that reports all of the document except the `kept` fields."""
        if not self._of_request or self._all_moved:
            return
        known = place.site.unit.module.constant(NEVER_LOST | self._moved | kept)
        with place.block("for gone in d"):
            place.add(f"if gone not in {known} and d[gone] not in {NO_LOSS!r}: C.lose(gone)")


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
