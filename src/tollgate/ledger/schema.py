"""Tables of the store, version by version. A store of an older version is brought up to date when it is opened.

No primary keys: there is one writer, which writes no id twice, and DuckDB would keep the indexes in memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime

import duckdb

from tollgate.errors import TollgateError
from tollgate.ledger.usage_row import COLUMNS, base_type, comments, create_table

_MANY_ROWS = 1000
_MERGE_EVERY, _MERGE_DURING = 250_000, 10_000
"""Every 250,000 rows some commits merge, those of the next 10,000: until then there are at most about 50 row groups,
each of which takes 75 KB of memory in an open file."""

VERSIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE progress (name VARCHAR NOT NULL, seq BIGINT NOT NULL)",
        "INSERT INTO progress VALUES ('applied', 0), ('published', 0)",
        (
            "CREATE TABLE accounts (id VARCHAR NOT NULL, name VARCHAR, role VARCHAR, password_hash VARCHAR, created_at "
            "TIMESTAMP)"
        ),
        (
            "CREATE TABLE keys (id VARCHAR NOT NULL, account_id VARCHAR NOT NULL, digest VARCHAR NOT NULL, name "
            "VARCHAR, last_four VARCHAR, allowed_models VARCHAR[], expires_at TIMESTAMP, revoked BOOLEAN, spend_cap "
            "DECIMAL(38,12), cap_window VARCHAR, rpm BIGINT, tpm BIGINT, strict BOOLEAN, created_at TIMESTAMP)"
        ),
        (
            "CREATE TABLE grants (id VARCHAR NOT NULL, account_id VARCHAR NOT NULL, amount DECIMAL(38,12) NOT NULL, "
            "note VARCHAR, created_at TIMESTAMP)"
        ),
        (
            "CREATE TABLE generations (id VARCHAR NOT NULL, account_id VARCHAR NOT NULL, status VARCHAR NOT NULL, "
            "model VARCHAR, created_at TIMESTAMP, cost DECIMAL(38,12), document VARCHAR NOT NULL, answer VARCHAR)"
        ),
        create_table("usage"),
        *comments("usage"),
    ),
    (
        # Sums of the rows that were removed because of their age: a balance is grants, less rows, less these.
        (
            "CREATE TABLE removed (account_id VARCHAR NOT NULL, key_id VARCHAR NOT NULL, day DATE NOT NULL, row_count "
            "BIGINT NOT NULL, cost DECIMAL(38,12) NOT NULL, last_time TIMESTAMP NOT NULL)"
        ),
        # By this id a shared store knows that this store was moved into it.
        "CREATE TABLE identity AS SELECT CAST(uuid() AS VARCHAR) AS id",
    ),
    (
        "ALTER TABLE keys ADD COLUMN max_concurrent BIGINT",
        "ALTER TABLE keys ADD COLUMN endpoints VARCHAR[]",
        "ALTER TABLE keys ADD COLUMN allowed_addresses VARCHAR[]",
    ),
)


def migrate(connection: duckdb.DuckDBPyConnection) -> None:
    """Create or upgrade the tables, each version in one transaction. Refuses a store newer than this program."""
    connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL, applied_at TIMESTAMP NOT NULL)"
    )
    [[found]] = connection.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchall()
    if found > len(VERSIONS):
        raise TollgateError(
            f"the store has schema version {found}, this program knows up to {len(VERSIONS)}: use the newer program"
        )
    for number, statements in enumerate(VERSIONS[found:], start=found + 1):
        with transaction(connection):
            for statement in statements:
                connection.execute(statement)
            now = datetime.now(UTC).replace(tzinfo=None)
            connection.execute("INSERT INTO schema_version VALUES (?, ?)", [number, now])
    add_usage_columns(connection, "usage")


@contextlib.contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """All changes within, or none of them."""
    connection.execute("BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(duckdb.Error):  # a connection too broken to roll back is opened anew by the caller
            connection.execute("ROLLBACK")
        raise


def choose_merging(connection: duckdb.DuckDBPyConnection, rows: int, last_seq: int) -> None:
    """Before `rows` usage rows are added, the last one with this `seq`: whether DuckDB is to merge small row groups.

    Merging at each commit costs more than adding the rows: every time it compresses up to 700,000 older rows anew,
    which takes seconds. Many rows make row groups that do for a while.
    """
    merge = rows < _MANY_ROWS or last_seq % _MERGE_EVERY < _MERGE_DURING
    connection.execute(f"SET max_vacuum_tasks = {100 if merge else 0}")


def add_usage_columns(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    """A new usage column needs no version of its own: it is added at the end of `table`, empty for old rows."""
    found = {row[0] for row in connection.execute(f"DESCRIBE {table}").fetchall()}
    for column in COLUMNS:
        if column.name not in found:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {column.name} {base_type(column)}")
