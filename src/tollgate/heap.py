"""The C library's heap: what keeps a gateway's memory flat where Python's own allocator has no say.

DuckDB, orjson and every buffer over 512 bytes live there. On a C library without these calls, nothing happens.
"""

from __future__ import annotations

import contextlib
import ctypes

_M_ARENA_MAX = -8  # malloc.h


def one_heap() -> None:
    """Have all threads share one heap: glibc gives each its own,
    and DuckDB's and the journal's would keep 10 MB between them."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def trim() -> None:
    """Give free pages back to the system, also those between used ones. Takes a few tenths of a millisecond."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
