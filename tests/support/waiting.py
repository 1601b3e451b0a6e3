"""Waits for conditions, so that no test depends on how fast the machine is."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

SECONDS = 60.0
"""How long a condition may take: far longer than on the busiest machine."""


async def until(condition: Callable[[], object | Awaitable[object]], seconds: float = SECONDS) -> None:
    """Lets the event loop run until `condition`, a function or a coroutine function, returns something true. Less than
    the default time is for conditions that would also become true later, for another reason."""
    async with asyncio.timeout(seconds):
        while not (await found if inspect.isawaitable(found := condition()) else found):
            await asyncio.sleep(0.005)


def wait_until(condition: Callable[[], object]) -> None:
    """Blocks until `condition` returns something true."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {SECONDS:g} seconds"
        time.sleep(0.02)
