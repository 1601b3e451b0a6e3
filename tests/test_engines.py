"""Which HTTP server the settings ask for, and what each does with idle connections; how both serve: test_serving.py and
conformance/."""

import asyncio
import contextlib
import socket
import sys
from typing import Any

import h2.connection
import h2.events
import pytest
import uvloop

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
    body = b"ok" if scope["path"] != "/large" else bytes(30_000_000)  # more than sockets hold
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]}
    )
    await send({"type": "http.response.body", "body": body})


class Served:
    """The application behind an engine, and what is asked of it over one connection."""

    def __init__(self, name: str, drain_seconds: float = 1) -> None:
        self.stop = asyncio.Event()
        self.engine = engine_of(Server(engine=name, bind=("127.0.0.1:0",), drain_seconds=drain_seconds))
        [address] = self.engine.bind()
        self.port = int(address.removeprefix("127.0.0.1:"))  # the one that was had
        self.task = asyncio.create_task(self.engine.serve(application, self.stop.wait, lambda: None))  # type: ignore[arg-type]

    async def connect(self) -> None:
        async with asyncio.timeout(5):
            while True:
                try:
                    self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
                    return
                except ConnectionRefusedError:
                    await asyncio.sleep(0.01)

    async def ask(self, path: str = "/") -> bytes:
        self.writer.write(b"GET %b HTTP/1.1\r\nhost: a\r\n\r\n" % path.encode())
        await self.reader.readuntil(b"\r\n\r\n")
        return await self.reader.readexactly(2)

    async def closed_after(self) -> float:
        """Seconds until the engine closes the connection; fails where it does not."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.timeout(30):  # a busy machine takes its time
            assert await self.reader.read() == b""
        return loop.time() - began


@pytest.fixture(params=["hypercorn", "uvicorn"])
async def served(request, monkeypatch):
    monkeypatch.setattr("tollgate.engines.http1.KEEP_ALIVE_SECONDS", KEPT)
    here = Served(request.param)
    await here.connect()
    yield here
    here.writer.close()
    here.stop.set()
    await asyncio.wait_for(here.task, 5)


async def test_a_connection_is_kept_while_it_is_of_use_and_closed_when_it_is_not(served):
    for _ in range(3):
        assert await served.ask() == b"ok"
        await asyncio.sleep(KEPT / 2)
    assert await served.ask("/slow") == b"ok"  # longer than an idle connection is kept
    assert await served.ask() == b"ok"
    assert await served.closed_after() > KEPT / 2


async def test_the_first_request_may_take_longer_than_an_idle_connection_is_kept(served):
    assert await served.ask("/slow") == b"ok"
    assert await served.ask() == b"ok"


async def test_a_connection_that_asks_nothing_is_closed(served):
    await served.closed_after()


async def test_requests_of_one_connection_are_watched_by_one_task(served):
    assert await served.ask() == b"ok"
    before = asyncio.all_tasks()
    for _ in range(5):
        assert await served.ask() == b"ok"
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("name", ["hypercorn", "uvicorn"])
@pytest.mark.parametrize("address", ["*:0", ":0", "0.0.0.0:0", "localhost:00"])
def test_a_port_of_any_notation_is_taken_and_told(name, address):
    [taken] = engine_of(Server(engine=name, bind=(address,))).bind()
    host, _, port = taken.rpartition(":")
    assert host == address.rpartition(":")[0] and int(port)


@pytest.mark.parametrize("name", ["hypercorn", "uvicorn"])
async def test_an_idle_connection_ends_with_the_engine(name):
    here = Served(name)  # which keeps idle connections for more than a minute
    await here.connect()
    assert await here.ask() == b"ok"
    here.stop.set()
    async with asyncio.timeout(20):
        assert await here.reader.read() == b""
        here.writer.close()
        await here.task


@pytest.mark.parametrize("name", ["hypercorn", "uvicorn"])
def test_a_client_that_does_not_read_holds_the_end_up_no_longer_than_the_time_to_drain(name, caplog):
    async def ended():
        here = Served(name, drain_seconds=0.1)
        await here.connect()
        here.writer.write(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n")
        await here.reader.readuntil(b"\r\n\r\n")
        here.stop.set()
        done, _ = await asyncio.wait([here.task], timeout=30)
        here.writer.transport.abort()
        return done

    # since Python 3.12 a server of asyncio's own loop waits for such a client
    assert uvloop.run(ended()) and "Traceback" not in caplog.text


@pytest.mark.parametrize("name", ["hypercorn", "uvicorn"])
def test_a_client_that_never_reads_does_not_keep_its_connection(name, monkeypatch, caplog):
    monkeypatch.setattr("tollgate.engines.http1.STUCK_SECONDS", 0.1)
    monkeypatch.setattr("tollgate.engines.http1.KEEP_ALIVE_SECONDS", 0.1)

    async def never_reading():
        here = Served(name)
        await here.connect()
        here.writer.write(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n")
        await here.reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.4)
        with contextlib.suppress(ConnectionResetError):
            assert len(await asyncio.wait_for(here.reader.read(), 30)) < 30_000_000
        here.writer.close()
        here.stop.set()
        await asyncio.wait_for(here.task, 30)

    uvloop.run(never_reading())  # the loop that serves
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("served", ["hypercorn"], indirect=True)
async def test_http2_is_spoken_with_who_begins_so(served):
    client = h2.connection.H2Connection()
    client.initiate_connection()
    client.send_headers(
        1, [(":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", "a")], end_stream=True
    )
    served.writer.write(client.data_to_send())
    found: list[Any] = []
    async with asyncio.timeout(5):
        while not any(isinstance(event, h2.events.StreamEnded) for event in found):
            found += client.receive_data(await served.reader.read(65536))
            served.writer.write(client.data_to_send())
    assert b"".join(event.data for event in found if isinstance(event, h2.events.DataReceived)) == b"ok"


async def test_a_wish_for_a_web_socket_is_overlooked(served, caplog):
    served.writer.write(
        b"GET / HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    async with asyncio.timeout(5):
        assert (await served.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert await served.reader.readexactly(2) == b"ok"
    assert await served.ask() == b"ok" and caplog.text == ""


@pytest.mark.parametrize("wish", [b"upgrade: websocket", b"UPGRADE: h2c, x"])
async def test_what_follows_a_wish_is_read_whatever_protocol_it_is_for(served, wish):
    served.writer.write(
        b"POST / HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\n%b\r\ncontent-length: 3\r\n\r\nabcGET / "
        b"HTTP/1.1\r\nhost: a\r\n\r\n" % wish
    )
    async with asyncio.timeout(5):
        for _ in range(2):
            await served.reader.readuntil(b"\r\n\r\n")
            assert await served.reader.readexactly(2) == b"ok"


async def test_words_of_a_body_are_no_wish(served):
    """Were they taken out of it, the beginning of the next request would be read as its end: behind a proxy, that is
    another client's."""
    body = b"\r\nupgrade: h2c\r\n"
    served.writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    async with asyncio.timeout(5):
        await served.reader.readuntil(b"\r\n\r\n")
        assert await served.reader.readexactly(2) == b"ok" and await served.ask() == b"ok"


