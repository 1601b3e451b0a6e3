"""One upstream answer: its head, its body as it arrives, and the four budgets. Transport-neutral.

A transport (a `Source`) pushes in; the consumer pulls out. What must stay true: one timer per answer whatever its
length; a slow consumer pauses the source and never times the upstream out; bytes that arrived before a failure are
given before it is raised; leaving early closes the source at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, Self

from tollgate.errors import AnswerLost, TollgateError, UpstreamFailed, UpstreamTimeout, UpstreamUnreachable
from tollgate.upstream.coding import AnswerUnpacker, unpack_all

if TYPE_CHECKING:
    from tollgate.upstream.call import Call

HIGH_WATER = 256 * 1024
"""Bytes held for a consumer that is not reading before the source is paused."""

BLOCK = 32 * 1024
"""Most of a stream that is given at once: an upstream may fill it with events of two bytes, which take 3 µs each."""

_USUAL_LIMIT = 64 * 1024 * 1024
"""Of `read` where the caller names none: several inline images fit."""

_EARLY = 0.002
"""uvloop's clock ticks in milliseconds: a timer may fire this much before its time."""


class Source(Protocol):
    """Where an answer's bytes come from."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def abort(self) -> None: ...


class Answer:
    """`status` and `headers` (lower-case names) are there once `Client.open` returns; the body is read once.

    `await read(limit)` for a whole body, `async for chunk in answer.chunks()` for a stream. Whoever opened it calls
    `abort()` on every path, most simply by `async with answer:`.
    """

    __slots__ = (
        "_call",
        "_coding",
        "_done",
        "_error",
        "_first_at",
        "_headed",
        "_last",
        "_limit",
        "_loop",
        "_paused",
        "_rest",
        "_source",
        "_timer",
        "_timer_at",
        "_total_at",
        "_waiter",
        "_whole",
        "headers",
        "parts",
        "size",
        "status",
    )

    def __init__(self, source: Source, call: Call, loop: asyncio.AbstractEventLoop, started: float) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.parts: list[bytes] = []
        self.size = 0
        self._source = source
        self._call = call
        self._loop = loop
        self._waiter: asyncio.Future[None] | None = None
        self._error: TollgateError | None = None
        self._coding: AnswerUnpacker | None = None
        self._headed = self._done = self._paused = self._whole = False
        self._limit = HIGH_WATER
        self._rest = b""
        self._last = now = loop.time()
        timeouts = call.timeouts
        self._total_at = started + timeouts.total
        self._first_at: float | None = now + timeouts.first_byte
        self._timer_at = self._first_at if self._first_at < self._total_at else self._total_at
        self._timer: asyncio.TimerHandle | None = loop.call_at(self._timer_at, self._expire)

    # The source's side.

    def head(self, status: int, headers: dict[str, str]) -> None:
        """The head is complete."""
        self.status = status
        self.headers = headers
        self._headed = True

    def arrived(self) -> None:
        """Something came: the head, parts (already appended to `parts`, counted in `size`), or the end."""
        self._last = now = self._loop.time()
        if self.size:
            if self._first_at is not None:
                self._first_at = None
                self._reach(now + self._call.timeouts.idle)
            if self.size > self._limit and not self._done:
                if self._whole:
                    self._stop(self._too_large(self._limit))
                elif not self._paused:
                    self._paused = True
                    self._source.pause()
            if self._whole and not self._done and self._error is None:
                return
        self._wake()

    def complete(self) -> None:
        """The body has ended as it should. The source is no longer this answer's."""
        self._done = True
        self._cancel_timer()
        self._wake()

    def fail(self, error: TollgateError) -> None:
        """The source is gone or broken; `error` is raised after what arrived before it."""
        if self._done or self._error is not None:
            return
        self._error = error
        self._cancel_timer()
        self._wake()

    # The consumer's side.

    async def headed(self) -> None:
        """Wait for the head."""
        while not self._headed:
            if self._error is not None:
                raise self._error
            await self._wait()
        coding = self.headers.get("content-encoding", "").strip().lower()
        if coding and coding != "identity":
            try:
                self._coding = AnswerUnpacker(coding)
            except UpstreamFailed as error:
                self._stop(error)
                raise
            # The caller sees decoded bytes: these two would lie about them.
            del self.headers["content-encoding"]
            self.headers.pop("content-length", None)

    async def read(self, limit: int = _USUAL_LIMIT) -> bytes:
        """The whole body, decoded. Over `limit` bytes it is refused with `UpstreamFailed`."""
        self._whole = True
        self._limit = limit
        length = self.headers.get("content-length", "")
        if length.isdigit() and int(length) > limit:
            self._stop(self._too_large(limit))
        elif self._paused and self.size <= limit:
            self._resume()
        while not self._done and self._error is None and self.size <= limit:
            await self._wait()
        if self._error is not None:
            raise self._error
        if self.size > limit:
            error = self._too_large(limit)
            self._stop(error)
            raise error
        data = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
        self.parts.clear()
        if self._coding is None:
            return data
        unpacked = await unpack_all(self._coding, data, limit) if data else b""
        if unpacked is None:
            raise self._too_large(limit)
        return unpacked

    def chunks(self) -> Self:
        """Iterate the body as it comes, never an empty chunk nor a long one: whoever reads it lets others have their
        turn between two."""
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while True:
            if self._rest:
                await asyncio.sleep(0)
                return self._block(self._rest)
            if self.parts or (self._coding is not None and self._coding.more):
                if chunk := self._take():
                    return self._block(chunk)
                continue
            if self._error is not None:
                raise self._error
            if self._done:
                if self._coding is not None:
                    self._coding.ended()
                raise StopAsyncIteration
            await self._wait()

    @property
    def ended(self) -> bool:
        """True when the body has ended and all of it was taken."""
        return self._done and not self.parts and not self._rest and (self._coding is None or not self._coding.more)

    def abort(self) -> None:
        """Stop now: the connection is closed at once if the body has not ended. May be called twice."""
        self.parts.clear()
        self._rest = b""
        if not self._done and self._error is None:
            self._stop(self._abandoned())
        elif self._error is not None:  # raised, it remembers the frames of whoever read, and those have this answer
            self._error = self._abandoned()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.abort()

    # Inside.

    def _take(self) -> bytes:
        parts = self.parts
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self.size = 0
        if self._paused:
            self._resume()
        if self._coding is None:
            return data
        try:
            return self._coding.unpack(data)
        except AnswerLost as error:
            self._coding = None
            self._stop(error)
            raise

    def _block(self, data: bytes) -> bytes:
        """The first block of what was taken; the others wait."""
        self._rest = data[BLOCK:]
        return data[:BLOCK]

    async def _wait(self) -> None:
        """Sleep until something happens."""
        if self._first_at is None:
            self._last = self._loop.time()
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiter = waiter
        try:
            await waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _resume(self) -> None:
        self._paused = False
        self._last = self._loop.time()
        if not self._done and self._error is None:
            self._source.resume()

    def _stop(self, error: TollgateError) -> None:
        if not self._done and self._error is None:
            self.fail(error)
            self._source.abort()

    def _abandoned(self) -> UpstreamUnreachable:
        return UpstreamUnreachable("the answer was abandoned")

    def _too_large(self, limit: int) -> UpstreamFailed:
        return UpstreamFailed(f"the upstream's answer exceeds {limit} bytes", upstream_status=self.status)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _reach(self, when: float) -> None:
        """See to it that the timer looks no later than `when`."""
        if self._timer is not None and when < self._timer_at:
            self._timer.cancel()
            self._timer_at = when
            self._timer = self._loop.call_at(when, self._expire)

    def _expire(self) -> None:
        """The timer fired: fail if a budget is over, and look again at the next earliest moment."""
        timeouts = self._call.timeouts
        now = self._loop.time() + _EARLY
        if now >= self._total_at:
            return self._stop(UpstreamTimeout("total", timeouts.total))
        if self._first_at is not None:
            due = self._first_at
            if now >= due:
                return self._stop(UpstreamTimeout("first_byte", timeouts.first_byte))
        else:
            # A consumer that is not waiting stops the idle clock; look again when it might have run out.
            waiting = self._waiter is not None and not self._paused
            due = (self._last if waiting else now) + timeouts.idle
            if now >= due:
                return self._stop(UpstreamTimeout("idle", timeouts.idle))
        self._timer_at = min(due, self._total_at)
        self._timer = self._loop.call_at(self._timer_at, self._expire)
