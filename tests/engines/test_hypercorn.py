"""What is specific to hypercorn: detecting HTTP/2 on a connection, and shutting such a connection down. HTTP/1:
test_http1.py."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from support.http1 import GET, Client, Transport
from support.waiting import until
from tollgate.engines import hypercorn as hypercorn_engine
from tollgate.engines.hypercorn import _Connection, _Host, _Http1

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class Opened(Client):
    """A connection whose first bytes decide its protocol."""

    def __init__(self) -> None:
        super().__init__()
        self.http2: list[bytes] = []
        self.host = _Host()
        self.connection: Any = _Http1(
            self.answer,
            self.host,
            asyncio.get_running_loop(),
            self.http2.append,  # type: ignore[arg-type]
        )
        self.transport = Transport()
        self.connection.connection_made(self.transport)


@pytest.mark.parametrize("at", range(1, len(PREFACE)))
async def test_the_http2_preface_is_detected_in_any_pieces(at):
    client = Opened()
    client.connection.data_received(PREFACE[:at])
    if not client.http2:
        client.connection.data_received(PREFACE[at:])
        assert client.http2 == [PREFACE]
    else:
        assert client.http2 == [PREFACE[:at]]
    assert (await client.connection.ended, client.host.connections, client.said) == (True, set(), b"")


@pytest.mark.parametrize("pieces", [[GET], [b"P", b"OST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\na"]])
async def test_other_first_bytes_are_http1(pieces):
    client = await Opened().exchange(pieces)
    assert (client.statuses, client.http2, await client.connection.ended) == ([200], [], False)


async def test_an_incomplete_preface_is_no_error():
    client = await Opened().exchange([b"PRI * HT"])
    assert (client.said, client.http2, await client.connection.ended) == (b"", [], False)


class Accepted:
    """A connection that hypercorn has just accepted, with the bytes that arrived before its first turn."""

    def __init__(self, early: bytes) -> None:
        self.client = Client()
        self.transport = self.client.transport
        self.streams = self.transport.protocol = asyncio.Protocol()
        self.host = _Host()
        self.connection: Any = _Connection.__new__(_Connection)
        self.connection.loop, self.connection.reader = asyncio.get_running_loop(), asyncio.StreamReader()
        self.connection.writer = SimpleNamespace(transport=self.transport)
        self.connection._application, self.connection._host = self.client.answer, self.host
        if early:
            self.connection.reader.feed_data(early)

    async def turn(self) -> asyncio.Task[bool]:
        task = asyncio.create_task(self.connection._is_http2())
        await self.client.exchange([], left=False)
        return task


async def test_bytes_that_arrived_before_the_first_turn_are_read():
    accepted = Accepted(GET)
    task = await accepted.turn()
    assert accepted.client.statuses == [200] and not accepted.transport.closed
    accepted.transport.protocol.connection_lost(None)
    assert not await task
    left = Accepted(GET)
    left.connection.reader.feed_eof()
    await left.turn()
    assert left.transport.closed


async def test_an_http2_connection_is_read_by_hypercorn_from_its_first_byte():
    accepted = Accepted(PREFACE)
    assert await (await accepted.turn()) and accepted.transport.protocol is accepted.streams
    assert await asyncio.wait_for(accepted.connection.reader.read(100), 30) == PREFACE


async def test_a_connection_accepted_during_shutdown_is_closed_soon(monkeypatch):
    monkeypatch.setattr("tollgate.engines.http1.CLOSE_GRACE_SECONDS", 0.01)
    monkeypatch.setattr("tollgate.engines.http1.end_unused", lambda _: True)
    accepted = Accepted(b"")
    accepted.host.end()
    await accepted.turn()
    await until(lambda: accepted.transport.closed)


async def test_the_end_of_the_drain_time_aborts_a_connection():
    accepted = Accepted(b"")
    task = await accepted.turn()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert accepted.transport.aborted


@pytest.mark.parametrize("arrives", ["never", "unread", "read"])
async def test_a_shutdown_closes_no_connection_with_an_arrived_request(monkeypatch, arrives):
    monkeypatch.setattr(hypercorn_engine, "CLOSE_GRACE_SECONDS", 0.01)
    closed, looked = [], []
    connection = _Connection.__new__(_Connection)
    connection.loop, connection.reader = asyncio.get_running_loop(), asyncio.StreamReader()
    connection.context = SimpleNamespace(terminated=asyncio.Event())
    connection.config = SimpleNamespace(keep_alive_timeout=60)
    connection.writer = SimpleNamespace(transport=None)
    connection.protocol = SimpleNamespace(protocol=None)
    connection._idle_since = connection.loop.time()

    def end_unused(transport):
        looked.append(transport)
        if arrives == "unread" and len(looked) == 3:
            connection._idle_since = None  # by then it is being answered
        return arrives != "unread"

    async def close():
        closed.append(True)

    monkeypatch.setattr(hypercorn_engine, "end_unused", end_unused)
    monkeypatch.setattr(hypercorn_engine, "has_unread", lambda _: False)
    connection._initiate_server_close = close
    if arrives == "read":
        connection.reader.feed_data(b"GET")
        connection.loop.call_later(0.05, setattr, connection, "_idle_since", None)
    connection.context.terminated.set()
    await asyncio.wait_for(connection._idle_timeout(), 30)
    assert (bool(closed), len(looked)) == {"never": (True, 1), "unread": (False, 3), "read": (False, 0)}[arrives]
