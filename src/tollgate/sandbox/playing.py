"""Sends an answer's bytes with the requested pace and failures, and counts readers that leave early.

In-process, a dropped connection is a `ConnectionResetError` raised from the iterator (or from the call); over HTTP the
server closes the connection without ending the body.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from dataclasses import dataclass

import orjson

from tollgate import sse
from tollgate.sandbox.answer import BAD, BAD_BYTES
from tollgate.sandbox.controls import Controls
from tollgate.sandbox.writing import Event

_BLOCK = 16 * 1024
"""Events without a pace are joined into blocks of about this size, like those of a socket."""
_FOREVER = 24 * 3600.0
_BAD = BAD.encode()


@dataclass(slots=True)
class Stats:
    """Counters of the sandbox: answers begun, answers running, answers whose reader left before the end."""

    requests: int = 0
    running: int = 0
    aborted: int = 0


class Body:
    """An answer's body: an asynchronous iterator of bytes; `aclose` means that the reader has left.

    `make` gets a function to call before the last bytes: leaving after them is not counted as early.
    """

    def __init__(self, make: Callable[[Callable[[], None]], AsyncGenerator[bytes]], stats: Stats) -> None:
        self._stats = stats
        self._open = True
        stats.running += 1
        self._source = make(self._end)

    def __aiter__(self) -> Body:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._source)
        except (StopAsyncIteration, ConnectionResetError):
            self._end()
            raise
        except asyncio.CancelledError:
            self._end(aborted=True)
            raise

    async def aclose(self) -> None:
        """The reader leaves, or has finished."""
        self._end(aborted=True)
        await self._source.aclose()

    def _end(self, *, aborted: bool = False) -> None:
        if self._open:
            self._open = False
            self._stats.running -= 1
            self._stats.aborted += aborted

    def __del__(self) -> None:
        self._end(aborted=True)


def encode(event: Event) -> bytes:
    """One event as bytes of a stream."""
    name, data = event
    raw = data.encode() if isinstance(data, str) else orjson.dumps(data)
    return sse.encode(raw.replace(_BAD, BAD_BYTES), name)


async def play_stream(
    events: Iterable[Event], failure: Iterable[Event], controls: Controls, last: Callable[[], None]
) -> AsyncGenerator[bytes]:
    """The events of a stream; `failure` replaces the rest if an error is requested."""
    if controls.reset:
        raise _dropped()
    coming = _failing(iter(events), failure, controls.stream_error)
    event = next(coming, None)
    held, number = b"", 0
    while event is not None:
        data = encode(event)
        if controls.pace:
            await asyncio.sleep(controls.pace)
        if number in (controls.stall, controls.cut, controls.cut_mid):
            held += data[: max(1, len(data) // 2)] if number == controls.cut_mid else b""
            if held:
                yield held
            await _accident(controls, stall=number == controls.stall)
            return
        held += data
        number += 1
        event = next(coming, None)
        if event is None:
            last()
        if controls.pace or event is None or len(held) >= _BLOCK:
            yield held
            held = b""
            await asyncio.sleep(0)
    if number in (controls.stall, controls.cut):
        await _accident(controls, stall=number == controls.stall)


async def play_whole(data: bytes, controls: Controls, last: Callable[[], None]) -> AsyncGenerator[bytes]:
    """A whole body; cuts and stalls are in its middle."""
    if controls.reset:
        raise _dropped()
    data = data.replace(_BAD, BAD_BYTES)
    if controls.cut is None and controls.cut_mid is None and controls.stall is None:
        last()
        yield data
        return
    yield data[: len(data) // 2]
    await _accident(controls, stall=controls.stall is not None)


async def _accident(controls: Controls, *, stall: bool) -> None:
    if stall:
        await asyncio.sleep(_FOREVER)
    if not controls.clean:
        raise _dropped()


def _dropped() -> ConnectionResetError:
    return ConnectionResetError("the sandbox was asked to drop the connection")


def _failing(events: Iterator[Event], failure: Iterable[Event], after: int | None) -> Iterator[Event]:
    if after is None:
        yield from events
        return
    for _, event in zip(range(after), events, strict=False):
        yield event
    yield from failure
