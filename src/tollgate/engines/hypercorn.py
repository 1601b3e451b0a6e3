"""hypercorn on asyncio, the default engine: its server and its HTTP/2, with our own HTTP/1 (`http1.py`) in place of
its.

hypercorn reads HTTP/1 with h11, which is Python throughout, and hands requests to the application through a task group
and queues: together that costs more than all that the gateway does for a small request.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from hypercorn import protocol
from hypercorn.asyncio import run, serve
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol import h2

from tollgate.engines import KEEP_ALIVE_SECONDS, LAST_CALL_SECONDS, STUCK_SECONDS, UNREAD_SECONDS, Stopped
from tollgate.engines.http1 import Http1
from tollgate.engines.http2 import Http2, Unsent
from tollgate.engines.sockets import (
    AddressTaken,
    check_unanswered,
    end_unused,
    has_unread,
    let_group_in,
    taken_addresses,
)
from tollgate.process.outlived import outlived

if TYPE_CHECKING:
    from tollgate.app import App
    from tollgate.config.model import Server

_BACKLOG = 2048
"""Connections that may wait to be accepted."""
_KEEP_ALIVE_REQUESTS = 10**9
"""A busy HTTP/2 connection is not closed for being used: hypercorn would do so after a thousand requests."""
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\n"
"""How a client begins that knows HTTP/2 is spoken (RFC 9113, 3.4)."""
_EARLY_BYTES = 1 << 20
"""More than is read before a connection has its task."""


class Hypercorn:
    """See `Engine`."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._config = Config()

    def bind(self) -> tuple[str, ...]:
        """See `Engine`."""
        config = self._config
        config.bind = [address.removeprefix("*") for address in self._server.bind]  # *:80 is :80, every address
        config.graceful_timeout = self._server.drain_seconds
        config.include_server_header = False
        config.accesslog = None
        config.errorlog = "-"
        config.loglevel = "WARNING"
        config.backlog = _BACKLOG
        config.keep_alive_timeout = KEEP_ALIVE_SECONDS
        config.keep_alive_max_requests = _KEEP_ALIVE_REQUESTS
        for address in config.bind:
            try:
                check_unanswered(address)
            except OSError as error:
                raise AddressTaken([address], error) from None
        try:
            sockets = config.create_sockets()  # removes the socket files it finds
            let_group_in(config.bind)
        except OSError as error:
            raise AddressTaken(config.bind, error) from None
        config.create_sockets = lambda: sockets  # type: ignore[method-assign]
        return taken_addresses(self._server.bind, sockets.insecure_sockets)

    async def serve(self, app: App, stopped: Stopped, announce: Callable[[], None]) -> None:
        """See `Engine`."""
        host = _Host()
        for each in self._config.create_sockets().insecure_sockets:
            each.listen(_BACKLOG)

        async def stopping() -> None:
            await stopped()
            host.end()

        announce()
        with _ours(partial(_Connection, app, host)):
            await serve(app, self._config, shutdown_trigger=stopping, mode="asgi")  # type: ignore[arg-type]


@contextlib.contextmanager
def _ours(connection: Callable[..., Any]) -> Iterator[None]:
    """Have hypercorn use our classes in place of its own."""
    replaced = [(run, "TCPServer", connection), (protocol, "H2Protocol", Http2), (h2, "StreamBuffer", Unsent)]
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
        """The server ends."""
        self.ended = True
        for connection in tuple(self.connections):
            connection.shutdown()


@lru_cache(maxsize=1)
def _date(second: int) -> list[tuple[bytes, bytes]]:
    """The header that tells the time."""
    return [(b"date", formatdate(second, usegmt=True).encode())]


