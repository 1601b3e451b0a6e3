"""The default engine: hypercorn's server and HTTP/2 on asyncio, with our own HTTP/1 (`http1.py`).

hypercorn parses HTTP/1 with h11, which is pure Python, and passes requests to the application through a task group and
queues. Together that takes longer than everything the gateway does for a small request.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from hypercorn import protocol
from hypercorn.asyncio import run, serve
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.config import Config, Sockets
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol import h2

from tollgate.engines import CLOSE_GRACE_SECONDS, KEEP_ALIVE_SECONDS, STUCK_SECONDS, UNREAD_SECONDS, Stopped
from tollgate.engines.http1 import Http1
from tollgate.engines.http2 import Http2, UnsentAnswer
from tollgate.engines.sockets import bound_addresses, bound_sockets, end_unused, has_unread
from tollgate.process.concurrency import shielded

if TYPE_CHECKING:
    from tollgate.app import App
    from tollgate.config.settings import Server

_BACKLOG = 2048
"""Connections that may wait to be accepted."""
_KEEP_ALIVE_REQUESTS = 10**9
"""hypercorn would close a busy HTTP/2 connection after a thousand requests; this prevents it."""
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\n"
"""The first bytes of an HTTP/2 connection (RFC 9113, 3.4)."""
_EARLY_BYTES = 1 << 20
"""More than can arrive before the connection's task runs."""


class Hypercorn:
    """See `Engine`."""

    def __init__(self, server: Server) -> None:
        self.drain_seconds = server.drain_seconds
        self._server = server
        self._config = Config()
        self._sockets: list[socket.socket] = []

    def bind(self) -> tuple[str, ...]:
        """See `Engine`."""
        config = self._config
        config.include_server_header = False
        config.loglevel = "WARNING"
        config.backlog = _BACKLOG
        config.keep_alive_timeout = KEEP_ALIVE_SECONDS
        config.keep_alive_max_requests = _KEEP_ALIVE_REQUESTS
        self._sockets = bound_sockets(self._server.bind)
        config.create_sockets = lambda: Sockets([], self._sockets, [])  # type: ignore[method-assign]
        return bound_addresses(self._server.bind, self._sockets)

    async def serve(self, app: App, stopped: Stopped, announce: Callable[[], None]) -> None:
        """See `Engine`."""
        host = _Host()
        for each in self._sockets:
            each.listen(_BACKLOG)

        async def stopping() -> None:
            await stopped()
            self._config.graceful_timeout = self.drain_seconds
            host.end()

        announce()
        with _our_classes(partial(_Connection, app, host)):
            await serve(app, self._config, shutdown_trigger=stopping, mode="asgi")  # type: ignore[arg-type]


@contextlib.contextmanager
def _our_classes(connection: Callable[..., Any]) -> Iterator[None]:
    """Make hypercorn use our classes in place of its own."""
    replaced = [(run, "TCPServer", connection), (protocol, "H2Protocol", Http2), (h2, "StreamBuffer", UnsentAnswer)]
    kept = [(module, name, getattr(module, name)) for module, name, _ in replaced]
    try:
        for module, name, ours in replaced:
            setattr(module, name, ours)
        yield
    finally:
        for module, name, original in kept:
            setattr(module, name, original)


class _Host:
    """See `http1.Host`."""

    def __init__(self) -> None:
        self.connections: set[Http1] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.ended = False

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        return _date(int(time.time()))

    def end(self) -> None:
        """The server stops."""
        self.ended = True
        for connection in tuple(self.connections):
            connection.shutdown()


@lru_cache(maxsize=1)
def _date(second: int) -> list[tuple[bytes, bytes]]:
    """The `date` header."""
    return [(b"date", formatdate(second, usegmt=True).encode())]


