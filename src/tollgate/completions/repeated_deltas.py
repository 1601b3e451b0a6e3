"""Converting many text deltas of one block at once, where they differ only in their text.

Most of a stream consists of such deltas. The bytes between two texts are then always the same: the block is split
there, and joined again with the bytes that the client's events have between their texts; the events are not parsed.
The converter decides which event is the pattern and what it becomes (`mapping/streams/alike.py`).

    upstream's block   data: {"d":"a"}\\n\\ndata: {"d":"b"}\\n\\n
    client's events    event: delta\\ndata: {"text":"a"}\\n\\nevent: delta\\ndata: {"text":"b"}\\n\\n
"""

from __future__ import annotations

from tollgate.mapping import StreamConverter

_MOST = 256
"""Most texts split off at a time: if the first already does not fit, the work on the others is wasted."""
_SEARCHED = 16
"""The block is split at the last 16 bytes of the border between two texts, and the rest of the border is compared.
`split` prepares its search again after every hit, which takes longer for a longer separator."""


def take_repeated_deltas(converter: StreamConverter, block: bytes, at: int) -> tuple[bytes, int]:
    """Convert the events at the start of `block[at:]` that match the converter's pattern: the client's events, and the
    position after the converted ones. Gives b"" and `at` if there is no pattern or the first event does not match."""
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
    """The texts (as JSON writes them) at the start of `block`, which have `border` between them and `closing` after the
    last. Stops before an incomplete text and before an event of another kind."""
    *pieces, last = block.split(border[-_SEARCHED:], _MOST)
    front = border[:-_SEARCHED]
    end = -len(front) or None
    found = [piece[:end] for piece in pieces]
    if border.join([*found, last]) != block:  # one text ends differently: another event is between two hits
        return found[: [piece.endswith(front) for piece in pieces].index(False)]
    last, whole, _ = last.partition(closing)
    if whole and b"\n" not in last:  # else it is another event, or an incomplete one
        found.append(last)
    return found


def _lead(name: str | None) -> bytes:
    """The bytes before an event's data: `event: delta\\ndata: ` for one named delta."""
    return b"data: " if name is None else b"event: %b\ndata: " % name.encode()
