"""Limits for JSON from clients and upstreams: its nesting depth (deeper JSON could be parsed but not serialised), and
its number of values."""

from __future__ import annotations

import re
from typing import Any

MOST_LEVELS = 254
"""Nesting levels that orjson writes; it reads 1024."""
MAX_DEPTH = 240
"""Nesting levels that can always be serialised: parts of a request go into other objects."""
MAY_BE_DEEP = 2 * MAX_DEPTH
"""Shorter JSON has not so many levels."""
MAX_SMALL_BODY_VALUES = 20_000
"""Most values in the body of an image or tool call, which is parsed on the event loop: ten times the limit for the
input of an image job. A lower `server.max_values` is the limit of these too."""


def too_deep(body: Any, limit: int) -> bool:
    """Whether objects and lists are nested more than `limit` levels deep; `body` itself is the first level."""
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


def too_deep_to_write(raw: bytes, parsed: Any) -> bool:
    """Whether JSON, given as written and parsed, is nested so deep that it may not be serialised again."""
    return (
        len(raw) > MAY_BE_DEEP
        and raw.count(b"[") + raw.count(b"{") > MAX_DEPTH
        and isinstance(parsed, (dict, list))
        and too_deep(parsed, MAX_DEPTH)
    )


def holds_more(body: Any, most: int) -> bool:
    """Whether all objects and lists in `body` have more than `most` members in total.

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
    """How often a byte occurs in JSON text. In CPython 3.11 `bytes.count` takes ten times as long if the byte is rare,
    as in texts, and about as long if it is one in thirty; but a twentieth of the time if a text is nothing else.

    count_of(b'{"a": [1]}', b":") -> 1
    """
    most = len(raw) // 16 + 1
    found = len(raw) - len(raw.replace(mark, b"", most))
    return found if found < most else raw.count(mark)


def too_many(raw: bytes, most: int) -> bool:
    """Whether JSON text has more than `most` values: too_many(b'{"a": [1, 2]}', 3) -> True

    The parser holds the GIL: for milliseconds with 32 MB of text, for seconds with 32 MB of `[],`. First all commas and
    brackets are counted; only if these are too many, those inside strings are excluded, which is slower.
    """
    marks = 0
    for at in range(0, len(raw), _PIECE):
        piece = raw[at : at + _PIECE]
        marks += piece.count(b",") + piece.count(b"[") + piece.count(b"{")
    return marks >= most and _values(raw, most) > most


def _values(raw: bytes, most: int) -> int:
    """Count values outside strings: one, plus one for every comma and every opening bracket. Stops beyond `most`."""
    found, inside, at = 1, False, 0
    while at < len(raw) and found <= most:
        end = _ESCAPE_AT_END.match(raw, min(at + _PIECE, len(raw)) - 1).end()  # type: ignore[union-attr]
        for text in raw[at:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"'):
            if not inside:
                found += text.count(b",") + text.count(b"[") + text.count(b"{")
            inside = not inside
        inside = not inside  # the last part continues in the next piece
        at = end
    return found


_PIECE = 64 * 1024
"""Bytes counted in one call, between which other threads can run."""
_ESCAPE_AT_END = re.compile(rb"\\*.?", re.DOTALL)
"""Matches from the last byte of a piece to the end of an escape that begins there, or of that byte."""
