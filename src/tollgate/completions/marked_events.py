"""Finding the few stream events that must be parsed among the many that need not be.

A block of stream bytes is cut into runs of whole events without a mark, which pass unchanged, and runs of events that
each contain a mark. A mark is a plain substring; each one is searched for once per block.
"""

from __future__ import annotations

from collections.abc import Sequence


def split_at_marks(block: bytes, marks: Sequence[bytes]) -> tuple[list[tuple[bool, bytes]], bytes]:
    """Cut `block` (which begins at an event's first byte, line ends are line feeds) into ((marked, bytes), ...) and the
    unfinished event at its end.

    split_at_marks(b"a\\n\\nb\\n\\nX\\n\\nc", [b"X"]) -> ([(False, b"a\\n\\nb\\n\\n"), (True, b"X\\n\\n")], b"c")
    """
    last = block.rfind(b"\n\n") + 2
    if last < 2:
        return [], block
    begins: set[int] = set()
    for mark in marks:
        # from the end: marks are usually there, and CPython's `rfind` is three times as fast as its `find`
        at = block.rfind(mark, 0, last)
        while at >= 0:
            begin = block.rfind(b"\n\n", 0, at) + 2
            if begin < 2:
                begin = 0
            begins.add(begin)
            at = block.rfind(mark, 0, begin)
    if not begins:
        return [(False, block[:last] if last != len(block) else block)], block[last:]
    cut: list[tuple[bool, bytes]] = []
    start = at = 0
    for begin in sorted(begins):
        if begin > at:
            if at > start:
                cut.append((True, block[start:at]))
            cut.append((False, block[at:begin]))
            start = begin
        at = block.find(b"\n\n", begin, last) + 2
    cut.append((True, block[start:at]))
    if at < last:
        cut.append((False, block[at:last]))
    return cut, block[last:]
