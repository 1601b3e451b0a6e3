"""The life of image jobs: submit, poll, fetch, and the one transition that charges.

Rules that must stay true: a job is charged at most once, because only the ledger's compare-and-set out of a pending
status writes the usage row; a caller who got an id finds the job again after a restart; nothing here waits for a
provider while holding anything another request needs.
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
    NotFound,
    TollgateError,
    Unavailable,
    UpstreamError,
    UpstreamFailed,
    UpstreamRejected,
)
from tollgate.images.billing import Terms, expected_cost, refused_row, usage_row
from tollgate.images.calls import JobGone, StepAnswer, job_error, run_step
from tollgate.images.catalog import image_routes
from tollgate.images.order import Order, Unsaved
from tollgate.images.routes import in_order, note_failure
from tollgate.images.state import Watch, attempted, changes, check_storable, is_job_id, job_facts, route_of, with_state
from tollgate.ledger import Generation
from tollgate.mapping.images.outcome import Outcome
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
    """All jobs of one gateway process. `pending` are those this process looks after, by id."""

    def __init__(self, services: Services, clock: Callable[[], float] = time.monotonic) -> None:
        self.services = services
        self.clock = clock
        self._holds: dict[str, Hold] = {}
        self._flights: dict[str, asyncio.Task[Generation]] = {}
        self._running: dict[str, asyncio.Task[Generation]] = {}
        self.pending: dict[str, Watch] = {}

    # What the endpoints and the tools call.

    async def create(self, order: Order) -> Generation:
        """Check, hold, submit and store a job. Raises `ModelNotFound`, `BadRequest`, `QuotaExhausted`, `RateLimited`,
        `UpstreamError`, and `Unsaved` when the provider took the job and it could not be stored."""
        routes = image_routes(self.services.runtime.current, order.model, order.key)
        check_storable(order.input, self._gateway.server.max_nesting)
        offers = [(routes[0], routes[0].schema.admit(order.input))]
        offers += [(offer, offer.schema.admit(order.input)) for offer in routes[1:] if offer.schema.admits(order.input)]
        offers = in_order(self.services.health, offers)[: self._gateway.retry.attempts]
        terms = Terms({offer.provider: offer for offer, _ in offers}, self._gateway.credits.rates)
        costs = [expected_cost(offer, job_input, terms.rates) for offer, job_input in offers]
        if not order.counted:
            await self.services.ledger.admit(order.key)
        hold = await self.services.ledger.hold(order.key, max(costs))
        now = order.received_at or datetime.now(UTC)
        generation = Generation(
            id=str(uuid.uuid4()), account_id=order.key.account_id, key_id=order.key.id, request_id=order.request_id,
            model=routes[0].model.id, provider=offers[0][0].provider, input=order.input, webhook=order.webhook,
            created_at=now, updated_at=now, deadline_at=now + timedelta(seconds=offers[0][0].give_up),
            row={
                "endpoint": order.endpoint, "asked_model": order.model[:200], "attempts": 0, "runs": 0,
                "held": str(max(costs)), "instance": self._gateway.store.instance,
                **({"lost": "; ".join(order.lost)[:2000]} if order.lost else {}),
            },
        )
        # A client that leaves now must not orphan a job the provider has begun.
        return await _outlived(self.services.settlements.spawn(self._begin(generation, offers, hold, terms)))

    async def refreshed(self, account_id: str, job_id: str) -> Generation:
        """A job of this account as the provider sees it now. Raises `NotFound`,
        and `UpstreamError` when it cannot be asked."""
        generation = await self.stored(account_id, job_id)
        return await self._refresh(generation) if generation.status in PENDING else generation

    async def stored(self, account_id: str, job_id: str) -> Generation:
        """A job of this account as it is stored. Raises `NotFound` for a malformed, unknown or foreign id, and
        `Unsaved` for one that ended and could not be stored yet."""
        if not is_job_id(job_id):
            raise NotFound("generation not found")
        try:
            generation = await self.services.ledger.get_generation(account_id, job_id.lower())
        except Unavailable as error:
            raise Unsaved(error.message) from error
        if generation is None:
            raise NotFound("generation not found")
        return generation

    async def wait(
        self, generation: Generation, seconds: float, tell: Callable[[float], Any] | None = None
    ) -> Generation:
        """The job when it has ended, or as it is after so many seconds, or when the gateway is to stop; provider
        hiccups in between are waited out."""
        ends = self.clock() + seconds
        every = self._pace(generation)
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

    async def _begin(
        self, generation: Generation, offers: list[tuple[ImageOffer, dict[str, Any]]], hold: Hold, terms: Terms
    ) -> Generation:
        try:
            while True:
                offer, job_input = offers[0]
                if offer.synchronous:
                    await self.services.ledger.create_generation(generation)
                    self.keep(generation, hold, terms)
                    self._run(generation, offers)
                    return generation
                generation = attempted(generation, offer)
                try:
                    answer = await self._submit(generation, offer, job_input)
                    break
                except UpstreamError as error:
                    note_failure(self.services, offer, error, generation.id)
                    offers = offers[1:]
                    if isinstance(error, UpstreamRejected) or not offers:
                        row = refused_row(generation, offer, error)
                        self.services.metrics.outcomes[row.outcome] += 1
                        await self.services.ledger.record(row, hold)
                        raise
            stored = with_state(generation, answer)
            pending = replace(stored, status=answer.outcome.status if answer.outcome.status in PENDING else "starting")
            try:
                await self.services.ledger.create_generation(pending)
            except Unavailable as error:
                raise Unsaved(error.message) from error
        except BaseException:
            hold.release()
            raise
        self.keep(pending, hold, terms)
        if answer.outcome.status in PENDING:
            return pending
        try:
            return await self._settle(pending, offer, job_input, answer)
        except (UpstreamError, JobGone):
            return pending

    async def _submit(self, generation: Generation, offer: ImageOffer, job_input: dict[str, Any]) -> StepAnswer:
        began = self.clock()
        answer = await run_step(self.services, offer, offer.submit, job_facts(generation), job_input)
        self.services.health.succeeded(route_of(offer), offer.provider, self.clock() - began)
        if (
            answer.outcome.status in PENDING
            and not answer.outcome.facts.get("id")
            and offer.poll is not None
            and not offer.names_jobs
        ):
            raise UpstreamFailed("the answer to the submit step holds no job id", provider=offer.provider)
        return answer

    def _run(self, generation: Generation, offers: list[tuple[ImageOffer, dict[str, Any]]]) -> None:
        """Hold a synchronous provider's call in the background; the job is polled meanwhile like any other."""
        task = self.services.settlements.spawn(self._call(generation, offers))
        self._running[generation.id] = task
        task.add_done_callback(lambda _: self._running.pop(generation.id, None))
        task.add_done_callback(_unheard)

    async def _call(self, generation: Generation, offers: list[tuple[ImageOffer, dict[str, Any]]]) -> Generation:
        last: TollgateError = UpstreamFailed("no route is left")
        for offer, job_input in offers:
            generation = attempted(generation, offer)
            generation = replace(
                generation,
                status="processing",
                updated_at=datetime.now(UTC),
                row={**generation.row, "runs": generation.row["runs"] + 1},
            )
            if not await self._store(generation):
                return await self.stored(generation.account_id, generation.id)
            try:
                answer = await self._submit(generation, offer, job_input)
                if answer.outcome.status in PENDING and offer.synchronous:
                    raise UpstreamFailed(
                        "the provider says it is not done, and its file has no poll step", provider=offer.provider
                    )
                begun = with_state(generation, answer)
                if answer.outcome.status in PENDING:
                    await self._store(begun)
                    return begun
                return await self._settle(begun, offer, job_input, answer)
            except JobGone:
                last = UpstreamFailed("the provider lost the job", provider=offer.provider)
            except UpstreamError as error:
                if self.services.draining:
                    return generation  # the next start makes the call again
                note_failure(self.services, offer, error, generation.id)
                last = error
                if isinstance(error, UpstreamRejected):
                    break
            except BadRequest as error:
                last = error
                break
        return await self._end(generation, Outcome("failed", error=job_error(last)))

    # Following a job.

    async def _refresh(self, generation: Generation) -> Generation:
        """Ask the provider, once for everybody who asks at the same time."""
        running = self._running.get(generation.id)
        if running is not None:
            return await self.stored(generation.account_id, generation.id)
        flight = self._flights.get(generation.id)
        if flight is None:
            flight = self.services.settlements.spawn(self._poll(generation))
            self._flights[generation.id] = flight
            flight.add_done_callback(lambda _: self._flights.pop(generation.id, None))
        return await _outlived(flight)

    async def _poll(self, generation: Generation) -> Generation:
        late = generation.deadline_at is not None and datetime.now(UTC) >= generation.deadline_at
        offer = self.services.runtime.current.images.offer(generation.model, generation.provider)
        try:
            if offer is None or offer.poll is None:
                return await self._expire(generation) if late else generation
            job_input = offer.schema.filled(generation.input)
            answer = await run_step(self.services, offer, offer.poll, job_facts(generation), job_input)
            if answer.outcome.status in PENDING:
                if late:
                    return await self._expire(generation)
                return await self._moved(generation, answer)
            return await self._settle(with_state(generation, answer), offer, job_input, answer)
        except JobGone:
            age = (datetime.now(UTC) - generation.created_at).total_seconds()
            if age < _FORGETFUL_SECONDS and not late:
                return generation
            return await self._end(generation, Outcome("failed", error="the provider no longer knows this job"))
        except (UpstreamRejected, BadRequest) as error:
            return await self._end(generation, Outcome("failed", error=job_error(error)))
        except UpstreamError as error:
            if error.alarm is not None and offer is not None:  # our key or balance there: new jobs would fail as well
                note_failure(self.services, offer, error, generation.id)
            if late:
                return await self._expire(generation)
            raise

    async def _moved(self, generation: Generation, answer: StepAnswer) -> Generation:
        """Store a new pending status or state; nothing is written when nothing changed."""
        status = "processing" if generation.status == "processing" else answer.outcome.status
        moved = replace(with_state(generation, answer), status=status)
        if moved.status != generation.status or moved.upstream_state != generation.upstream_state:
            await self._store(moved)
        return moved

    async def _settle(
        self, generation: Generation, offer: ImageOffer, job_input: dict[str, Any], answer: StepAnswer
    ) -> Generation:
        """A provider's last word: fetch the pictures if they stand elsewhere, then end the job."""
        outcome = answer.outcome
        if outcome.status == "succeeded" and offer.fetch is not None and not outcome.images:
            fetched = await run_step(self.services, offer, offer.fetch, job_facts(generation), job_input)
            if fetched.outcome.status in PENDING:
                return await self._moved(generation, answer)
            generation = with_state(generation, fetched)
            answer, outcome = fetched, fetched.outcome
        return await self._end(generation, outcome, offer, job_input, answer)

    async def _expire(self, generation: Generation) -> Generation:
        assert generation.deadline_at is not None
        seconds = (generation.deadline_at - generation.created_at).total_seconds()
        return await self._end(generation, Outcome("failed", error=f"the provider did not finish within {seconds:g} s"))

    async def _end(
        self,
        generation: Generation,
        outcome: Outcome,
        offer: ImageOffer | None = None,
        job_input: dict[str, Any] | None = None,
        answer: StepAnswer | None = None,
    ) -> Generation:
        """The one transition out of a pending status: images, cost and usage row in one step;
        a lost race changes nothing."""
        watch = self.pending.get(generation.id)
        terms = watch.terms if watch is not None else None
        priced = terms.offers.get(generation.provider, offer) if terms is not None and offer is not None else offer
        rates = terms.rates if terms is not None else self._gateway.credits.rates
        row = usage_row(generation, outcome, priced, job_input, answer, job_facts(generation, outcome), rates)
        ended = replace(generation, status=outcome.status, images=outcome.images, error=outcome.error or None,
                        cost=row.cost if outcome.status == "succeeded" else None, updated_at=datetime.now(UTC))
        hold = self._holds.get(generation.id)
        try:
            won = await self.services.ledger.update_generation(
                generation.id, PENDING, changes(ended, ended=True), row, hold
            )
        except Unavailable as error:
            raise Unsaved(error.message) from error
        self.forget(generation.id)
        if won:
            self.services.metrics.outcomes[row.outcome] += 1
            return ended
        return await self.stored(generation.account_id, generation.id)

    async def _store(self, generation: Generation) -> bool:
        """Keep a job that is still pending; False when it has ended meanwhile."""
        return await self.services.ledger.update_generation(generation.id, PENDING, changes(generation, ended=False))

    # What the refresher needs too.

    def busy(self, job_id: str) -> bool:
        """Whether somebody asks about this job already, or its call is held."""
        return job_id in self._running or job_id in self._flights

    def keep(self, generation: Generation, hold: Hold | None, terms: Terms | None = None) -> None:
        """Look after a running job from now on; without `terms` it is charged by the
        prices of the day on which it ends."""
        if hold is not None:
            self._holds[generation.id] = hold
        self.pending[generation.id] = Watch(generation.account_id, self._pace(generation), self.clock(), terms)

    def forget(self, job_id: str) -> None:
        """Look after a job no longer; what it may cost is free again."""
        self.pending.pop(job_id, None)
        hold = self._holds.pop(job_id, None)
        if hold is not None:
            hold.release()

    async def call_again(self, generation: Generation) -> None:
        """Make the call again that a held job was in when its process ended; a polled job needs nothing."""
        offer = self.services.runtime.current.images.offer(generation.model, generation.provider)
        if offer is None or not offer.synchronous:
            return
        if generation.row.get("runs", 0) >= _MOST_RUNS:
            await self._end(generation, Outcome("failed", error="interrupted too often by restarts of the gateway"))
        else:
            self._run(generation, [(offer, offer.schema.filled(generation.input))])

    @property
    def _gateway(self) -> Gateway:
        return self.services.runtime.current.gateway

    def _pace(self, generation: Generation) -> tuple[float, ...]:
        offer = self.services.runtime.current.images.offer(generation.model, generation.provider)
        return offer.every if offer is not None else (5.0,)


async def _outlived(task: asyncio.Task[Generation]) -> Generation:
    """Wait for a task that goes on even when whoever waits for it is cancelled."""
    try:
        return await asyncio.shield(task)
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
