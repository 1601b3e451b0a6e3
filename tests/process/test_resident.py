"""Calls into the C library; missing functions are skipped."""

import ctypes
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from tollgate.ledger.store import Store
from tollgate.process import resident

glibc = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc"
)

ARENAS = """
import ctypes, threading
from tollgate.process import resident
resident.use_one_heap()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
here = libc.malloc(4000) >> 32
there = []
thread = threading.Thread(target=lambda: there.append(libc.malloc(4000) >> 32))
thread.start(); thread.join()
print(here == there[0])
"""


def run(program: str) -> str:
    """What a program prints when run in its own process."""
    where = {**os.environ, "PYTHONPATH": str(Path(resident.__file__).parents[2])}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=where).stdout


def pages() -> int:
    """The number of resident pages of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])


def pages_released_by(give_back: Callable[[], None]) -> int:
    """How many of 10,000 freed pages are returned to the system by a call."""
    kept = [bytes(2000) for _ in range(20_000)]
    last = kept[-1]  # stays in use above the freed pages, so that the heap cannot simply shrink
    before = pages()
    kept.clear()
    give_back()
    assert len(last) == 2000
    return before - pages()


@glibc
def test_threads_share_one_heap() -> None:
    assert run(ARENAS).strip() == "True"


@glibc
def test_freed_memory_is_returned_to_the_system() -> None:
    assert pages_released_by(resident.trim) > 5000


@glibc
def test_a_store_that_releases_its_pages_returns_freed_memory(tmp_path) -> None:
    store = Store(tmp_path / "ledger.duckdb")
    store.open()

    def let_go() -> None:  # DuckDB trims at most ten times a second, and opening may have been such a time
        before, ends = pages(), time.monotonic() + 10
        while before - pages() < 5000 and time.monotonic() < ends:
            store.let_go()

    assert pages_released_by(let_go) > 5000
    store.close()


DROPPED = """
import os
import _duckdb, duckdb
from tollgate.process import resident

with open(_duckdb.__file__, "rb") as library:
    os.fsync(library.fileno())  # just installed, it is not on the disk yet, which looks like code that was written to

def code():
    lines = iter(open("/proc/self/smaps"))
    return sum(int(next(line for line in lines if line.startswith("Rss:")).split()[1])
               for line in lines if " r-xp " in line and "duckdb" in line)

duckdb.sql("SELECT 1").fetchall()
before = code()
resident.drop_code()
print(before, code(), duckdb.sql("SELECT 2").fetchall())
"""


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="not Linux")
def test_dropped_code_is_not_resident_until_it_is_called() -> None:
    before, after, called = run(DROPPED).split(maxsplit=2)
    assert int(after) < int(before) / 10
    assert called.strip() == "[(2,)]"


MAPPED = """\
10000-13000 r-xp 00000000 08:01 11 /lib/clean.so
Rss:                  12 kB
Private_Dirty:         0 kB
20000-21000 r-xp 00000000 08:01 12 /lib/put right.so
Private_Dirty:         4 kB
30000-31000 rw-p 00000000 08:01 11 /lib/clean.so
Private_Dirty:         0 kB
40000-41000 r-xp 00000000 00:00 0 [vdso]
Private_Dirty:         0 kB
50000-51000 r-xp 00000000 00:00 0
Private_Dirty:         0 kB
"""


class Library:
    """A C library that records its calls. It lacks the `missing` functions."""

    def __init__(self, *missing: str) -> None:
        self.missing = missing
        self.calls: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name in self.missing:
            raise AttributeError(name)
        return lambda *args: self.calls.append((name, *(getattr(each, "value", each) for each in args)))


@pytest.mark.parametrize(
    ("mapped", "advised"),
    [
        pytest.param(MAPPED, [("madvise", 0x10000, 0x3000, 4)], id="code of unmodified files"),
        pytest.param(None, [], id="no list of mappings"),
    ],
)
def test_only_unmodified_code_of_files_is_dropped(tmp_path, monkeypatch, mapped, advised) -> None:
    library = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    if mapped is not None:
        (tmp_path / "smaps").write_text(mapped)
    resident.drop_code(tmp_path / "smaps")
    assert library.calls == advised


LARGE = """
from tollgate.process import resident

def large():
    return sum(int(line.split()[1]) for line in open("/proc/self/smaps") if line.startswith("AnonHugePages:"))

kept = [bytes(400) for _ in range(50_000)]
before = large()
resident.use_large_pages()
print(large() - before, kept == [bytes(400)] * 50_000)
"""


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="not Linux")
def test_memory_in_use_moves_to_large_pages() -> None:
    kilobytes, same = run(LARGE).split()
    assert same == "True"
    if kilobytes == "0":
        pytest.skip("this system has no large pages on request, or none is free")
    assert int(kilobytes) >= 2048


def test_only_private_memory_that_is_nearly_all_resident_moves_to_large_pages(tmp_path, monkeypatch) -> None:
    class Memory:
        """A C library that finds as many pages of each large page in use as `resident` says."""

        resident: ClassVar = {0x200000: 512, 0x400000: 482, 0x600000: 481, 0x1000000: 512}
        moved: ClassVar[list[tuple[int, int, int]]] = []

        def mincore(self, start, length, in_use) -> int:
            if start.value not in self.resident:
                return -1
            in_use.raw = bytes([1] * self.resident[start.value]).ljust(len(in_use), b"\0")
            return 0

        def madvise(self, start, length, advice) -> None:
            self.moved.append((start.value, length.value, advice))

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Memory())
    monkeypatch.setattr(mmap, "PAGESIZE", 4096)
    (tmp_path / "size").write_text("2097152\n")
    (tmp_path / "maps").write_text(
        "1ff000-9ff000 rw-p 00000000 00:00 0                          [heap]\n"  # 8 to 9f lies in no whole large page
        "1000000-1200000 rw-p 00000000 08:01 12                         /lib/some.so\n"
        "1000000-1200000 r--p 00000000 00:00 0\n"
    )
    resident.use_large_pages(tmp_path / "maps", tmp_path / "size")
    assert Memory.moved == [(0x200000, 0x200000, 25), (0x400000, 0x200000, 25)]


@pytest.mark.parametrize("missing", [(), ("mallopt",), ("malloc_trim",), ("madvise",), ("mincore",)], ids=str)
def test_functions_missing_from_the_c_library_are_skipped(monkeypatch, missing) -> None:
    library = Library(*missing)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    resident.use_one_heap()
    resident.trim()
    resident.drop_code(Path(os.devnull))
    resident.use_large_pages(Path("/proc/self/maps"))
    changes = [call for call in library.calls if call[0] != "mincore"]
    assert changes == [call for call in [("mallopt", -8, 1), ("malloc_trim", 0)] if call[0] not in missing]


def test_a_c_library_that_cannot_be_loaded_is_ignored(monkeypatch) -> None:
    loaded = []

    def none_such(name):
        loaded.append(name)
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", none_such)
    resident.use_one_heap()
    resident.trim()
    resident.drop_code()
    resident.use_large_pages()
    assert loaded == [None, None, None, None]
