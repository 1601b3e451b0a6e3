"""Where the publisher gets usage rows from: the embedded store, here, or the shared database, in `shared/usage.py`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

import duckdb

from tollgate.ledger.store import Store
from tollgate.ledger.usage_row import COLUMNS

NAMES = ", ".join(c.name for c in COLUMNS)
HOUR = timedelta(hours=1)
LAST_MOMENT = HOUR - timedelta.resolution
"""From an hour's start to its last moment. The hour after it may be in the year 10000, which Python does not know."""


class UsageSource(Protocol):
    """The rows that one gateway publishes. Hours are naive UTC; everything is called on the publisher's thread."""

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The DuckDB connection to which files are attached."""

    def progress(self) -> tuple[int, int]:
        """The highest `seq` that is published, and the highest that is stored."""

    def set_published(self, seq: int) -> None:
        """Store the highest `seq` that is published."""

    def hours(self, after: int = 0) -> dict[datetime, int]:
        """The hours that have rows with a higher `seq`, oldest first, each with its highest `seq`."""

    def is_whole(self, hour: datetime) -> bool:
        """Whether no row of the hour was removed because of its age."""

    def copy(self, hour: datetime, after: int, table: str) -> None:
        """Add the hour's rows with a higher `seq` to an attached table."""


class StoreSource:
    """The rows of the embedded store; see `UsageSource`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        return self._store.connection

    def progress(self) -> tuple[int, int]:
        return self._store.progress("published"), self._store.progress("applied")

    def set_published(self, seq: int) -> None:
        self._store.set_progress("published", seq)

    def hours(self, after: int = 0) -> dict[datetime, int]:
        found = "SELECT date_trunc('hour', time) AS hour, max(seq) FROM usage WHERE seq > ? GROUP BY hour ORDER BY hour"
        return dict(self._store.read(found, [after]))

    def is_whole(self, hour: datetime) -> bool:
        return not self._store.read("SELECT 1 FROM removed WHERE day = ? LIMIT 1", [hour.date()])

    def copy(self, hour: datetime, after: int, table: str) -> None:
        self._store.connection.execute(
            f"INSERT INTO {table} ({NAMES}) SELECT {NAMES} FROM usage WHERE time BETWEEN ? AND ? AND seq > ?",
            [hour, hour + LAST_MOMENT, after],
        )
