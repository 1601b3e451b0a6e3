"""Everything in an embedded store, page by page, for moving it into a shared one. Times have their time zone, UTC."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

from tollgate.ledger.interface import Snapshot
from tollgate.ledger.records import Generation
from tollgate.ledger.store import Store, aware
from tollgate.ledger.usage_row import COLUMNS

PAGE = 5000
_JOBS = 20
"""Jobs in a page: each may hold some megabytes of pictures."""

Page = list[tuple[Any, ...]]


class Contents:
    """Reads an open store, beside the event loop, while nobody writes to it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        store.keep_pages()

    @property
    def identity(self) -> str:
        """The store's own id, which it keeps when its files are moved."""
        return str(self._store.read("SELECT id FROM identity")[0][0])

    @property
    def published(self) -> int:
        """The highest `seq` that is in the usage files."""
        return self._store.progress("published")

    def snapshot(self) -> Snapshot:
        """Accounts, keys, and the sums as a gateway would start from them."""
        return self._store.snapshot(datetime.now(UTC))

    def grants(self) -> Iterator[Page]:
        """Grants: id, account_id, amount, note, created_at."""
        return self._pages("SELECT id, account_id, amount, note, created_at FROM grants ORDER BY created_at, id")

    def rows(self) -> Iterator[Page]:
        """Rows of usage with all their columns, in their order."""
        return self._pages(f"SELECT {', '.join(each.name for each in COLUMNS)} FROM usage ORDER BY seq")

    def removed(self) -> Iterator[Page]:
        """The sums of rows that were removed because of their age: account_id, key_id, day, cost, last_time."""
        return self._pages("SELECT account_id, key_id, day, cost, last_time FROM removed ORDER BY day")

    def whole_from(self) -> datetime | None:
        """The time from which on no row was removed; None when none ever was."""
        day: date | None = self._store.read("SELECT max(day) FROM removed")[0][0]
        return None if day is None else datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)

    def jobs(self) -> Iterator[list[Generation]]:
        """Image jobs with the providers' answers. Raises `TollgateError` for one whose file is gone."""
        ids = [id for [id] in self._store.read("SELECT id FROM generations ORDER BY created_at, id")]
        for start in range(0, len(ids), _JOBS):
            yield self._store.generations(ids[start : start + _JOBS])

    def _pages(self, statement: str) -> Iterator[Page]:
        cursor = self._store.connection.cursor()
        try:
            cursor.execute(statement)
            while page := cursor.fetchmany(PAGE):
                yield [tuple(map(aware, row)) for row in page]
        finally:
            cursor.close()
