"""Usage as the pages need it: sums over time, the newest rows, one row, files to download.

How the published files are read is `usage_files`. Sums are kept by time bucket together with the state (name, time,
size) of the files they came from, so a page that is shown again reads only what changed; 10 million rows are read once,
not once a page.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from tollgate.dashboard import usage_sums
from tollgate.dashboard.usage_files import UsageFiles
from tollgate.dashboard.usage_sums import COUNTED, EVERY_VALUE, Leading, dimensions_of, in_groups, place
from tollgate.errors import BadRequest
from tollgate.ledger.reports import Filters, hour_of, usage_files
from tollgate.ledger.usage_row import COLUMNS, Column, base_type, sql_text
from tollgate.measures import Bucket, Facts, Measures, Report

Signature = tuple[tuple[str, int, int], ...]

_FILES = 500
"""One query has so many files open; each takes 0.1 MB beyond what DuckDB is allowed."""
_MOST_KEPT = 40_000
"""`Measures` in the cache, about half a kilobyte each."""
_BYTES_A_ROW = 80
"""What a row takes in a published file, about."""
_MEASURED_ROWS = 1_000_000
"""Latency steps are counted from about so many rows, evenly chosen: more would not move a percentile,
only take longer."""
_LED_FOR = 60
"""The dearest keys and accounts are looked for again after so many times what it took: a minute for a second."""
_MOST_LED = 200
"""Reports of which the dearest are remembered."""
MOST_ROWS_OUT = 2_000_000
"""Rows of one download; more is for `tollgate usage`, which needs no browser."""
OPERATORS_ONLY = ("provider_cost", "earlier_attempts")
"""Columns of a row that no account is shown: what providers take of us, and how they refuse us (a 401 or 402 there is
about our key or our balance)."""


class UsageQueries:
    """Reads one usage directory. Methods belong to one event loop; they raise `Unavailable` for too much at once."""

    def __init__(self, directory: Path, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.files = UsageFiles(directory)
        self._clock = clock
        self._kept: OrderedDict[tuple[object, ...], tuple[Signature, Facts]] = OrderedDict()
        self._size = 0
        self._led: OrderedDict[tuple[object, ...], tuple[Leading, float]] = OrderedDict()
        """What is told apart in a report of too many keys or accounts, with the clock time until which."""
        self._lock = threading.Lock()

    # ---- what pages ask

    async def report(self, filters: Filters, width: timedelta, count: int) -> Report:
        """Sums of the last `count` buckets of `width`, the current one included, over the rows that fit `filters`."""
        return await self.files.run(lambda: self._report(filters, width, count))

    async def rows(
        self, filters: Filters, limit: int, before: tuple[datetime, int] | None = None
    ) -> list[dict[str, Any]]:
        """The newest rows, older than the row at `before` (its time and seq). Looks at new files first,
        and stops when it has enough."""
        return await self.files.run(lambda: self._rows(filters, limit, before))

    async def row(self, filters: Filters, request_id: str, around: datetime | None = None) -> dict[str, Any] | None:
        """One row; `around`, a time near it, saves looking through all files."""
        return await self.files.run(lambda: self._row(filters, request_id, around))

    async def export(self, filters: Filters, form: Literal["csv", "parquet"], *, all_columns: bool = False) -> Path:
        """A temporary file with all rows that fit, oldest first; the caller deletes it. Raises `BadRequest` for very
        many."""
        return await self.files.run(lambda: self._export(filters, form, all_columns))

    # ---- on a thread

    def _report(self, filters: Filters, width: timedelta, count: int) -> Report:
        starts = list(bucket_starts(self._clock(), width, count))
        filters = replace(filters, since=starts[0], until=starts[-1] + width)
        states = self._states(starts, width)
        about = (replace(filters, since=None, until=None), width)
        with self._lock:
            told, until = self._led.get((*about, count), (EVERY_VALUE, float("inf")))
        found, missing = self._found((*about, told.key), starts, states)
        too_many = told is EVERY_VALUE and self._rows_of(missing, states) > _MOST_KEPT
        groups = in_groups(missing, states, _FILES)
        if time.monotonic() > until or (too_many and self._leading(filters, width, groups[-1], states).values):
            told = self._lead(filters, width, starts, states)
            found, missing = self._found((*about, told.key), starts, states)
            groups = in_groups(missing, states, _FILES)
        every = 1 + self._rows_of(missing, states) // _MEASURED_ROWS
        for some in groups:
            began = time.monotonic()
            fresh = self._sum(replace(filters, since=some[0], until=some[-1] + width), width, told, every)
            for start in some:
                found[start] = fresh.get(start, {})
                if self.files.incomplete_at < began:
                    self._keep((*about, told.key, start), states[start], found[start])
        return Report(width, tuple(Bucket(start, found.get(start, {})) for start in starts), told.counts)

    def _found(
        self, about: tuple[object, ...], starts: list[datetime], states: dict[datetime, Signature]
    ) -> tuple[dict[datetime, Facts], list[datetime]]:
        """What is kept of these buckets, and those that are to be summed."""
        found: dict[datetime, Facts] = {}
        with self._lock:
            for start in starts:
                kept = self._kept.get((*about, start))
                if kept is not None and kept[0] == states[start]:
                    self._kept.move_to_end((*about, start))
                    found[start] = kept[1]
        return found, [start for start in starts if start not in found and states[start]]

    @staticmethod
    def _rows_of(starts: Sequence[datetime], states: dict[datetime, Signature]) -> int:
        """How many rows these buckets have, by the size of their files."""
        return sum(size for start in starts for _, _, size in states[start]) // _BYTES_A_ROW

    def _lead(
        self, filters: Filters, width: timedelta, starts: list[datetime], states: dict[datetime, Signature]
    ) -> Leading:
        """Look for the dearest keys and accounts, and remember them if they are not all."""
        about, began = (replace(filters, since=None, until=None), width, len(starts)), time.monotonic()
        newer = self._leading(filters, width, starts, states)
        with self._lock:
            told = self._led.pop(about, (EVERY_VALUE, 0.0))[0].or_newer(newer)
            if told.values:
                now = time.monotonic()
                self._led[about] = told, now + _LED_FOR * (now - began)
                while len(self._led) > _MOST_LED:
                    self._led.popitem(last=False)
        return told

    def _leading(
        self, filters: Filters, width: timedelta, starts: Sequence[datetime], states: dict[datetime, Signature]
    ) -> Leading:
        return usage_sums.read_leading(
            row
            for some in in_groups(starts, states, _FILES)
            for row in self.files.query(
                replace(filters, since=some[0], until=some[-1] + width), usage_sums.leading(dimensions_of(filters))
            )
        )

    def _sum(self, filters: Filters, width: timedelta, told: Leading, every: int) -> dict[datetime, Facts]:
        dimensions = dimensions_of(filters)
        buckets: dict[datetime, Facts] = {}

        def measures(row: tuple[Any, ...]) -> Measures | None:
            start = row[0].replace(tzinfo=UTC)
            name, value = place(row[1], dimensions, row[2:])
            if not told.tells(name, value):
                return None
            return buckets.setdefault(start, {}).setdefault(name, {}).setdefault(value or "", Measures())

        after = 2 + len(dimensions)
        for row in self.files.query(filters, usage_sums.sums(width, dimensions, told)):
            if (measured := measures(row)) is not None:
                for name, number in zip(COUNTED, row[after:], strict=True):
                    setattr(measured, name, number)
        for row in self.files.query(filters, usage_sums.times(width, dimensions, every, told)):
            if (measured := measures(row)) is not None:
                kind = "total" if row[after] else "first_byte"
                setattr(measured, kind, Measures.pack(row[after + 1], row[after + 2]))
        return buckets

    def _states(self, starts: list[datetime], width: timedelta) -> dict[datetime, Signature]:
        """What the files of each bucket look like now; an empty one has no rows."""
        states: dict[datetime, list[tuple[str, int, int]]] = {start: [] for start in starts}
        first = starts[0]
        for path in usage_files(self.files.directory, first, starts[-1] + width):
            try:
                about = path.stat()
            except FileNotFoundError:
                continue
            said = (path.name, about.st_mtime_ns, about.st_size)
            hour = hour_of(path)
            place = max(0, (hour - first) // width)
            while place < len(starts) and starts[place] < hour + timedelta(hours=1):
                states[starts[place]].append(said)
                place += 1
        return {start: tuple(found) for start, found in states.items()}

    def _keep(self, key: tuple[object, ...], signature: Signature, facts: Facts) -> None:
        with self._lock:
            old = self._kept.pop(key, None)
            self._size += _weight(facts) - (_weight(old[1]) if old else 0)
            self._kept[key] = (signature, facts)
            while self._size > _MOST_KEPT and len(self._kept) > 1:
                _, (_, dropped) = self._kept.popitem(last=False)
                self._size -= _weight(dropped)

    def _rows(self, filters: Filters, limit: int, before: tuple[datetime, int] | None) -> list[dict[str, Any]]:
        ends = filters.until or self._clock() + timedelta(hours=1)
        condition, values = "", []
        if before is not None:
            ends = min(ends, before[0] + timedelta(microseconds=1))
            condition, values = (
                "WHERE (time, seq) < (?, ?) ",
                [before[0].astimezone(UTC).replace(tzinfo=None), before[1]],
            )
        found: list[dict[str, Any]] = []
        statement = f"SELECT * FROM usage {condition}ORDER BY time DESC, seq DESC LIMIT "
        for since, until in self._spans(filters.since, ends):
            rows = self.files.query(
                replace(filters, since=since, until=until), f"{statement}{limit - len(found)}", list(values)
            )
            found += [_named(row) for row in rows]
            if len(found) >= limit:
                break
        return found

    def _spans(self, since: datetime | None, until: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Stretches of time with files in them, newest first, each a few times as long as the one before."""
        files = usage_files(self.files.directory, since, until)
        hours = sorted(set(map(hour_of, files)), reverse=True)
        take = 2
        while hours:
            newest, oldest = hours[0], hours[min(take, len(hours)) - 1]
            yield max(oldest, since) if since is not None else oldest, min(newest + timedelta(hours=1), until)
            hours, take = hours[take:], min(take * 4, _FILES)

    def _row(self, filters: Filters, request_id: str, around: datetime | None) -> dict[str, Any] | None:
        minute = timedelta(minutes=1)
        spans = [] if around is None else [(around - minute, around + minute)]
        for since, until in chain(spans, self._spans(None, datetime.max.replace(tzinfo=UTC))):
            each = replace(filters, since=since, until=until)
            rows = self.files.query(each, "SELECT * FROM usage WHERE request_id = ? LIMIT 1", [request_id])
            if rows:
                return _named(rows[0])
        return None

    def _export(self, filters: Filters, form: str, all_columns: bool) -> Path:
        count = self.files.query(filters, "SELECT count(*) FROM usage")[0][0]
        if count > MOST_ROWS_OUT:
            raise BadRequest(
                f"these are {count:,} rows; a download has at most {MOST_ROWS_OUT:,}. Choose a shorter time, or use: "
                f"tollgate usage --format {form}"
            )
        chosen = ", ".join(
            _cell(column) if form == "csv" else column.name
            for column in COLUMNS
            if all_columns or column.name not in OPERATORS_ONLY
        )
        with tempfile.NamedTemporaryFile(prefix="tollgate-usage-", suffix=f".{form}", delete=False) as file:
            path = Path(file.name)
        target = f"{sql_text(str(path))} (FORMAT {form})"
        try:
            self.files.query(filters, f"SELECT {chosen} FROM usage ORDER BY time, seq", copy_to=target)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path


