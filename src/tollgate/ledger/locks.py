"""Locks on files, by which one process keeps others out of what is its own. The system drops them with the process."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from tollgate.ledger.interface import StoreInUse


class FileLocks:
    """The locks of one process, held until `release`."""

    def __init__(self) -> None:
        self._files: list[int] = []

    def take(self, path: Path) -> str:
        """Lock a file; gives the process that has it, else an empty text."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._files.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        return ""

    def take_usage(self, directory: Path, instance: str) -> None:
        """Keep other processes from publishing usage under this name: each of two would number its rows by itself, and
        take the other's rows for its own. Raises `StoreInUse`."""
        holder = self.take(directory / f".{instance or 'main'}.lock")
        if holder:
            raise StoreInUse(
                f"{directory} gets the usage files of another gateway (pid {holder}) under the same name; "
                "give one of them a `store.instance` or a `store.usage_directory` of its own"
            )

    def release(self) -> None:
        """Let go of all."""
        while self._files:
            os.close(self._files.pop())