class _Http1(Http1):
    """An HTTP/1 connection. If its first bytes are the HTTP/2 preface, they are passed to `http2`, and nothing more is
    read here."""

    def __init__(self, app: App, host: _Host, loop: asyncio.AbstractEventLoop, http2: Callable[[bytes], None]) -> None:
        super().__init__(app, host, loop)
        self.opening = self._detect
        self.ended: asyncio.Future[bool] = loop.create_future()
        """Completed when the connection ends (False), or when it turns out to be HTTP/2 (True)."""
        self._http2 = http2
        self._first = b""
        """The first bytes, kept while they may still become the HTTP/2 preface."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.opening = None  # it refers to this object
        super().connection_lost(exc)
        if not self.ended.done():
            self.ended.set_result(False)

    def _detect(self, data: bytes) -> bytes:
        """Check the first bytes for the HTTP/2 preface. Returns the bytes to parse as HTTP/1."""
        data = self._first + data
        if data.startswith(_HTTP2_PREFACE):
            self.ended.set_result(True)
            self.connection_lost(None)
            self._http2(data)
        elif _HTTP2_PREFACE.startswith(data):
            self._first = data
        else:
            self.opening = None
            return data
        return b""


class _Connection(TCPServer):
    """A connection of hypercorn: handled by our HTTP/1, or here if the client uses HTTP/2. It ends as soon as the
    client closes it.

    hypercorn itself keeps socket and memory until the idle timeout, so that clients with a new connection for every
    request would exhaust the process's sockets within a minute.
    """

    def __init__(self, application: App, host: _Host, *args: Any) -> None:
        super().__init__(*args)
        self._application = application
        self._host = host
        self._idle_since: float | None = self.loop.time()
        """None while a request is being answered."""
        self._stuck: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Serve the connection until it ends."""
        # before Python 3.12, asyncio.streams logs it with a traceback
        with contextlib.suppress(asyncio.CancelledError):
            if await self._is_http2():
                await super().run()

    async def _is_http2(self) -> bool:
        """Handle the connection as HTTP/1. Returns True when it turns out to be HTTP/2, False when it has ended."""
        transport = self.writer.transport
        http1 = _Http1(self._application, self._host, self.loop, partial(self._hand_back, transport.get_protocol()))
        # bytes that arrived before this task started; reading them does not block
        early = await self.reader.read(_EARLY_BYTES) if self.reader._buffer else b""  # type: ignore[attr-defined]
        transport.set_protocol(http1)
        http1.connection_made(transport)  # type: ignore[arg-type]
        if self._host.ended:
            http1.shutdown()
        if early:
            http1.data_received(early)
        if self.reader.at_eof():
            transport.close()
        try:
            return await http1.ended
        except asyncio.CancelledError:  # the drain time is over
            transport.abort()
            raise

    def _hand_back(self, streams: asyncio.BaseProtocol, data: bytes) -> None:
        """Let hypercorn read from now on, beginning with these bytes."""
        self.writer.transport.set_protocol(streams)
        self.reader.feed_data(data)

    async def protocol_send(self, event: Event) -> None:
        """Handle an event of the protocol: write data, note when the connection becomes idle, close it."""
        if isinstance(event, RawData):
            await self._write(event.data)
        elif isinstance(event, Updated):
            self._idle_since = self.loop.time() if event.idle else None
            if self.context.terminated.is_set():
                await super().protocol_send(event)  # ends or restarts the watcher
        else:
            await super().protocol_send(event)

    async def _write(self, data: bytes) -> None:
        try:
            self.writer.write(data)
            if self.writer.transport.get_write_buffer_size():
                async with asyncio.timeout(STUCK_SECONDS):
                    await self.writer.drain()
        except (ConnectionError, RuntimeError, TimeoutError):  # uvloop raises RuntimeError if the connection is closed
            self.writer.transport.abort()
            await self.protocol.handle(Closed())

    async def _close(self) -> None:
        task = asyncio.current_task()
        # the drain time is over: do not wait for a client that does not read
        if task is not None and task.cancelling():
            self.writer.transport.abort()
        self._limit_close_time()
        try:
            await super()._close()
        finally:
            if self._stuck is not None:
                self._stuck.cancel()

    def _limit_close_time(self) -> None:
        """Limit how long a closing connection waits for its client to read the rest."""
        if self._stuck is None:
            self._stuck = self.loop.call_later(STUCK_SECONDS, self.writer.transport.abort)

    async def _initiate_server_close(self) -> None:
        self._limit_close_time()
        await super()._initiate_server_close()

    async def _idle_timeout(self) -> None:
        """Watch the connection until it ends. hypercorn starts a new watcher for every request, which takes a tenth of
        the time of a small request."""
        terminated = False
        while not terminated and (left := self._left()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.context.terminated.wait(), left)
                terminated = True
            if self._idle_since is None and not terminated and (http2 := self._http2) is not None:
                await http2.end_stuck()  # regularly: see `_left`
        if terminated and (http2 := self._http2) is not None:
            await http2.announce_stop()
        if terminated and self._idle_since is not None:
            await asyncio.sleep(CLOSE_GRACE_SECONDS)  # a new request ends this task, and its answer starts it again
        while self._idle_since is not None and not await shielded(self._close_idle()):
            await asyncio.sleep(UNREAD_SECONDS)

    async def _close_idle(self) -> bool:
        """Close the connection, unless a request has arrived that is not being answered yet."""
        read = self.reader._buffer  # type: ignore[attr-defined]
        if self._idle_since is None or read or has_unread(self.writer.transport):
            return False
        if (http2 := self._http2) is not None:
            await http2.send_final_goaway()
        if not end_unused(self.writer.transport):
            return False
        await self._initiate_server_close()
        return True

    @property
    def _http2(self) -> Http2 | None:
        """The HTTP/2 protocol object; None before the client's first bytes."""
        protocol = self.protocol.protocol
        return protocol if isinstance(protocol, Http2) else None

    def _left(self) -> float:
        """Seconds until the idle timeout."""
        keep = self.config.keep_alive_timeout
        return keep if self._idle_since is None else self._idle_since + keep - self.loop.time()

    async def _read_data(self) -> None:
        await super()._read_data()
        await self.idle_task.stop()
