"""Bounds of JSON that comes from outside: how deep it may be nested (what is deeper could be read and not written
again), and how many values it may hold."""

from __future__ import annotations

import re
from typing import Any

MOST_WRITTEN = 240
"""Levels that can always be written again: orjson stops at 254, and what a request holds is put into other objects."""
MOST_SMALL = 20_000
"""Values in the body of an image or tool call, ten times what the input of an image job may hold:
it is read on the event loop."""


def too_deep(body: Any, limit: int) -> bool:
    """Whether there are objects and lists inside each other for more than `limit` levels;
    `body` itself is the first."""
    level = [body]
    for _ in range(limit):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return False
    return True


def holds_more(body: Any, most: int) -> bool:
    """Whether objects and lists have more than `most` members together, counted at every depth.

    holds_more({"a": [1, 2]}, 2) -> True
    """
    waiting, count = [body], 0
    while waiting:
        node = waiting.pop()
        count += len(node)
        if count > most:
            return True
        waiting += [
            child for child in (node.values() if isinstance(node, dict) else node) if isinstance(child, (dict, list))
        ]
    return False


def count_of(raw: bytes, mark: bytes) -> int:
    """How often a byte stands in JSON text. `bytes.count` looks at each byte in CPython 3.11, and takes ten times as
    long where the mark is rare, as in texts; about as long where it is one of thirty.

    count_of(b'{"a": [1]}', b":") -> 1
    """
    return len(raw) - len(raw.replace(mark, b""))


def too_many(raw: bytes, most: int) -> bool:
    """Whether JSON text holds more than `most` values: too_many(b'{"a": [1, 2]}', 3) -> True

    The parser lets no other thread run: 32 MB of words take it milliseconds, 32 MB of `[],` seconds. Commas and
    brackets are counted wherever they stand; only where there are too many of them, texts are left out, which takes
    longer.
    """
    marks = 0
    for at in range(0, len(raw), _PIECE):
        piece = raw[at : at + _PIECE]
        marks += piece.count(b",") + piece.count(b"[") + piece.count(b"{")
    return marks >= most and _values(raw, most) > most


def _values(raw: bytes, most: int) -> int:
    """Counts values outside of texts: one, one more behind every comma, one inside of every bracket.
    Stops beyond `most`."""
    found, inside, at = 1, False, 0
    while at < len(raw) and found <= most:
        end = _ESCAPE_AT_END.match(raw, min(at + _PIECE, len(raw)) - 1).end()  # type: ignore[union-attr]
        for text in raw[at:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"'):
            if not inside:
                found += text.count(b",") + text.count(b"[") + text.count(b"{")
            inside = not inside
        inside = not inside  # the last part goes on in the next piece
        at = end
    return found


_PIECE = 64 * 1024
"""Others may run between two pieces."""
_ESCAPE_AT_END = re.compile(rb"\\*.?", re.DOTALL)
"""From the last byte of a piece on: to the end of what it escapes, or of that byte."""
