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
    from tollgate.app import App
    from tollgate.config.model import Server

Stopped = Callable[[], Awaitable[None]]

_KEEP_ALIVE_SECONDS = 75
_KEEP_ALIVE_REQUESTS = 10**9
"""A busy client's connection is not closed for being used: hypercorn would do so after a thousand requests."""
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
        config.h11_max_incomplete_size = 64 * 1024
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
        from hypercorn.asyncio import serve as hypercorn_serve

        for each in self._config.create_sockets().insecure_sockets:
            each.listen(_BACKLOG)
        announce()
        await hypercorn_serve(app, self._config, shutdown_trigger=stopped, mode="asgi")  # type: ignore[arg-type]


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

        config = uvicorn.Config(app, http=_without_upgrades(), log_level="warning", access_log=False, server_header=False, lifespan="off", proxy_headers=False,
                                timeout_keep_alive=_KEEP_ALIVE_SECONDS, timeout_graceful_shutdown=int(self._server.drain_seconds), loop="asyncio")
        running = uvicorn.Server(config)
        running.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]

        async def watch() -> None:
            await stopped()
            running.should_exit = True

        watcher = asyncio.get_running_loop().create_task(watch())
        announce()
        try:
            await running.serve(sockets=self._sockets)
        finally:
            watcher.cancel()


def _without_upgrades() -> type[asyncio.Protocol]:
    """uvicorn's HTTP protocol, deaf to the wish for HTTP/2 that Java's client sends along with its first request: a server
    may ignore it (RFC 9110, 7.8), but the parser would take the body for something else, and the request for empty."""
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Deaf(HttpToolsProtocol):
        def data_received(self, data: bytes) -> None:
            super().data_received(_WISH_FOR_HTTP2.sub(b"", data, 1) if b"h2c" in data else data)

    return Deaf


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