class _Http1(Http1):
    """A connection that speaks HTTP/1, unless its first bytes say that it is to be HTTP/2: then they are given to
    `http2`, and nothing more is read here."""

    def __init__(self, app: App, host: _Host, loop: asyncio.AbstractEventLoop, http2: Callable[[bytes], None]) -> None:
        super().__init__(app, host, loop)
        self.opening = self._look
        self.ended: asyncio.Future[bool] = loop.create_future()
        """Done with the connection, or as soon as it speaks HTTP/2: true then."""
        self._http2 = http2
        self._first = b""
        """What came, kept until it is certain whether it begins HTTP/2."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.opening = None  # it refers to this object
        super().connection_lost(exc)
        if not self.ended.done():
            self.ended.set_result(False)

    def _look(self, data: bytes) -> bytes:
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
    """A connection as hypercorn has it: given to HTTP/1, and served here where its client speaks HTTP/2. Then it is
    gone as soon as its client has closed it.

    hypercorn itself keeps socket and memory until the time to be idle is over: a minute's worth of clients that connect
    anew for every request would use up the sockets a process may have.
    """

    def __init__(self, application: App, host: _Host, *args: Any) -> None:
        super().__init__(*args)
        self._application = application
        self._host = host
        self._idle_since: float | None = self.loop.time()
        """None while something is being answered."""
        self._stuck: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Serve the connection to its end."""
        # before Python 3.12, asyncio.streams logs it with a traceback
        with contextlib.suppress(asyncio.CancelledError):
            if await self._speaks_http2():
                await super().run()

    async def _speaks_http2(self) -> bool:
        """Whether the connection is to be served here; returns when that is certain, or when it has ended."""
        transport = self.writer.transport
        http1 = _Http1(self._application, self._host, self.loop, partial(self._take_back, transport.get_protocol()))
        # what came before this task had its first turn: reading it waits for nothing
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
        except asyncio.CancelledError:  # the time to drain is over
            transport.abort()
            raise

    def _take_back(self, streams: asyncio.BaseProtocol, data: bytes) -> None:
        """Read as hypercorn does from now on, these first bytes before the others."""
        self.writer.transport.set_protocol(streams)
        self.reader.feed_data(data)

    async def protocol_send(self, event: Event) -> None:
        """Write what HTTP/2 sends, note when the connection is idle, close it."""
        if isinstance(event, RawData):
            try:
                self.writer.write(event.data)
            except RuntimeError:  # uvloop's, for a connection that is closed
                await self.protocol.handle(Closed())
                return
            if self.writer.transport.get_write_buffer_size():
                await self._drain()
        elif isinstance(event, Updated):
            self._idle_since = self.loop.time() if event.idle else None
            if self.context.terminated.is_set():
                await super().protocol_send(event)  # ends the watcher, or begins it anew
        else:
            await super().protocol_send(event)

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(STUCK_SECONDS):
                await self.writer.drain()
        except (ConnectionError, RuntimeError):
            await self.protocol.handle(Closed())
        except TimeoutError:
            self.writer.transport.abort()
            await self.protocol.handle(Closed())

    async def _close(self) -> None:
        task = asyncio.current_task()
        # the time to drain is over: a client that does not read would hold up the end
        if task is not None and task.cancelling():
            self.writer.transport.abort()
        self._bound_last_words()
        try:
            await super()._close()
        finally:
            if self._stuck is not None:
                self._stuck.cancel()

    def _bound_last_words(self) -> None:
        """A connection that is closed stays until what was written to it is read."""
        if self._stuck is None:
            self._stuck = self.loop.call_later(STUCK_SECONDS, self.writer.transport.abort)

    async def _initiate_server_close(self) -> None:
        self._bound_last_words()
        await super()._initiate_server_close()

    async def _idle_timeout(self) -> None:
        """Watch over the connection as long as it lives: a new watcher for every request, as hypercorn has it, costs a
        tenth of a small one."""
        terminated = False
        while not terminated and (left := self._left()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.context.terminated.wait(), left)
                terminated = True
            if self._idle_since is None and not terminated and (http2 := self._http2) is not None:
                await http2.end_stuck()  # every so often: see `_left`
        if terminated and (http2 := self._http2) is not None:
            await http2.leave()
        if terminated and self._idle_since is not None:
            await asyncio.sleep(LAST_CALL_SECONDS)  # a request ends this task, and its answer begins it anew
        while self._idle_since is not None and not await outlived(self._close_idle()):
            await asyncio.sleep(UNREAD_SECONDS)

    async def _close_idle(self) -> bool:
        """Close the connection, unless a request has come that is not being answered yet."""
        read = self.reader._buffer  # type: ignore[attr-defined]
        if self._idle_since is None or read or has_unread(self.writer.transport):
            return False
        if (http2 := self._http2) is not None:
            await http2.say_last()
        if not end_unused(self.writer.transport):
            return False
        await self._initiate_server_close()
        return True

    @property
    def _http2(self) -> Http2 | None:
        """What speaks HTTP/2 here; None before the client's first bytes."""
        spoken = self.protocol.protocol
        return spoken if isinstance(spoken, Http2) else None

    def _left(self) -> float:
        """Seconds until the connection has been idle for too long."""
        keep = self.config.keep_alive_timeout
        return keep if self._idle_since is None else self._idle_since + keep - self.loop.time()

    async def _read_data(self) -> None:
        await super()._read_data()
        await self.idle_task.stop()
