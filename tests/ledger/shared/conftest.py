"""Ledgers of several gateways on one database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
import duckdb
import pytest

from support.waiting import until
from tollgate.config.settings import Credits, Store
from tollgate.ledger import Ledger, ledger_of

from ..conftest import Alice, row, with_alice


@pytest.fixture
def store(address: str, tmp_path: Path) -> Callable[[str], Store]:
    """The store settings of a gateway by its name."""

    def named(instance: str) -> Store:
        return Store(
            url=address,
            directory=tmp_path / instance,
            usage_directory=tmp_path / "usage",
            publish_seconds=0.05,
            instance=instance,
        )

    return named


@pytest.fixture
async def gateway(store: Callable[[str], Store]) -> AsyncIterator[Callable[[str], object]]:
    """A function that opens the ledger of a gateway. All are closed at the end."""
    async with AsyncExitStack() as opened:

        async def named(instance: str = "a") -> Ledger:
            return await opened.enter_async_context(ledger_of(store(instance), Credits()))

        yield named


@pytest.fixture
async def observer(address: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection for reading the tables."""
    connection = await asyncpg.connect(address)
    yield connection
    await connection.close()


@pytest.fixture
async def alice(gateway: Callable[[str], Awaitable[Ledger]]) -> Alice:
    """The account `alice` in the ledger of the gateway `a`."""
    return await with_alice(await gateway("a"))


async def close_unpublished(ledger: Ledger, *rows: str) -> None:
    """Records rows and closes the gateway before it publishes them."""
    publishing = ledger._backend._publishing
    publishing._stop.set()
    await publishing._task
    publishing.publish = lambda: asyncio.sleep(0)
    for each in rows:
        await ledger.record(row(each))
    await ledger.close()


async def until_gone(ledger: Ledger, instance: str) -> None:
    """Waits until the database has noticed the end of a gateway's session."""
    await until(lambda: ledger.generations.gone({instance}))


def published(folder: Path) -> list[tuple[str, list[str]]]:
    """The request ids in the usage files of each gateway."""
    return duckdb.sql(
        "SELECT parse_filename(filename)[3:], list(request_id ORDER BY seq) FROM "
        f"read_duckdb('{folder}/usage/**/*.duckdb', table_name = 'usage', union_by_name = true, filename = true) GROUP "
        "BY 1 ORDER BY 1"
    ).fetchall()
