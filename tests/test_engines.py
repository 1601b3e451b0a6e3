"""The configured HTTP server, and how each treats idle connections. test_serving.py and conformance/ test requests."""

import asyncio
import contextlib
import socket
import sys
from typing import Any

import h2.connection
import h2.events
import pytest
import uvloop

from engines.served import Served
from tollgate.config.settings import Server
from tollgate.engines import engine_of
from tollgate.errors import TollgateError

KEPT = 0.4
"""Seconds that an idle connection is kept in these tests."""


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] != "/early":
        message = await receive()
        while scope["method"] == "POST" and message.get("more_body", False):
            message = await receive()
    if scope["path"] == "/slow":
        await asyncio.sleep(2 * KEPT)
    body = b"ok" if scope["path"] != "/large" else bytes(30_000_000)  # more than socket buffers hold
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]}
    )
    await send({"type": "http.response.body", "body": body})


@pytest.fixture(params=["hypercorn", "uvicorn"])
async def served(request, monkeypatch):
    monkeypatch.setattr("tollgate.engines.http1.KEEP_ALIVE_SECONDS", KEPT)
    running = Served(application, request.param)
    await running.connect()
    yield running
    running.writer.close()
    running.stop.set()
    await asyncio.wait_for(running.task, 30)


async def test_a_connection_stays_open_while_used_and_closes_when_idle(served):
    for _ in range(3):
        assert await served.get() == b"ok"
        await asyncio.sleep(KEPT / 2)
    assert await served.get("/slow") == b"ok"  # longer than the idle time
    assert await served.get() == b"ok"
    assert await served.closed_after() > KEPT / 2


async def test_the_first_request_may_take_longer_than_the_idle_time(served):
    assert await served.get("/slow") == b"ok"
    assert await served.get() == b"ok"


async def test_a_connection_without_a_request_is_closed(served):
    assert await served.closed_after() > KEPT / 2


async def test_all_requests_of_a_connection_use_one_task(served):
    assert await served.get() == b"ok"
    before = asyncio.all_tasks()
    for _ in range(5):
        assert await served.get() == b"ok"
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("name", ["hypercorn", "uvicorn"])
@pytest.mark.parametrize("address", ["*:0", ":0", "0.0.0.0:0", "localhost:00"])
def test_any_notation_of_a_port_is_bound_and_reported(name, address):
    [bound] = engine_of(Server(engine=name, bind=(address,))).bind()
    host, _, port = bound.rpartition(":")
    assert host == address.rpartition(":")[0] and int(port)


@pytest.mark.parametrize("name", ["hypercorn", "uvicorn"])
async def test_an_idle_connection_closes_when_the_engine_stops(name):
    running = Served(application, name)  # keeps idle connections for more than a minute
    await running.connect()
    assert await running.get() == b"ok"
    running.stop.set()
    async with asyncio.timeout(20):
        assert await running.reader.read() == b""
        running.writer.close()
        await running.task


