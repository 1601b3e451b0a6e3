"""The published usage files as the pages read them.

Every query runs on one of two threads with limited memory and time, never on the event loop, and without files that are
damaged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from tollgate.errors import Unavailable
from tollgate.ledger.reports import Filters, damage, damaged_files, in_memory, select_usage, too_many_open

log = logging.getLogger("tollgate.reports")

T = TypeVar("T")

_BELIEVED_SECONDS = 60.0
"""How long a file counts as damaged. The machine may have been the cause: too many open files, a disk that was away."""
_THREADS = 2
_CORES = max(1, min(4, (os.cpu_count() or 2) // 2))
"""Threads of one query: the other half of the machine is for requests."""
_MEMORY = "512MB"
_SECONDS = 30.0
"""A query that takes longer is refused, with the advice to ask for less."""
_INTERRUPT_AGAIN_SECONDS = 0.01
_MOST_WAITING = 32
_TRIES = 3
"""How often a query is tried whose files are gone before it opens them: those of a day that is too old to keep are
removed one after the other."""


class UsageFiles:
    """One usage directory. `run` is called on one event loop, `query` on the threads it uses. A damaged file is left
    out, and listed in `damaged`, until it is changed or gone."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tollgate-reports")
        self._waiting = 0
        self._closed = False
        self._running: set[threading.Event] = set()
        """For each running query the event that ends it."""
        self._damaged: dict[Path, tuple[int, float]] = {}
        """Files that cannot be read, with the time of their last change, and the clock time until which they count
        as damaged."""
        self.incomplete_at = 0.0
        """Clock time at which a query last left out a file: its results are not cached."""

    @property
    def damaged(self) -> list[str]:
        """A message about each file that is left out, and how to fix it."""
        return [damage(self.directory, path) for path in self._left_out()] if self._damaged else []

    def close(self) -> None:
        """Stop running queries and end the threads."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for stop in tuple(self._running):
            stop.set()

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` on a thread. Raises `Unavailable` if too much is running, or the query takes too much."""
        if self._waiting >= _MOST_WAITING:
            raise Unavailable("too many usage pages are being made; try again in a moment")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except duckdb.InterruptException:
            if self._closed:
                raise Unavailable("the gateway is stopping") from None
            raise Unavailable(f"this took more than {_SECONDS:g} s; choose a shorter time or more filters") from None
        except duckdb.OutOfMemoryException:
            raise Unavailable(
                f"this takes more than {_MEMORY} of memory; choose a shorter time or more filters"
            ) from None
        finally:
            self._waiting -= 1

    def query(
        self,
        filters: Filters,
        statement: str,
        values: list[object] | None = None,
        *,
        copy_to: str = "",
        tries: int = _TRIES,
    ) -> list[tuple[Any, ...]]:
        """Run `statement` (the rest of a WITH that has `usage`) on a connection of its own, on this thread."""
        left_out = self._left_out()
        if left_out:
            self.incomplete_at = time.monotonic()
        try:
            return self._run_sql(
                f"WITH usage AS ({select_usage(self.directory, filters, left_out)}) {statement}", values or [], copy_to
            )
        except (duckdb.InterruptException, duckdb.OutOfMemoryException):
            raise
        except duckdb.Error as error:
            if too_many_open(error):
                raise Unavailable("this reads more files than may be open now; choose a shorter time") from None
            found = damaged_files(self.directory, filters, left_out)
            if not found and (tries == 1 or not isinstance(error, duckdb.IOException)):
                raise
        for path in found:
            log.error("%s", damage(self.directory, path))
            with contextlib.suppress(OSError):
                self._damaged[path] = path.stat().st_mtime_ns, time.monotonic() + _BELIEVED_SECONDS
        return self.query(filters, statement, values, copy_to=copy_to, tries=tries if found else tries - 1)

    def _left_out(self) -> list[Path]:
        """The damaged files. One that was changed or is gone is read again, and every one after a minute."""
        for path, (changed, until) in tuple(self._damaged.items()):
            try:
                same = path.stat().st_mtime_ns == changed
            except OSError:
                same = False
            if not same or time.monotonic() > until:
                self._damaged.pop(path, None)
        return list(self._damaged)

    def _run_sql(self, whole: str, values: list[object], copy_to: str) -> list[tuple[Any, ...]]:
        if copy_to:
            whole = f"COPY ({whole}) TO {copy_to}"
        made = in_memory(threads=_CORES, memory_limit=_MEMORY, preserve_insertion_order=False)
        with made as connection, self._stopped_in_time(connection):
            return connection.execute(whole, values).fetchall()

    @contextlib.contextmanager
    def _stopped_in_time(self, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Interrupt what runs on `connection` inside this context once its time is up, or `close` was called.

        DuckDB forgets an interruption that arrives before the query has begun, so it is repeated."""
        stop = threading.Event()

        def interrupt() -> None:
            stop.wait(_SECONDS)
            while stop in self._running:
                connection.interrupt()
                time.sleep(_INTERRUPT_AGAIN_SECONDS)

        self._running.add(stop)
        if self._closed:
            stop.set()
        watch = threading.Thread(target=interrupt, name="tollgate-reports-watch", daemon=True)
        watch.start()
        try:
            yield
        finally:
            self._running.discard(stop)
            stop.set()
            watch.join()
