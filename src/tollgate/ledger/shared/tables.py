"""The tables and functions of a shared store, made or brought up to date by whoever connects first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tollgate.errors import TollgateError
from tollgate.ledger.usage_row import COLUMNS, Column, base_type

if TYPE_CHECKING:
    from asyncpg import Connection

_HERE = Path(__file__).parent
VERSIONS: tuple[tuple[str, ...], ...] = (
    ("tables.sql",),
    ("tables2.sql",),
    ("tables3.sql",),
    (),
    ("no_functions.sql", "functions.sql"),
)
"""The files that lead from one version to the next. Whoever changes functions.sql moves its line to a version of its
own, at the end: stores that are there would keep the functions they have."""
_TYPES = {
    "VARCHAR": "text",
    "TIMESTAMP": "timestamptz",
    "INTEGER": "bigint",
    "BIGINT": "bigint",
    "DOUBLE": "double precision",
    "BOOLEAN": "boolean",
}
"""Anything else is money: a number without bounds, since one row that does not fit would keep all others out."""
_UPGRADE_LOCK = 0x746F6C6C67617465
"""Two programs that start at once must not both make the tables."""


async def migrate(connection: Connection) -> None:
    """Create or upgrade everything in one transaction. Raises `TollgateError` for tables newer than this program."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _UPGRADE_LOCK)
        await connection.execute("CREATE SCHEMA IF NOT EXISTS tollgate")
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS tollgate.schema_version (version integer NOT NULL, applied_at timestamptz NOT "
            "NULL)"
        )
        found = await connection.fetchval("SELECT coalesce(max(version), 0) FROM tollgate.schema_version")
        if found > len(VERSIONS):
            raise TollgateError(
                f"the store has schema version {found}, this program knows up to {len(VERSIONS)}: use the newer program"
            )
        await _usage_table(connection)
        for number, names in enumerate(VERSIONS[found:], start=found + 1):
            for name in names:
                await connection.execute((_HERE / name).read_text("utf-8"))
            await connection.execute("INSERT INTO tollgate.schema_version VALUES ($1, now())", number)


async def _usage_table(connection: Connection) -> None:
    """`usage` has the columns of a usage row and the instance that wrote it; a new column needs no version of its
    own."""
    if await connection.fetchval("SELECT to_regclass('tollgate.usage') IS NULL"):
        columns = ", ".join(f"{each.name} {_type(each)}" for each in COLUMNS)
        await connection.execute(
            f"CREATE TABLE tollgate.usage ({columns}, instance text NOT NULL, PRIMARY KEY (request_id))"
        )
        await connection.execute("CREATE INDEX ON tollgate.usage (instance, seq)")
        await connection.execute("CREATE INDEX ON tollgate.usage (instance, time)")
        return
    known = {
        row[0]
        for row in await connection.fetch(
            "SELECT column_name FROM information_schema.columns "
            "WHERE table_schema = 'tollgate' AND table_name = 'usage'"
        )
    }
    for column in COLUMNS:
        if column.name not in known:
            await connection.execute(
                f"ALTER TABLE tollgate.usage ADD COLUMN {column.name} {_type(column).removesuffix(' NOT NULL')}"
            )


def _type(column: Column) -> str:
    base = base_type(column)
    return _TYPES.get(base, "numeric") + (" NOT NULL" if column.type != base else "")
