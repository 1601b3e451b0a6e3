"""uvicorn with httptools, the engine of the extra of that name. It is given sockets, and signals are left to the caller."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tollgate.engines import KEEP_ALIVE_SECONDS, MAX_HEAD_BYTES, SLOWEST_BYTES, STUCK_SECONDS, Stopped
from tollgate.engines.heads import Answer
from tollgate.engines.reading import Headers, refusal_of, without_wish
from tollgate.engines.sockets import AddressTaken, bound_socket, check_unanswered, taken_addresses
from tollgate.engines.writes import Writes
from tollgate.http import LEAVING

if TYPE_CHECKING:
    from tollgate.app import App
    from tollgate.config.model import Server

_MOST_WAITING = 8
"""Requests that may wait behind the one that is answered, before no more are read."""


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
        config = uvicorn.Config(app, http=_Connection, ws="none", log_level="error", access_log=False, server_header=False, lifespan="off", proxy_headers=False,
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
    """uvicorn's HTTP protocol, with bounds to what a client sends beside a body, as hypercorn has them, and deaf to wishes for other protocols."""

    _bare = 0
    """Bytes since a head was complete or a body went on."""
    _late: asyncio.TimerHandle | None = None
    _came = 0
    """Bytes of bodies."""
    _lagging: asyncio.TimerHandle | None = None
    """When to look whether the rest of a body goes on coming."""
    _stuck: asyncio.TimerHandle | None = None
    _answer: Answer | None = None
    """To the request whose turn it is."""
    _wish: tuple[bytes, bytes, str, Headers] | None = None
    """Method, target, version and headers of the request read last, if it wishes for another protocol."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = Writes(self.loop, transport)  # type: ignore[assignment]
        self._late = self.loop.call_later(KEEP_ALIVE_SECONDS, self.transport.close)

    def data_received(self, data: bytes) -> None:
        self._bare += len(data)
        self._unset_keepalive_if_required()
        while data:
            try:
                self.parser.feed_data(data)
                break
            except httptools.HttpParserUpgrade as wish:
                assert self._wish is not None
                data = without_wish(*self._wish, data[wish.args[0] :])
                self._wish = None
            except httptools.HttpParserError:
                self.send_400_response("What was sent cannot be read as an HTTP/1.1 request.")
                return
        self._bound_what_comes()

    def on_headers_complete(self) -> None:
        self._bare = 0
        if self._late is not None:
            self._late.cancel()
            self._late = None
        version, method = self.parser.get_http_version(), self.parser.get_method()
        if refusal_of(version, self.headers) is not None:
            raise ValueError("a head that is refused")  # httptools makes an HttpParserError of it
        if self.parser.should_upgrade() and method != b"CONNECT":
            self._wish = method, self.url, version, self.headers
            return
        super().on_headers_complete()
        self.headers = []  # trailers are no headers (RFC 9110, 6.5.1): they go nowhere
        self._read_on()

    def on_body(self, body: bytes) -> None:
        self._bare = 0
        self._came += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._wish is None:
            super().on_message_complete()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answer = answer = Answer(cycle)
        cycle.scope["extensions"] = {LEAVING: answer.leaving.on_leaving}
        super()._start_asgi_task(cycle, lambda scope, receive, send: app(scope, receive, answer.send))

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._read_on()

    def _read_on(self) -> None:
        """Where only a few requests wait for their turn, reading goes on: it is how the end of a connection is noticed."""
        if len(self.pipeline) > _MOST_WAITING:
            self.flow.pause_reading()
        elif self.pipeline:
            self.flow.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)  # it tells the newest request only, which may wait behind the one that is answered
        self._end_stuck()
        for timer in (self._late, self._lagging):
            if timer is not None:
                timer.cancel()
        if self._answer is not None:
            self._answer.leave()

    def pause_writing(self) -> None:
        """See asyncio's protocols: the client is slow to read."""
        super().pause_writing()
        self._stuck = self.loop.call_later(STUCK_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """See asyncio's protocols."""
        super().resume_writing()
        self._end_stuck()

    def _end_stuck(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _bound_what_comes(self) -> None:
        """What is not complete yet may not be endless; nor may it take forever, be it a head, or the rest of a body whose answer has left."""
        idle = self.cycle is None or self.cycle.response_complete
        if self._bare <= MAX_HEAD_BYTES:
            if idle and self._late is None:
                self._late = self.loop.call_later(KEEP_ALIVE_SECONDS, self.transport.close)
            elif not idle and self.cycle.more_body and self._lagging is None:
                self._lagging = self.loop.call_later(KEEP_ALIVE_SECONDS, self._look, self.cycle, self._came)
        elif idle and not self.transport.is_closing():
            self.send_400_response(f"The head of a request may have {MAX_HEAD_BYTES} bytes.")
        else:
            self.transport.close()

    def _look(self, cycle: Any, came: int) -> None:
        """End the connection if hardly anything of a request's body came since `came` was counted, though nothing kept it from coming."""
        self._lagging = None
        if self.cycle is not cycle or not cycle.more_body or cycle.response_complete:
            return
        if self._came - came < SLOWEST_BYTES and not self.flow.read_paused:
            self.transport.abort()
        else:
            self._lagging = self.loop.call_later(KEEP_ALIVE_SECONDS, self._look, cycle, self._came)
