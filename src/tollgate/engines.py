"""The two HTTP servers: bound first, so that an address in use is an error before anything is made, then serving.

`Hypercorn` is the default; `Uvicorn` is there with the extra of that name. Both read the `server:` settings and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import socket
import stat
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tollgate.errors import TollgateError

if TYPE_CHECKING:
    import uvicorn

    from tollgate.app import App
    from tollgate.config.model import Server

Stopped = Callable[[], Awaitable[None]]

_KEEP_ALIVE_SECONDS = 75
_KEEP_ALIVE_REQUESTS = 10**9
"""A busy client's connection is not closed for being used: hypercorn would do so after a thousand requests."""
_MOST_HEAD_BYTES = 64 * 1024
"""Of a request, and of the trailers after a chunked one; what comes in one read may be more."""
_LOOK_SECONDS = 0.5
"""Between two looks whether a client is still there whose next request waits for its turn."""
_BACKLOG = 2048
_WISH_FOR_HTTP2 = re.compile(rb"\r\n[Uu]pgrade: *h2c(?=\r\n)")
"""As a header line. It cannot stand in a body: JSON has no line breaks inside of texts."""


class AddressTaken(TollgateError):
    """An address to listen on cannot be had."""

    code = "address_taken"

    def __init__(self, addresses: Sequence[str], error: OSError) -> None:
        super().__init__(f"cannot listen on {' or '.join(addresses)}: {error.strerror or error}; another one: server.bind in gateway.yaml, or --bind 127.0.0.1:PORT")


class Engine(Protocol):
    """What serves the application."""

    def bind(self) -> None:
        """Take the addresses. `AddressTaken` when one cannot be had."""

    async def serve(self, app: App, stopped: Stopped, announce: Callable[[], None]) -> None:
        """Serve until `stopped` returns; `announce` is called once connections are taken."""


def engine_of(server: Server) -> Engine:
    """The engine these settings ask for."""
    return Uvicorn(server) if server.engine == "uvicorn" else Hypercorn(server)


class Hypercorn:
    """hypercorn, on asyncio."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._config: Any = None

    def bind(self) -> None:
        from hypercorn.config import Config

        config = Config()
        config.bind = list(self._server.bind)
        config.graceful_timeout = self._server.drain_seconds
        config.include_server_header = False
        config.accesslog = None
        config.errorlog = "-"
        config.loglevel = "WARNING"
        config.backlog = _BACKLOG
        config.keep_alive_timeout = _KEEP_ALIVE_SECONDS
        config.keep_alive_max_requests = _KEEP_ALIVE_REQUESTS
        config.h11_max_incomplete_size = _MOST_HEAD_BYTES
        for address in config.bind:
            try:
                _leave_alive(address)
            except OSError as error:
                raise AddressTaken([address], error) from None
        try:
            sockets = config.create_sockets()  # removes the socket files it finds
        except OSError as error:
            raise AddressTaken(config.bind, error) from None
        config.create_sockets = lambda: sockets  # type: ignore[method-assign]
        self._config = config

    async def serve(self, app: App, stopped: Stopped, announce: Callable[[], None]) -> None:
        from hypercorn.asyncio import run as hypercorn_run
        from hypercorn.asyncio import serve as hypercorn_serve

        hypercorn_run.TCPServer = _leaving_with_its_client()  # type: ignore[attr-defined]
        for each in self._config.create_sockets().insecure_sockets:
            each.listen(_BACKLOG)
        announce()
        await hypercorn_serve(app, self._config, shutdown_trigger=stopped, mode="asgi")  # type: ignore[arg-type]


def _leaving_with_its_client() -> Any:
    """hypercorn's connection, gone as soon as its client has closed it and nothing of it is being answered. hypercorn itself
    keeps socket and memory until the time to be idle is over: a minute's worth of clients that connect anew for every
    request would use up the sockets a process may have. Nor does it look for the end while bytes of a next request wait,
    be they the line break that some clients send after a body."""
    from hypercorn.asyncio.tcp_server import TCPServer
    from hypercorn.asyncio.worker_context import EventWrapper
    from hypercorn.events import Closed

    class Turn(EventWrapper):
        """When the next request on a connection may be read."""

        def __init__(self, reader: asyncio.StreamReader) -> None:
            super().__init__()
            self._reader = reader

        async def wait(self) -> None:
            while not self.is_set():
                if self._reader.at_eof() or self._reader.exception() is not None:
                    raise _Left
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_SECONDS):
                        await super().wait()

    class Leaving(TCPServer):
        async def _read_data(self) -> None:
            self.protocol.protocol.can_read = Turn(self.reader)  # type: ignore[union-attr]
            try:
                await super()._read_data()
            except _Left:
                await self.protocol.handle(Closed())
            await self.idle_task.stop()

    return Leaving


class _Left(Exception):
    """The client is gone, with a request of its own unread."""


class Uvicorn:
    """uvicorn with httptools; it is given sockets, and its signal handling is ours."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._sockets: list[socket.socket] = []

    def bind(self) -> None:
        for address in self._server.bind:
            try:
                _leave_alive(address)
                self._sockets.append(_bound(address))
            except OSError as error:
                raise AddressTaken([address], error) from None

    async def serve(self, app: App, stopped: Stopped, announce: Callable[[], None]) -> None:
        import uvicorn

        config = uvicorn.Config(app, http=_careful(), log_level="warning", access_log=False, server_header=False, lifespan="off", proxy_headers=False,
                                timeout_keep_alive=_KEEP_ALIVE_SECONDS, timeout_graceful_shutdown=int(self._server.drain_seconds), loop="asyncio")
        announce()
        await serve_until(stopped, config, self._sockets)


