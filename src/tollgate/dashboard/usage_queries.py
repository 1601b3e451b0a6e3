"""Usage as the pages need it: sums over time (`usage_report`), the newest rows, one row, files to download.

Reading the published files is `usage_files`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from tollgate.dashboard.usage_files import UsageFiles
from tollgate.dashboard.usage_report import FILES, Reports
from tollgate.errors import BadRequest
from tollgate.ledger.reports import Filters, hour_of, usage_files
from tollgate.ledger.usage_row import COLUMNS, Column, base_type, sql_text
from tollgate.measures import Report

MOST_ROWS_OUT = 2_000_000
"""Rows of one download; for more use `tollgate usage`, which needs no browser."""
OPERATORS_ONLY = ("provider_cost", "earlier_attempts")
"""Columns that only operators see: what providers charge us, and how they refuse us (a 401 or 402 there is about our
key or our balance)."""


class UsageQueries:
    """Reads one usage directory. Methods are called on one event loop; they raise `Unavailable` if too much is
    running."""

    def __init__(self, directory: Path, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.files = UsageFiles(directory)
        self._clock = clock
        self._reports = Reports(self.files, clock)

    # ---- what pages ask

    async def report(self, filters: Filters, width: timedelta, count: int) -> Report:
        """Sums of the last `count` buckets of `width`, the current one included, over the rows that fit `filters`."""
        return await self.files.run(lambda: self._reports.report(filters, width, count))

    async def rows(
        self, filters: Filters, limit: int, before: tuple[datetime, int] | None = None
    ) -> list[dict[str, Any]]:
        """The newest rows, older than the row at `before` (its time and seq). Reads new files first, and stops when
        it has enough."""
        return await self.files.run(lambda: self._rows(filters, limit, before))

    async def row(self, filters: Filters, request_id: str, around: datetime | None = None) -> dict[str, Any] | None:
        """One row; `around`, a time near it, saves reading all files."""
        return await self.files.run(lambda: self._row(filters, request_id, around))

    async def export(self, filters: Filters, form: Literal["csv", "parquet"], *, all_columns: bool = False) -> Path:
        """A temporary file with all rows that fit, oldest first; the caller deletes it. Raises `BadRequest` for very
        many."""
        return await self.files.run(lambda: self._export(filters, form, all_columns))

    # ---- on a thread

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
        """Time spans with files in them, newest first, each a few times as long as the one before."""
        files = usage_files(self.files.directory, since, until)
        hours = sorted(set(map(hour_of, files)), reverse=True)
        take = 2
        while hours:
            newest, oldest = hours[0], hours[min(take, len(hours)) - 1]
            yield max(oldest, since) if since is not None else oldest, min(newest + timedelta(hours=1), until)
            hours, take = hours[take:], min(take * 4, FILES)

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
                f'tollgate usage --sql "FROM usage" --output usage.{form}'
            )
        columns = [column for column in COLUMNS if all_columns or column.name not in OPERATORS_ONLY]
        chosen = ", ".join(
            _cell(column, first=column is columns[0]) if form == "csv" else column.name for column in columns
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


def _cell(column: Column, *, first: bool) -> str:
    """A column in a file for spreadsheets. Callers choose some texts (`end_user`), so a text that would be taken for
    a formula gets a leading apostrophe (OWASP, CSV injection). So does a text that looks as if it had got one:
    removing the first apostrophe before such a character always restores the text. The file begins with a byte order
    mark, without which Excel takes it for the legacy encoding of the machine."""
    if base_type(column) != "VARCHAR":
        return column.name
    name = column.name
    title = f'"\ufeff{name}"' if first else name
    formula = f"regexp_matches({name}, '^''*[-=+@＝＋－＠\\t\\r\\n]')"
    return f"CASE WHEN {formula} THEN chr(39) || {name} ELSE {name} END AS {title}"


def _named(row: tuple[Any, ...]) -> dict[str, Any]:
    found = {column.name: value for column, value in zip(COLUMNS, row, strict=False)}
    found["time"] = found["time"].replace(tzinfo=UTC)
    return found
