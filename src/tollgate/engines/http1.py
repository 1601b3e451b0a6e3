"""HTTP/1 on hypercorn's connections, read by httptools, the parser that the upstream client and the other engine use as
well.

hypercorn reads it with h11, which is Python throughout and costs more than all that the gateway does for a small
request. What is served, cancelled and kept alive stays hypercorn's: its streams, its tasks, its connections, its
HTTP/2.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from functools import lru_cache
from typing import TYPE_CHECKING

import httptools
from hypercorn.events import Closed, RawData, Updated
from hypercorn.events import Event as ConnectionEvent
from hypercorn.protocol.events import Body, EndBody, Event, Request, Response, StreamClosed
from hypercorn.protocol.h11 import H2ProtocolAssumedError
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.utils import suppress_body

from tollgate.engines import MAX_HEAD_BYTES, MOST_DROPPED
from tollgate.engines.body_pace import BodyPace
from tollgate.engines.request_head import REFUSALS, STATUS_LINES, Refused, checked_headers, last_answer, without_upgrade
from tollgate.engines.streams import forget_unread

if TYPE_CHECKING:
    from hypercorn.asyncio.worker_context import EventWrapper
    from hypercorn.protocol import ProtocolWrapper

_STREAM = 1
"""HTTP/1 answers one request at a time, so all have the same number."""
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\n"
"""How a client begins that knows HTTP/2 is spoken (RFC 9113, 3.4)."""


class _Head:
    """A request without its body. `keep`: the connection outlives its answer. `whole`: its last byte was read."""

    __slots__ = ("continues", "headers", "keep", "method", "target", "version", "whole")

    def __init__(
        self,
        method: str,
        target: bytes,
        version: str,
        headers: list[tuple[bytes, bytes]],
        *,
        keep: bool,
        continues: bool,
    ) -> None:
        self.method = method
        self.target = target
        self.version = version
        self.headers = headers
        self.keep = keep
        self.whole = False
        self.continues = continues
        """The client waits to be told before it sends the body."""


class _Refusal:
    """Bytes that cannot be read as HTTP: the request they stand in (`of`, None between requests) is answered with
    `status`, and nothing behind them is read."""

    __slots__ = ("of", "status")

    def __init__(self, status: int, of: _Head | None) -> None:
        self.status = status
        self.of = of


_END = object()
"""The end of a request's body."""


