"""Image jobs: the running ones in memory, the finished ones in the store.

A job changes only while it runs, decided in memory in one step; the change and its usage row are one
journal event, so a job is charged exactly once, whoever polls it and whenever the process dies (PITFALLS 28).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tollgate.errors import NotDurable, Unavailable
from tollgate.ledger.interface import Backend
from tollgate.ledger.memory import Hold
from tollgate.ledger.records import Generation, encode, encode_row, fitting
from tollgate.ledger.usage_row import UsageRow
from tollgate.process.concurrency import shielded
from tollgate.wire import PENDING

if TYPE_CHECKING:
    from tollgate.ledger import Ledger


@dataclass(frozen=True, slots=True)
class _Ended:
    """A finished job that the store does not have yet, with its event's number and the future of that event."""

    generation: Generation
    seq: int
    durable: asyncio.Future[None]

    @property
    def is_durable(self) -> bool:
        return self.durable.done() and self.durable.exception() is None


class Generations:
    """The image jobs of a ledger, which charges them: `accept` before the event is written, `debit` with it."""

    def __init__(self, backend: Backend, ledger: Ledger) -> None:
        self._backend = backend
        self._ledger = ledger
        self._pending: dict[str, Generation] = {}
        self._unstored: dict[str, _Ended] = {}

    def load(self, pending: Collection[Generation]) -> None:
        """Jobs that were running when the last process ended."""
        self._pending = {each.id: each for each in pending}

    def forget_stored(self, seq: int) -> None:
        """Finished jobs up to this event can be read from the store now."""
        self._unstored = {id: each for id, each in self._unstored.items() if each.seq > seq}

    async def pending(self, account_id: str | None = None) -> list[Generation]:
        """All running jobs, or those of one account, oldest first."""
        found = (each for each in self._pending.values() if account_id in (None, each.account_id))
        return sorted(found, key=lambda each: each.created_at)

    async def pending_ids(self) -> list[str]:
        """The ids of all running jobs, oldest first. The jobs may hold more pictures than fit into memory: who needs
        few of them reads each with `running`."""
        return [each.id for each in await self.pending()]

    async def running(self, id: str) -> Generation | None:
        """A running job of any account; None when it has ended."""
        return self._pending.get(id)

    async def create(self, generation: Generation) -> None:
        """Store a new job; durable on return."""
        if generation.id in self._pending or generation.id in self._unstored:
            raise ValueError(f"generation {generation.id} exists already")
        await shielded(self._put(generation, None, None))

    async def get(self, account_id: str, id: str) -> Generation | None:
        """One job of this account; None when there is none, or it is another account's. A job that has ended is
        returned only once its end is durable; raises `NotDurable` while that cannot be written."""
        found = self._pending.get(id)
        if found is None and (ended := self._unstored.get(id)) is not None:
            found = ended.generation
            if found.account_id == account_id:
                try:
                    await shielded(ended.durable)
                except Unavailable as error:
                    raise NotDurable(error.message) from None
        if found is None:
            return await self._backend.generation(account_id, id)
        return found if found.account_id == account_id else None

    async def succeeded(self, account_id: str, limit: int) -> list[Generation]:
        """The newest successful jobs, newest first, at most `limit` and as many as fit into one list, without `answer`.
        Jobs that are durable and not stored yet are included."""
        fresh = {
            id: each.generation
            for id, each in self._unstored.items()
            if each.generation.account_id == account_id and each.generation.status == "succeeded" and each.is_durable
        }
        stored = {each.id: each for each in await self._backend.succeeded(account_id, limit)}
        newest_first = sorted((stored | fresh).values(), key=lambda each: (each.created_at, each.id), reverse=True)
        return fitting(newest_first[:limit])

    async def update(
        self, id: str, changes: Mapping[str, Any], row: UsageRow | None = None, hold: Hold | None = None
    ) -> bool:
        """Compare-and-set: change these fields of a job if it still runs, and with that charge `row` and end `hold`.
        The result is whether it did; then the change is durable. Of all callers who end a job, one gets True."""
        found = self._pending.get(id)
        if found is None:
            return False
        await shielded(self._put(replace(found, **{"updated_at": datetime.now(UTC), **changes}), row, hold))
        return True

    async def gone(self, instances: Collection[str]) -> set[str]:
        """Which of these other gateways do not run now: all, since an embedded store has one process."""
        return set(instances)

    async def adopt(self, id: str, instance: str, owner: str) -> Generation | None:
        """Make `owner` the gateway that looks after a running job of a gateway that is gone. Returns the changed job,
        durably stored, to one of the gateways that try; None when it has ended, or another gateway was first."""
        found = self._pending.get(id)
        if found is None or found.row.instance != instance:
            return None
        adopted = replace(found, row=replace(found.row, instance=owner))
        await shielded(self._put(adopted, None, None))
        return adopted

    def _put(self, generation: Generation, row: UsageRow | None, hold: Hold | None) -> asyncio.Future[None]:
        """Change a job and charge it. All of it happens before this returns the future of the event, so that no other
        caller sees a job half changed."""
        if row is not None and not self._ledger.accept(row):
            row = None
        usage = b"null" if row is None else encode_row(row)
        event = b'{"generation":%b,"usage":%b}' % (encode(generation), usage)
        if row is not None:
            self._ledger.debit(row, hold)
        elif hold is not None:
            hold.release()
        durable = self._backend.append("generation", event)
        if generation.status in PENDING:
            self._pending[generation.id] = generation
        else:
            self._pending.pop(generation.id, None)
            self._unstored[generation.id] = _Ended(generation, self._backend.last_seq, durable)
        return durable
