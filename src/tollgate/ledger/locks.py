"""File locks, by which one process keeps others out. The system releases them when the process ends."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from tollgate.ledger.interface import StoreInUse

T = TypeVar("T")
_PAUSE_SECONDS = 0.05


async def once_free(take: Callable[[], Awaitable[T]], patience: float) -> T:
    """The result of `take`, which is tried again for `patience` seconds as long as it raises `StoreInUse`."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + patience
    while True:
        try:
            return await take()
        except StoreInUse:
            if loop.time() >= ends:
                raise
        await asyncio.sleep(_PAUSE_SECONDS)


class FileLocks:
    """The locks of one process, held until `release`."""

    def __init__(self) -> None:
        self._files: list[int] = []

    def take(self, path: Path) -> str:
        """Lock a file. The result is empty, or names the process that has the lock already."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._files.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._files.pop())
            return holder
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        return ""

    def take_usage(self, directory: Path, instance: str) -> None:
        """Keep other processes from publishing usage under this name: two of them would number their rows independently
        and mistake each other's rows for their own. Raises `StoreInUse`."""
        holder = self.take(directory / f".{instance or 'main'}.lock")
        if holder:
            raise StoreInUse(
                f"{directory} gets the usage files of another gateway (pid {holder}) under the same name; "
                "give one of them a `store.instance` or a `store.usage_directory` of its own"
            )

    def release(self) -> None:
        """Release all locks."""
        while self._files:
            os.close(self._files.pop())
