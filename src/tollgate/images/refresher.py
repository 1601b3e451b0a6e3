"""The jobs nobody reads: taken up after a restart, asked about in the background, adopted when their instance is gone."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from decimal import Decimal
from heapq import nsmallest
from typing import TYPE_CHECKING

from tollgate.errors import NotFound, QuotaExhausted, TollgateError
from tollgate.wire import PENDING

if TYPE_CHECKING:
    from tollgate.images.runner import Jobs

log = logging.getLogger("tollgate.images")

_ADOPT_SECONDS = 30.0
_VISIT_SECONDS = 5.0
"""How long a tick waits for the answers about its jobs before the next one begins."""


class Refresher:
    """Keeps the jobs of this process going. `resume` once at start, then `tick` for as long as the gateway runs."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._services = jobs.services
        self._adopts_at = 0.0

    async def resume(self) -> None:
        """Take up the jobs a former process of this name left pending: polls go on, held calls are made again."""
        instance = self._services.runtime.current.gateway.store.instance
        for generation in await self._services.ledger.pending():
            row = generation.row or {}
            if row.get("instance") not in (None, instance) or generation.id in self._jobs.pending:
                continue
            hold = None
            try:
                hold = await self._services.ledger.hold(await self._services.ledger.get_key(generation.key_id), Decimal(row.get("held", "0")))
            except QuotaExhausted:
                log.warning("job %s: its account or key no longer covers what it may cost", generation.id)
            self._jobs.keep(generation, hold)
            await self._jobs.call_again(generation)

    async def tick(self, most: int) -> None:
        """Refresh the jobs that are due, at most so many at a time, the longest overdue first. A provider that is slow to
        answer is not waited for: its jobs stay asked about while the next tick sees to the others."""
        now = self._jobs.clock()
        if now >= self._adopts_at:
            self._adopts_at = now + _ADOPT_SECONDS
            await self._adopt()
        waiting = [(watch.due, job_id) for job_id, watch in self._jobs.pending.items() if watch.due <= now and not self._jobs.busy(job_id)]
        due = [job_id for _, job_id in nsmallest(most, waiting)]
        for job_id in due:
            self._jobs.pending[job_id].next(now)
        if due:
            await asyncio.wait([self._services.tasks.spawn(self._visit(job_id)) for job_id in due], timeout=_VISIT_SECONDS)

    async def _adopt(self) -> None:
        """Look after jobs past their deadline that nobody looks after: their instance is gone."""
        now = datetime.now(UTC)
        for generation in await self._services.ledger.pending():
            if generation.id not in self._jobs.pending and generation.deadline_at is not None and generation.deadline_at < now:
                self._jobs.keep(generation, None)

    async def _visit(self, job_id: str) -> None:
        watch = self._jobs.pending.get(job_id)
        if watch is None:
            return
        try:
            if (await self._jobs.refreshed(watch.account_id, job_id)).status not in PENDING:
                self._jobs.forget(job_id)
        except NotFound:
            self._jobs.forget(job_id)
        except TollgateError as error:
            log.info("job %s could not be refreshed: %s", job_id, error.message)
        except Exception:
            log.exception("job %s could not be refreshed", job_id)
