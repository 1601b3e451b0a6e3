"""HTTP/1 on a client's connection, for both engines: parses requests with httptools and answers them one by one.

The engine accepts connections and ends the process. `http_exchange.py` handles one request and frames its answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

import httptools

from tollgate.engines import (
    CLOSE_GRACE_SECONDS,
    KEEP_ALIVE_SECONDS,
    MAX_HEAD_BYTES,
    MOST_DROPPED,
    SLOWEST_BYTES,
    STUCK_SECONDS,
    UNREAD_SECONDS,
)
from tollgate.engines.http_exchange import MOST_UNREAD, HttpExchange
from tollgate.engines.request_head import REFUSALS, Headers, Refused, checked_headers, last_answer, without_upgrade
from tollgate.engines.sockets import addresses_of, end_unused
from tollgate.engines.writes import Writes
from tollgate.http import DIRECT

if TYPE_CHECKING:
    from tollgate.app import Asgi

log = logging.getLogger("tollgate.engines")

_ASGI = {"version": "3.0", "spec_version": "2.3"}
_MOST_WAITING = 8
"""Reading is paused if more than this many pipelined requests wait."""


class Host(Protocol):
    """The state shared by the connections of one server; uvicorn's `ServerState` conforms to it."""

    connections: set[Any]
    tasks: set[asyncio.Task[None]]
    """The tasks that answer requests."""

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of every answer."""


class Http1(asyncio.Protocol):
    """A client's connection: requests are parsed by httptools and answered in the order of their arrival.

    It replaces the protocol classes of both servers, which take more than twice as long and do not limit heads and
    trailers. A request that cannot be parsed is answered with an error, after the answers to the requests before it;
    nothing after it is read.
    """

    opening: Callable[[bytes], bytes] | None = None
    """If set, a filter for the first bytes: it gets the bytes that arrive and returns those to parse."""

    def __init__(self, app: Asgi, host: Host, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.host = host
        self.done = self.loop.create_future()
        """A completed future: what `send` returns if there is nothing to wait for."""
        self.done.set_result(None)
        self.room: asyncio.Future[None] | None = None
        """Completed when a slow client has read enough; None while writing is not paused."""
        self._app = app
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        # a request with `connection: close` is answered even if bytes follow it
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._target = b""
        self._headers: Headers = []
        self._newest: HttpExchange | None = None
        """The request that was parsed last."""
        self._active: HttpExchange | None = None
        """The request that is being answered."""
        self._waiting: deque[tuple[HttpExchange, dict[str, Any]]] = deque()
        """The requests behind the active one, with their scopes."""
        self._refusal = 0
        """The status for bytes that could not be parsed; 0 while all could."""
        self._upgrade: tuple[bytes, bytes, str, Headers] | None = None
        """Method, target, version and headers of the request parsed last, if it asks for an upgrade."""
        self._head_bytes = 0
        """Bytes of the head or trailers that are arriving: read since the last complete head or piece of a body."""
        self._body_bytes = 0
        """Body bytes of all requests so far."""
        self._last_check: tuple[HttpExchange | None, int] = None, 0
        """The newest request and `_body_bytes` at the last call of `_lags`."""
        self._since = 0.0
        """When the connection became idle, or when the next request's head began to arrive."""
        self._begun = False
        """Bytes of the next request have arrived, or the rest of one that is already answered."""
        self._paused = False
        self._ends = False
        """The server stops: the next request is the last."""
        self._stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self._writes = Writes(self.loop, transport)
        self.write = self._writes.write
        self._server, self._client = addresses_of(transport)
        self._since = self.loop.time()
        self._clock = self.loop.call_later(KEEP_ALIVE_SECONDS, self._check)
        self.host.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.host.connections.discard(self)
        self._parser = None  # it refers to our bound methods
        self._clock.cancel()
        self._waiting.clear()
        if self._active is not None:
            self._active.leave()
        self._active = self._newest = None  # they refer to this connection
        self._last_check = None, 0
        self.resume_writing()

    def shutdown(self) -> None:
        """The server stops: close this connection after its last answer, or soon if it is idle."""
        self._ends = True
        if self._idle():
            self._clock.cancel()
            self._clock = self.loop.call_later(CLOSE_GRACE_SECONDS, self._check)
        elif self._newest is not None:
            self._newest.keep = False

    # Reading.

    def data_received(self, data: bytes) -> None:
        if self.opening is not None and not (data := self.opening(data)):
            return
        parser = self._parser
        if self._refusal or parser is None:
            return
        self._head_bytes += len(data)
        try:
            while data:
                try:
                    parser.feed_data(data)
                    break
                except httptools.HttpParserUpgrade as upgrade:
                    assert self._upgrade is not None
                    data = without_upgrade(*self._upgrade, data[upgrade.args[0] :])
                    self._upgrade = None
        except httptools.HttpParserError as error:
            cause = error.__context__  # raised by our own `on_headers_complete`
            self._refuse(cause.status if isinstance(cause, Refused) else 400)
            return
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(431)
        elif not self._begun and self._head_bytes and self._idle():
            self._begun = True
            self._since = self.loop.time()

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers = []

    def on_url(self, target: bytes) -> None:
        self._target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        self._begun = False
        parser, headers = self._parser, self._headers
        assert parser is not None
        newest = self._newest
        if newest is not None and newest.complete and not newest.keep:
            return
        version, method = parser.get_http_version(), parser.get_method()
        by_name = checked_headers(version, headers)
        if method == b"CONNECT":
            raise Refused(400)
        if parser.should_upgrade():
            self._upgrade = method, self._target, version, headers
            return
        raw_path, _, query = self._target.partition(b"?")
        path = raw_path.decode("ascii")
        keep = version != "1.0" and not self._ends and parser.should_keep_alive()
        continues = b"expect" in by_name and version == "1.1" and by_name[b"expect"].lower() == b"100-continue"
        self._newest = exchange = HttpExchange(self, version, method == b"HEAD", keep, continues)
        scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "method": method.decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "scheme": "http",
            "server": self._server,
            "client": self._client,
            "headers": headers,
            "extensions": {DIRECT: exchange},
        }
        self._headers = []  # trailers are not headers (RFC 9110, 6.5.1) and are ignored
        if self._active is None or self._active.complete:
            self._begin(exchange, scope)
        else:
            self._waiting.append((exchange, scope))
            if len(self._waiting) > _MOST_WAITING:  # reading on is how a lost connection is noticed
                self._pause()

    def on_body(self, data: bytes) -> None:
        self._head_bytes = 0
        self._body_bytes += len(data)
        exchange = self._newest
        if exchange is None or self._upgrade is not None:
            return
        exchange.add(data)
        if exchange.dropped > MOST_DROPPED:
            self.transport.abort()
        elif exchange.unread > MOST_UNREAD and not exchange.complete:
            self._pause()

    def on_message_complete(self) -> None:
        newest = self._newest
        if newest is not None and self._upgrade is None:
            newest.end()
            if newest.complete and not newest.keep:
                self._close()

    def read_on(self) -> None:
        """The application waits for more of a body."""
        if self._paused and len(self._waiting) <= _MOST_WAITING:
            self._paused = False
            self.transport.resume_reading()

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def _refuse(self, status: int) -> None:
        """The bytes that arrived cannot be parsed. A request whose body they are in is not answered any more."""
        self._refusal = status
        newest = self._newest
        if self._idle():
            self._send_refusal()
        elif newest is not None and newest.more:
            if newest is not self._active:
                self._waiting.pop()
            elif newest.started:
                self._close()
            else:
                self._send_refusal()

    def _send_refusal(self) -> None:
        self._send_last_answer(self._refusal, REFUSALS[self._refusal])
        self._close()

    def _send_last_answer(self, status: int, text: bytes) -> str:
        """Write an answer that does not come from the application, as the connection's last. Returns its request id."""
        answer, request_id = last_answer(status, text, self.host.default_headers)
        self.write(answer)
        return request_id

    # Answering.

    def _begin(self, exchange: HttpExchange, scope: dict[str, Any]) -> None:
        self._active = exchange
        exchange.task = task = self.loop.create_task(self._run(exchange, scope))
        self.host.tasks.add(task)

    async def _run(self, exchange: HttpExchange, scope: dict[str, Any]) -> None:
        try:
            await self._app(scope, exchange.receive, exchange.send)
            if not (exchange.complete or exchange.gone):
                log.error("the answer to %s %r was not completed", scope["method"], scope["path"])
        except Exception:
            log.exception("the answer to %s %r failed", scope["method"], scope["path"])
        finally:
            if not (exchange.complete or exchange.gone):
                self._abort_answer(exchange)
            if exchange.task is not None:
                self.host.tasks.discard(exchange.task)
                exchange.task = None

    def _abort_answer(self, exchange: HttpExchange) -> None:
        """Close the connection of an incomplete answer, after a 500 if none of it was sent."""
        if not exchange.started and not self.transport.is_closing():
            request_id = self._send_last_answer(500, b"Internal Server Error")
            log.error("the client got a 500 for request %s", request_id)
        self._close()

    def answered(self, exchange: HttpExchange) -> None:
        """The answer of `exchange` is complete."""
        if not exchange.keep:
            if exchange.more and exchange.framed and not self._ends:
                # if the connection is closed while the client still sends its body, it may not get the answer
                self._since = self.loop.time()
                self.read_on()
            else:
                self._close()
        elif self._waiting:
            self._begin(*self._waiting.popleft())
            self.read_on()
        elif self._refusal:
            self._send_refusal()
        else:
            self._since = self.loop.time()
            self._begun = False
            self.read_on()

    def pause_writing(self) -> None:
        """See asyncio's protocols: the client reads slowly."""
        self.room = self.loop.create_future()
        self._stuck = self.loop.call_later(STUCK_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """See asyncio's protocols."""
        if self.room is not None:
            self.room.set_result(None)
            self.room = None
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    # Waiting.

    def _idle(self) -> bool:
        """Whether no request is being answered."""
        return self._active is None or self._active.complete

    def _close(self) -> None:
        """Close the connection once its client has read the rest, which may not take for ever."""
        self._writes.close()
        if self._parser is not None:  # else it is lost
            self._clock.cancel()
            self._clock = self.loop.call_later(STUCK_SECONDS, self._end_stuck, self.transport.get_write_buffer_size())

    def _end_stuck(self, unsent: int) -> None:
        """The connection is being closed and had `unsent` bytes left `STUCK_SECONDS` ago: end it if none were read."""
        left = self.transport.get_write_buffer_size()
        if left >= unsent:
            self.transport.abort()
        else:
            self._clock = self.loop.call_later(STUCK_SECONDS, self._end_stuck, left)

    def _check(self) -> None:
        """Close the connection if the client sends no request, or does not complete a head or a body."""
        idle = self._idle()
        left = self._since + KEEP_ALIVE_SECONDS - self.loop.time() if idle else KEEP_ALIVE_SECONDS
        if idle and (left <= 0 or self._ends):
            self._writes.flush()
            if end_unused(self.transport):
                self._close()
            else:
                self._clock = self.loop.call_later(UNREAD_SECONDS, self._check)
        elif not idle and self._lags():
            self.transport.abort()
        else:
            self._clock = self.loop.call_later(left, self._check)

    def _lags(self) -> bool:
        """Whether too few body bytes of the newest request arrived since the last check although reading was not
        paused."""
        newest, (before, received) = self._newest, self._last_check
        self._last_check = newest, self._body_bytes
        lags = newest is before and self._body_bytes - received < SLOWEST_BYTES
        return lags and newest is not None and newest.more and not self._paused
