"""uvicorn with httptools, the engine of the extra of that name. It is given sockets, and signals are left to the caller."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tollgate.engines import KEEP_ALIVE_SECONDS, MAX_HEAD_BYTES, Stopped
from tollgate.engines.heads import Answer
from tollgate.engines.sockets import AddressTaken, bound_socket, check_unanswered, taken_addresses
from tollgate.engines.writes import Writes

if TYPE_CHECKING:
    from tollgate.app import App
    from tollgate.config.model import Server

_WISH_FOR_HTTP2 = re.compile(rb"\r\n[Uu]pgrade: *h2c(?=\r\n)")
"""As a header line. It cannot stand in a body: JSON has no line breaks inside of texts."""


class Uvicorn:
    """See `Engine`."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._sockets: list[socket.socket] = []

    def bind(self) -> tuple[str, ...]:
        """See `Engine`."""
        for address in self._server.bind:
            try:
                check_unanswered(address)
                self._sockets.append(bound_socket(address))
            except OSError as error:
                raise AddressTaken([address], error) from None
        return taken_addresses(self._server.bind, self._sockets)

    async def serve(self, app: App, stopped: Stopped, announce: Callable[[], None]) -> None:
        """See `Engine`."""
        config = uvicorn.Config(app, http=_Connection, ws="none", log_level="warning", access_log=False, server_header=False, lifespan="off", proxy_headers=False,
                                timeout_keep_alive=KEEP_ALIVE_SECONDS, timeout_graceful_shutdown=int(self._server.drain_seconds), loop="asyncio")
        announce()
        await serve_until(stopped, config, self._sockets)


async def serve_until(stopped: Stopped, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
    """Run uvicorn on these sockets until `stopped` returns; signals are left to the caller. The sandbox is served so too."""
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


class _Connection(HttpToolsProtocol):
    """uvicorn's HTTP protocol, with bounds to what a client sends beside a body, as hypercorn has them.

    It is also deaf to the wish for HTTP/2 that Java's client sends along with its first request: a server may ignore it
    (RFC 9110, 7.8), but the parser would take the body for something else, and the request for empty.
    """

    _bare = 0
    """Bytes since a head was complete or a body went on."""
    _late: asyncio.TimerHandle | None = None
    _answering: Any = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = Writes(self.loop, transport)  # type: ignore[assignment]
        self._late = self.loop.call_later(KEEP_ALIVE_SECONDS, self.transport.close)

    def data_received(self, data: bytes) -> None:
        self._bare += len(data)
        super().data_received(_WISH_FOR_HTTP2.sub(b"", data, 1) if data.find(b"h2c", 0, data.rfind(b"\r") + 1) >= 0 else data)
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

    def _unsupported_upgrade_warning(self) -> None:
        """A wish for another protocol may be overlooked, and is nothing an operator could mend."""

    def on_body(self, body: bytes) -> None:
        self._bare = 0
        super().on_body(body)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, lambda scope, receive, send: app(scope, receive, Answer(cycle).send))

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
        if self._bare <= MAX_HEAD_BYTES:
            if idle and self._late is None:
                self._late = self.loop.call_later(KEEP_ALIVE_SECONDS, self.transport.close)
        elif idle and not self.transport.is_closing():
            self.send_400_response(f"The head of a request may have {MAX_HEAD_BYTES} bytes.")
        else:
            self.transport.close()
