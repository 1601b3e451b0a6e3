"""Waiting for work: such as goes on when whoever waits for it leaves, and such as ends then, a few pieces at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


async def outlived(work: Awaitable[T]) -> T:
    """What `work` gives or raises. Cancelling the wait does not cancel the work, and how that fails then is for its
    owner to tell: `asyncio.shield` logs it with a traceback, from Python 3.14 on.
    """
    running = asyncio.ensure_future(work)
    try:
        await asyncio.wait((running,))
    except asyncio.CancelledError:
        running.add_done_callback(_heard)
        raise
    return running.result()


def _heard(done: asyncio.Future[T]) -> None:
    """Take note of a failure, which asyncio would call never retrieved."""
    if not done.cancelled():
        done.exception()


async def few_at_once(most: int, work: Callable[[S], Awaitable[T]], pieces: Iterable[S]) -> list[T]:
    """What `work` gives for each of the pieces, in their order; it runs for at most so many of them at a time. The
    first failure ends the others, and so does whoever waits, by leaving."""
    gate = asyncio.Semaphore(most)

    async def one(piece: S) -> T:
        async with gate:
            return await work(piece)

    tasks = [asyncio.ensure_future(one(piece)) for piece in pieces]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
