"""HTTP over plain ASGI: a request's headers, sending a `Reply`, noticing a client that leaves. `request_body.py` reads
the body.

Plain ASGI on purpose: middleware that buffers bodies loses cancellation and back-pressure. When a client leaves, the
task that works for it is cancelled; the pipelines settle what must still be settled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from tollgate.process.concurrency import shielded
from tollgate.services import CLIENT_LEFT, LastBlock, Reply

if TYPE_CHECKING:
    from tollgate.engines.http_exchange import HttpExchange
    from tollgate.errors import TollgateError
    from tollgate.ledger import Slot
    from tollgate.room import Place

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_WATCH_AFTER = 0.05
"""Seconds after which a running request starts to watch for its client leaving. Watching takes a task, and most answers
of a fast upstream are done by then."""
DIRECT = "tollgate.direct"
"""The ASGI extension of our engines: a request's `HttpExchange`, which offers more than ASGI's messages."""

_COMMENT = b": keep-alive\n"
"""A comment line without an empty line after it: until late in 2026 OpenAI's Go client took a comment with an empty
line for an event, failed to parse its missing data, and ended the stream."""
SSE_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


def headers_of(scope: Scope) -> dict[str, str]:
    """Request headers by name, which ASGI has in lower case; repeated ones are joined by a comma."""
    headers = scope["headers"]
    found: dict[str, str] = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    if len(found) == len(headers):
        return found
    found = {}
    for name, value in headers:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


class Responder:
    """Sends one reply: knows whether it has begun, keeps a silent stream alive, notices a client that leaves, and
    releases what the request holds: room for its body, a slot of its key.

    `bodiless` (HEAD) sends the headers of the reply, with its length, and no body.
    """

    __slots__ = (
        "_bodiless",
        "_comment_task",
        "_comment_timer",
        "_direct",
        "_error_events",
        "_extra",
        "_gone",
        "_loop",
        "_quiet",
        "_receive",
        "_send",
        "_sending",
        "_sent_at",
        "_task",
        "_watch_task",
        "_watch_timer",
        "answer_begun",
        "place",
        "slot",
        "started",
        "status",
        "stopped",
    )

    def __init__(
        self, receive: Receive, send: Send, extra_headers: list[tuple[bytes, bytes]], bodiless: bool = False
    ) -> None:
        self._receive = receive
        self._send = send
        self._extra = extra_headers
        self._bodiless = bodiless
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task(self._loop)
        self._gone = False
        self._direct: HttpExchange | None = None
        self._watch_task: asyncio.Task[None] | None = None
        self._watch_timer: asyncio.TimerHandle | None = None
        self._comment_timer: asyncio.TimerHandle | None = None
        self._comment_task: asyncio.Task[None] | None = None
        self._error_events: Callable[[TollgateError], bytes] | None = None
        self._quiet = 0.0
        """Seconds of silence after which a comment is sent; `_sent_at` is when something was sent last."""
        self._sent_at = 0.0
        self._sending = False
        self.started = False
        self.status = CLIENT_LEFT
        """The status of the reply."""
        self.stopped = False
        """The gateway ends this request (`stop`)."""
        self.place: Place | None = None
        """The room that the request's body takes."""
        self.slot: Slot | None = None
        """The slot of its key, which limits how many requests the key may run at once."""
        self.answer_begun = False
        """A part of the answer was sent, not only keep-alive comments."""

    def stop(self) -> None:
        """Cancel the request because the gateway shuts down."""
        self.stopped = True
        if self._task is not None:
            self._task.cancel()

    def watch_client(self, scope: Scope) -> None:
        """From now on a leaving client cancels the current task. To be called after the whole body has been read."""
        self._direct = scope.get("extensions", {}).get(DIRECT)
        if self._direct is not None:
            self._direct.on_disconnect(self._left)
        else:
            self._watch_timer = self._loop.call_later(_WATCH_AFTER, self._begin_watching)

    def keep_alive(self, seconds: float) -> None:
        """Send an SSE comment whenever the stream has been silent for `seconds`, also before its first event."""
        self._quiet = seconds
        self._sent_at = self._loop.time()
        self._comment_timer = self._loop.call_later(seconds, self._silent)

    def status_sent(self) -> bool:
        """Whether the client has its status, from a keep-alive comment if no part of the reply was sent. If not, no
        comment is sent any more: the caller decides on a status now."""
        if not self.started and self._comment_timer is not None:
            self._end_comments(self._comment_timer)
        return self.started

    def recovers(self) -> bool:
        """Whether a cancellation that was just caught came from this object (the client left, or `stop`). It is undone
        then, and the task can go on."""
        ours = self._gone or self.stopped
        if ours and self._task is not None:
            self._task.uncancel()
        return ours

    async def send(self, reply: Reply) -> None:
        """Send a whole reply, or a stream block by block; the stream is closed in every case."""
        self.status = reply.status
        if reply.stream is None:
            if self.started:
                await self._block(reply.body, last=True)
                return
            if self._comment_timer is not None:
                self._end_comments(self._comment_timer)
            if self.slot is not None:
                self.slot.leave()  # before the client sees the end, and may send its next request
            about = (
                []
                if reply.status == 304
                else [(b"content-type", reply.media_type), (b"content-length", str(len(reply.body)).encode())]
            )
            self.started = True
            headers = [*about, *reply.headers, *self._extra]
            if self._direct is not None and self._send == self._direct.send:  # no middleware in between
                await self._direct.answer(reply.status, headers, reply.body)
                return
            await self._send({"type": "http.response.start", "status": reply.status, "headers": headers})
            await self._send({"type": "http.response.body", "body": b"" if self._bodiless else reply.body})
            return
        stream = reply.stream
        self._error_events = reply.error_events
        try:
            async for block in stream:
                if not self.started:  # with the first block, so that both are sent in one write
                    await self._start(reply.headers, reply.status)
                last = type(block) is LastBlock
                await self._block(block, last=last)
                if last:
                    return
            if not self.started:
                await self._start(reply.headers, reply.status)
            await self._block(b"", last=True)
        finally:
            await stream.aclose()  # type: ignore[attr-defined]

    def error_events(self, error: TollgateError) -> bytes:
        """The events that report `error` after the part of the stream that was sent; b"" if it has ended already, or
        is of an endpoint without such events."""
        return self._error_events(error) if self._error_events is not None else b""

    def close(self) -> None:
        """Stop watching and release what the request holds; called when it is over, however it ended."""
        if self.place is not None:
            self.place.leave()
        if self.slot is not None:
            self.slot.leave()
        if self._direct is not None:
            self._direct.on_disconnect(None)
        if self._watch_timer is not None:
            self._watch_timer.cancel()
        if self._watch_task is not None:
            self._watch_task.cancel()
        if self._comment_timer is not None:
            self._end_comments(self._comment_timer)
        # their tracebacks refer to this object: break the cycle, so that it is freed at once
        self._watch_task = self._comment_task = self._error_events = None

    async def _start(self, headers: list[tuple[bytes, bytes]], status: int = 200) -> None:
        self.started = True
        # a large answer may also be streamed without being an event stream
        lead = [] if any(name == b"content-type" for name, _ in headers) else SSE_HEADERS
        await self._send({"type": "http.response.start", "status": status, "headers": [*lead, *headers, *self._extra]})

    async def _block(self, block: bytes, *, last: bool = False) -> None:
        if self._comment_task is not None and not self._comment_task.done():
            await shielded(self._comment_task)
        if last and self.slot is not None:
            self.slot.leave()
        self._sending = self.answer_begun = True
        await self._send({"type": "http.response.body", "body": block, "more_body": not last})
        self._sending = False
        self._sent_at = self._loop.time()

    def _begin_watching(self) -> None:
        self._watch_task = self._loop.create_task(self._watch_for_leaving())

    async def _watch_for_leaving(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._left()

    def _left(self) -> None:
        self._gone = True
        if self._task is not None:
            self._task.cancel()

    def _end_comments(self, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        if self._comment_task is not None:
            self._comment_task.cancel()

    def _silent(self) -> None:
        waited = self._loop.time() - self._sent_at
        if waited >= self._quiet and not self._sending and (self._comment_task is None or self._comment_task.done()):
            self._comment_task = self._loop.create_task(self._comment())
            self._sent_at = self._loop.time()
            waited = 0.0
        self._comment_timer = self._loop.call_later(max(0.01, self._quiet - waited), self._silent)

    async def _comment(self) -> None:
        if not self.started:
            await self._start([])
        await self._send({"type": "http.response.body", "body": _COMMENT, "more_body": True})
