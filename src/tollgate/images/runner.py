"""The life of image jobs: submit, poll, fetch.

What must stay true: a caller who got an id finds the job again after a restart; nothing here waits for a provider while
holding anything another request needs. How a job is stored, ends and is charged is `tracked.py`'s.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tollgate.errors import (
    BadRequest,
    TollgateError,
    Unavailable,
    UpstreamError,
    UpstreamFailed,
    UpstreamRejected,
)
from tollgate.images.billing import Terms, expected_cost, is_priced, refused_row
from tollgate.images.calls import Calls, JobGone, StepAnswer, job_error
from tollgate.images.catalog import image_routes
from tollgate.images.order import Order, Unsaved
from tollgate.images.routes import in_order, note_failure
from tollgate.images.state import attempted, check_storable, job_facts, route_of, with_state
from tollgate.images.tracked import TrackedJobs
from tollgate.ledger import Generation
from tollgate.ledger.usage_row import FailedAttempt, failed_attempt
from tollgate.mapping.images.outcome import Outcome
from tollgate.process.outlived import outlived
from tollgate.wire import PENDING

if TYPE_CHECKING:
    from tollgate.config.model import Gateway
    from tollgate.ledger import Hold
    from tollgate.mapping.images.offer import ImageOffer
    from tollgate.services import Services

log = logging.getLogger("tollgate.images")

_FORGETFUL_SECONDS = 60.0
"""A provider that does not know a job this young may not have written it down yet; after that the job is lost."""
_MOST_RUNS = 3
"""How often a synchronous call is begun for one job, restarts included: each may cost the operator money."""


class Jobs:
    """All jobs of one gateway process; those it looks after are `tracked`."""

    def __init__(self, services: Services, clock: Callable[[], float] = time.monotonic) -> None:
        self.services = services
        self.clock = clock
        self.tracked = TrackedJobs(services)
        self._flights: dict[str, asyncio.Task[Generation]] = {}
        self._running: dict[str, asyncio.Task[Generation]] = {}

    # What the endpoints and the tools call.

    async def create(self, order: Order) -> Generation:
        """Check, hold, submit and store a job. Raises `ModelNotFound`, `BadRequest`, `QuotaExhausted`, `RateLimited`,
        `UpstreamError`, and `Unsaved` when the provider took the job and it could not be stored."""
        routes = image_routes(self.services.runtime.current, order.model, order.key)
        check_storable(order.input, self._gateway.server.max_nesting)
        candidates = [self._calls(routes[0], routes[0].schema.admit(order.input))]
        for offer in routes[1:]:
            if offer.schema.admits(order.input) and is_priced(offer, job_input := offer.schema.admit(order.input)):
                candidates.append(self._calls(offer, job_input))
        candidates = in_order(self.services.health, candidates)[: self._gateway.retry.attempts]
        terms = Terms({calls.offer.provider: calls.offer for calls in candidates}, self._gateway.credits.rates)
        costs = [expected_cost(calls.offer, calls.input, terms.rates) for calls in candidates]
        if not order.counted:
            await self.services.ledger.admit(order.key)
        hold = await self.services.ledger.hold(order.key, max(costs))
        now = order.received_at or datetime.now(UTC)
        generation = Generation(
            id=str(uuid.uuid4()),
            account_id=order.key.account_id,
            key_id=order.key.id,
            request_id=order.request_id,
            model=routes[0].model.id,
            provider=candidates[0].offer.provider,
            input=order.input,
            webhook=order.webhook,
            created_at=now,
            updated_at=now,
            deadline_at=now + timedelta(seconds=candidates[0].offer.give_up),
            row={
                "endpoint": order.endpoint,
                "asked_model": order.model[:200],
                "attempts": 0,
                "runs": 0,
                "held": str(max(costs)),
                "instance": self.services.ledger.store.instance,
                **({"lost": "; ".join(order.lost)[:2000]} if order.lost else {}),
            },
        )
        # A client that leaves now must not orphan a job the provider has begun.
        return await _outlived(self.services.settlements.spawn(self._begin(generation, candidates, hold, terms)))

    async def refreshed(self, account_id: str, job_id: str) -> Generation:
        """A job of this account as the provider sees it now. Raises `NotFound`,
        and `UpstreamError` when it cannot be asked."""
        generation = await self.tracked.stored(account_id, job_id)
        return await self._refresh(generation) if generation.status in PENDING else generation

    async def wait(
        self, generation: Generation, seconds: float, tell: Callable[[float], Any] | None = None
    ) -> Generation:
        """The job when it has ended, or as it is after so many seconds, or when the gateway is to stop; provider
        hiccups in between are waited out."""
        ends = self.clock() + seconds
        every = self.tracked.pace(generation)
        polls = 0
        while generation.status in PENDING and not self.services.draining:
            pause = min(every[min(polls, len(every) - 1)], ends - self.clock())
            if pause <= 0:
                break
            running = self._running.get(generation.id)
            if running is not None:
                await asyncio.wait({running}, timeout=pause)
            else:
                await asyncio.sleep(pause)
            polls += 1
            if tell is not None:
                await tell(seconds - max(0.0, ends - self.clock()))
            try:
                generation = await asyncio.wait_for(
                    self.refreshed(generation.account_id, generation.id), max(0.05, ends - self.clock())
                )
            except TimeoutError:
                break
            except UpstreamError:
                continue
        return generation

    # Beginning a job.

    async def _begin(self, generation: Generation, candidates: list[Calls], hold: Hold, terms: Terms) -> Generation:
        """Submit a job to the first of the `candidates` that takes it; a call that holds the job goes on by itself."""
        failed: FailedAttempt | None = None
        try:
            while True:
                calls = candidates[0]
                offer = calls.offer
                if offer.synchronous:
                    await self._store_unbegun(generation)
                    self.tracked.keep(generation, hold, terms, now=self.clock())
                    self._run(generation, candidates, failed)
                    return generation
                generation = attempted(generation, offer, failed)
                began = self.clock()
                try:
                    answer = await self._submit(generation, calls)
                    break
                except UpstreamError as error:
                    note_failure(self.services, offer, error, generation.id)
                    failed = self._failed(offer, error, began)
                    candidates = candidates[1:]
                    if isinstance(error, UpstreamRejected) or not candidates:
                        row = refused_row(generation, offer, error)
                        self.services.metrics.outcomes[row.outcome] += 1
                        await self.services.ledger.record(row, hold)
                        raise
            stored = with_state(generation, answer)
            pending = replace(stored, status=answer.outcome.status if answer.outcome.status in PENDING else "starting")
            try:
                await self.services.ledger.generations.create(pending)
            except Unavailable as error:
                # it is written once that can be, and the provider is at work: the job goes on, and what it may cost
                # stays held
                self.tracked.keep(pending, hold, terms, now=self.clock())
                raise Unsaved(error.message) from error
        except Unsaved:
            raise
        except BaseException:
            hold.release()
            raise
        self.tracked.keep(pending, hold, terms, now=self.clock())
        if answer.outcome.status in PENDING:
            return pending
        try:
            return await self._settle(pending, calls, answer)
        except (UpstreamError, JobGone):
            return pending

    async def _store_unbegun(self, generation: Generation) -> None:
        """Store a job before its provider is called. One that cannot be stored is taken back, or a restart would make
        the call of which its client was told that it was not made."""
        try:
            await self.services.ledger.generations.create(generation)
        except Unavailable:
            self.services.settlements.spawn(self.tracked.take_back(generation))
            raise

    async def _submit(self, generation: Generation, calls: Calls) -> StepAnswer:
        began = self.clock()
        offer, facts = calls.offer, job_facts(generation)
        told = await calls.bring(facts)
        answer = await calls.run(offer.submit, {**facts, **told})
        if told:
            outcome = replace(answer.outcome, facts={**told, **answer.outcome.facts})
            answer = replace(answer, outcome=outcome)
        if answer.outcome.status in PENDING:
            if offer.synchronous:
                raise UpstreamFailed("the provider says it is not done, and its file has no poll step")
            if offer.needs_id and not answer.outcome.facts.get("id"):
                raise UpstreamFailed("the answer to the submit step holds no job id")
        self.services.health.succeeded(route_of(offer), offer.provider, self.clock() - began)
        return answer

    def _failed(self, offer: ImageOffer, error: UpstreamError, began: float) -> FailedAttempt:
        """What the row will tell of an attempt that failed, if there is another one."""
        return failed_attempt(offer.provider, offer.model.upstream, error, (self.clock() - began) * 1000)

    def _run(self, generation: Generation, candidates: list[Calls], failed: FailedAttempt | None = None) -> None:
        """Hold a synchronous provider's call in the background; the job is polled meanwhile like any other."""
        task = self.services.settlements.spawn(self._call(generation, candidates, failed))
        self._running[generation.id] = task
        task.add_done_callback(lambda _: self._running.pop(generation.id, None))
        task.add_done_callback(_unheard)

    async def _call(self, generation: Generation, candidates: list[Calls], failed: FailedAttempt | None) -> Generation:
        last: TollgateError = UpstreamFailed("no route is left")
        for calls in candidates:
            offer, began = calls.offer, self.clock()
            generation = attempted(generation, offer, failed)
            generation = replace(
                generation,
                status="processing",
                updated_at=datetime.now(UTC),
                row={**generation.row, "runs": generation.row["runs"] + 1},
            )
            if not await self._store_begun(generation):
                return await self.tracked.stored(generation.account_id, generation.id)
            try:
                answer = await self._submit(generation, calls)
                begun = with_state(generation, answer)
                if answer.outcome.status in PENDING:
                    await self.tracked.store(begun)
                    return begun
                return await self._settle(begun, calls, answer)
            except JobGone:
                last = UpstreamFailed("the provider lost the job")
                failed = self._failed(offer, last, began)
            except UpstreamError as error:
                if self.services.draining:
                    return generation  # the next start makes the call again
                note_failure(self.services, offer, error, generation.id)
                last = error
                failed = self._failed(offer, error, began)
                if isinstance(error, UpstreamRejected):
                    break
            except BadRequest as error:
                last = error
                break
        return await self.tracked.end(generation, Outcome("failed", error=job_error(last)))

    async def _store_begun(self, generation: Generation) -> bool:
        """Store that a call is about to be made; False when the job has ended meanwhile. A change that waits to be
        written keeps no call back: the job itself is stored, and nobody would make its call later."""
        try:
            return await self.tracked.store(generation)
        except Unavailable:
            if self.services.draining:
                raise
            return True

    # Following a job.

    async def _refresh(self, generation: Generation) -> Generation:
        """Ask the provider, once for everybody who asks at the same time."""
        running = self._running.get(generation.id)
        if running is not None:
            return await self.tracked.stored(generation.account_id, generation.id)
        flight = self._flights.get(generation.id)
        if flight is None:
            flight = self.services.settlements.spawn(self._poll(generation))
            self._flights[generation.id] = flight
            flight.add_done_callback(lambda _: self._flights.pop(generation.id, None))
        return await _outlived(flight)

    async def _poll(self, generation: Generation) -> Generation:
        late = self.tracked.is_late(generation, self.clock())
        offer = self.services.runtime.current.images.offer(generation.model, generation.provider)
        try:
            if offer is None or offer.poll is None:
                return await self.tracked.expire(generation) if late else generation
            calls = self._calls(offer, offer.schema.filled(generation.input))
            if (answer := calls.kept_answer(generation)) is None:
                answer = await calls.run(offer.poll, job_facts(generation))
            if answer.outcome.status in PENDING:
                if late:
                    return await self.tracked.expire(generation)
                return await self.tracked.move(generation, answer)
            return await self._settle(with_state(generation, answer), calls, answer)
        except JobGone:
            if self.tracked.age(generation, self.clock()) < _FORGETFUL_SECONDS and not late:
                return generation
            return await self.tracked.end(generation, Outcome("failed", error="the provider no longer knows this job"))
        except (UpstreamRejected, BadRequest) as error:
            return await self.tracked.end(generation, Outcome("failed", error=job_error(error)))
        except UpstreamError as error:
            if error.alarm is not None and offer is not None:  # our key or balance there: new jobs would fail as well
                note_failure(self.services, offer, error, generation.id)
            if late:
                return await self.tracked.expire(generation)
            raise

    async def _settle(self, generation: Generation, calls: Calls, answer: StepAnswer) -> Generation:
        """A provider's last word: fetch the pictures if they stand elsewhere, then end the job."""
        outcome, fetch = answer.outcome, calls.offer.fetch
        if outcome.status == "succeeded" and fetch is not None and not outcome.images:
            fetched = await calls.run(fetch, job_facts(generation))
            if fetched.outcome.status in PENDING:
                return await self.tracked.move(generation, answer)
            generation = with_state(generation, fetched)
            answer, outcome = fetched, fetched.outcome
        return await self.tracked.end(generation, outcome, calls, answer)

    # What the refresher needs too.

    def busy(self, job_id: str) -> bool:
        """Whether somebody asks about this job already, or its call is held."""
        return job_id in self._running or job_id in self._flights

    async def call_again(self, generation: Generation) -> None:
        """Make the call again that a held job was in when its process ended; a polled job needs nothing."""
        offer = self.services.runtime.current.images.offer(generation.model, generation.provider)
        if offer is None or not offer.synchronous:
            return
        if generation.row.get("runs", 0) >= _MOST_RUNS:
            interrupted = Outcome("failed", error="interrupted too often by restarts of the gateway")
            await self.tracked.end(generation, interrupted)
        else:
            self._run(generation, [self._calls(offer, offer.schema.filled(generation.input))])

    def _calls(self, offer: ImageOffer, job_input: dict[str, Any]) -> Calls:
        return Calls(self.services.client, offer, job_input)

    @property
    def _gateway(self) -> Gateway:
        return self.services.runtime.current.gateway


async def _outlived(task: asyncio.Task[Generation]) -> Generation:
    """Wait for a task that goes on even when whoever waits for it is cancelled."""
    try:
        return await outlived(task)
    except asyncio.CancelledError:
        task.add_done_callback(_unheard)
        raise


def _unheard(task: asyncio.Task[Generation]) -> None:
    """Log how a task failed that nobody waits for: one line, with a traceback only for a mistake of ours."""
    failure = None if task.cancelled() else task.exception()
    if isinstance(failure, TollgateError):
        log.info("an image job went wrong when nobody waited for it: %s", failure.message)
    elif failure is not None:
        log.error("an image job went wrong when nobody waited for it", exc_info=failure)
