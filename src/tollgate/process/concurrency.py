"""Ways to run work: `shielded` lets it go on when its waiter is cancelled, `few_at_once` limits how much runs at a
time, `in_turns` lets others run during a long list, and `in_daemon_thread` is for work that may hang."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import Future
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


async def shielded(work: Awaitable[T]) -> T:
    """The result of `work`, or its error. Cancelling the wait does not cancel the work; its owner must report a failure
    then. Unlike `asyncio.shield`, which logs it with a traceback from Python 3.14 on.
    """
    running = asyncio.ensure_future(work)
    try:
        await asyncio.wait((running,))
    except asyncio.CancelledError:
        running.add_done_callback(_retrieve_error)
        raise
    return running.result()


def _retrieve_error(done: asyncio.Future[T]) -> None:
    """Retrieve the error, so that asyncio does not log that nobody did."""
    if not done.cancelled():
        done.exception()


async def few_at_once(most: int, work: Callable[[S], Awaitable[T]], pieces: Iterable[S]) -> list[T]:
    """The results of `work` for these pieces, in order. It runs for at most `most` pieces at a time. The first failure
    cancels the others, and so does cancelling the wait. Nothing of it runs any more when this returns or raises."""
    gate = asyncio.Semaphore(most)

    async def one(piece: S) -> T:
        async with gate:
            return await work(piece)

    tasks = [asyncio.ensure_future(one(piece)) for piece in pieces]
    try:
        return await asyncio.gather(*tasks)
    finally:
        if running := [task for task in tasks if not task.done()]:
            for task in running:
                task.cancel()
            await asyncio.wait(running)


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items one by one. Other tasks run in between, so that hundreds of thousands of keys do not hold up requests:
    `items` is to be no view of something that they change."""
    for number, item in enumerate(items, 1):
        yield item
        if not number % _AT_ONCE:
            await asyncio.sleep(0)


_AT_ONCE = 500
"""Items whose work takes some milliseconds."""


def in_daemon_thread(work: Callable[[], T], name: str) -> Future[T]:
    """Start `work` in a thread of this name; returns its future. Unlike an executor's threads, it does not keep the
    process from ending: the work may hang."""
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()
    threading.Thread(target=_run, args=(work, done), name=name, daemon=True).start()
    return done


def _run(work: Callable[[], T], done: Future[T]) -> None:
    try:
        done.set_result(work())
    except BaseException as error:
        done.set_exception(error)
    finally:
        # breaks a reference cycle: the future refers to an error, and that to this frame and all objects of its work
        del work, done
