"""A folder for running `tollgate`, with or without a running gateway's ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest

from support.stores import open_ledger
from tollgate.config.settings import Store

from .tollgate import Tollgate


@pytest.fixture(autouse=True)
def read_once(shipped_mappings: None) -> None:
    """Reads the mapping files once: each command would read and compile all of them."""


@pytest.fixture
def tollgate(tmp_path: Path) -> Tollgate:
    command = Tollgate(tmp_path)
    command.write("gateway.yaml", "{}\n")
    return command


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Tollgate]:
    """The ledger of a gateway with the account `alice` (10 credits, one key), listening on its admin socket."""
    (tmp_path / "gateway.yaml").write_text("{}\n")
    store = Store(
        directory=tmp_path / "var", usage_directory=tmp_path / "usage", apply_seconds=0.05, publish_seconds=0.05
    )
    async with open_ledger(store) as ledger:
        await ledger.create_account("alice")
        await ledger.grant("alice", Decimal(10))
        await ledger.create_key("alice", "laptop")
        await ledger.serve_admin()
        yield Tollgate(tmp_path, ledger)
