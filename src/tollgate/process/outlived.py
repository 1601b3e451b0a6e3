"""Waiting for work that goes on when whoever waits for it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

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
