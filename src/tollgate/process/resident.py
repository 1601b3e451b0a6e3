"""What stays resident where Python's own allocator has no say: the C library's heap, and the code of libraries.

DuckDB, orjson and every buffer over 512 bytes live in that heap. On a system without these calls, nothing happens.
"""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path

_M_ARENA_MAX = -8  # malloc.h
_MADV_DONTNEED = 4  # sys/mman.h
_MAPPINGS = Path("/proc/self/smaps")


def one_heap() -> None:
    """Have all threads share one heap: glibc gives each its own,
    and DuckDB's and the journal's would keep 10 MB between them."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def trim() -> None:
    """Give free pages back to the system, also those between used ones.

    Takes some milliseconds after much work, and every thread that wants memory waits meanwhile.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def drop_code(mappings: Path = _MAPPINGS) -> None:
    """Take libraries' code out of what this process has resident (10 MB after a start, DuckDB's most of it): what is
    still used comes back from the page cache when it is called next.

    `mappings` lists them, as proc_pid_smaps(5) describes it. Code that was written to stays (by whatever put it
    right for this process): it would come back as it stands in the file.
    """
    with contextlib.suppress(OSError, AttributeError):
        advise = ctypes.CDLL(None).madvise
        code: tuple[int, int] | None = None
        for line in mappings.read_text().splitlines():
            name, *words = line.split(None, 5)
            if not name.endswith(":"):  # a mapping begins, what is known of it follows
                start, end = (int(part, 16) for part in name.split("-"))
                code = (start, end - start) if words[0] == "r-xp" and words[-1].startswith("/") else None
            elif code is not None and name == "Private_Dirty:" and words[0] == "0":
                advise(ctypes.c_void_p(code[0]), ctypes.c_size_t(code[1]), _MADV_DONTNEED)
