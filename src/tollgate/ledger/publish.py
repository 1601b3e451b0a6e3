"""Usage for analysts: `usage/<date>/<hour>.duckdb`, one file an hour (UTC), replaced as a whole every few seconds.

DuckDB lets nobody read a file that another process has open for writing. So new rows are added to a copy of the hour's
file, and the copy is renamed over it: a reader keeps the file it opened, and neither it nor the gateway ever waits.
Any DuckDB since 1.2 can attach these files; since 1.5 one statement reads them all:

    FROM read_duckdb('usage/**/*.duckdb', table_name = 'usage', union_by_name = true)
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Self

import duckdb

from tollgate.ledger.duckdb_paths import literally
from tollgate.ledger.durable_files import keep_aside, sync_directory
from tollgate.ledger.reports import too_many_open
from tollgate.ledger.schema import add_usage_columns, choose_merging, transaction
from tollgate.ledger.usage_row import comments, create_table, sql_text
from tollgate.ledger.usage_source import HOUR, UsageSource
from tollgate.wording import first_line

log = logging.getLogger("tollgate.ledger")

_STORAGE_VERSION = "v1.2.0"
"""The oldest file format that has what we need, so that old versions of DuckDB can attach the files."""
_BLOCK_BYTES = 65_536
"""A quarter of DuckDB's own choice: a quiet hour's file is 0.2 MB instead of 0.8, a busy one's a quarter larger."""
_ROW_GROUP = 16_384
"""An eighth of DuckDB's own choice: when it merges small row groups, it writes several large ones anew, which took 3
seconds at each publication of a busy hour."""
_RECHECK = timedelta(hours=2)
"""Files of the last hours may not have reached the disk when the machine lost power; a start checks them again."""

_NEWEST_FILES = 3
_TURN_SECONDS = 5.0
"""The longest turn of publishing. After a restore or a long outage there may be hundreds of hours to write; new rows
are stored in between."""

_CPU_SHARE = 20
"""A publication that took a second of CPU time is not repeated within 20: it takes at most a twentieth of one core."""
_TIME_SHARE = 4
"""One that took a second by the clock is not repeated within 4: that leaves a slow disk to others for most of the time,
and yet the files do not become minutes old on a busy machine."""


def naive(moment: datetime) -> datetime:
    """A time as usage files have it: UTC, without a time zone."""
    return moment.astimezone(UTC).replace(tzinfo=None)


class Effort:
    """Measures what a publication costs its thread, for the length of a `with`."""

    pause = 0.0
    """Seconds after its start before which the next one must not begin."""

    def __enter__(self) -> Self:
        self._began, self._cpu = time.monotonic(), time.thread_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.pause = max(_CPU_SHARE * (time.thread_time() - self._cpu), _TIME_SHARE * (time.monotonic() - self._began))


