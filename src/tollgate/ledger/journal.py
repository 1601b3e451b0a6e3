"""The append-only journal: once the future of `append` is done, the event is on disk, whatever happens next.

One thread writes. Events that gather on the event loop during a write go into the next one (group commit): the thread
is woken, and wakes the loop, once for each batch, because a wake-up costs more than a row. The file is opened with
O_DSYNC, so one system call writes and syncs a whole batch. Between batches zeros are written ahead, over which the next
rows are written: the file system then need not commit a new size with each row. When a write fails (disk full), all who
wait get the error, the events stay in memory, and the write is tried again, in a new segment, until it succeeds: after
a failed sync nobody knows what is in the old file, and readers use an event that is in two segments once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tollgate.errors import Unavailable
from tollgate.ledger.durable_files import sync_directory
from tollgate.ledger.interface import EventKind
from tollgate.ledger.segments import Entry, segment_path, segments, write_line
from tollgate.outage import Outage

log = logging.getLogger("tollgate.ledger")

Waiting = tuple[int, EventKind, bytes, "asyncio.Future[None]"]
"""An event that is not durable yet: its number, kind and line, and the future of whoever waits."""

SEGMENT_BYTES = 4 * 1024 * 1024
"""About 7,000 rows: small enough to replay quickly, large enough that new files are rare."""
_AHEAD_BYTES = 256 * 1024
"""How much is written ahead at once: some 280 rows. Of rows written one after the other on a busy ext4 disk, the
slowest hundredth takes 0.3 ms instead of 4 (of one every 5 ms: 8 instead of 12), as other data need not go with it."""
RETRY_SECONDS = 0.5
_BUSY_ROWS = 4
_PAUSE_SECONDS = 0.003
"""After a batch of `_BUSY_ROWS` or more the next one gathers a little longer: a sync costs as much as twenty rows, and
at such a load requests take far longer anyway. A single row never waits."""
CLOSE_SECONDS = 10.0
"""How long `close` tries to write while the disk refuses."""


class Journal:
    """The writing side. `on_durable` is called on the journal's thread with each batch, before its waiters wake."""

    def __init__(
        self,
        directory: Path,
        *,
        on_durable: Callable[[Sequence[Entry]], None],
        segment_bytes: int = SEGMENT_BYTES,
        retry_seconds: float = RETRY_SECONDS,
        write: Callable[[int, memoryview], int] = os.write,
    ) -> None:
        self.outage = Outage(log)
        """Why nothing can be written now."""
        self._directory = directory
        self._on_durable = on_durable
        self._segment_bytes = segment_bytes
        self._retry_seconds = retry_seconds
        self._os_write = write
        self._queue: queue.SimpleQueue[list[Waiting] | None] = queue.SimpleQueue()
        self._gathered: list[Waiting] = []
        """Events that the thread does not have yet. Only the event loop uses it."""
        self._handed: list[Waiting] = []
        """The batch that the thread has; empty while it has none. Only the event loop uses it."""
        self._next = 1
        self._descriptor = -1
        self._path = directory
        self._size = 0
        self._ahead = 0
        """The end of the zeros behind the rows; less than `_size` without any."""
        self._last_written = 0
        self._closed_segments: list[tuple[Path, int]] = []
        self._lock = threading.Lock()
        self._closing_until = 0.0

    def start(self, next_seq: int) -> None:
        """Begin taking events, numbered from `next_seq`; called on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._next = next_seq
        self._thread = threading.Thread(target=self._run, name="tollgate-journal", daemon=True)
        self._thread.start()

    @property
    def last_seq(self) -> int:
        """Number of the newest event, durable or not."""
        return self._next - 1

    def append(self, kind: EventKind, row: bytes) -> asyncio.Future[None]:
        """Queue an event. The future is done when the event is durable; it fails with `Unavailable` when that takes
        longer because the disk refuses.

        The event itself is never dropped, also when its future is cancelled or has failed.
        """
        if self._closing_until:
            raise Unavailable("the ledger is shutting down")
        seq = self._next
        self._next = seq + 1
        future: asyncio.Future[None] = self._loop.create_future()
        self._gathered.append((seq, kind, write_line(seq, kind, row), future))
        if self.outage.reason:
            future.set_exception(Unavailable(self.outage.reason))
        if not self._handed:
            self._hand_over()
        return future

    def remove_applied(self, seq: int) -> None:
        """Delete the full segments in which every event is stored, up to number `seq`; called on the store's writer
        thread. A segment that cannot be deleted only takes space until the next start."""
        with self._lock:
            done = [path for path, last in self._closed_segments if last <= seq]
            self._closed_segments = [each for each in self._closed_segments if each[1] > seq]
        for path in done:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                log.warning("%s cannot be removed: %s", path, error.strerror)

    async def close(self) -> None:
        """Write what is queued and stop. What the disk still refuses after ten seconds is logged as lost."""
        self._closing_until = time.monotonic() + CLOSE_SECONDS
        self._hand_over()
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def remove_all(self) -> None:
        """Delete every segment. Only for a journal that does not run, when every event is stored."""
        for path in segments(self._directory):
            path.unlink()

    def _hand_over(self) -> None:
        """Give the thread what has gathered. Called on the event loop, while the thread has no batch."""
        self._handed, self._gathered = self._gathered, []
        if self._handed:
            self._queue.put(self._handed)

    def _written(self, batch: list[Waiting]) -> None:
        if len(batch) < _BUSY_ROWS:
            self._hand_over()
        else:
            self._loop.call_later(_PAUSE_SECONDS, self._hand_over)
        for _, _, _, future in batch:
            if not future.done():
                future.set_result(None)

    def _refused(self, batch: list[Waiting], reason: str) -> None:
        """Tell everybody who waits that their event is not durable yet. The events are kept."""
        for _, _, _, future in (*batch, *self._gathered):
            if not future.done():
                future.set_exception(Unavailable(reason))

    # ---- the writing thread

    def _run(self) -> None:
        kept: list[Waiting] = []
        try:
            self._write_until_closed(kept)
        except BaseException as error:
            self.outage.begin(f"the journal's writer stopped: {type(error).__name__}")
            call_on(self._loop, self._refused, kept.copy(), self.outage.reason)
            raise

    def _write_until_closed(self, kept: list[Waiting]) -> None:
        closing = False
        while not (closing and not kept):
            closing = self._take(kept, wait=not closing) or closing
            if not kept:
                continue
            try:
                self._write(kept)
            except OSError as error:
                self._failed(error, kept)
                if closing and time.monotonic() > self._closing_until:
                    log.critical("%d ledger event(s) could not be written before the end: %s", len(kept), error)
                    break
                time.sleep(self._retry_seconds)
                continue
            self._on_durable([Entry(seq, kind, line[:-1]) for seq, kind, line, _ in kept])
            if self.outage.reason:  # else no message is made for every batch
                self.outage.end(f"the journal can be written again; {len(kept)} event(s) caught up")
            call_on(self._loop, self._written, kept.copy())
            kept.clear()
            self._write_ahead()
        self._end_segment()

    def _take(self, kept: list[Waiting], *, wait: bool) -> bool:
        """Move everything queued into `kept`; with `wait`, wait for something if `kept` is empty. True when it is to
        stop."""
        stop = False
        while (wait and not kept and not stop) or not self._queue.empty():  # only this thread takes from it
            batch = self._queue.get()
            if batch is None:
                stop = True
            else:
                kept += batch
        return stop

    def _write(self, batch: list[Waiting]) -> None:
        if self._descriptor < 0:
            self._begin_segment(batch[0][0])
        data = memoryview(b"".join([line for _, _, line, _ in batch]))
        size = self._size + len(data)
        while data:
            data = data[self._os_write(self._descriptor, data) :]
        self._size, self._last_written = size, batch[-1][0]
        if size >= self._segment_bytes:
            self._end_segment()

    def _write_ahead(self) -> None:
        """Write zeros behind the rows if few are left, while nobody waits."""
        if self._descriptor >= 0 and self._ahead < self._size + _AHEAD_BYTES // 2:
            start = max(self._ahead, self._size)
            with contextlib.suppress(OSError):  # the disk is nearly full: the next row may still fit
                self._ahead = start + os.pwrite(self._descriptor, bytes(_AHEAD_BYTES), start)

    def _begin_segment(self, first_seq: int) -> None:
        self._path = segment_path(self._directory, first_seq)
        self._size, self._ahead, self._last_written = 0, 0, first_seq - 1
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DSYNC | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, 0o600)
        sync_directory(self._directory)

    def _end_segment(self) -> None:
        if self._descriptor < 0:
            return
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)
        if self._size:
            with self._lock:
                self._closed_segments.append((self._path, self._last_written))
        else:
            self._path.unlink(missing_ok=True)

    def _failed(self, error: OSError, batch: list[Waiting]) -> None:
        reason = f"the journal cannot be written: {error.strerror or error}"
        self.outage.begin(reason, f"{reason}; new work is refused until it can, {len(batch)} event(s) wait in memory")
        try:
            if self._descriptor >= 0:
                os.ftruncate(self._descriptor, self._size)
        except OSError:
            log.warning("the torn end of %s stays; a reader skips it", self._path.name)
        with contextlib.suppress(OSError):  # from closing the file: its events are written again anyway
            self._end_segment()
        call_on(self._loop, self._refused, batch.copy(), reason)


def call_on(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: object) -> None:
    """Call this on the event loop, from another thread."""
    try:
        loop.call_soon_threadsafe(call, *arguments)
    except RuntimeError:
        log.debug("the event loop is closed; nobody waits for the ledger any more")
