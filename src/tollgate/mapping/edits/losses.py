"""What the edits of a request take from its caller: told as losses, unless an earlier edit has put it elsewhere."""

from __future__ import annotations

from contextlib import nullcontext

from tollgate.mapping.edits.place import Place
from tollgate.mapping.edits.reading import Entry
from tollgate.mapping.harmless import NO_LOSS
from tollgate.mapping.paths import Descend
from tollgate.mapping.reads import Reads

NEVER_LOST = frozenset({"model", "stream", "stream_options"})
"""Fields that are the gateway's own business: it sets them whatever the caller said."""


class Losses:
    """What one edit list loses, while its code is written: nothing where it is not a request's."""

    def __init__(self, *, of_request: bool) -> None:
        self._of_request = of_request
        self._moved: set[str] = set()
        """Top-level fields an earlier edit has read: taking one out afterwards loses nothing."""
        self._all_moved = False
        """An earlier edit has put the whole document somewhere."""

    def moved(self, reads: Reads) -> None:
        """An edit puts what it reads into the document."""
        self._moved |= set(reads.fields)
        self._all_moved = self._all_moved or reads.whole

    def tell(self, place: Place, entry: Entry, condition: str = "") -> None:
        """Code that names what an edit takes out, unless it was read before or was never the caller's."""
        first = entry.steps[0] if entry.steps else ""
        if not self._of_request or self._all_moved or first in self._moved:
            return
        if len(entry.steps) == 1 and first in NEVER_LOST:
            return
        with place.block(f"if {condition}") if condition else nullcontext():
            place.add(f"C.lose({lost_name(entry)!r})")

    def tell_all_but(self, place: Place, kept: frozenset[str]) -> None:
        """Code that names what of the document does not stay."""
        if not self._of_request or self._all_moved:
            return
        known = place.site.unit.module.constant(NEVER_LOST | self._moved | kept)
        with place.block(f"for gone in d.keys() - {known}"):
            place.add(f"if d[gone] not in {NO_LOSS!r}: C.lose(gone)")


def lost_name(entry: Entry) -> str:
    """The path as a loss list names it: `messages.name` for `$.messages[*].name`."""
    words = [step.key if isinstance(step, Descend) else step for step in entry.steps]
    return ".".join(word for word in words if isinstance(word, str)) or entry.text