def _cell(column: Column) -> str:
    """A column for a file that spreadsheets open: a text they would take for a formula gets an apostrophe in front
    (OWASP, CSV injection), as callers choose some of these texts (`end_user`). So does one that reads as if it had got
    one: whoever takes the first apostrophe off before such a character has the text as it was."""
    if base_type(column) != "VARCHAR":
        return column.name
    name = column.name
    formula = f"regexp_matches({name}, '^''*[-=+@＝＋－＠\\t\\r\\n]')"
    return f"CASE WHEN {formula} THEN chr(39) || {name} ELSE {name} END AS {name}"


def bucket_starts(now: datetime, width: timedelta, count: int) -> Iterator[datetime]:
    """The beginnings of the last `count` buckets, oldest first; the last one holds `now`. Widths divide a day,
    or are days."""
    origin = datetime(2000, 1, 3, tzinfo=UTC)
    newest = origin + (now - origin) // width * width
    for back in range(count - 1, -1, -1):
        yield newest - back * width


def _named(row: tuple[Any, ...]) -> dict[str, Any]:
    found = {column.name: value for column, value in zip(COLUMNS, row, strict=False)}
    found["time"] = found["time"].replace(tzinfo=UTC)
    return found


def _weight(facts: Facts) -> int:
    return 1 + sum(len(values) for values in facts.values())
