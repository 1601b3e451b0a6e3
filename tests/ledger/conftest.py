"""Fixtures of the ledger tests: a ledger in its own folder, rows, an account with a key."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest

from tollgate.config.settings import Credits, Store
from tollgate.ledger import Generation, KeyRecord, Ledger, UsageRow, ledger_of

_count = 0


def row(
    request_id: str = "", *, cost: str = "0.01", account_id: str = "alice", key_id: str = "key_1", **more: object
) -> UsageRow:
    """A usage row with what the test needs; without `request_id`, it gets a unique id."""
    global _count
    _count += 1
    values = {
        "request_id": request_id or f"req_{_count:024d}",
        "account_id": account_id,
        "key_id": key_id,
        "endpoint": "chat",
        "cost": Decimal(cost),
        "model": "acme/large",
        "provider": "acme",
        "status": 200,
    } | more
    return UsageRow(**values)  # type: ignore[arg-type]


def job(account_id: str = "alice", **more: object) -> Generation:
    """An image job with a new id, unless `more` has one."""
    return Generation(**({"id": str(uuid.uuid4()), "account_id": account_id, "model": "acme/draw"} | more))  # type: ignore[arg-type]


DONE = {
    "status": "succeeded",
    "images": ({"url": "https://cdn.example/1.png", "width": 8},),
    "cost": Decimal("0.04"),
    "answer": {"raw": "provider's words"},
}
"""The change that ends a job."""


def settings(folder: Path, **changes: object) -> Store:
    """Settings of a store in `folder` that applies and publishes quickly."""
    values = {
        "directory": folder / "var",
        "usage_directory": folder / "usage",
        "apply_seconds": 0.05,
        "publish_seconds": 0.05,
    } | changes
    return Store(**values)  # type: ignore[arg-type]


def new_ledger(folder: Path, **changes: object) -> Ledger:
    return Ledger(settings(folder, **changes), Credits())


@dataclass
class Alice:
    """An open ledger with the account `alice`, which has 10 credits and one key."""

    ledger: Ledger
    key: KeyRecord
    secret: str


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    async with new_ledger(tmp_path) as opened:
        yield opened


@pytest.fixture(params=["embedded", "shared"])
async def either(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ledger]:
    """A ledger of each kind, for tests that apply to both."""
    async with contextlib.AsyncExitStack() as opened:
        url = (
            await opened.enter_async_context(request.getfixturevalue("postgres").database())
            if request.param == "shared"
            else ""
        )
        yield await opened.enter_async_context(ledger_of(settings(tmp_path, url=url), Credits()))


@pytest.fixture
async def alice(ledger: Ledger) -> Alice:
    return await with_alice(ledger)


@pytest.fixture
async def alice_in_either(either: Ledger) -> Alice:
    """The account `alice` in a ledger of each kind."""
    return await with_alice(either)


async def with_alice(ledger: Ledger) -> Alice:
    """Creates the account `alice` in a ledger."""
    await ledger.create_account("alice", "Alice")
    await ledger.grant("alice", Decimal(10), "first credits")
    key, secret = await ledger.create_key("alice", "laptop")
    return Alice(ledger, key, secret)
