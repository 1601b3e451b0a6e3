"""Image jobs of a shared store: changed by compare-and-set in the database, so that each job ends once, whichever
gateways are asked."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tollgate.ledger.generations import Generations
from tollgate.ledger.memory import Hold
from tollgate.ledger.records import Generation, encode_row
from tollgate.ledger.shared.connections import DatabaseLost
from tollgate.ledger.shared.records import written_job
from tollgate.ledger.shared.rounds import RETRY_SECONDS
from tollgate.ledger.usage_row import UsageRow
from tollgate.process.concurrency import shielded
from tollgate.wire import PENDING

if TYPE_CHECKING:
    from tollgate.ledger.shared import SharedLedger
    from tollgate.ledger.shared.backend import SharedBackend


class SharedGenerations(Generations):
    """The methods of `Generations`, all on the database."""

    _backend: SharedBackend
    _ledger: SharedLedger

    async def pending(self, account_id: str | None = None) -> list[Generation]:
        """All running jobs of all gateways, or those of one account, oldest first."""
        return await self._backend.records.pending(account_id)

    async def pending_ids(self) -> list[str]:
        """The ids of all running jobs of all gateways, oldest first."""
        return await self._backend.records.pending_ids()

    async def running(self, id: str) -> Generation | None:
        """A running job of any account and gateway; None when it has ended."""
        found = await self._backend.records.job(id)
        return found if found is not None and found.status in PENDING else None

    async def create(self, generation: Generation) -> None:
        """Store a new job; durable on return."""
        if not await shielded(self._keep(generation, None, None, new=True)):
            raise ValueError(f"generation {generation.id} exists already")

    async def update(
        self, id: str, changes: Mapping[str, Any], row: UsageRow | None = None, hold: Hold | None = None
    ) -> bool:
        """Change a job if it still runs. Of all callers at all gateways who end it, one gets True."""
        found = await self._found(id)
        if found is None or found.status not in PENDING:
            return False
        # the time makes this change different from the same one of another caller, who must not believe it is theirs
        changed = replace(found, **{"updated_at": datetime.now(UTC), **changes})
        return await shielded(self._keep(changed, row, hold, new=False))

    async def gone(self, instances: Collection[str]) -> set[str]:
        """Which of these gateways are not connected."""
        return {name for name in instances if await self._backend.records.is_gone(name)}

    async def adopt(self, id: str, instance: str, owner: str) -> Generation | None:
        """Make `owner` the gateway that looks after a job. Of all gateways that try, one gets the job."""
        return await self._backend.records.adopt(id, instance, owner)

    async def _found(self, id: str) -> Generation | None:
        """The job as it is stored. Waits for a database that is away: a provider's result must not be lost by that."""
        while True:
            try:
                return await self._backend.records.job(id)
            except DatabaseLost:
                if self._ledger.closing:
                    raise
            await asyncio.sleep(RETRY_SECONDS)

    async def _keep(self, generation: Generation, row: UsageRow | None, hold: Hold | None, *, new: bool) -> bool:
        if row is not None and not self._ledger.accept(row):
            row = None
        won = await self._backend.rounds.job(
            generation.account_id, written_job(generation, new=new), None if row is None else encode_row(row)
        )
        if won and row is not None:
            self._ledger.debit(row, hold)
        elif won and hold is not None:
            hold.release()
        return won
