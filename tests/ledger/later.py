"""Rows of earlier days, and a ledger that looks for old data as it does every ten minutes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tollgate.config.settings import Store
from tollgate.ledger import Ledger
from tollgate.ledger.retention import LOOK_SECONDS, Retention
from tollgate.ledger.shared.removal import Removal


def days_ago(days: int) -> datetime:
    """Noon of that day (UTC). A test of more than one day uses `within_one_day`."""
    return datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=days)


class Clocks:
    """The system clock, which can be changed, and a monotonic one."""

    def __init__(self) -> None:
        self.wall, self.machine = days_ago(0).timestamp(), 5.0

    def retention(self, store: Store) -> Retention:
        return Retention(store, lambda: self.wall, lambda: self.machine)

    def wait(self, seconds: float = LOOK_SECONDS) -> None:
        self.wall += seconds
        self.machine += seconds


async def ten_minutes_later(ledger: Ledger) -> None:
    """Lets the ledger look for old data once."""
    clocks = Clocks()
    retention = clocks.retention(ledger.store)
    clocks.wait()
    await ledger.settle()
    if ledger.store.url:
        publishing: Any = ledger._backend._publishing
        # a separate one, as the ledger's own may be looking meanwhile
        removal = Removal(publishing._removal._connections, ledger.store)
        removal._retention = retention
        await publishing._leftovers.look()
        await removal.look()
    else:
        ledger._backend._retention = retention
        await ledger.settle()
        await ledger.settle()
