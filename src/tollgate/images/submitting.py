"""Submits image jobs to providers: each to the first of its routes that accepts it.

A synchronous provider, which answers only when the pictures are done, is called in the background. What must stay true:
a client who got an id finds the job again after a restart, and a job whose client got an error is not begun.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tollgate.errors import BadRequest, TollgateError, Unavailable, UpstreamError, UpstreamFailed, UpstreamRejected
from tollgate.images.billing import refused_row
from tollgate.images.calls import Calls, JobGone, job_error
from tollgate.images.order import Unsaved
from tollgate.images.routes import note_failure
from tollgate.images.state import attempted, job_facts, route_of, was_submitted, with_state
from tollgate.ledger.usage_row import failed_attempt
from tollgate.wire import PENDING
from tollgate.wording import one_line

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from tollgate.images.billing import Terms
    from tollgate.images.calls import StepAnswer
    from tollgate.images.tracked import TrackedJobs
    from tollgate.ledger import Generation, Hold
    from tollgate.ledger.usage_row import FailedAttempt
    from tollgate.mapping.images.offer import ImageOffer
    from tollgate.services import Services

log = logging.getLogger("tollgate.images")


_MOST_RUNS = 3
"""How often a call in the background is made for one job, also over restarts: each may cost the operator money."""


class Submissions:
    """Submits jobs; `running` has the running calls to synchronous providers, by job, and `beginning` the jobs that may
    be stored and are not tracked yet, which nobody else may look after."""

    def __init__(self, services: Services, tracked: TrackedJobs) -> None:
        self._services = services
        self._tracked = tracked
        self.running: dict[str, asyncio.Task[Generation]] = {}
        self.beginning: set[str] = set()

    async def begin(self, generation: Generation, candidates: list[Calls], hold: Hold, terms: Terms) -> Generation:
        """Submit a job to the first of the `candidates` that accepts it. A synchronous call runs in the background."""
        failed: FailedAttempt | None = None
        with self._begun(generation.id), _released_on_error(hold):
            for index, calls in enumerate(candidates):
                if calls.offer.synchronous:
                    await self._store_unsubmitted(generation)
                    self._tracked.keep(generation, hold, terms)
                    self.run(generation, candidates[index:], failed)
                    return generation
                generation = attempted(generation, calls.offer, failed)
                began = self._tracked.clock()
                try:
                    answer = await self._submit(generation, calls)
                    break
                except UpstreamError as error:
                    note_failure(self._services, calls.offer, error, generation.id)
                    failed = self._failed(calls.offer, error, began)
                    if isinstance(error, UpstreamRejected) or calls is candidates[-1]:
                        await self._record_refused(generation, calls.offer, error, hold)
                        raise
            pending = await self._store_submitted(generation, answer, hold, terms)
            self._tracked.keep(pending, hold, terms)
        if answer.outcome.status in PENDING:
            return pending
        try:
            return await self._tracked.settle(pending, calls, answer)
        except (UpstreamError, JobGone):
            return pending

    @contextmanager
    def _begun(self, job_id: str) -> Iterator[None]:
        self.beginning.add(job_id)
        try:
            yield
        finally:
            self.beginning.discard(job_id)

    async def _record_refused(
        self, generation: Generation, offer: ImageOffer, error: UpstreamError, hold: Hold
    ) -> None:
        """Record the usage row of a job that no provider accepted."""
        row = refused_row(generation, offer, error, self._tracked.age(generation))
        self._services.metrics.outcomes[row.outcome] += 1
        await self._services.ledger.record(row, hold)

    async def _store_submitted(
        self, generation: Generation, answer: StepAnswer, hold: Hold, terms: Terms
    ) -> Generation:
        """Store a job that its provider accepted, in a pending status. Raises `Unsaved`; the job is tracked then too,
        because its provider is at work, and the ledger writes it as soon as it can."""
        status = answer.outcome.status if answer.outcome.status in PENDING else "starting"
        pending = replace(with_state(generation, answer), status=status)
        try:
            await self._services.ledger.generations.create(pending)
        except Unavailable as error:
            self._tracked.keep(pending, hold, terms)
            raise Unsaved(error.message) from error
        return pending

    async def _store_unsubmitted(self, generation: Generation) -> None:
        """Store a job before its provider is called. A job that cannot be stored is ended again: its client gets an
        error, and yet the next start would make its call."""
        try:
            await self._services.ledger.generations.create(generation)
        except Unavailable:
            self._services.settlements.spawn(self._tracked.take_back(generation))
            raise

    async def _submit(self, generation: Generation, calls: Calls) -> StepAnswer:
        began = self._tracked.clock()
        offer, facts = calls.offer, job_facts(generation)
        prepared = await calls.prepare(facts)
        answer = await calls.run(offer.submit, {**facts, **prepared})
        if prepared:
            outcome = replace(answer.outcome, facts={**prepared, **answer.outcome.facts})
            answer = replace(answer, outcome=outcome)
        if answer.outcome.status in PENDING:
            if offer.synchronous:
                raise UpstreamFailed("the provider reports a pending job, and its file has no poll step")
            if offer.needs_id and not answer.outcome.facts.get("id"):
                raise UpstreamFailed("the answer to the submit step holds no job id")
        took = self._tracked.clock() - began
        self._services.health.succeeded(route_of(offer), offer.provider, took, took)
        return answer

    def _failed(self, offer: ImageOffer, error: UpstreamError, began: float) -> FailedAttempt:
        """The entry of a failed attempt in the usage row, where another attempt follows."""
        return failed_attempt(offer.provider, offer.model.upstream, error, (self._tracked.clock() - began) * 1000)

    def run(self, generation: Generation, candidates: list[Calls], failed: FailedAttempt | None = None) -> None:
        """Call a synchronous provider in the background. Meanwhile clients poll the job like any other."""
        task = self._services.settlements.spawn(self._call(generation, candidates, failed))
        self.running[generation.id] = task
        task.add_done_callback(lambda _: self.running.pop(generation.id, None))
        task.add_done_callback(log_failure)

    async def call_again(self, generation: Generation) -> None:
        """Repeat the call that was running in the background when its process ended: to a synchronous provider, or to
        one that was tried after it. Jobs that a provider has accepted need none."""
        offer = self._services.runtime.current.images.offer(generation.model, generation.provider)
        if offer is None or was_submitted(generation):
            return
        if generation.row.runs >= _MOST_RUNS:
            await self._tracked.fail(generation, "interrupted too often by restarts of the gateway")
        else:
            self.run(generation, [Calls(self._services.client, offer, offer.schema.filled(generation.input))])

    async def _call(self, generation: Generation, candidates: list[Calls], failed: FailedAttempt | None) -> Generation:
        last: TollgateError = UpstreamFailed("no route is left")
        for calls in candidates:
            offer, began = calls.offer, self._tracked.clock()
            generation = attempted(generation, offer, failed)
            generation = replace(
                generation,
                status="processing",
                updated_at=datetime.now(UTC),
                row=replace(generation.row, runs=generation.row.runs + 1),
            )
            if not await self._store_started(generation):
                return await self._tracked.stored(generation.account_id, generation.id)
            try:
                answer = await self._submit(generation, calls)
                begun = with_state(generation, answer)
                if answer.outcome.status not in PENDING:
                    begun = await self._tracked.settle(begun, calls, answer)
                if begun.status in PENDING:  # it is polled from now on, or its pictures are fetched again
                    await self._tracked.store(begun)
                return begun
            except JobGone:
                last = UpstreamFailed("the provider lost the job")
                failed = self._failed(offer, last, began)
            except UpstreamError as error:
                if self._services.draining:
                    return generation  # the next start makes the call again
                note_failure(self._services, offer, error, generation.id)
                last = error
                failed = self._failed(offer, error, began)
                if isinstance(error, UpstreamRejected):
                    break
            except BadRequest as error:
                last = error
                break
        return await self._tracked.fail(generation, job_error(last), last)

    async def _store_started(self, generation: Generation) -> bool:
        """Store that a call is about to be made; False when the job has ended meanwhile. If the change cannot be
        written yet, the call is made all the same: nobody would make it later."""
        try:
            return await self._tracked.store(generation)
        except Unavailable:
            if self._services.draining:
                raise
            return True


@contextmanager
def _released_on_error(hold: Hold) -> Iterator[None]:
    """Release the hold if the block fails, unless the job goes on (`Unsaved`)."""
    try:
        yield
    except Unsaved:
        raise
    except BaseException:
        hold.release()
        raise


def log_failure(task: asyncio.Task[Generation]) -> None:
    """Log the failure of a task that nobody waits for: one line, with a traceback only for a mistake of ours."""
    failure = None if task.cancelled() else task.exception()
    if isinstance(failure, TollgateError):
        log.info("an image job went wrong when nobody waited for it: %s", one_line(failure.message))
    elif failure is not None:
        log.error("an image job went wrong when nobody waited for it", exc_info=failure)
