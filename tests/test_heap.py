"""The C library's heap is asked politely: where a call is missing, nothing happens."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tollgate import heap

glibc = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc"
)

ARENAS = """
import ctypes, threading
from tollgate import heap
heap.one_heap()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
here = libc.malloc(4000) >> 32
there = []
thread = threading.Thread(target=lambda: there.append(libc.malloc(4000) >> 32))
thread.start(); thread.join()
print(here == there[0])
"""


@glibc
def test_threads_share_one_heap() -> None:
    where = {**os.environ, "PYTHONPATH": str(Path(heap.__file__).parents[1])}
    told = subprocess.run([sys.executable, "-c", ARENAS], capture_output=True, text=True, check=True, env=where)
    assert told.stdout.strip() == "True"


@glibc
def test_freed_memory_goes_back_to_the_system() -> None:
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1])

    kept = [bytes(2000) for _ in range(20_000)]
    last = kept[-1]  # stays in use above the freed ones, so that the heap cannot simply end earlier
    before = resident()
    kept.clear()
    heap.trim()
    assert resident() < before - 5000
    assert len(last) == 2000


def test_another_c_library_is_left_alone(monkeypatch) -> None:
    def none_such(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", none_such)
    heap.one_heap()
    heap.trim()
