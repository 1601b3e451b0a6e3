"""Reduces resident memory outside Python's own allocator: the C library's heap, and the code of libraries.

DuckDB, orjson and every buffer over 512 bytes use that heap. On systems without these calls, nothing happens.
"""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path

_M_ARENA_MAX = -8  # malloc.h
_MADV_DONTNEED = 4  # sys/mman.h
_MAPPINGS = Path("/proc/self/smaps")


def use_one_heap() -> None:
    """Make all threads share one heap (malloc arena). With glibc each thread has its own, and those of DuckDB and the
    journal would keep 10 MB in total."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def trim() -> None:
    """Return free pages of the heap to the system, including those between used ones.

    This may take some milliseconds, during which every thread that allocates memory waits.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def drop_code(mappings: Path = _MAPPINGS) -> None:
    """Drop the code of libraries from resident memory (10 MB after a start, most of it DuckDB's). Code that runs again
    is loaded from the page cache.

    `mappings` is a file in the format of proc_pid_smaps(5). Code that was changed in memory (such as by relocation) is
    kept, because the change would be lost.
    """
    with contextlib.suppress(OSError, AttributeError):
        advise = ctypes.CDLL(None).madvise
        code: tuple[int, int] | None = None
        for line in mappings.read_text().splitlines():
            name, *words = line.split(None, 5)
            if not name.endswith(":"):  # the first line of a mapping; its attributes follow
                start, end = (int(part, 16) for part in name.split("-"))
                code = (start, end - start) if words[0] == "r-xp" and words[-1].startswith("/") else None
            elif code is not None and name == "Private_Dirty:" and words[0] == "0":
                advise(ctypes.c_void_p(code[0]), ctypes.c_size_t(code[1]), _MADV_DONTNEED)
