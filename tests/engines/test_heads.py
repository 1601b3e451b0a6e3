"""How an answer is framed on uvicorn's connections, what of a head is refused, and how a client that leaves is told."""

import asyncio
import gc
import weakref
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from tollgate.engines.uvicorn import _Connection
from tollgate.http import Responder
from tollgate.services import Reply


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def writelines(self, pieces: Any) -> None:
        self.written += b"".join(pieces)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


def connected(application: Any) -> tuple[_Connection, Transport]:
    transport = Transport()
    connection = _Connection(Config(application, log_config=None, ws="none", lifespan="off"), ServerState(), {})
    connection.connection_made(transport)
    return connection, transport


async def answered(status: int, headers: list[tuple[bytes, bytes]], body: bytes, request: bytes = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n") -> tuple[bytes, bool]:
    """What a connection writes for a request whose application answers so, and whether it is closed then."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    connection, transport = connected(application)
    connection.data_received(request)
    while not connection.cycle.response_complete and not transport.closed:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    closed = transport.closed
    connection.connection_lost(None)
    return transport.written, closed


@pytest.mark.parametrize(("status", "headers", "body", "request_", "written", "closed"), [
    (200, [(b"content-length", b"2")], b"ok", b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", b"200 OK\r\ncontent-length: 2\r\n\r\nok", False),
    (200, [(b"a", b"b")], b"ok", b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", b"200 OK\r\na: b\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", False),
    (200, [(b"content-length", b"2")], b"ok", b"HEAD / HTTP/1.1\r\nhost: a\r\n\r\n", b"200 OK\r\ncontent-length: 2\r\n\r\n", False),
    (304, [(b"etag", b"x")], b"", b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", b"304 Not Modified\r\netag: x\r\n\r\n", False),
    (204, [], b"", b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", b"204 No Content\r\n\r\n", False),
    (200, [(b"content-length", b"2")], b"ok", b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", b"200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok", True),
    (200, [(b"content-length", b"2"), (b"connection", b"Close")], b"ok", b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", b"200 OK\r\ncontent-length: 2\r\nconnection: Close\r\n\r\nok", True),
    (200, [(b"content-length", b"2")], b"ok", b"GET / HTTP/1.0\r\n\r\n", b"200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok", True),
], ids=["of known length", "in chunks", "HEAD", "304", "204", "a client that wants the end", "an answer that is the last", "HTTP/1.0"])
async def test_an_answer_is_framed_as_its_head_says(status, headers, body, request_, written, closed):
    assert await answered(status, headers, body, request_) == (b"HTTP/1.1 " + written, closed)


@pytest.mark.parametrize("header", [(b"a", b"b\r\nset-cookie: c"), (b"a\nb", b"c"), (b"a", b"b\n")])
async def test_a_line_break_in_a_header_is_refused(header, caplog):
    written, _ = await answered(200, [header], b"ok")
    assert written.startswith(b"HTTP/1.1 500 ") and b"cookie" not in written
    assert "a header of an answer holds a line break" in caplog.text


async def test_a_client_that_leaves_ends_its_request_at_once_and_takes_no_task_to_be_watched():
    ends: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        responder = Responder(receive, send, [])
        responder.watch_client(scope)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("left" if responder.client_gone else "cancelled")
        finally:
            responder.close()

    tasks = asyncio.all_tasks()
    connection, _ = connected(application)
    connection.data_received(b"GET /1 HTTP/1.1\r\nhost: a\r\n\r\nGET /2 HTTP/1.1\r\nhost: a\r\n\r\n")  # the second waits for its turn
    await asyncio.sleep(0.06)
    assert len(asyncio.all_tasks() - tasks) == 1
    connection.connection_lost(None)
    await asyncio.sleep(0.01)
    assert ends == ["left"]


async def test_nothing_of_a_request_stays_until_the_collector_comes_by():
    class Kept:
        pass

    left = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        scope["kept"] = kept = Kept()
        left.append(weakref.ref(kept))
        responder = Responder(receive, send, [])
        responder.watch_client(scope)
        await responder.send(Reply(200, body=b"ok"))
        responder.close()

    connection, _ = connected(application)
    gc.disable()
    try:
        for _ in range(3):
            connection.data_received(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            while not connection.cycle.response_complete:
                await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert [ref() is None for ref in left] == [True, True, False]  # the last is the connection's until the next
    finally:
        gc.enable()
        connection.connection_lost(None)
