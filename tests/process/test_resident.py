"""The C library is asked politely: where a call is missing, nothing happens."""

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tollgate.ledger.store import Store
from tollgate.process import resident

glibc = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc"
)

ARENAS = """
import ctypes, threading
from tollgate.process import resident
resident.one_heap()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
here = libc.malloc(4000) >> 32
there = []
thread = threading.Thread(target=lambda: there.append(libc.malloc(4000) >> 32))
thread.start(); thread.join()
print(here == there[0])
"""


def ran(program: str) -> str:
    """What a program prints in a process of its own."""
    where = {**os.environ, "PYTHONPATH": str(Path(resident.__file__).parents[1])}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=where).stdout


def pages() -> int:
    """How many pages this process has resident."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])


def pages_given_back_by(give_back: Callable[[], None]) -> int:
    """How many of 10,000 freed pages are not this process's any more after a call."""
    kept = [bytes(2000) for _ in range(20_000)]
    last = kept[-1]  # stays in use above the freed ones, so that the heap cannot simply end earlier
    before = pages()
    kept.clear()
    give_back()
    assert len(last) == 2000
    return before - pages()


@glibc
def test_threads_share_one_heap() -> None:
    assert ran(ARENAS).strip() == "True"


@glibc
def test_freed_memory_goes_back_to_the_system() -> None:
    assert pages_given_back_by(resident.trim) > 5000


@glibc
def test_a_store_that_lets_go_of_its_pages_gives_freed_memory_back_too(tmp_path) -> None:
    store = Store(tmp_path / "ledger.duckdb")
    store.open()

    def let_go() -> None:  # until DuckDB trims again: at most ten times a second, and opening may have been one
        before, ends = pages(), time.monotonic() + 10
        while before - pages() < 5000 and time.monotonic() < ends:
            store.let_go()

    assert pages_given_back_by(let_go) > 5000
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
    before, after, called = ran(DROPPED).split(maxsplit=2)
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
    """A C library that notes what it is asked for; it has none of the `missing` calls."""

    def __init__(self, *missing: str) -> None:
        self.missing = missing
        self.asked: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name in self.missing:
            raise AttributeError(name)
        return lambda *args: self.asked.append((name, *(getattr(each, "value", each) for each in args)))


@pytest.mark.parametrize(
    ("mapped", "advised"),
    [
        pytest.param(MAPPED, [("madvise", 0x10000, 0x3000, 4)], id="code of files that nothing was written to"),
        pytest.param(None, [], id="no mappings are told"),
    ],
)
def test_code_is_dropped_as_it_stands_in_its_file(tmp_path, monkeypatch, mapped, advised) -> None:
    library = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    if mapped is not None:
        (tmp_path / "smaps").write_text(mapped)
    resident.drop_code(tmp_path / "smaps")
    assert library.asked == advised


@pytest.mark.parametrize("missing", [(), ("mallopt",), ("malloc_trim",), ("madvise",)], ids=str)
def test_what_a_c_library_lacks_is_left_out(monkeypatch, missing) -> None:
    library = Library(*missing)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    resident.one_heap()
    resident.trim()
    resident.drop_code(Path(os.devnull))
    assert library.asked == [call for call in [("mallopt", -8, 1), ("malloc_trim", 0)] if call[0] not in missing]


def test_another_c_library_is_left_alone(monkeypatch) -> None:
    asked = []

    def none_such(name):
        asked.append(name)
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", none_such)
    resident.one_heap()
    resident.trim()
    resident.drop_code()
    assert asked == [None, None, None]
