"""Finding the few events of a stream that matter without looking at the many that do not.

A block of stream bytes is cut into pieces: runs of whole events that hold none of the marks (they may pass as they
are), and single events that hold one. Each mark is a plain substring search that runs over the bytes once.
"""

from __future__ import annotations

from collections.abc import Sequence

_NOWHERE = 1 << 62


def pieces(block: bytes, marks: Sequence[bytes]) -> tuple[list[tuple[bool, bytes]], bytes]:
    """Cut `block` (which begins at an event's first byte, line ends are line feeds) into ((marked, bytes), ...) and the
    unfinished event at its end.

    pieces(b"a\\n\\nb\\n\\nX\\n\\nc", [b"X"]) -> ([(False, b"a\\n\\nb\\n\\n"), (True, b"X\\n\\n")], b"c")
    """
    last = block.rfind(b"\n\n") + 2
    if last < 2:
        return [], block
    found = [block.find(mark, 0, last) for mark in marks]
    nearest = min((at for at in found if at >= 0), default=-1)
    if nearest < 0:
        return [(False, block[:last] if last != len(block) else block)], block[last:]
    cut: list[tuple[bool, bytes]] = []
    places = [at if at >= 0 else _NOWHERE for at in found]
    at = 0
    while nearest < last:
        begin = block.rfind(b"\n\n", at, nearest) + 2
        if begin < 2:
            begin = at
        elif begin > at:
            cut.append((False, block[at:begin]))
        at = block.find(b"\n\n", nearest, last) + 2
        cut.append((True, block[begin:at]))
        for index, place in enumerate(places):
            if place < at:
                later = block.find(marks[index], at, last)
                places[index] = later if later >= 0 else _NOWHERE
        nearest = min(places)
    if at < last:
        cut.append((False, block[at:last]))
    return cut, block[last:]
