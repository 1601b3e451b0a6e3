"""Many text deltas of one block converted at once, where they differ in nothing but their text.

Most of a stream is such deltas. What the upstream writes between two texts is then always the same bytes: the block is
split there, and joined again with what the client's events have between their texts. Nothing else of those events is
read. Which event may serve as the pattern, and what it becomes, the converter says (`mapping/streams/alike.py`).

    upstream's block   data: {"d":"a"}\\n\\ndata: {"d":"b"}\\n\\n
    client's events    event: delta\\ndata: {"text":"a"}\\n\\nevent: delta\\ndata: {"text":"b"}\\n\\n
"""

from __future__ import annotations

from tollgate.mapping import StreamConverter

_MOST = 256
"""Texts split off at a time: where the first turns out to be none, the work on the others is lost."""
_SEARCHED = 16
"""Bytes of the border between two texts that the block is split at; the rest of it is compared. Splitting sets up its
search anew at every hit, which takes longer for a longer text."""


def take_repeated_deltas(converter: StreamConverter, block: bytes, at: int) -> tuple[bytes, int]:
    """The client's events for those at the start of `block[at:]` that are like the converter's pattern, and where in
    the block those end; nothing and `at` where there is no pattern, or the first event is not like it."""
    pattern = converter.pattern
    if pattern is None:
        return b"", at
    opening = _lead(pattern.name) + pattern.before
    if not block.startswith(opening, at):
        return b"", at
    closing = pattern.after + b"\n\n"
    written = _between(block[at + len(opening) :], closing, closing + opening)
    converted, count = converter.feed_alike(written, _lead)
    return converted, at + count * (len(opening) + len(closing)) + sum(map(len, written[:count]))


def _between(block: bytes, closing: bytes, border: bytes) -> list[bytes]:
    """The texts at the start of `block`, as they are written: `border` stands between two of them, `closing` behind the
    last. Stops before a text that is not whole yet, and before an event of another kind."""
    *pieces, last = block.split(border[-_SEARCHED:], _MOST)
    front = border[:-_SEARCHED]
    end = -len(front) or None
    found = [piece[:end] for piece in pieces]
    if border.join([*found, last]) != block:  # some text ends otherwise: another event stands between two hits
        return found[: [piece.endswith(front) for piece in pieces].index(False)]
    last, whole, _ = last.partition(closing)
    if whole and b"\n" not in last:  # else another event, or one that is not whole yet
        found.append(last)
    return found


def _lead(name: str | None) -> bytes:
    """What an event has before its data, given its name: `event: delta\\ndata: `."""
    return b"data: " if name is None else b"event: %b\ndata: " % name.encode()
