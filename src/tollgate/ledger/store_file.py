"""The DuckDB file of the store, open: its connection, the memory that DuckDB takes for it, and reading.

`store.py` has what is in the file.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from tollgate.errors import TollgateError, Unavailable
from tollgate.ledger.schema import migrate

MEMORY_LIMIT = "96MB"
"""DuckDB's own choice is most of the machine's memory. This much sums ten million rows, or publishes an hour of
millions."""
LOG_LIMIT = "2MB"
"""The largest size of DuckDB's write-ahead log. Its rows are also held in memory, at ten times their size in the file.
"""
IDLE_MEMORY = "2MB"
"""The limit between uses. A higher one was measured no faster: the file's pages are in the system's cache."""
_PAGE = 5000


class StoreFile:
    """One open DuckDB file. Reads may come from any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._opened: os.stat_result | None = None
        """The file when it was opened. While it is open, no other file has the same device and inode."""
        self.rows_cached = 0
        """Rows stored since pages were last given back."""
        self._giving_back = threading.Lock()
        self._keeping = False

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The open connection, for the writer thread. Raises `Unavailable` after a failure, until it is opened
        again."""
        if self._connection is None:
            raise Unavailable("the store is closed")
        return self._connection

    def open(self) -> None:
        """Open or create the file and bring its tables up to date."""
        try:
            self._connection = duckdb.connect(
                str(self._path), config={"threads": 1, "memory_limit": MEMORY_LIMIT, "checkpoint_threshold": LOG_LIMIT}
            )
        except duckdb.IOException as error:
            raise TollgateError(f"{self._path}: the store cannot be opened: {error}") from error
        self._opened = self._path.stat()
        migrate(self.connection)

    def let_go(self) -> None:
        """Give cached pages back, by lowering the memory limit for a moment: the limit is meant for large sums, and
        DuckDB would keep that much between them. When a limit is lowered, DuckDB also returns the free memory of the C
        library's heap to the system, at most ten times a second."""
        with self._giving_back:
            if self._keeping:
                return
            with contextlib.suppress(duckdb.Error):  # it cannot come down that far just now
                self.connection.execute(f"SET memory_limit = '{IDLE_MEMORY}'")
            # a connection too broken for this is opened anew when it fails to store
            with contextlib.suppress(duckdb.Error):
                self.connection.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
        self.rows_cached = 0

    @property
    def is_gone(self) -> bool:
        """Whether the open file was removed or moved away, so that the next start would not find what is stored: at its
        path there is no file, or another one, such as a backup that was put back too early."""
        try:
            return self._opened is not None and not os.path.samestat(self._path.stat(), self._opened)
        except OSError as error:
            return isinstance(error, FileNotFoundError)

    def reopen(self) -> None:
        """Open a new connection after a failure; what was committed is still there."""
        self.close()
        self.open()

    def pages(self, statement: str) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a long SELECT, some thousands at a time, with times in UTC; while nobody writes. From now on the
        store gives no cached pages back: the read would fail at the low limit, and could not go on."""
        with self._giving_back:
            self._keeping = True
        cursor = self.connection.cursor()
        try:
            cursor.execute(statement)
            while page := cursor.fetchmany(_PAGE):
                yield [tuple(map(with_zone, row)) for row in page]
        finally:
            cursor.close()

    def read(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The rows of a SELECT."""
        try:
            return self._read(statement, values)
        except duckdb.OutOfMemoryException:
            # `let_go` lowered the limit on another thread: read again when it is done
            with self._giving_back:
                return self._read(statement, values)

    def _read(self, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        cursor = self.connection.cursor()
        try:
            return cursor.execute(statement, list(values)).fetchall()
        finally:
            cursor.close()

    def close(self) -> None:
        """Fold the write-ahead log in and let go of the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def with_zone(value: object) -> object:
    """A stored value. Times get their time zone, UTC, which the store leaves out."""
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value
