"""hypercorn on asyncio, the default engine; its connections end with their clients."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hypercorn import protocol
from hypercorn.asyncio import run, serve
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import EventWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol import h2

from tollgate.engines import KEEP_ALIVE_SECONDS, LAST_CALL_SECONDS, STUCK_SECONDS, UNREAD_SECONDS, Stopped
from tollgate.engines.http1 import Http1
from tollgate.engines.http2 import Http2, Unsent
from tollgate.engines.sockets import AddressTaken, check_unanswered, end_unused, taken_addresses
from tollgate.engines.writes import Writes

if TYPE_CHECKING:
    from tollgate.app import App
    from tollgate.config.model import Server

_BACKLOG = 2048
"""Connections that may wait to be accepted."""
_KEEP_ALIVE_REQUESTS = 10**9
"""A busy HTTP/2 connection is not closed for being used: hypercorn would do so after a thousand requests."""
_CHECK_SECONDS = 0.5
"""How often a client whose next request waits for its turn is checked to be still there."""


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
        except OSError as error:
            raise AddressTaken(config.bind, error) from None
        config.create_sockets = lambda: sockets  # type: ignore[method-assign]
        return taken_addresses(self._server.bind, sockets.insecure_sockets)

    async def serve(self, app: App, stopped: Stopped, announce: Callable[[], None]) -> None:
        """See `Engine`."""
        run.TCPServer = _Connection  # type: ignore[assignment,attr-defined]
        protocol.H2Protocol = Http2  # type: ignore[assignment,attr-defined]
        h2.StreamBuffer = Unsent  # type: ignore[misc]
        for each in self._config.create_sockets().insecure_sockets:
            each.listen(_BACKLOG)
        announce()
        await serve(app, self._config, shutdown_trigger=stopped, mode="asgi")  # type: ignore[arg-type]


class _Connection(TCPServer):
    """hypercorn's connection, gone as soon as its client has closed it and nothing of it is being answered.

    hypercorn itself keeps socket and memory until the time to be idle is over: a minute's worth of clients that connect
    anew for every request would use up the sockets a process may have. Nor does it look for the end while bytes of a
    next request wait, be they the line break that some clients send after a body. And it has a new task for every
    request.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._idle_since: float | None = self.loop.time()
        """None while something is being answered."""
        self._writes = Writes(self.loop, self.writer.transport)
        self._stuck: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Serve the connection to its end."""
        # before Python 3.12, asyncio.streams logs it with a traceback
        with contextlib.suppress(asyncio.CancelledError):
            await super().run()

    async def write(self, data: bytes) -> None:
        """Send bytes of HTTP/1; waits while the client is slow to read."""
        self._writes.write(data)
        if self._writes.stuck():
            self._writes.flush()
            await self._drain()

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(STUCK_SECONDS):
                await self.writer.drain()
        except (ConnectionError, RuntimeError):
            await self.protocol.handle(Closed())
        except TimeoutError:
            self.writer.transport.abort()
            await self.protocol.handle(Closed())

    async def protocol_send(self, event: Event) -> None:
        """Write what HTTP/2 sends, note when the connection is idle, close it."""
        if isinstance(event, RawData):
            self.writer.write(event.data)
            if self.writer.transport.get_write_buffer_size():
                await self._drain()
        elif isinstance(event, Updated) and not self.context.terminated.is_set():
            self._idle_since = self.loop.time() if event.idle else None
        else:
            await super().protocol_send(event)

    async def _close(self) -> None:
        self._writes.flush()
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
        self._writes.flush()
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
            if self._idle_since is None and not terminated:
                await self._check()
        if terminated and self._idle_since is not None:
            await asyncio.sleep(LAST_CALL_SECONDS)  # a request ends this task, and its answer the connection
        while self._idle_since is not None and not await asyncio.shield(self._close_idle()):
            await asyncio.sleep(UNREAD_SECONDS)

    async def _close_idle(self) -> bool:
        """Close the connection, unless a request has come that is not being answered yet."""
        self._writes.flush()
        read = self.reader._buffer  # type: ignore[attr-defined]
        if self._idle_since is None or read or not end_unused(self.writer.transport):
            return False
        await self._initiate_server_close()
        return True

    async def _check(self) -> None:
        """End requests and answers that make no progress; `_left` says how often."""
        served = self.protocol.protocol
        if isinstance(served, Http2):
            await served.end_stuck()
        elif isinstance(served, Http1) and served.lags():
            self.writer.transport.abort()

    def _left(self) -> float:
        """Seconds until the connection has been idle for too long."""
        keep = self.config.keep_alive_timeout
        return keep if self._idle_since is None else self._idle_since + keep - self.loop.time()

    async def _read_data(self) -> None:
        self.protocol.protocol = Http1(self.protocol, self.write, _Turn(self.reader))  # type: ignore[assignment]
        try:
            await super()._read_data()
        except _ClientLeft:
            await self.protocol.handle(Closed())
        await self.idle_task.stop()


class _Turn(EventWrapper):
    """When the next request on a connection may be read. Waiting for it raises `_ClientLeft` once the client is
    gone."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__()
        self._reader = reader

    async def wait(self) -> None:
        while not self.is_set():
            # not `at_eof`, which waits for all to be read
            if self._reader._eof or self._reader.exception() is not None:  # type: ignore[attr-defined]
                raise _ClientLeft
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_SECONDS):
                    await super().wait()


class _ClientLeft(Exception):
    """The client is gone, with a request of its own unread."""
