"""The embedded backend: journal, DuckDB store and published files of one process, in one directory it has locked.

The event loop only queues journal lines. The journal's thread makes them durable and passes them on; the writer thread
here stores them every few seconds, or as soon as there are many, deletes journal segments that are no longer needed,
and publishes usage files. It does not store more often, because rows that are being journalled wait for the disk while
the store commits.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import duckdb

from tollgate.config.model import Store as StoreSettings
from tollgate.errors import TollgateError
from tollgate.ledger import segments
from tollgate.ledger.interface import Snapshot, StoreInUse
from tollgate.ledger.journal import Journal, call_on
from tollgate.ledger.locks import FileLocks
from tollgate.ledger.publish import Effort, Publisher, remove_files, unpublished
from tollgate.ledger.records import Generation, Grant
from tollgate.ledger.retention import FirstDays, Retention
from tollgate.ledger.segments import Entry
from tollgate.ledger.store import BATCH, FILE_NAME, Store
from tollgate.ledger.usage_source import StoreSource
from tollgate.outage import Outage

log = logging.getLogger("tollgate.ledger")

LOCK_NAME = "ledger.lock"
MOVED_NAME = "moved.txt"
"""Tells that the store lives elsewhere now."""
_REMOVE_SECONDS = 1.0
"""So long at a time old rows are removed, some 10 ms for a day's 10,000, while new ones wait in the journal."""


