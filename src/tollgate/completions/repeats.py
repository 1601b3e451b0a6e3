"""Events of a block that are the one before but for a text, taken together: what stands between two texts is searched for, and
put in the place of it is what the client's events have there."""

from __future__ import annotations

from tollgate.mapping import StreamConverter

_MOST = 256
"""Texts looked at in one go: of bytes that are no texts after all, no more are looked at in vain."""
_SEARCHED = 16
"""Bytes that are searched for: with every hit the search begins anew, which costs more the longer they are."""


def take_repeats(converter: StreamConverter, block: bytes, at: int) -> tuple[bytes, int]:
    """The client's events for those of `block[at:]` that are like the converter's pattern, and where in the block they end."""
    pattern = converter.pattern
    if pattern is None:
        return b"", at
    opening = _lead(pattern.name) + pattern.before
    if not block.startswith(opening, at):
        return b"", at
    closing = pattern.after + b"\n\n"
    written = _between(block[at + len(opening):], closing, closing + opening)
    name, said = converter.feed_alike(written)
    if not said:
        return b"", at
    lead = _lead(name)
    end = at + len(said) * (len(opening) + len(closing)) + sum(map(len, written[:len(said)]))
    return lead + (b"\n\n" + lead).join(said) + b"\n\n", end


def _between(block: bytes, closing: bytes, border: bytes) -> list[bytes]:
    """What stands before the first `closing` of a block, and between its `border`s as long as they follow each other."""
    *pieces, last = block.split(border[-_SEARCHED:], _MOST)
    front = border[:-_SEARCHED]
    end = -len(front) or None
    found: list[bytes] = []
    for piece in pieces:
        if not piece.endswith(front):
            return found
        found.append(piece[:end])
    last, whole, _ = last.partition(closing)
    if whole and b"\n" not in last:  # else another event, or one that is not whole yet
        found.append(last)
    return found


def _lead(name: str | None) -> bytes:
    """What stands before an event's data."""
    return b"data: " if name is None else b"event: %b\ndata: " % name.encode()
