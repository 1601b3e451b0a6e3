"""The embedded backend: journal, DuckDB store and usage files of one process, in one directory that it has locked.

Three threads, each passing events to the next. The event loop only queues them. The journal's thread makes them
durable. The writer thread here, every few seconds or as soon as there are many, stores them, deletes the journal
segments that are no longer needed, publishes usage files and removes what is too old. It does not store more often,
because rows on their way into the journal wait for the disk while the store commits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import islice

import duckdb
import orjson

from tollgate.config.settings import Store as StoreSettings
from tollgate.errors import TollgateError
from tollgate.ledger import segments
from tollgate.ledger.duckdb_paths import require_openable
from tollgate.ledger.interface import Snapshot
from tollgate.ledger.journal import Journal, call_on
from tollgate.ledger.publish import Effort, Publisher, remove_files, unpublished
from tollgate.ledger.records import Generation, Grant, decode
from tollgate.ledger.retention import FirstDays, Retention
from tollgate.ledger.segments import Entry
from tollgate.ledger.store import BATCH, FILE_NAME, Store
from tollgate.ledger.store_directory import StoreDirectory
from tollgate.ledger.usage_source import StoreSource
from tollgate.outage import Outage
from tollgate.wording import first_line

log = logging.getLogger("tollgate.ledger")

_REMOVE_SECONDS = 1.0
"""The longest turn of removing what is too old, while new rows wait. A day of 10,000 rows takes some 10 ms."""


class EmbeddedBackend:
    """See `interface.Backend`; one instance per process and directory."""

    def __init__(self, settings: StoreSettings, *, moved: bool = False) -> None:
        """With `moved`, a store that was moved into a shared one is opened, too."""
        self._settings = settings
        self._moved = moved
        self._directory = StoreDirectory(settings)
        self._store_path = settings.directory / FILE_NAME
        self.store = Store(self._store_path)
        self.publisher = Publisher(StoreSource(self.store), settings.usage_directory, settings.instance)
        self.journal = Journal(self._directory.journal, on_durable=self._take_durable)
        self.append = self.journal.append
        """Events go straight into the journal."""
        self._waiting: list[Entry] = []
        """Events that are durable and not stored yet: the journal's thread adds, the writer removes, both while they
        hold `_wake`."""
        self._wake = threading.Condition()
        self._settle_requests: list[asyncio.Future[None]] = []
        self._stopping = False
        self._ended_because = ""
        """Why the writer thread takes no more requests; empty while it does. Changed while `_wake` is held."""
        self._store_outage = Outage(log)
        self._publish_outage = Outage(log)
        self._file_outage = Outage(log)
        """The store's file is not where the next start would look for it."""
        self._next_publish = 0.0
        self._unpublished = False
        """Rows were stored since the last publication."""
        self._retention = Retention(settings)
        self._removing: FirstDays | None = None
        """The removal under way, which may take several turns of the writer; None between removals."""

    @property
    def problem(self) -> str:
        return self.journal.outage.reason or self._store_outage.reason or self._file_outage.reason

    @property
    def publish_problem(self) -> str:
        return self._store_outage.reason or self._publish_outage.reason

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
            self._directory.release()
            raise
        self.journal.start(next_seq)
        self._thread = threading.Thread(target=self._run, name="tollgate-store", daemon=True)
        self._thread.start()
        return snapshot

    def _open(self) -> tuple[Snapshot, int]:
        for path in (self._store_path, self._settings.usage_directory):
            require_openable(path)
        self._directory.take(moved=self._moved)
        try:
            self._catch_up()
            newest = max(self.store.progress("applied"), self.publisher.highest_seq())
            return self.store.snapshot(), newest + 1
        except (duckdb.Error, OSError) as error:  # a full disk, most likely
            raise TollgateError(
                f"{self._directory.path}: the ledger cannot be brought up to date; its journal stays as it is: "
                f"{first_line(error)}"
            ) from error

    def _catch_up(self) -> None:
        """Open the store, and store the events that the last run left in the journal alone."""
        self.store.open()
        events = segments.read_all(self._directory.journal, self.store.progress("applied"))
        replayed = 0
        while batch := list(islice(events, BATCH)):
            self.store.apply(batch)
            replayed += len(batch)
        if replayed:
            log.info("%d event(s) of the last run were in the journal only and are stored now", replayed)
        self.journal.remove_all()
        self.publisher.remove_leftovers()
        self.publisher.recheck()

    # ---- events

    def _take_durable(self, entries: Sequence[Entry]) -> None:
        """Queue a batch for the writer; called on the journal's thread."""
        with self._wake:
            before = len(self._waiting)
            self._waiting += entries
            if before < BATCH <= len(self._waiting):
                self._wake.notify()

    # ---- reading

    async def generation(self, account_id: str, id: str) -> Generation | None:
        return await asyncio.to_thread(self.store.generation, account_id, id)

    async def succeeded(self, account_id: str, limit: int) -> list[Generation]:
        return await asyncio.to_thread(self.store.succeeded, account_id, limit)

    async def grants(self, account_id: str) -> list[Grant]:
        return await asyncio.to_thread(self._grants, account_id)

    def _grants(self, account_id: str) -> list[Grant]:
        """The grants that are durable. It waits for no write, so that they can be read while the disk is full."""
        with self._wake:
            lines = [entry.line for entry in self._waiting if entry.kind == "grant"]
        waiting = [decode(Grant, orjson.loads(line)["row"]) for line in lines]
        found = {each.id: each for each in waiting if each.account_id == account_id}
        found |= {each.id: each for each in self.store.grants(account_id)}
        return sorted(found.values(), key=lambda each: (-each.created_at.timestamp(), each.id))

    async def settle(self) -> None:
        if self._stopping:
            return
        await self.journal.append("mark", b"null")
        future: asyncio.Future[None] = self._loop.create_future()
        with self._wake:
            if self._ended_because:
                raise TollgateError(self._ended_because)
            self._settle_requests.append(future)
            self._wake.notify()
        await future

    async def close(self) -> None:
        await self.journal.close()
        with self._wake:
            self._stopping = True
            self._wake.notify()
        await asyncio.to_thread(self._thread.join)
        self._directory.release()

    # ---- the writer thread

    def _run(self) -> None:
        try:
            stopping = False
            while not stopping:
                stopping = self._stopping  # the journal is closed before: this round stores the last rows
                self._round()
        except BaseException as error:
            self._store_outage.begin(f"the store's writer stopped: {type(error).__name__}")
            raise
        finally:
            self._end()

    def _round(self) -> None:
        """One turn of the writer: wait, store, publish, remove what is old, answer those who called `settle`."""
        with self._wake:
            many = len(self._waiting) >= BATCH and not self._store_outage.reason
            if not (self._settle_requests or self._stopping or many):
                due = self._next_publish - time.monotonic() if self._unpublished else self._settings.apply_seconds
                self._wake.wait(max(0.0, min(self._settings.apply_seconds, due)))
            requests, self._settle_requests = self._settle_requests, []
            hurry = bool(requests) or self._stopping
        self._check_file()
        self._store_waiting()
        if not self._store_outage.reason:  # else the store may be closed
            self._publish(now=hurry)
        if not (self.publish_problem or self.publisher.behind):
            self._remove_old()
        for future in requests:
            call_on(self._loop, _answer, future, self._store_outage.reason)

    def _end(self) -> None:
        """Close the store. The journal is deleted only if everything in it is stored where the next start looks."""
        with self._wake:
            self._ended_because = self._store_outage.reason or "the ledger is closed"
            requests, self._settle_requests = self._settle_requests, []
        for future in requests:
            call_on(self._loop, _answer, future, self._ended_because)
        try:
            self.store.close()
        except duckdb.Error as error:
            log.error("the store did not close cleanly: %s", error)
        # `problem` includes a store that was moved away: the journal at its path may belong to another store
        if not self._waiting and not self.problem:
            with contextlib.suppress(OSError):  # the disk has become read-only: what is stored is not stored again
                self.journal.remove_all()

    def _check_file(self) -> None:
        """Refuse new work while the store's file is not where the next start looks for it. What is durable is stored
        all the same: the open file still takes it."""
        if self.store.is_gone:
            self._file_outage.begin(
                f"{self._store_path} was removed or moved away under the running gateway"
                f"{', and another file is in its place' if self._store_path.exists() else ''}; put it back, or copy it "
                f"from /proc/{os.getpid()}/fd before this process ends",
                level=logging.CRITICAL,
            )
        else:
            self._file_outage.end(f"{self._store_path} is back")

    def _store_waiting(self) -> None:
        """Store what is durable. What the store refuses is tried again in the next turn."""
        with self._wake:
            entries = self._waiting.copy()
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
        except Exception as error:
            reason = f"the store cannot be written: {first_line(error)}"
            message = f"{reason}; {len(entries)} event(s) stay in the journal"
            self._store_outage.begin(reason, message, error=_unforeseen(error))
            return
        with self._wake:
            del self._waiting[: len(entries)]
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
                if self.publisher.publish(datetime.now(UTC)):
                    self.store.let_go()
                self._unpublished = False
                self._publish_outage.end("usage files are published again")
            except Exception as error:
                reason = first_line(error)
                self._publish_outage.begin(reason, unpublished(reason), error=_unforeseen(error))
        self._next_publish = started + max(self._settings.publish_seconds, effort.pause)

    def _remove_old(self) -> None:
        """Remove rows, image jobs and usage files that are too old, for one turn at most."""
        ends = time.monotonic() + _REMOVE_SECONDS
        try:
            keep = self._removing = self._removing or self._retention.look()
            if keep is None:
                return
            for first, remove, words in (
                (keep.rows, self.store.remove_day, "%d row(s) of a day before %s were removed; their sums stay"),
                (keep.jobs, self.store.remove_jobs, "%d image job(s) from before %s were removed"),
            ):
                while first is not None and (removed := remove(first)):
                    log.info(words, removed, first)
                    if time.monotonic() > ends:
                        return  # the next turn goes on from here; storing new rows comes first
            if keep.files is not None:
                first = min(keep.files, self.store.oldest_day() or keep.files)
                if removed := remove_files(self._settings.usage_directory, self._settings.instance, first):
                    log.info("%d usage file(s) from before %s were removed", removed, first)
        except Exception as error:
            log.error(
                "old rows, image jobs and usage files could not be removed, tried again in some minutes: %s",
                first_line(error),
                exc_info=_unforeseen(error),
            )
        self._removing = None


def _unforeseen(error: Exception) -> Exception | None:
    """The error, if it is a mistake of ours, whose traceback belongs into the log. It must not end the writer: no row
    would be stored any more."""
    return None if isinstance(error, (duckdb.Error, OSError, TollgateError)) else error


def _answer(future: asyncio.Future[None], problem: str) -> None:
    """End the wait of a `settle`, on the event loop."""
    if future.done():
        return
    if problem:
        future.set_exception(TollgateError(problem))
    else:
        future.set_result(None)
