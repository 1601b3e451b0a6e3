"""The C library is asked politely: where a call is missing, nothing happens."""

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tollgate import resident
from tollgate.ledger.store import Store

glibc = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc"
)

ARENAS = """
import ctypes, threading
from tollgate import resident
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
import duckdb
from tollgate import resident

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


def test_where_mappings_are_not_told_no_code_is_dropped(tmp_path) -> None:
    resident.drop_code(tmp_path / "none")


def test_another_c_library_is_left_alone(monkeypatch) -> None:
    def none_such(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", none_such)
    resident.one_heap()
    resident.trim()
    resident.drop_code()
