"""One request on an HTTP/1 connection and its answer: ASGI's `receive` and `send`, with the framing of RFC 9112.

The connection (`http1.py`) reads and parses; an exchange is independent of other requests. It must not refer to the
`scope`, which refers to the exchange (extension `DIRECT`): such a cycle would keep every request in memory until the
garbage collector runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from tollgate.engines.request_head import STATUS_LINES

if TYPE_CHECKING:
    from tollgate.engines.http1 import Http1

Message = MutableMapping[str, Any]

MOST_UNREAD = 64 * 1024
"""Reading is paused when this many body bytes wait for the application."""
_COPIED = 8 * 1024
"""A smaller chunk is copied into one piece with its framing; for a larger one, copying costs more than two writes."""
_BODILESS = (204, 304)


class HttpExchange:
    """The state of one request; `receive` and `send` are ASGI's."""

    __slots__ = (
        "_chunked",
        "_connection",
        "_end_delivered",
        "_left",
        "_on_disconnect",
        "_parts",
        "_waiter",
        "complete",
        "continues",
        "dropped",
        "gone",
        "head",
        "keep",
        "more",
        "started",
        "task",
        "unread",
        "version",
    )

    def __init__(self, connection: Http1, version: str, head: bool, keep: bool, continues: bool) -> None:
        self._connection = connection
        self.version = version
        self.head = head
        """The answer has no body: the request is a HEAD, or the answer's status has none."""
        self.keep = keep
        """The connection is kept open after the answer."""
        self.continues = continues
        """The client waits for `100 Continue` before it sends the body."""
        self.more = True
        """The body is not complete yet."""
        self.unread = 0
        """Body bytes that wait for the application."""
        self.dropped = 0
        """Body bytes that arrived after the whole answer and were discarded."""
        self.gone = False
        """The client has left."""
        self.started = False
        self.complete = False
        self.task: asyncio.Task[None] | None = None
        self._parts: list[bytes] = []
        self._end_delivered = False
        self._waiter: asyncio.Future[None] | None = None
        self._on_disconnect: Callable[[], None] | None = None
        self._chunked = False
        self._left: int | None = None
        """Body bytes that remain to be sent according to `content-length`; None without that header."""

    # The connection's side.

    @property
    def framed(self) -> bool:
        """Whether the client can detect the end of the answer without a close of the connection."""
        return self._chunked or self._left is not None

    def add(self, data: bytes) -> None:
        """Add a piece of the body that arrived. If the answer is already complete, it is counted and discarded."""
        if self.complete:
            self.dropped += len(data)
            return
        self._parts.append(data)
        self.unread += len(data)
        self._wake()

    def end(self) -> None:
        """The body is complete."""
        self.more = False
        self._wake()

    def leave(self) -> None:
        """The connection is lost."""
        if not self.complete:
            self.gone = True
            self._wake()
            if self._on_disconnect is not None:
                self._on_disconnect()

    # The application's side.

    def on_disconnect(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` when the client leaves; None undoes this. Without it, a task must wait for ASGI's message."""
        self._on_disconnect = callback

    async def receive(self) -> Message:
        """See ASGI."""
        if self.continues and not self.started:
            self.continues = False
            self._connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not (self.gone or self.complete):
            if self._parts or not (self.more or self._end_delivered):
                parts = self._parts
                body = parts[0] if len(parts) == 1 else b"".join(parts)
                parts.clear()
                self.unread = 0
                self._end_delivered = not self.more
                return {"type": "http.request", "body": body, "more_body": self.more}
            self._connection.read_on()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return {"type": "http.disconnect"}

    def send(self, message: Message) -> Awaitable[None]:
        """See ASGI. Raises `RuntimeError` for a message out of order, `ValueError` for an invalid head."""
        if self._connection.room is not None and not self.gone:
            return self._send_later(message)
        self._send(message)
        return self._connection.done

    def answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> Awaitable[None]:
        """Send a whole answer in one call instead of two messages. Raises like `send`. May not be used if a middleware
        wraps `send`, because it must see the messages."""
        if self.started or self._connection.room is not None:
            return self._answer_later(status, headers, body)
        if not self.gone:
            self._begin(status, headers)
            self._body(body, last=True)
        return self._connection.done

    async def _answer_later(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    async def _send_later(self, message: Message) -> None:
        while self._connection.room is not None and not self.gone:
            await asyncio.shield(self._connection.room)
        self._send(message)

    def _send(self, message: Message) -> None:
        if self.gone:
            return
        expected = "http.response.body" if self.started else "http.response.start"
        if message["type"] != expected or self.complete:
            raise RuntimeError(
                f"got {message['type']}, expected {'nothing after the complete answer' if self.complete else expected}"
            )
        if self.started:
            self._body(message.get("body", b""), last=not message.get("more_body", False))
        else:
            self._begin(message["status"], message.get("headers", ()))

    def _begin(self, status: int, about: Any) -> None:
        headers = [*self._connection.host.default_headers, *about]
        by_name = dict(headers)
        if b"connection" in by_name and b"close" in by_name[b"connection"].lower():
            self.keep = False
        if b"content-length" in by_name:
            self._left = int(by_name[b"content-length"])
        elif status in _BODILESS or self.head:
            self._left = 0
        elif self.version != "1.0":
            self._chunked = True
            headers.append((b"transfer-encoding", b"chunked"))
        else:
            self.keep = False  # the body ends with the connection
        if not self.keep and b"connection" not in by_name:
            headers.append((b"connection", b"close"))
        lines = [*map(b": ".join, headers)]
        written = b"".join(lines)
        if written.find(b"\n") >= 0 or written.find(b"\r") >= 0:
            raise ValueError("a header of the answer contains a line break")
        self.head = self.head or status in _BODILESS
        self.started = True
        self._connection.write(STATUS_LINES[status] + b"\r\n".join([*lines, b"", b""]))

    def _body(self, body: bytes, *, last: bool) -> None:
        if self.head:
            pass
        elif self._chunked:
            end = b"\r\n0\r\n\r\n" if last else b"\r\n"
            if not body:
                if last:
                    self._connection.write(b"0\r\n\r\n")
            elif len(body) < _COPIED:
                self._connection.write(b"%x\r\n%b%b" % (len(body), body, end))
            else:
                self._connection.write(b"%x\r\n" % len(body))
                self._connection.write(body)
                self._connection.write(end)
        else:
            if self._left is not None:
                self._left -= len(body)
                if self._left < 0 or (last and self._left):
                    raise RuntimeError(
                        f"the body of an answer has {abs(self._left)} bytes {'fewer' if self._left > 0 else 'more'} "
                        "than its content-length"
                    )
            if body:
                self._connection.write(body)
        if last:
            self.complete = True
            self._wake()
            self._connection.answered(self)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
