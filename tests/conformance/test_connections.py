"""A client's connection to a gateway in its own process, on either engine: what may be sent on it, how much, and when
it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re

import pytest

from conformance.requests import CHAT, chat, stats
from support.client import Raw
from support.waiting import until

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"


def sockets(pid: int) -> int:
    """The number of open sockets of a process."""
    found = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found += os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:")
        except FileNotFoundError:  # closed meanwhile
            pass
    return found


@pytest.mark.parametrize("sent", [b"", HEALTH, HEALTH[:20]], ids=["unused", "used", "half a request"])
async def test_a_connection_is_released_as_soon_as_its_client_has_closed_it(running, sent):
    await until(lambda: sockets(running.process.pid) < 60)
    before = sockets(running.process.pid)
    for _ in range(20):
        async with Raw(running.base, running.key) as client:
            client.writer.write(sent)
            if sent == HEALTH:
                await client.reader.readuntil(b'{"status":"ok"}')
    await until(lambda: sockets(running.process.pid) <= before, 20)  # an idle connection would be closed later


KEY = "authorization: Bearer KEY\r\n"
POST = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\n{KEY}transfer-encoding: chunked\r\n\r\n"
FLOODS = {
    "one header": ("GET / HTTP/1.1\r\nx: ", b"a" * 65536),
    "headers": ("GET / HTTP/1.1\r\n", b"x: a\r\n" * 10000),
    "an address": ("GET /", b"a" * 65536),
    "empty lines": ("", b"\r\n" * 30000),
    "a chunk's extension": (POST + "5;", b"a" * 65536),
    "trailers": (POST + "0\r\n", b"x: a\r\n" * 10000),
    "one trailer": (POST + "0\r\nx: ", b"a" * 65536),
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_data_beside_a_body_is_limited(running, flood):
    start, more = FLOODS[flood]
    sent = 0
    async with Raw(running.base, running.key) as client:
        with pytest.raises(ConnectionError):
            client.writer.write(start.replace("KEY", running.key).encode())
            while sent < 60_000_000:
                client.writer.write(more)
                await client.writer.drain()
                sent += len(more)
                await asyncio.sleep(0)
    assert sent < 30_000_000, "most of it is in the socket buffers"


async def test_a_request_with_two_lengths_is_rejected_and_the_rest_is_not_read(running):
    hidden = b"0\r\n\r\nGET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n"
    async with Raw(running.base, running.key) as client:
        client.writer.write(
            POST.replace("KEY", running.key).replace("\r\n\r\n", f"\r\ncontent-length: {len(hidden)}\r\n\r\n").encode()
            + hidden
        )
        response = await client.reader.read()
    assert re.findall(rb"HTTP/1.1 (\d+)", response) == [b"400"]


async def test_trailers_are_not_headers(running):
    body = b'{"model": "sandbox/echo", "messages": [{"role": "user", "content": "x"}]}'
    async with Raw(running.base, running.key) as client:
        client.writer.write(
            POST.replace("KEY", running.key).encode()
            + b"%x\r\n%b\r\n0\r\nauthorization: Bearer another\r\n\r\n" % (len(body), body)
        )
        assert (await client.head())[0] == 200


async def test_a_client_that_leaves_with_pipelined_requests_stops_the_upstream(running):
    before, logged = stats(running), len(running.log.read_text())
    async with Raw(running.base, running.key) as client:
        await client.send(CHAT, chat("[[delay=30s]] x", model="remote/echo", stream=False))
        client.writer.write(HEALTH * 3)
        await until(lambda: stats(running)["running"] > before["running"])
    await until(
        lambda: stats(running)["aborted"] == before["aborted"] + 1 and stats(running)["running"] == before["running"]
    )
    assert "Traceback" not in running.log.read_text()[logged:]


async def test_data_after_an_http2_error_causes_no_traceback(running):
    logged = len(running.log.read_text())
    mistake = b"\0\0\4\x08\0\0\0\0\1\0\0\0\1"  # WINDOW_UPDATE of a stream that was never opened
    async with Raw(running.base, running.key) as client:
        client.writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0" + mistake * 3000)
        with contextlib.suppress(ConnectionError):
            await client.reader.read()
    async with Raw(running.base, running.key) as client:
        client.writer.write(HEALTH)
        await client.reader.readuntil(b'{"status":"ok"}')
    assert running.log.read_text()[logged:] == ""
