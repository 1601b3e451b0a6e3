"""Running conversions of long conversations in threads, because they would block the event loop and all other streams.

The time depends on the number of objects in a body (5 µs each, there and back), not on the length of its texts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from tollgate.json_bounds import count_of

Params = ParamSpec("Params")
Result = TypeVar("Result")

_LARGE_BYTES = 32 * 1024
_LARGE_OBJECTS = 1000
"""About 5 ms of conversion; using a thread costs 0.1 ms."""

_LARGE_READ = 1024 * 1024
"""Less than 10 ms. The JSON parser holds the interpreter's lock even in a thread; the checks afterwards do not."""

_executor = ThreadPoolExecutor(max_workers=2, thread_name_prefix="conversions")
"""A pool of its own, so that downloads, DNS look-ups and files do not wait for conversions."""


def is_large(size: int) -> bool:
    """Whether parsing a body of this many bytes may block the event loop, however few objects it has."""
    return size > _LARGE_READ


def is_long(raw: bytes) -> bool:
    """Whether converting this body would block the event loop for long: it has many objects or lists, or is very
    large."""
    size = len(raw)
    return size > _LARGE_BYTES and (is_large(size) or count_of(raw, b"{") + count_of(raw, b"[") > _LARGE_OBJECTS)


async def run_off_loop(work: Callable[Params, Result], *args: Params.args, **options: Params.kwargs) -> Result:
    """The result of `work`, run in a thread. If the caller is cancelled, the thread still finishes, and its result is
    dropped."""
    return await asyncio.get_running_loop().run_in_executor(_executor, lambda: work(*args, **options))