class Publisher:
    """Keeps the published files equal to the rows of a source; used by one thread only."""

    def __init__(self, source: UsageSource, directory: Path, instance: str = "main", *, shared: bool = False) -> None:
        """With `shared`, other gateways may publish to the same directory, under names of their own."""
        self._source = source
        self._directory = directory
        self._shared = shared
        self._suffix = _suffix(instance)
        self._rechecks = False
        self._lacking: dict[datetime, int] = {}
        """Hours whose file is still to be checked or written, each with its highest `seq`; found at the start."""
        self._before = 0
        """The highest `seq` at the start: later rows are in no file that was published under another name."""

    @property
    def behind(self) -> bool:
        """Whether files that were missing at the start are still to be written."""
        return bool(self._lacking)

    def path(self, hour: datetime) -> Path:
        """The file of an hour; the instance's name is part of it when several gateways share the directory."""
        return self._directory / f"{hour:%Y-%m-%d}" / f"{hour:%H}{self._suffix}.duckdb"

    def recheck(self) -> None:
        """For a start: the next publication also completes the newest files where rows are missing, and writes every
        file again that is missing."""
        self._rechecks = True

    def publish(self, now: datetime) -> int:
        """Bring every hour with unpublished rows up to date, past hours with late rows included; returns how many files
        were written."""
        source = self._source
        published, applied = source.progress()
        if applied == published and not self._rechecks and not self._lacking:
            return 0
        hours = source.hours(published)
        if self._rechecks:
            known = source.hours()
            # rows from a time when the clock was set ahead must not decide which hours are the latest
            latest = min(max(known), naive(now)) if known else naive(now)
            young = {hour: seq for hour, seq in known.items() if hour >= latest - _RECHECK}
            hours |= young
            # A gateway that publishes alone owns files of every name: after a change of `instance`, a second copy of
            # each hour would count its rows twice.
            names = f"*/[0-9][0-9]{self._suffix}.duckdb" if self._shared else "*/*.duckdb"
            there = {(path.parent.name, path.name[:2]) for path in self._directory.glob(names)}
            self._lacking = young | {
                hour: seq for hour, seq in known.items() if (f"{hour:%Y-%m-%d}", f"{hour:%H}") not in there
            }
            self._rechecks, self._before = False, applied
        written = 0
        ends = time.monotonic() + _TURN_SECONDS
        for hour, newest in [*sorted(hours.items()), *sorted(self._lacking.items())]:
            if written and time.monotonic() > ends:
                return written  # the store waits for this thread; the next turn goes on from here
            written += self._publish_hour(hour, newest, final=hour <= naive(now) - HOUR)
            self._lacking.pop(hour, None)
        source.set_published(applied)
        return written

    def _publish_hour(self, hour: datetime, newest: int, *, final: bool) -> int:
        path = self.path(hour)
        temporary = path.with_name(f".{path.stem}.tmp")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            if not self._extend(path, temporary, hour, newest):
                return 0
            if final:
                with open(temporary, "rb") as file:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
            if final:  # a late row is not looked for again: the next start checks only the newest files
                sync_directory(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
            temporary.with_name(temporary.name + ".wal").unlink(missing_ok=True)
        return 1

    def _extend(self, path: Path, temporary: Path, hour: datetime, newest: int) -> bool:
        """Make `temporary` the file with the hour's new rows added, up to the one with the `seq` `newest`; False when
        there are none."""
        connection = self._source.connection
        if path.exists():
            try:
                found = self._highest_in(path)
                if found >= newest:
                    return False
                shutil.copyfile(path, temporary)
                choose_merging(connection, newest - found, newest)
                with _attached(connection, temporary):
                    add_usage_columns(connection, "published.usage")
                    return self._copy(path, hour, found)
            except duckdb.Error as error:
                if too_many_open(error) or not self._source.is_whole(hour) and self._is_intact(path):
                    raise  # nothing is wrong with the file: the disk may be full
                log.warning("%s cannot be extended and is written anew: %s", path, first_line(error))
                temporary.unlink(missing_ok=True)
                self._keep_aside(path, hour)
        with _attached(connection, temporary):
            with transaction(connection):  # without it each waits for the disk
                for statement in (create_table("published.usage", for_readers=True), *comments("published.usage")):
                    connection.execute(statement)
            return self._copy(path, hour, 0) or path.exists()

    def _copy(self, path: Path, hour: datetime, found: int) -> bool:
        """Add the rows with a `seq` above `found` to the attached file, but not those that were published under another
        name, before `instance` was changed: they would count twice. False when there are none."""
        connection = self._source.connection
        self._source.copy(hour, found, "published.usage")
        others = sorted(path.parent.glob(f"{hour:%H}*.duckdb")) if found < self._before else []
        for other in others:
            if other != path:
                try:
                    connection.execute(
                        "DELETE FROM published.usage WHERE seq > ? AND request_id IN (SELECT request_id FROM "
                        "read_duckdb(?, table_name = 'usage'))",
                        [found, literally(other)],
                    )
                except duckdb.Error as error:
                    if too_many_open(error) or isinstance(error, duckdb.OutOfMemoryException):
                        raise  # tried again: nothing is wrong with the file
                    # it may be another gateway's, and ours must not wait for its repair
                    log.warning("%s cannot be read: %s", other, first_line(error))
        return bool(connection.execute("SELECT 1 FROM published.usage WHERE seq > ? LIMIT 1", [found]).fetchall())

    def _is_intact(self, path: Path) -> bool:
        """Whether every value of a file can be read."""
        try:
            self._source.connection.execute(
                "SELECT max(COLUMNS(*)) FROM read_duckdb(?, table_name = 'usage')", [literally(path)]
            )
        except duckdb.Error:
            return False
        return True

    def _keep_aside(self, path: Path, hour: datetime) -> None:
        """Keep a damaged file if it had rows that the store no longer has."""
        kept = path.with_suffix(".damaged")
        if not self._source.is_whole(hour) and not kept.exists():
            keep_aside(path, kept)
            log.error("%s is kept as %s: it had rows that the store no longer has", path, kept.name)

    def highest_seq(self) -> int:
        """The highest `seq` in the newest files. A store that was replaced by an older or empty one continues with the
        numbers after it, so that its rows still count as new."""
        newest = sorted(self._directory.glob(f"*/[0-9][0-9]{self._suffix}.duckdb"))[-_NEWEST_FILES:]
        highest = 0
        for path in newest:
            try:
                highest = max(highest, self._highest_in(path))
            except duckdb.Error as error:
                log.warning("%s cannot be read: %s", path, first_line(error))
        return highest

    def _highest_in(self, path: Path) -> int:
        [[highest]] = self._source.connection.execute(
            "SELECT max(seq) FROM read_duckdb(?, table_name = 'usage')", [literally(path)]
        ).fetchall()
        return highest or 0

    def remove_leftovers(self) -> None:
        """Delete temporary files of an earlier process that was killed."""
        for leftover in self._directory.glob(f"*/.[0-9][0-9]{self._suffix}.tmp*"):
            leftover.unlink(missing_ok=True)


def unpublished(reason: str) -> str:
    """The log message when publishing failed."""
    return f"usage files could not be published, tried again every few seconds: {reason}"


def remove_files(directory: Path, instance: str, first: date) -> int:
    """Remove this gateway's files of the days before `first`; returns how many. The source must have no rows of these
    days, or the next start would publish them again."""
    removed = 0
    for folder in sorted(directory.glob("[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]")):
        if folder.name < first.isoformat():
            for path in folder.glob(f"[0-9][0-9]{_suffix(instance)}.duckdb"):
                path.unlink(missing_ok=True)
                removed += 1
            with contextlib.suppress(OSError):  # something else is in it
                folder.rmdir()
    return removed


def _suffix(instance: str) -> str:
    return "" if instance in ("", "main") else f"-{instance}"


@contextlib.contextmanager
def _attached(connection: duckdb.DuckDBPyConnection, path: Path) -> Iterator[None]:
    """A file attached as `published` for the length of a `with`; detaching folds its write-ahead log in."""
    connection.execute("DETACH DATABASE IF EXISTS published")  # one whose detaching failed on a full disk
    connection.execute(
        f"ATTACH {sql_text(str(path))} AS published (STORAGE_VERSION '{_STORAGE_VERSION}', BLOCK_SIZE {_BLOCK_BYTES}, "
        f"ROW_GROUP_SIZE {_ROW_GROUP})"
    )
    try:
        yield
    finally:
        connection.execute("DETACH published")