async def serve_until(stopped: Stopped, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
    """Run uvicorn on these sockets until `stopped` returns; signals are left to the caller."""
    import uvicorn

    running = uvicorn.Server(config)
    running.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]

    async def watch() -> None:
        await stopped()
        running.should_exit = True

    watcher = asyncio.get_running_loop().create_task(watch())
    try:
        await running.serve(sockets=sockets)
    finally:
        watcher.cancel()


def _careful() -> type[asyncio.Protocol]:
    """uvicorn's HTTP protocol, with bounds to what a client sends beside a body, as hypercorn has them.

    It is also deaf to the wish for HTTP/2 that Java's client sends along with its first request: a server may ignore it
    (RFC 9110, 7.8), but the parser would take the body for something else, and the request for empty.
    """
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Careful(HttpToolsProtocol):
        _bare = 0
        """Bytes since a head was complete or a body went on."""
        _late: asyncio.TimerHandle | None = None
        _answering: Any = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._late = self.loop.call_later(_KEEP_ALIVE_SECONDS, transport.close)

        def data_received(self, data: bytes) -> None:
            self._bare += len(data)
            super().data_received(_WISH_FOR_HTTP2.sub(b"", data, 1) if b"h2c" in data else data)
            if self._bare:
                self._unfinished()

        def on_headers_complete(self) -> None:
            self._bare = 0
            if self._late is not None:
                self._late.cancel()
                self._late = None
            super().on_headers_complete()
            if not self.parser.should_upgrade():
                self.headers = []  # trailers are no headers (RFC 9110, 6.5.1): they go nowhere

        def on_body(self, body: bytes) -> None:
            self._bare = 0
            super().on_body(body)

        def _start_asgi_task(self, cycle: Any, app: Any) -> None:
            self._answering = cycle
            super()._start_asgi_task(cycle, app)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.pipeline:  # more requests are read when those that came are answered
                self.flow.pause_reading()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)  # it tells the newest request only, which may wait behind the one that is answered
            if self._late is not None:
                self._late.cancel()
            if self._answering is not None and not self._answering.response_complete:
                self._answering.disconnected = True
                self._answering.message_event.set()

        def _unfinished(self) -> None:
            """A head is not complete yet, or a body's end is not here: it may not be endless, nor may a head take forever."""
            idle = self.cycle is None or self.cycle.response_complete
            if self._bare <= _MOST_HEAD_BYTES:
                if idle and self._late is None:
                    self._late = self.loop.call_later(_KEEP_ALIVE_SECONDS, self.transport.close)
            elif idle and not self.transport.is_closing():
                self.send_400_response(f"The head of a request may have {_MOST_HEAD_BYTES} bytes.")
            else:
                self.transport.close()

    return Careful


def _leave_alive(address: str) -> None:
    """Refuse a unix socket at which somebody answers: taking its file would cut a running process off without a word. What
    a process that ended left behind is nobody's."""
    if not address.startswith("unix:"):
        return
    path = address[5:]
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return  # no socket's file: binding to it fails by itself
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            with contextlib.suppress(BlockingIOError):  # its queue is full: it is there
                probe.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        return
    raise OSError(errno.EADDRINUSE, "a process answers there already")


def _bound(address: str) -> socket.socket:
    """A bound socket for `host:port`, `[v6]:port`, `:port` or `unix:/path`."""
    if address.startswith("unix:"):
        path = address[5:]
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.stat(path).st_mode):
                os.remove(path)  # a former process's: nobody answers there, see `_leave_alive`
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.bind(path)
        return sock
    host, _, port = address.rpartition(":")
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host.strip("[]"), int(port)))
    return sock
