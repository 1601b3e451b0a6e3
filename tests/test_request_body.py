"""Decompressing the body of a request."""

import gzip
import random
import threading
import time

import pytest

from tollgate import request_body
from tollgate.errors import BadRequest, BodyTooLarge
from tollgate.request_body import unpacked
from tollgate.room import Room


async def unpacked_gzip(body: bytes, limit: int) -> bytes:
    return await unpacked(body, {"content-encoding": "gzip"}, limit, Room(limit).place())


async def test_a_gzip_body_of_many_members_is_bounded():
    assert await unpacked_gzip(
        b"".join(gzip.compress(bytes([n % 256]) * 10) for n in range(2000)), 100_000
    ) == b"".join(bytes([n % 256]) * 10 for n in range(2000))
    incompressible = random.Random(1).randbytes(300_000)
    assert await unpacked_gzip(gzip.compress(incompressible) * 2, 600_000) == incompressible * 2, (
        "members longer than a piece"
    )
    with pytest.raises(BodyTooLarge):
        await unpacked_gzip(gzip.compress(incompressible) * 2, 599_999)
    with pytest.raises(BodyTooLarge):
        await unpacked_gzip(gzip.compress(b" " * 60_000) * 1000, 100_000)
    began = time.process_time()
    with pytest.raises(BadRequest):
        await unpacked_gzip(gzip.compress(b"") * 400_000, 100_000)
    assert time.process_time() - began < 2


async def test_a_large_body_is_decompressed_in_a_thread(monkeypatch):
    threads = []

    def decompress(*args):
        threads.append(threading.current_thread())
        return b""

    monkeypatch.setattr(request_body, "_decompress", decompress)
    await unpacked_gzip(gzip.compress(random.Random(1).randbytes(2000)), 10_000)
    await unpacked_gzip(gzip.compress(b"{}"), 10_000)
    assert [thread is threading.main_thread() for thread in threads] == [False, True]
