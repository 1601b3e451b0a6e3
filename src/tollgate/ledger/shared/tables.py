"""The tables and functions of a shared store. Whoever connects first creates or upgrades them."""

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
    (),
    (),
    ("tables4.sql",),
    ("no_functions.sql", "functions.sql"),
)
"""The files that lead from one version to the next. After a change of functions.sql, move its line to a new version at
the end, or existing stores would keep their old functions."""
_TYPES = {
    "VARCHAR": "text",
    "TIMESTAMP": "timestamptz",
    "INTEGER": "bigint",
    "BIGINT": "bigint",
    "DOUBLE": "double precision",
    "BOOLEAN": "boolean",
}
"""Any other type is money, and becomes a number without bounds: one row that did not fit would stop all others."""
_UPGRADE_LOCK = 0x746F6C6C67617465
"""Held while tables are created, so that two programs that start at once do not both do it."""


async def migrate(connection: Connection) -> None:
    """Create or upgrade everything in one transaction. Raises `TollgateError` for tables newer than this program."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _UPGRADE_LOCK)
        # `IF NOT EXISTS` would require the right to create schemas, which a user who owns only this one does not have
        if await connection.fetchval("SELECT to_regnamespace('tollgate') IS NULL"):
            await connection.execute("CREATE SCHEMA tollgate")
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
    """Create `usage`, with the columns of a usage row and the gateway that wrote it, or add columns that are new."""
    if await connection.fetchval("SELECT to_regclass('tollgate.usage') IS NULL"):
        columns = ", ".join(f"{each.name} {_type(each)}" for each in COLUMNS)
        await connection.execute(
            f"CREATE TABLE tollgate.usage ({columns}, instance text NOT NULL, PRIMARY KEY (request_id))"
        )
        await connection.execute("CREATE INDEX ON tollgate.usage (instance, seq)")
        await connection.execute("CREATE INDEX ON tollgate.usage (instance, time)")
        return
    known = await connection.fetchval(
        "SELECT array_agg(column_name::text) FROM information_schema.columns "
        "WHERE table_schema = 'tollgate' AND table_name = 'usage'"
    )
    for column in COLUMNS:
        if column.name not in known:
            await connection.execute(
                f"ALTER TABLE tollgate.usage ADD COLUMN {column.name} {_type(column).removesuffix(' NOT NULL')}"
            )


def _type(column: Column) -> str:
    base = base_type(column)
    return _TYPES.get(base, "numeric") + (" NOT NULL" if column.type != base else "")