@pytest.mark.parametrize(
    "head",
    [b"host: a\r\nhost: b", b"x: y", b"host: a\r\ntransfer-encoding: gzip, chunked"],
    ids=["two hosts", "no host", "a coding nobody undoes"],
)
async def test_a_head_that_means_nothing_is_refused(served, head):
    served.writer.write(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % head)
    async with asyncio.timeout(5):
        assert (await served.reader.read()).split(b" ")[1] in (b"400", b"501")


async def test_a_body_that_goes_on_forever_behind_its_answer_ends_with_the_connection(served):
    served.writer.write(b"POST /early HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\nabc")
    async with asyncio.timeout(30):
        while not served.reader.at_eof():
            served.writer.write(b"x")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(served.reader.read(1000), KEPT / 4)


async def test_requests_sent_at_once_are_answered_one_after_another(served):
    served.writer.write(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n" + b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * 2)
    for _ in range(3):
        await served.reader.readuntil(b"\r\n\r\n")
        assert await served.reader.readexactly(2) == b"ok"


async def test_a_head_and_its_body_leave_in_one_piece(served):
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", served.port))
        await loop.sock_sendall(client, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        said = await loop.sock_recv(client, 65536)
    assert said.startswith(b"HTTP/1.1 200 OK\r\n") and said.endswith(b"\r\n\r\nok")


def test_an_engine_that_is_not_installed_is_told_before_anything_is_made(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "tollgate.engines.uvicorn", raising=False)
    with pytest.raises(
        TollgateError, match=r"server\.engine is uvicorn, and uvicorn is not installed: pip install uvicorn"
    ):
        engine_of(Server(engine="uvicorn"))


async def test_a_body_of_which_hardly_anything_comes_ends_with_its_connection(served):
    served.writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\nx")

    async def trickle():
        while True:
            await asyncio.sleep(KEPT / 8)
            served.writer.write(b"x")

    trickling = asyncio.create_task(trickle())
    try:
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionResetError):
                assert b" 200 " not in await served.reader.read()
    finally:
        trickling.cancel()


async def test_a_body_that_goes_on_may_take_its_time(served, monkeypatch):
    monkeypatch.setattr("tollgate.engines.body_pace.SLOWEST_BYTES", 1)
    served.writer.write(b"POST /whole HTTP/1.1\r\nhost: a\r\ncontent-length: 60\r\n\r\n")
    for _ in range(60):
        served.writer.write(b"x")
        await asyncio.sleep(KEPT / 16)
    async with asyncio.timeout(5):
        assert b" 200 " in await served.reader.readline()
