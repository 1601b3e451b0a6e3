"""Keeps jobs going that no client polls: resumes them after a restart, polls them in the background, and adopts those
of gateways that are gone."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from heapq import nsmallest
from typing import TYPE_CHECKING

from tollgate.errors import NotFound, QuotaExhausted, TollgateError
from tollgate.wire import PENDING
from tollgate.wording import one_line

if TYPE_CHECKING:
    from tollgate.images.runner import Jobs
    from tollgate.ledger import Generation, Hold

log = logging.getLogger("tollgate.images")

_ADOPT_SECONDS = 30.0
_VISIT_SECONDS = 5.0
"""How long a tick waits for its polls before the next one begins."""


class Refresher:
    """Keeps the jobs of this process going. `resume` once at start, then `tick` for as long as the gateway runs."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._services = jobs.services
        self._adopts_at = 0.0
        self._gone: set[str] = set()
        """Gateways that were gone at the last look. One that is gone at two looks in a row is not just restarting."""
        self._others: dict[str, tuple[str, datetime | None]] = {}
        """The running jobs of other gateways, with the gateway and the deadline of each, when it was read. Each is read
        once: all of them together may hold more pictures than fit into memory."""
        self._missing: set[str] = set()
        """Jobs that were not in the store at the last look. One missing at two looks is not just waiting to be
        written."""

    async def resume(self) -> None:
        """Go on with the pending jobs of an earlier process of this name: poll, or repeat a synchronous call."""
        generations = self._services.ledger.generations
        for job_id in await generations.pending_ids():
            if self._jobs.has(job_id) or (generation := await generations.running(job_id)) is None:
                continue
            if self._gateway_of(generation) == self._own:
                await self._go_on(generation, await self._hold(generation))

    async def _hold(self, generation: Generation) -> Hold | None:
        ledger = self._services.ledger
        try:
            return await ledger.hold(await ledger.get_key(generation.key_id), generation.row.held)
        except QuotaExhausted:
            log.warning("job %s: its account or key no longer covers what it may cost", generation.id)
            return None

    async def _go_on(self, generation: Generation, hold: Hold | None) -> None:
        """Look after a job whose process ended."""
        self._jobs.tracked.keep(generation, hold)
        await self._jobs.submissions.call_again(generation)

    @property
    def _own(self) -> str:
        """The name of this gateway, as the others know it: that of its start, not a later one from a reload."""
        return self._services.ledger.store.instance

    def _gateway_of(self, generation: Generation) -> str:
        """The gateway that looks after a job."""
        return generation.row.instance or self._own

    async def tick(self, most: int) -> None:
        """Poll the jobs that are due, at most `most`, the longest overdue first. The next tick does not wait for slow
        providers: their polls go on beside it."""
        now = self._jobs.tracked.clock()
        if now >= self._adopts_at:
            self._adopts_at = now + _ADOPT_SECONDS
            await self._adopt()
        waiting = [
            (watch.due, job_id)
            for job_id, watch in self._jobs.tracked.pending.items()
            if watch.due <= now and not self._jobs.busy(job_id)
        ]
        due = [job_id for _, job_id in nsmallest(most, waiting)]
        for job_id in due:
            self._jobs.tracked.pending[job_id].next(now)
        if due:
            await asyncio.wait(
                [self._services.tasks.spawn(self._visit(job_id)) for job_id in due], timeout=_VISIT_SECONDS
            )

    async def _adopt(self) -> None:
        """Take over jobs that nobody looks after: those of gateways that are gone, and any past its deadline."""
        now, generations = datetime.now(UTC), self._services.ledger.generations
        others = [each for each in await generations.pending_ids() if not self._jobs.has(each)]
        self._others = {each: self._others[each] for each in others if each in self._others}
        for job_id in others:
            if job_id not in self._others and (found := await generations.running(job_id)) is not None:
                self._others[job_id] = self._gateway_of(found), found.deadline_at
        gone = await generations.gone({gateway for gateway, _ in self._others.values()} - {self._own})
        for job_id, (gateway, deadline) in list(self._others.items()):
            if gateway in gone & self._gone or (deadline is not None and deadline < now):
                del self._others[job_id]  # both may have changed since, or change now
                if (generation := await generations.running(job_id)) is not None:
                    await self._look_after(generation, gone & self._gone, now)
        self._gone = gone

    async def _look_after(self, generation: Generation, gone: set[str], now: datetime) -> None:
        """Take over a job of one of the gateways that are `gone`, or track any past its deadline."""
        gateway = self._gateway_of(generation)
        if gateway in gone:
            await self._take_over(generation, gateway)
        elif generation.deadline_at is not None and generation.deadline_at < now:
            self._jobs.tracked.keep(generation, None)

    async def _take_over(self, generation: Generation, instance: str) -> None:
        """Go on with a job of a gateway that is gone, unless another gateway is faster."""
        adopted, hold = None, await self._hold(generation)
        try:
            adopted = await self._services.ledger.generations.adopt(generation.id, instance, self._own)
        finally:
            if adopted is None and hold is not None:
                hold.release()
        if adopted is not None:
            log.warning('gateway "%s" is gone; this one looks after its job %s', instance, generation.id)
            await self._go_on(adopted, hold)

    async def _visit(self, job_id: str) -> None:
        watch = self._jobs.tracked.pending.get(job_id)
        if watch is None:
            return
        try:
            if (await self._jobs.refreshed(watch.account_id, job_id)).status not in PENDING:
                self._jobs.tracked.forget(job_id)
            self._missing.discard(job_id)
        except NotFound:
            if job_id not in self._missing:
                self._missing.add(job_id)
                return
            self._missing.remove(job_id)
            self._jobs.tracked.forget(job_id)
        except TollgateError as error:
            log.info("job %s could not be refreshed: %s", job_id, one_line(error.message))
        except Exception:
            log.exception("job %s could not be refreshed", job_id)
