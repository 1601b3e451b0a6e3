"""The ledger's boundary: where events are kept (`Backend`).

`Ledger` decides in memory and hands every change to a `Backend` as an event; a backend makes events durable and reads
everything back at the next start. The embedded one is `embedded.py`. The one that several gateways share,
`shared/backend.py`, decides in its database instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Literal, Protocol

from tollgate.errors import TollgateError
from tollgate.ledger.records import Account, Generation, Grant, KeyRecord

EventKind = Literal["usage", "account", "key", "grant", "generation", "mark"]
"""An event has the whole new record, so applying one twice changes nothing. `mark` is an empty event: once it is
durable, so is everything before it."""


class StoreInUse(TollgateError):
    """Another process has the store open, or publishes its usage under the same name."""


@dataclass(slots=True)
class Snapshot:
    """What memory needs at start. `spent_by_day` has the newest days, at least a month of them, `spent_by_key`
    everything."""

    accounts: list[Account] = field(default_factory=list)
    keys: list[tuple[KeyRecord, bytes]] = field(default_factory=list)
    granted: dict[str, Decimal] = field(default_factory=dict)
    spent: dict[str, Decimal] = field(default_factory=dict)
    spent_by_key: dict[str, Decimal] = field(default_factory=dict)
    spent_by_day: dict[str, dict[date, Decimal]] = field(default_factory=dict)
    last_used: dict[str, datetime] = field(default_factory=dict)
    pending: list[Generation] = field(default_factory=list)
    recent_ids: list[str] = field(default_factory=list)
    """The newest request ids, oldest first: a row recorded twice is still known after a restart."""


class Backend(Protocol):
    """Where events become durable. All methods are called on the event loop."""

    @property
    def problem(self) -> str:
        """Why nothing can be stored now; empty when it can."""

    @property
    def publish_problem(self) -> str:
        """Why usage files are not kept up to date; empty when they are."""

    @property
    def last_seq(self) -> int:
        """Number of the newest event handed in."""

    async def open(self, on_applied: Callable[[int], None]) -> Snapshot:
        """Lock the store and read it. `on_applied(seq)` is called on the loop when events up to `seq` can be read from
        the store."""

    def append(self, kind: EventKind, row: bytes) -> asyncio.Future[None]:
        """Take an event (JSON); the future is done when it is durable."""

    async def generation(self, account_id: str, id: str) -> Generation | None:
        """One stored image job."""

    async def succeeded(self, account_id: str, limit: int) -> list[Generation]:
        """The newest stored successful jobs (without the providers' answers), newest first."""

    async def grants(self, account_id: str) -> list[Grant]:
        """All grants of an account, newest first, including those just made."""

    async def settle(self) -> None:
        """Wait until everything handed in so far is durable, stored and published."""

    async def close(self) -> None:
        """Make everything durable, stored and published, and unlock the store."""
