"""One HTTP/1.1 connection to an upstream: writes requests, parses answers.

It has one answer at a time and returns to its pool when that has ended cleanly. Anything irregular (bytes after the
end, an incomplete request, a malformed answer) closes it instead.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import TYPE_CHECKING

import httptools

from tollgate.errors import AnswerLost, UpstreamUnreachable

if TYPE_CHECKING:
    from tollgate.upstream.answer import Answer
    from tollgate.upstream.pool import Pool

MAX_HEAD_BYTES = 64 * 1024
"""Most bytes of a head; also of what arrives later without a byte of the body (trailers, chunk extensions)."""
MAX_HEADERS = 200
WRITE_WHOLE = 256 * 1024
"""Bodies up to this size are written together with the head; larger ones in slices of this size, with flow control."""

_LENIENCIES = {
    "lenient_headers": True,  # folded lines, control characters
    "lenient_chunked_length": True,  # see `on_headers_complete`
    "lenient_optional_cr_before_lf": True,
    "lenient_spaces_after_chunk_size": True,
}
"""What answers may contain although the standard forbids it, as with curl and other HTTP clients: some servers and
proxies send it, and a provider that has answered is not to look unreachable. Our requests follow the standard, and an
answer reaches the caller only after it was parsed."""

_names: dict[bytes, str] = {}


class _Malformed(Exception):
    """Raised inside parser callbacks; the parser wraps it."""


class Connection(asyncio.Protocol):
    """Created by `dial` for a pool. `answered` is set when the first byte of the current answer has arrived; `served`
    counts the completed answers."""

    def __init__(self, pool: Pool, label: str) -> None:
        self.pool = pool
        self.loop = asyncio.get_running_loop()
        self.label = label
        self.adopted = False
        self.answered = False
        self.served = 0
        self.expires = 0.0
        self.idle_seconds = pool.idle_seconds
        self.transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._answer: Answer | None = None
        self._heading: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self.on_body = self._body.append  # no Python call per chunk: some upstreams send a chunk for every word
        self._bare_bytes = 0
        self._headed = self._interim = self._keep = self._to_end = self._bodiless = False
        self._sending = self._ended = False
        self._room: asyncio.Future[None] | None = None
        self._full = False

    @property
    def usable(self) -> bool:
        """Whether it is open, as far as the event loop knows."""
        return self.transport is not None and not self.transport.is_closing()

    # Sending.

    def send(self, answer: Answer, head: bytes, body: bytes, *, bodiless: bool = False) -> None:
        """Start a request: write the head, and the body if it is small (`upload` sends a large one)."""
        self._answer = answer
        self._headed = self._to_end = self._ended = self.answered = False
        self._bare_bytes = 0
        self._bodiless = bodiless
        transport = self.transport
        if transport is None:
            self._answer = None
            answer.fail(self._lost(answer, "closed the connection before answering"))
        elif len(body) <= WRITE_WHOLE:
            # At the end of this turn of the loop: the writes of all its requests follow each other, so that a local
            # upstream wakes up once.
            self.loop.call_soon(self._write, head + body if body else head)
        else:
            self._sending = True
            transport.write(head)

    def _write(self, data: bytes) -> None:
        transport = self.transport
        if transport is not None and not transport.is_closing():
            transport.write(data)

    async def upload(self, answer: Answer, body: bytes) -> None:
        """Send a large body in slices, with flow control. Stops if the upstream sends an error or the answer ends."""
        for at in range(0, len(body), WRITE_WHOLE):
            transport = self.transport
            if self._answer is not answer or transport is None or (self._headed and answer.status >= 300):
                self._keep = False
                return
            transport.write(body[at : at + WRITE_WHOLE])
            if self._full:
                self._room = self.loop.create_future()
                try:
                    await self._room
                finally:
                    self._room = None
        self._sending = False

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._make_room()

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    # Source of an answer.

    def pause(self) -> None:
        if self.transport is not None:
            self.transport.pause_reading()

    def resume(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def abort(self) -> None:
        """Close at once, without flushing."""
        self._answer = None
        if self.transport is not None:
            self.transport.abort()
        self._make_room()

    # The event loop's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(**_LENIENCIES)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        parser = self._parser
        if answer is None or parser is None:
            self.abort()  # bytes without a request: do not reuse the connection
            return
        self.answered = True
        self._bare_bytes += len(data)
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # malformed bytes after the end of the answer (`_ended`) only close the connection
            self._deliver(answer)
            self.abort()
            if not self._ended:
                cause = error.__context__
                why = f": {cause}" if isinstance(cause, _Malformed) else ""
                answer.fail(self._lost(answer, f"sent a malformed HTTP answer{why}"))
            return
        if self._body:
            self._deliver(answer)
            self._bare_bytes = 0
        elif not self._ended and self._bare_bytes > MAX_HEAD_BYTES:
            self.abort()
            what = "trailers" if self._headed else "a head"
            answer.fail(self._lost(answer, f"sent {what} of more than {MAX_HEAD_BYTES} bytes"))
            return
        if not self._ended:
            answer.arrived()
            return
        self.served += 1
        if self._keep and not self._sending:
            self._answer = None
            self.pool.release(self)
        else:
            self.abort()

    def eof_received(self) -> None:
        # the upstream has closed while we write: the rest would not be read
        if self._sending and self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._parser = None  # it holds our bound methods: break the cycle
        answer, self._answer = self._answer, None
        self.pool.forget(self)
        if answer is not None:
            if self._headed and self._to_end and exc is None:
                answer.complete()
            else:
                when = "mid-answer" if self._headed else "before answering"
                answer.fail(self._lost(answer, f"closed the connection {when}"))
        self._make_room()

    def _lost(self, answer: Answer, what: str) -> AnswerLost | UpstreamUnreachable:
        """The error for an incomplete answer: `AnswerLost` if its head has arrived, else `UpstreamUnreachable`."""
        if self._headed:
            return AnswerLost(f"{self.label} {what}", upstream_status=answer.status)
        return UpstreamUnreachable(f"{self.label} {what}")

    def _deliver(self, answer: Answer) -> None:
        """Pass the parsed body bytes to the answer in one piece."""
        body = self._body
        if body and not self._bodiless:
            data = body[0] if len(body) == 1 else b"".join(body)
            answer.parts.append(data)
            answer.size += len(data)
        body.clear()

    # The parser's callbacks; `on_body` is set in `__init__`.

    def on_message_begin(self) -> None:
        if self._ended:
            raise _Malformed("bytes after the end")
        self._heading.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._headed:
            return  # trailers
        heading = self._heading
        if len(heading) >= MAX_HEADERS:
            raise _Malformed(f"more than {MAX_HEADERS} headers")
        if b"\0" in value:  # RFC 9110, 5.5
            raise _Malformed("a NUL in a header")
        heading.append((name, value))

    def on_headers_complete(self) -> None:
        parser, answer = self._parser, self._answer
        assert parser is not None
        assert answer is not None
        status = parser.get_status_code()
        if status < 200:
            if status == 101 or status < 100:
                raise _Malformed("101 to a request without an upgrade" if status == 101 else f"status {status}")
            self._interim = True
            return
        # the same read may have brought the body
        if self._bare_bytes > MAX_HEAD_BYTES and sum(map(len, chain(*self._heading))) > MAX_HEAD_BYTES:
            raise _Malformed(f"a head of more than {MAX_HEAD_BYTES} bytes")
        self._bare_bytes = 0
        headers = _headers_of(self._heading)
        keep = parser.should_keep_alive()
        chunked = "transfer-encoding" in headers and headers["transfer-encoding"].lower().endswith("chunked")
        if "transfer-encoding" in headers and "content-length" in headers:
            if not chunked:
                raise _Malformed("a length and a transfer coding other than chunked")
            del headers["content-length"]  # the chunks count, and the connection is not reused (RFC 9112, 6.1 and 6.3)
            keep = False
        self._headed = True
        self._keep = keep
        if not keep:
            self._to_end = not chunked and "content-length" not in headers
        elif "keep-alive" in headers:
            self.idle_seconds = min(self.pool.idle_seconds, _idle_seconds(headers["keep-alive"]))
        answer.head(status, headers)
        if self._bodiless:
            self._keep = False
            self.on_message_complete()

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
            return
        if self._ended:
            return
        self._ended = True
        self._answer.complete()  # type: ignore[union-attr]


def _headers_of(heading: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by lower-case name; values of repeated ones are joined by a comma."""
    headers = {_names.get(raw) or _name(raw): value.decode("latin-1") for raw, value in heading}
    if len(headers) < len(heading):
        headers = {}
        for raw, value in heading:
            name, text = _name(raw), value.decode("latin-1")
            headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers


def _name(raw: bytes) -> str:
    name = raw.decode("latin-1").lower()
    if len(_names) < 1000:  # upstreams choose the names: bound the cache
        _names[bytes(raw)] = name
    return name


def _idle_seconds(value: str) -> float:
    """How long to keep a connection with this `Keep-Alive` header: a second less than its `timeout`; an hour if that is
    missing or invalid."""
    for item in value.split(","):
        key, _, seconds = item.strip().partition("=")
        if key.lower() == "timeout" and seconds.isdecimal():
            return max(0.0, float(seconds) - 1.0)
    return 3600.0
