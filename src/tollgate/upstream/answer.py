"""One upstream answer: its head, its body as it arrives, and the four time budgets. Independent of the transport.

A transport (a `Source`) pushes, the consumer pulls. Invariants: an answer has one timer, whatever its length; a slow
consumer pauses the source and never causes a timeout; bytes that arrived before a failure are returned before it is
raised; leaving early closes the source at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, Self

from tollgate.errors import AnswerLost, TollgateError, UpstreamFailed, UpstreamTimeout, UpstreamUnreachable
from tollgate.upstream.coding import AnswerUnpacker, compression, unpack_all
from tollgate.wire import declared_length

if TYPE_CHECKING:
    from tollgate.upstream.call import Call

HIGH_WATER = 256 * 1024
"""The source is paused when this many bytes wait for the consumer."""

BLOCK = 32 * 1024
"""Most bytes of a stream that are returned at once: they may be events of two bytes, which take 3 µs each."""

_USUAL_LIMIT = 64 * 1024 * 1024
"""The default limit of `read`: enough for several inline images."""

_EARLY = 0.002
"""uvloop's clock ticks in milliseconds: a timer may fire this many seconds too early."""


class Source(Protocol):
    """The transport's side of an answer: the origin of its bytes."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def abort(self) -> None: ...


class Answer:
    """`status` and `headers` (lower-case names) are set when `Client.open` returns; the body can be read once.

    Use `await read(limit)` for a whole body and `async for chunk in answer.chunks()` for a stream. The caller must call
    `abort()` on every path, best with `async with answer:`.
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
        "_rest_at",
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
        self._rest_at = 0
        """Where the part of `_rest` that was not returned yet begins."""
        self._last = now = loop.time()
        timeouts = call.timeouts
        self._total_at = started + timeouts.total
        self._first_at: float | None = now + timeouts.first_byte
        self._timer_at = self._first_at if self._first_at < self._total_at else self._total_at
        self._timer: asyncio.TimerHandle | None = loop.call_at(self._timer_at, self._expire)

    # The source's side.

    def head(self, status: int, headers: dict[str, str]) -> None:
        """The head has arrived."""
        self.status = status
        self.headers = headers
        self._headed = True

    def arrived(self) -> None:
        """Notify the consumer: of the head, of new `parts` (already appended, and counted in `size`), or of the end."""
        self._last = now = self._loop.time()
        if self.size:
            if self._first_at is not None:
                self._first_at = None
                self._advance_timer(now + self._call.timeouts.idle)
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
        """The body is complete. The source no longer belongs to this answer."""
        self._done = True
        self._cancel_timer()
        self._wake()

    def fail(self, error: TollgateError) -> None:
        """The source failed. `error` is raised after the bytes that arrived before it were read."""
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
        coding = compression(self.headers.get("content-encoding", ""))
        if coding:
            try:
                self._coding = AnswerUnpacker(coding)
            except UpstreamFailed as error:
                self._stop(error)
                raise
            # the caller gets decoded bytes, to which these two headers do not apply
            del self.headers["content-encoding"]
            self.headers.pop("content-length", None)

    async def read(self, limit: int = _USUAL_LIMIT) -> bytes:
        """The whole body, decoded. Raises `UpstreamFailed` if it exceeds `limit` bytes."""
        self._whole = True
        self._limit = limit
        length = declared_length(self.headers)
        if length is not None and length > limit:
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
        """Iterate over the body as it arrives. Chunks are never empty and have at most `BLOCK` bytes; other tasks can
        run between two of them."""
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while True:
            if self._rest:
                await asyncio.sleep(0)
                return self._block(self._rest, self._rest_at)
            if self.parts or (self._coding is not None and self._coding.more):
                if chunk := self._take():
                    return self._block(chunk)
                continue
            if self._error is not None:
                raise self._error
            if self._done:
                if self._coding is not None:
                    self._coding.check_complete()
                raise StopAsyncIteration
            await self._wait()

    @property
    def ended(self) -> bool:
        """Whether the body has ended and has been read completely."""
        return self._done and not self.parts and not self._rest and (self._coding is None or not self._coding.more)

    def abort(self) -> None:
        """Stop reading. The connection is closed at once if the body has not ended. May be called repeatedly."""
        self.parts.clear()
        self._rest = b""
        if not self._done and self._error is None:
            self._stop(self._abandoned())
        elif self._error is not None:  # its traceback refers to the reader's frames, and those to this answer
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

    def _block(self, data: bytes, at: int = 0) -> bytes:
        """The block of `data` that begins at `at`; the rest is kept. It is not copied: an in-process app may answer in
        one piece of 60 MB, and copying the rest for each block of it took ten seconds."""
        end = at + BLOCK
        self._rest = data if end < len(data) else b""
        self._rest_at = end
        return data[at:end]

    async def _wait(self) -> None:
        """Wait until the source calls `arrived`, `complete` or `fail`."""
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

    def _advance_timer(self, when: float) -> None:
        """Make the timer fire no later than at `when`."""
        if self._timer is not None and when < self._timer_at:
            self._timer.cancel()
            self._timer_at = when
            self._timer = self._loop.call_at(when, self._expire)

    def _expire(self) -> None:
        """The timer fired: fail if a budget is exceeded, else set the timer to the next possible time."""
        timeouts = self._call.timeouts
        now = self._loop.time() + _EARLY
        if now >= self._total_at:
            return self._stop(UpstreamTimeout("total", timeouts.total))
        if self._first_at is not None:
            due = self._first_at
            if now >= due:
                return self._stop(UpstreamTimeout("first_byte", timeouts.first_byte))
        else:
            # The idle budget counts only while the consumer waits; check again when it may be exceeded.
            waiting = self._waiter is not None and not self._paused
            due = (self._last if waiting else now) + timeouts.idle
            if now >= due:
                return self._stop(UpstreamTimeout("idle", timeouts.idle))
        self._timer_at = min(due, self._total_at)
        self._timer = self._loop.call_at(self._timer_at, self._expire)


MAX_ERROR_BYTES = 256 * 1024
"""Most bytes of a body that says why there is no answer."""


async def error_body(answer: Answer) -> bytes:
    """The body of an answer whose status is an error; b"" if it is too large or does not arrive whole, because the
    status alone says whose fault it is."""
    try:
        return await answer.read(MAX_ERROR_BYTES)
    except TollgateError:
        return b""
