"""Conversions of long conversations run beside the event loop: everybody else's stream would stand still meanwhile.

What takes time is how many objects a body holds (5 µs each, there and back), not how long its texts are.
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
"""5 ms of conversion, where the way to a thread and back costs a tenth of one."""

_LARGE_READ = 1024 * 1024
"""Below 10 ms. The JSON parser itself lets nobody else run, in a thread either; what is looked at afterwards does."""

_executor = ThreadPoolExecutor(max_workers=2, thread_name_prefix="conversions")
"""Own threads: downloads, look-ups and files need not wait behind conversions."""


def is_large(size: int) -> bool:
    """Whether reading a body of so many bytes may hold the event loop up, however few objects it holds."""
    return size > _LARGE_READ


def is_long(raw: bytes) -> bool:
    """Whether converting this body would hold the event loop up for long: it holds many objects or lists, or much that
    may be either, such as numbers."""
    size = len(raw)
    return size > _LARGE_BYTES and (is_large(size) or count_of(raw, b"{") + count_of(raw, b"[") > _LARGE_OBJECTS)


async def run_off_loop(work: Callable[Params, Result], *args: Params.args, **options: Params.kwargs) -> Result:
    """The result of `work`, run in a thread. A caller that is cancelled leaves at once; the thread still finishes, and
    its result is dropped."""
    return await asyncio.get_running_loop().run_in_executor(_executor, lambda: work(*args, **options))
