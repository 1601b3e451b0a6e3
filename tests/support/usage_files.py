"""The usage rows of a gateway under test: from its usage files, read as an analyst reads them, or from its store."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import duckdb

from tollgate.ledger import Ledger
from tollgate.ledger.embedded import EmbeddedBackend
from tollgate.ledger.usage_source import NAMES

from .stores import check_complete, published_later
from .waiting import SECONDS

READ_STATEMENT = "FROM read_duckdb('usage/**/*.duckdb', table_name = 'usage', union_by_name = true)"
"""The statement in docs/usage.md."""


@functools.cache
def _reader() -> duckdb.DuckDBPyConnection:
    """One connection for the whole run: opening DuckDB takes ten times as long as reading such a file."""
    return duckdb.connect()


def usage_rows(folder: Path, where: str = "true") -> list[dict[str, Any]]:
    """The published rows of the gateway whose state is in `folder`, oldest first."""
    check_complete(folder / "usage")
    if not any(folder.glob("usage/**/*.duckdb")):
        return []
    with _reader().cursor() as cursor:
        cursor.execute(
            f"FROM read_duckdb('{folder}/usage/**/*.duckdb', table_name = 'usage') SELECT * WHERE {where} ORDER BY time"
        )
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


async def rows(here: Any, folder: Path) -> list[dict[str, Any]]:
    """The rows of an in-process gateway, oldest first, once everything it answered is settled.

    An embedded store is asked for what it would publish: publishing takes longer than the rest of most tests, and
    tests/ledger/test_publish.py compares the files with the store.
    """
    await here.services.settlements.drain(SECONDS)
    ledger: Ledger = here.services.ledger
    if not isinstance(ledger._backend, EmbeddedBackend):
        await ledger.settle()
        return usage_rows(folder)
    with published_later(ledger._backend):
        await ledger.settle()
    names = NAMES.split(", ")
    found = ledger._backend.store.read(f"SELECT {NAMES} FROM usage ORDER BY time")
    return [dict(zip(names, row, strict=True)) for row in found]


async def rows_by_id(here: Any, folder: Path) -> dict[str, dict[str, Any]]:
    """The rows by request id."""
    return {row["request_id"]: row for row in await rows(here, folder)}
