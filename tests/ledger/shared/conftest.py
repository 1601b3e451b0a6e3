"""Ledgers of several gateways on one database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
import pytest

from tollgate.config.settings import Credits, Store
from tollgate.ledger import Ledger, ledger_of


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