class Http1:
    """Takes the place of hypercorn's `H11Protocol`: bytes of a connection in, answers out, one request after another.

    `write` sends bytes; `turn` is waited for by a request behind one that is being answered.
    """

    def __init__(
        self, connection: ProtocolWrapper, write: Callable[[bytes], Awaitable[None]], turn: EventWrapper
    ) -> None:
        self._connection = connection
        self._write = write
        self._turn = turn
        self._parser = httptools.HttpRequestParser(self)
        self._arrived: deque[_Head | bytes | object] = deque()
        """Parsed and not yet handed over: heads, pieces of bodies, `_END`s, and at last a `_Refusal`."""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._parsed: _Head | None = None
        """The newest request that was read."""
        self._head_bytes = 0
        """Bytes read since the last complete head or piece of a body: of the head or trailers that are arriving."""
        self._pace = BodyPace()
        self._first: bytes | None = b""
        """The first bytes of the connection, kept until it is certain that they do not begin HTTP/2; then None."""
        self._deaf = False
        """What arrives now is not read: it follows a refusal, or a request that ends the connection."""
        self._over = False
        """Nothing more is sent."""
        self._lingers = False
        """The last answer is out, the rest of its request's body is still being read, for nobody."""
        self._dropped = 0
        """Bytes read so."""
        self._stream: HTTPStream | None = None
        self._head: _Head | None = None
        """Of the request that is being answered."""
        self._answering = False
        """The head of an answer was written, its end was not."""
        self._chunked = False
        self._left: int | None = None
        """Bytes of the answer's body that its head has promised and that are still to come."""
        self._ended = False
        self._in_pieces = False
        """The body of the request did not come whole: there may be more of it than the application has read."""

    async def initiate(self) -> None:
        """See hypercorn's protocols: nothing is said before the client speaks."""

    async def handle(self, event: ConnectionEvent) -> None:
        """Take bytes from the client, or its end. Raises `H2ProtocolAssumedError` when it speaks HTTP/2."""
        if isinstance(event, RawData):
            if event.data and not self._deaf:
                self._read(event.data)
            await (self._drop_rest() if self._lingers else self._hand_over())
        elif isinstance(event, Closed):
            self._over = self._deaf = True
            await self._close_stream()
            await self._turn.set()

    def lags(self) -> bool:
        """Whether hardly anything has come, since this was asked last, of a request's body that is being waited for."""
        newest = self._parsed
        return newest is not None and self._pace.lags(newest) and newest is self._head and not newest.whole

    # ---- reading

    def _read(self, data: bytes) -> None:
        if self._first is not None:
            data = self._first + data
            if data.startswith(_HTTP2_PREFACE):
                raise H2ProtocolAssumedError(data)
            self._first = data if _HTTP2_PREFACE.startswith(data) else None
            if self._first:
                return
        self._head_bytes += len(data)
        while data:
            try:
                self._parser.feed_data(data)
                break
            except httptools.HttpParserUpgrade as upgrade:
                data = self._ignore_upgrade(data[upgrade.args[0] :])
            except httptools.HttpParserError:
                if self._parsed is None or self._parsed.keep or not self._parsed.whole:
                    self._refuse(400)
                self._deaf = True  # or it goes on behind the request that was its last
                break
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(431)

    def _ignore_upgrade(self, rest: bytes) -> bytes:
        """The bytes to parse next after the head of a request that asks for an upgrade: the head without that, and the
        `rest`."""
        head = self._parsed
        if head is None or self._deaf:
            return b""
        if head.method == "CONNECT":  # what follows is no HTTP
            self._deaf = True
            head.keep = False
            return b""
        self._arrived.pop()  # its end
        self._arrived.pop()
        return without_upgrade(head.method.encode(), head.target, head.version, head.headers, rest)

    def _refuse(self, status: int) -> None:
        if not self._deaf:
            self._deaf = True
            self._arrived.append(_Refusal(status, None if self._parsed is None or self._parsed.whole else self._parsed))

    def on_message_begin(self) -> None:
        """See httptools, as the next ones."""
        self._url = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        version = self._parser.get_http_version()
        headers = self._headers
        try:
            by_name = checked_headers(version, headers)
        except Refused as refused:
            by_name = {}
            self._refuse(refused.status)
        continues = version == "1.1" and by_name.get(b"expect", b"").lower() == b"100-continue"
        head = _Head(
            self._parser.get_method().decode(),
            self._url,
            version,
            headers,
            keep=version == "1.1" and self._parser.should_keep_alive(),
            continues=continues,
        )
        self._parsed = head
        self._headers = []  # trailers are no headers (RFC 9110, 6.5.1): they go nowhere
        self._arrived.append(head)

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        self._pace.came += len(body)
        self._arrived.append(body)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        if self._parsed is not None:
            self._parsed.whole = True
        self._arrived.append(_END)

    # ---- handing over

    async def _hand_over(self) -> None:
        """Give the application what has arrived; a request waits until the one before it is answered."""
        arrived = self._arrived
        while arrived and not self._over:
            item = arrived.popleft()
            if isinstance(item, _Head):
                await self._my_turn()
                await self._begin(item)
            elif isinstance(item, _Refusal):
                if item.of is None or item.of is not self._head:
                    await self._my_turn()
                await self._tell_refusal(item.status)
            else:
                pieces = []
                while type(item) is bytes:
                    pieces.append(item)
                    item = arrived.popleft() if arrived and not isinstance(arrived[0], _Refusal) else None
                if item is not _END:
                    self._in_pieces = True
                if self._stream is not None and not self._stream.closed:
                    await self._stream.app_put(
                        {"type": "http.request", "body": b"".join(pieces), "more_body": item is not _END}
                    )

    async def _my_turn(self) -> None:
        while self._stream is not None:
            await self._turn.clear()
            await self._turn.wait()

    async def _begin(self, head: _Head) -> None:
        if self._over:
            return
        about = self._connection
        await about.send(Updated(idle=False))
        self._head = head
        self._ended = self._in_pieces = False
        self._stream = stream = HTTPStream(
            about.app,
            about.config,
            about.context,
            about.task_group,
            about.ssl,
            about.client,
            about.server,
            self._send,
            _STREAM,
        )
        await stream.handle(Request(_STREAM, head.headers, head.version, head.method, head.target, about.state))
        if head.continues and not self._arrived:
            await self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def _tell_refusal(self, status: int) -> None:
        if not self._answering and not self._over:
            date = (b"date", _date(int(time.time())))
            await self._write(last_answer(status, REFUSALS[status], [date])[0])
        await self._close()

    # ---- answering

    async def _send(self, event: Event) -> None:
        """What hypercorn's stream has to say."""
        if self._over:
            return
        if isinstance(event, Body):
            if self._chunked:
                await self._write(b"%x\r\n%b\r\n" % (len(event.data), event.data))
            else:
                if self._left is not None:
                    self._left -= len(event.data)
                    if self._left < 0:
                        raise ValueError("the body of an answer is longer than its head says")
                await self._write(event.data)
        elif isinstance(event, Response):
            await self._write(self._answer_head(event))
        elif isinstance(event, EndBody):
            self._ended = not self._left
            if self._chunked:
                await self._write(b"0\r\n\r\n")
        elif isinstance(event, StreamClosed):
            await self._answered()

    def _answer_head(self, event: Response) -> bytes:
        """The head of an answer, and how its body will be framed (RFC 9112, 6)."""
        head = self._head
        assert head is not None
        headers = dict(event.headers)
        lines = [STATUS_LINES[event.status_code]]
        lines += [b"%b: %b\r\n" % header for header in event.headers]
        lines.append(b"date: %b\r\n" % _date(int(time.time())))
        length = headers.get(b"content-length")
        self._chunked = False
        self._left = None
        if suppress_body(head.method, event.status_code):
            pass
        elif length is not None:
            self._left = int(length)
        elif head.version == "1.1":
            self._chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        else:
            head.keep = False  # the body ends with the connection
        if not head.whole:
            head.keep = False  # its rest may be long
        if self._connection.context.terminated.is_set():
            head.keep = False  # the server ends: who is told so sends no next request into the end of the connection
        if b"close" in headers.get(b"connection", b"").lower():
            head.keep = False
        elif not head.keep:
            lines.append(b"connection: close\r\n")
        self._answering = True
        written = b"".join(lines)
        if written.count(b"\n") != len(lines) or written.count(b"\r") != len(lines):
            raise ValueError("a header of an answer holds a line break")
        return written + b"\r\n"

    async def _answered(self) -> None:
        head = self._head
        whole = self._ended and head is not None and head.keep and head.whole
        self._answering = False
        await self._close_stream()
        if self._connection.context.terminated.is_set():
            await self._close()
        elif whole:
            await self._turn.set()
            await self._connection.send(Updated(idle=True))
        elif self._ended and head is not None and not head.whole and (self._chunked or self._left is not None):
            # who is still writing when the connection closes hears of that alone, not of the answer
            self._lingers = True
            await self._connection.send(Updated(idle=True))
        else:
            await self._close()

    async def _drop_rest(self) -> None:
        self._dropped += sum(len(piece) for piece in self._arrived if isinstance(piece, bytes))
        self._arrived.clear()
        if self._deaf or self._head is None or self._head.whole or self._dropped > MOST_DROPPED:
            await self._close()

    async def _close(self) -> None:
        self._over = self._deaf = True
        await self._close_stream()
        await self._turn.set()
        await self._connection.send(Closed())

    async def _close_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            if self._in_pieces:
                forget_unread(stream)
            await stream.handle(StreamClosed(_STREAM))


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    """The header that tells the time."""
    return formatdate(second, usegmt=True).encode()