class EmbeddedBackend:
    """See `interface.Backend`; one instance per process and directory."""

    def __init__(self, settings: StoreSettings, *, moved: bool = False) -> None:
        """`moved`: open also a store that was moved into a shared one."""
        self._settings = settings
        self._moved = moved
        self._directory = settings.directory
        self._journal_directory = self._directory / "journal"
        self.store = Store(self._directory / FILE_NAME)
        self.publisher = Publisher(StoreSource(self.store), settings.usage_directory, settings.instance)
        self.journal = Journal(self._journal_directory, on_durable=self._durable)
        self.append = self.journal.append
        self._waiting: deque[Sequence[Entry]] = deque()
        self._rows_waiting = 0
        self._wake = threading.Condition()
        self._settle_requests: list[asyncio.Future[None]] = []
        self._stopping = False
        self._ended = False
        """The writer thread takes no more requests; changed under the lock."""
        self._store_outage = Outage(log)
        self._publish_outage = Outage(log)
        self._file_outage = Outage(log)
        """The store's file is not where the next start would look for it."""
        self._next_publish = 0.0
        self._unpublished = False
        """Rows were stored since the last publication."""
        self._recheck = True
        self._retention = Retention(settings)
        self._removing: FirstDays | None = None
        """The days before which rows, files and jobs are being removed, over several turns of the writer; None between
        removals."""
        self._locks = FileLocks()

    @property
    def problem(self) -> str:
        return self.journal.outage.reason or self._store_outage.reason or self._file_outage.reason

    @property
    def publish_problem(self) -> str:
        return self._store_outage.reason or self._publish_outage.reason

    @property
    def _closed_because(self) -> str:
        return self._store_outage.reason or "the ledger is closed"

    @property
    def last_seq(self) -> int:
        return self.journal.last_seq

    # ---- opening

    async def open(self, on_applied: Callable[[int], None]) -> Snapshot:
        self._loop = asyncio.get_running_loop()
        self._on_applied = on_applied
        try:
            snapshot, next_seq = await asyncio.to_thread(self._open)
        except BaseException:
            self.store.close()
            self._locks.release()
            raise
        self.journal.start(next_seq)
        self._thread = threading.Thread(target=self._run, name="tollgate-store", daemon=True)
        self._thread.start()
        return snapshot

    def _open(self) -> tuple[Snapshot, int]:
        try:
            if not self._directory.exists():
                # hashes of keys and passwords are in there; `parents` would get the usual mode
                self._directory.mkdir(parents=True, mode=0o700)
            self._close_to_others()
            self._journal_directory.mkdir(exist_ok=True, mode=0o700)
            self._settings.usage_directory.mkdir(parents=True, exist_ok=True)
            self._lock()
            self._refuse_moved()
        except OSError as error:
            raise TollgateError(
                f"{error.filename or self._directory}: the ledger cannot be kept here: {error.strerror}"
            ) from error
        try:
            self._catch_up()
            newest = max(self.store.progress("applied"), self.publisher.highest_seq())
            return self.store.snapshot(datetime.now(UTC)), newest + 1
        except (duckdb.Error, OSError) as error:  # a full disk, most likely
            reason = str(error).splitlines()[0]
            raise TollgateError(
                f"{self._directory}: the ledger cannot be brought up to date; its journal stays as it is: {reason}"
            ) from error

    def _close_to_others(self) -> None:
        """Take from a directory that somebody else made what it lets strangers do: DuckDB makes its files readable for
        all, a new log after every time it is put in. What the directory's group may do stays."""
        mode = stat.S_IMODE(self._directory.stat().st_mode)
        if not mode & stat.S_IRWXO:
            return
        why = "the file system keeps no modes"
        try:
            self._directory.chmod(mode & ~stat.S_IRWXO)
        except OSError as error:
            why = str(error.strerror)
        if self._directory.stat().st_mode & stat.S_IRWXO:  # some say yes and do nothing
            log.warning(
                "%s: every user of this machine may look into it, and hashes of keys and passwords are in there; it "
                "cannot be closed: %s",
                self._directory,
                why,
            )

    def _catch_up(self) -> None:
        """Open the store and put into it what the last run left in the journal only."""
        self.store.open()
        batch: list[Entry] = []
        replayed = 0
        for entry in segments.read_all(self._journal_directory, self.store.progress("applied")):
            batch.append(entry)
            replayed += 1
            if len(batch) >= BATCH:
                self.store.apply(batch)
                batch = []
        self.store.apply(batch)
        if replayed:
            log.info("%d event(s) of the last run were in the journal only and are stored now", replayed)
        self.journal.remove_all()
        self.publisher.remove_leftovers()

    def _refuse_moved(self) -> None:
        mark = self._directory / MOVED_NAME
        if mark.exists() and not self._moved:
            raise TollgateError(
                f"{self._directory}: {mark.read_text('utf-8').strip()} Set store.url; who deletes {mark} goes on with "
                "balances that are spent elsewhere too"
            )

    def _lock(self) -> None:
        """Keep every other process out of the store, and out of the usage files that this one publishes."""
        holder = self._locks.take(self._directory / LOCK_NAME)
        if holder:
            raise StoreInUse(f"{self._directory} is in use by another process (pid {holder})")
        self._locks.take_usage(self._settings.usage_directory, self._settings.instance)

    # ---- events

    def _durable(self, entries: Sequence[Entry]) -> None:
        with self._wake:
            self._waiting.append(entries)
            before = self._rows_waiting
            self._rows_waiting += len(entries)
            if before < BATCH <= self._rows_waiting:
                self._wake.notify()

    # ---- reading

    async def generation(self, account_id: str, id: str) -> Generation | None:
        return await asyncio.to_thread(self.store.generation, account_id, id)

    async def succeeded(self, account_id: str, limit: int) -> list[Generation]:
        return await asyncio.to_thread(self.store.succeeded, account_id, limit)

    async def grants(self, account_id: str) -> list[Grant]:
        await self.settle()
        return await asyncio.to_thread(self.store.grants, account_id)

    async def settle(self) -> None:
        if self._stopping:
            return
        await self.journal.append("mark", b"null")
        future: asyncio.Future[None] = self._loop.create_future()
        with self._wake:
            if self._ended:
                raise TollgateError(self._closed_because)
            self._settle_requests.append(future)
            self._wake.notify()
        await future

    async def close(self) -> None:
        await self.journal.close()
        with self._wake:
            self._stopping = True
            self._wake.notify()
        await asyncio.to_thread(self._thread.join)
        self._locks.release()

    # ---- the writer thread

    def _run(self) -> None:
        try:
            stopping = False
            while not stopping:
                stopping = self._stopping  # the journal is closed by then: the round that sees it stores the last rows
                self._round()
        except BaseException as error:
            self._store_outage.begin(f"the store's writer stopped: {type(error).__name__}")
            raise
        finally:
            self._let_go()

    def _round(self) -> None:
        """One turn of the writer: wait, store what is durable, publish, tell those who wait for it."""
        with self._wake:
            many = self._rows_waiting >= BATCH and not self._store_outage.reason
            if not self._settle_requests and not self._stopping and not many:
                due = self._next_publish - time.monotonic() if self._unpublished else self._settings.apply_seconds
                self._wake.wait(max(0.0, min(self._settings.apply_seconds, due)))
            requests, self._settle_requests = self._settle_requests, []
            hurry = bool(requests) or self._stopping
        self._look_for_store()
        self._store_waiting()
        if not self._store_outage.reason:  # else the store may be closed
            self._publish(now=hurry)
        if not (self.publish_problem or self.publisher.behind):
            self._remove_old()
        for future in requests:
            call_on(self._loop, _done, future, self._store_outage.reason)

    def _let_go(self) -> None:
        """Close the store; the journal goes only if everything in it is stored."""
        with self._wake:
            self._ended = True
            requests, self._settle_requests = self._settle_requests, []
        for future in requests:
            call_on(self._loop, _done, future, self._closed_because)
        try:
            self.store.close()
        except duckdb.Error as error:
            log.error("the store did not close cleanly: %s", error)
        if not self._waiting and not self._store_outage.reason and not self.journal.outage.reason:
            self.journal.remove_all()

    def _look_for_store(self) -> None:
        """No new work while the file is not where the next start looks for it; what is durable still goes into it."""
        path = self._directory / FILE_NAME
        if self.store.is_gone:
            self._file_outage.begin(
                f"{path} was removed or moved away under the running gateway; put it back, or copy it from "
                f"/proc/{os.getpid()}/fd before this process ends",
                level=logging.CRITICAL,
            )
        else:
            self._file_outage.end(f"{path} is back")

    def _store_waiting(self) -> None:
        """Store what is durable; what cannot be stored is kept for the next turn."""
        entries: list[Entry] = []
        taken = len(self._waiting)
        for position in range(taken):
            entries += self._waiting[position]
        if not entries:
            if self.store.rows_cached:
                self.store.let_go()
            return
        try:
            if self._store_outage.reason and not self._file_outage.reason:  # an empty file would take its place
                # A failed commit may have happened all the same, and DuckDB may refuse to go on with this connection.
                self.store.reopen()
                stored = self.store.progress("applied")
                self.store.apply([entry for entry in entries if entry.seq > stored])
            else:
                self.store.apply(entries)
        except (duckdb.Error, TollgateError) as error:
            reason = f"the store cannot be written: {str(error).splitlines()[0]}"
            self._store_outage.begin(reason, f"{reason}; {len(entries)} event(s) stay in the journal")
            return
        with self._wake:
            for _ in range(taken):
                self._waiting.popleft()
            self._rows_waiting -= len(entries)
        self._store_outage.end("the store can be written again")
        self._unpublished = True
        self.journal.remove_applied(entries[-1].seq)
        call_on(self._loop, self._on_applied, entries[-1].seq)

    def _publish(self, *, now: bool) -> None:
        started = time.monotonic()
        if not now and started < self._next_publish:
            return
        with Effort() as effort:
            try:
                if self.publisher.publish(datetime.now(UTC), recheck=self._recheck):
                    self.store.let_go()
                self._recheck = self._unpublished = False
                self._publish_outage.end("usage files are published again")
            except (duckdb.Error, OSError) as error:
                reason = str(error).splitlines()[0]
                self._publish_outage.begin(reason, unpublished(reason))
        self._next_publish = started + max(self._settings.publish_seconds, effort.pause)

    def _remove_old(self) -> None:
        """Remove rows, files and image jobs that are too old, a turn at a time."""
        self._removing = self._removing or self._retention.look()
        if self._removing is None:
            return
        ends = time.monotonic() + _REMOVE_SECONDS
        try:
            while self._removing.rows and (removed := self.store.remove_day(self._removing.rows)):
                log.info("%d row(s) of a day before %s were removed; their sums stay", removed, self._removing.rows)
                if time.monotonic() > ends:
                    return  # storing new rows comes first
            while self._removing.jobs and (removed := self.store.remove_jobs(self._removing.jobs)):
                log.info("%d image job(s) from before %s were removed", removed, self._removing.jobs)
                if time.monotonic() > ends:
                    return
            if self._removing.files is not None:
                kept = min(self._removing.files, self.store.oldest_day() or self._removing.files)
                if removed := remove_files(self._settings.usage_directory, self._settings.instance, kept):
                    log.info("%d usage file(s) from before %s were removed", removed, kept)
        except (duckdb.Error, OSError, TollgateError) as error:
            log.error(
                "old rows, image jobs and usage files could not be removed, tried again in some minutes: %s",
                str(error).splitlines()[0],
            )
        self._removing = None


def _done(future: asyncio.Future[None], problem: str) -> None:
    if future.done():
        return
    if problem:
        future.set_exception(TollgateError(problem))
    else:
        future.set_result(None)
