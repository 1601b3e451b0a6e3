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

from tollgate.errors import Unavailable, Unwritten
from tollgate.ledger.interface import Backend
from tollgate.ledger.memory import Hold
from tollgate.ledger.records import Generation, encode, encode_row, fitting
from tollgate.ledger.usage_row import UsageRow
from tollgate.process.outlived import outlived
from tollgate.wire import PENDING

if TYPE_CHECKING:
    from tollgate.ledger import Ledger


@dataclass(frozen=True, slots=True)
class _Ended:
    """A finished job that the store does not have yet: its event's number, and the future that is done when that is
    durable."""

    generation: Generation
    seq: int
    durable: asyncio.Future[None]

    @property
    def is_durable(self) -> bool:
        return self.durable.done() and self.durable.exception() is None


class Generations:
    """The part of the ledger that knows image jobs; it charges them by the ledger's own two steps around the
    journal."""

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

    async def pending(self) -> list[Generation]:
        """All running jobs, oldest first."""
        return sorted(self._pending.values(), key=lambda each: each.created_at)

    async def create(self, generation: Generation) -> None:
        """Store a new job; durable on return."""
        if generation.id in self._pending or generation.id in self._unstored:
            raise ValueError(f"generation {generation.id} exists already")
        await outlived(self._put(generation, None, None))

    async def get(self, account_id: str, id: str) -> Generation | None:
        """One job of this account; None when there is none, or it is somebody else's. An end is told when it is durable
        (acknowledged means recorded); raises `Unwritten` while it cannot be written."""
        found = self._pending.get(id)
        if found is None and (ended := self._unstored.get(id)) is not None:
            found = ended.generation
            if found.account_id == account_id:
                try:
                    await outlived(ended.durable)
                except Unavailable as error:
                    raise Unwritten(error.message) from None
        if found is None:
            return await self._backend.generation(account_id, id)
        return found if found.account_id == account_id else None

    async def succeeded(self, account_id: str, limit: int) -> list[Generation]:
        """The newest successful jobs, newest first, without `answer`: so many, or as many as go into one list with
        their inline pictures; those that are durable and not stored yet included."""
        fresh = {
            id: each.generation
            for id, each in self._unstored.items()
            if each.generation.account_id == account_id and each.generation.status == "succeeded" and each.is_durable
        }
        stored = {each.id: each for each in await self._backend.succeeded(account_id, limit)}
        newest_first = sorted((stored | fresh).values(), key=lambda each: (each.created_at, each.id), reverse=True)
        return fitting(newest_first[:limit])

    async def update(
        self,
        id: str,
        changes: Mapping[str, Any],
        row: UsageRow | None = None,
        hold: Hold | None = None,
    ) -> bool:
        """Compare-and-set: change these fields of a job if it still runs, and with it charge `row` and end `hold`.
        True, durably, where it did: of any number of callers who end a job that is one."""
        found = self._pending.get(id)
        if found is None:
            return False
        await outlived(self._put(replace(found, **{"updated_at": datetime.now(UTC), **changes}), row, hold))
        return True

    async def gone(self, instances: Collection[str]) -> set[str]:
        """Which of these other gateways do not run now: all of them, as an embedded store has one process, which
        asks."""
        return set(instances)

    async def adopt(self, id: str, instance: str, heir: str) -> Generation | None:
        """Make `heir` the gateway that looks after a running job of a gateway that is gone. The job as it stands now,
        durably, for one of all gateways that ask; None when it has ended, or another one looks after it."""
        found = self._pending.get(id)
        if found is None or (found.row or {}).get("instance") != instance:
            return None
        adopted = replace(found, row={**found.row, "instance": heir})
        await outlived(self._put(adopted, None, None))
        return adopted

    def _put(self, generation: Generation, row: UsageRow | None, hold: Hold | None) -> asyncio.Future[None]:
        """Everything up to the returned future happens in one step, so no other caller sees a job half changed."""
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
