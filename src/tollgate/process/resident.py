"""The process's resident memory: less of it outside Python's own allocator (the C library's heap, and the code of
libraries), and large pages for what is in use.

DuckDB, orjson and every buffer over 512 bytes use the C library's heap. Systems without these calls are left as they
are.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from pathlib import Path

_M_ARENA_MAX = -8  # malloc.h
_MADV_DONTNEED = 4  # sys/mman.h
_MADV_COLLAPSE = 25  # Linux 6.1
_MAPPINGS = Path("/proc/self/smaps")
_ADDRESSES = Path("/proc/self/maps")
_LARGE_PAGE_BYTES = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
_LEAST_USED = 0.94
"""The share of a large page that must be resident already, so that large pages take hardly any memory more."""


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


def use_large_pages(mappings: Path = _ADDRESSES, size: Path = _LARGE_PAGE_BYTES) -> None:
    """Move memory that is nearly all in use into large pages (of 2 MB, most often).

    After a pause, a request has to look up the address of every page that it uses, which takes twice as long in a
    virtual machine: with large pages, one of 40 a second takes 7 % less CPU time.

    `mappings` is a file in the format of proc_pid_maps(5), `size` one with the bytes of a large page.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        length = int(size.read_text())
        in_use = ctypes.create_string_buffer(length // mmap.PAGESIZE)
        for line in mappings.read_text().splitlines():
            addresses, access, _, _, file, *_ = line.split(None, 5)
            if access != "rw-p" or file != "0":
                continue
            start, end = (int(part, 16) for part in addresses.split("-"))
            for address in range(-(-start // length) * length, end - length + 1, length):
                page = ctypes.c_void_p(address), ctypes.c_size_t(length)
                if library.mincore(*page, in_use) == 0 and in_use.raw.count(1) >= _LEAST_USED * len(in_use):
                    library.madvise(*page, _MADV_COLLAPSE)