@pytest.mark.parametrize("name", ["hypercorn", "uvicorn"])
def test_a_client_that_does_not_read_delays_the_stop_by_the_drain_time_at_most(name, caplog):
    async def ended():
        running = Served(application, name, drain_seconds=0.1)
        await running.connect()
        running.writer.write(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n")
        await running.reader.readuntil(b"\r\n\r\n")
        running.stop.set()
        done, _ = await asyncio.wait([running.task], timeout=30)
        running.writer.transport.abort()
        return done

    # since Python 3.12, a server of asyncio's own loop waits for such a client
    assert uvloop.run(ended()) and "Traceback" not in caplog.text


@pytest.mark.parametrize("name", ["hypercorn", "uvicorn"])
def test_the_drain_time_is_that_of_the_stop_and_not_of_the_start(name):
    """A reload may have changed it."""

    async def answered():
        running = Served(application, name, drain_seconds=0.01)
        await running.connect()
        running.writer.write(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n")
        await asyncio.sleep(0.2)  # until it runs
        running.engine.drain_seconds = 30
        running.stop.set()
        got = await running.reader.read()
        running.writer.close()
        await asyncio.wait_for(running.task, 30)
        return got

    assert uvloop.run(answered()).endswith(b"\r\n\r\nok")


@pytest.mark.parametrize("name", ["hypercorn", "uvicorn"])
def test_a_connection_whose_client_never_reads_is_closed(name, monkeypatch, caplog):
    monkeypatch.setattr("tollgate.engines.http1.STUCK_SECONDS", 0.6)
    monkeypatch.setattr("tollgate.engines.http1.KEEP_ALIVE_SECONDS", 0.6)

    async def never_reading():
        running = Served(application, name)
        await running.connect()
        running.writer.write(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n")
        await running.reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(1.2)
        with contextlib.suppress(ConnectionResetError):
            assert len(await asyncio.wait_for(running.reader.read(), 30)) < 30_000_000
        running.writer.close()
        running.stop.set()
        await asyncio.wait_for(running.task, 30)

    uvloop.run(never_reading())  # the event loop used in production
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("served", ["hypercorn"], indirect=True)
async def test_hypercorn_serves_http2_with_prior_knowledge(served):
    client = h2.connection.H2Connection()
    client.initiate_connection()
    client.send_headers(
        1, [(":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", "a")], end_stream=True
    )
    served.writer.write(client.data_to_send())
    found: list[Any] = []
    async with asyncio.timeout(30):
        while not any(isinstance(event, h2.events.StreamEnded) for event in found):
            found += client.receive_data(await served.reader.read(65536))
            served.writer.write(client.data_to_send())
    assert b"".join(event.data for event in found if isinstance(event, h2.events.DataReceived)) == b"ok"


async def test_a_websocket_upgrade_is_ignored(served, caplog):
    served.writer.write(
        b"GET / HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    async with asyncio.timeout(30):
        assert (await served.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert await served.reader.readexactly(2) == b"ok"
    assert await served.get() == b"ok" and caplog.text == ""


@pytest.mark.parametrize("header", [b"upgrade: websocket", b"UPGRADE: h2c, x"])
async def test_the_body_behind_an_upgrade_header_is_read(served, header):
    served.writer.write(
        b"POST / HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\n%b\r\ncontent-length: 3\r\n\r\nabcGET / "
        b"HTTP/1.1\r\nhost: a\r\n\r\n" % header
    )
    async with asyncio.timeout(30):
        for _ in range(2):
            await served.reader.readuntil(b"\r\n\r\n")
            assert await served.reader.readexactly(2) == b"ok"


async def test_an_upgrade_header_inside_a_body_is_ignored(served):
    """If it were removed from the body, the start of the next request would be read as the body's end; behind a proxy,
    that is another client's request."""
    body = b"\r\nupgrade: h2c\r\n"
    served.writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    async with asyncio.timeout(30):
        await served.reader.readuntil(b"\r\n\r\n")
        assert await served.reader.readexactly(2) == b"ok" and await served.get() == b"ok"


@pytest.mark.parametrize(
    ("head", "status"),
    [(b"host: a\r\nhost: b", b"400"), (b"x: y", b"400"), (b"host: a\r\ntransfer-encoding: gzip, chunked", b"501")],
    ids=["two hosts", "no host", "an unsupported transfer coding"],
)
async def test_an_invalid_head_is_rejected(served, head, status):
    served.writer.write(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % head)
    async with asyncio.timeout(30):
        assert (await served.reader.read()).split(b" ")[1] == status


async def test_an_endless_body_after_the_response_ends_with_the_connection(served):
    served.writer.write(b"POST /early HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\nabc")
    received = b""
    async with asyncio.timeout(30):
        while not served.reader.at_eof():
            served.writer.write(b"x")
            with contextlib.suppress(TimeoutError):
                received += await asyncio.wait_for(served.reader.read(1000), KEPT / 4)
    assert received.startswith(b"HTTP/1.1 200 ") and received.endswith(b"\r\n\r\nok")


async def test_pipelined_requests_are_answered_in_order(served):
    served.writer.write(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n" + b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * 2)
    for _ in range(3):
        await served.reader.readuntil(b"\r\n\r\n")
        assert await served.reader.readexactly(2) == b"ok"


async def test_head_and_body_are_sent_in_one_write(served):
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", served.port))
        await loop.sock_sendall(client, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        response = await loop.sock_recv(client, 65536)
    assert response.startswith(b"HTTP/1.1 200 OK\r\n") and response.endswith(b"\r\n\r\nok")


def test_an_engine_that_is_not_installed_is_reported_at_once(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "tollgate.engines.uvicorn", raising=False)
    with pytest.raises(
        TollgateError, match=r"server\.engine is uvicorn, and uvicorn is not installed: pip install uvicorn"
    ):
        engine_of(Server(engine="uvicorn"))


async def test_a_body_that_is_too_slow_closes_the_connection(served):
    served.writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\nx")

    async def trickle():
        while True:
            await asyncio.sleep(KEPT / 8)
            served.writer.write(b"x")

    trickling = asyncio.create_task(trickle())
    try:
        async with asyncio.timeout(30):
            with contextlib.suppress(ConnectionResetError):
                assert b" 200 " not in await served.reader.read()
    finally:
        trickling.cancel()


async def test_a_slow_body_above_the_minimum_pace_is_read(served, monkeypatch):
    monkeypatch.setattr("tollgate.engines.http1.SLOWEST_BYTES", 1)
    served.writer.write(b"POST /whole HTTP/1.1\r\nhost: a\r\ncontent-length: 60\r\n\r\n")
    for _ in range(60):
        served.writer.write(b"x")
        await asyncio.sleep(KEPT / 16)
    async with asyncio.timeout(30):
        assert b" 200 " in await served.reader.readline()
