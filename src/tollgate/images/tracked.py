"""The pending jobs that this process looks after: their holds, when each is polled next, and how they end.

What must stay true: a job is charged at most once, because only the ledger's compare-and-set out of a pending status,
in `_end`, writes the usage row. `submitting.py`, `runner.py` and `refresher.py` call the providers.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tollgate.errors import NotDurable, NotFound, Unavailable, UpstreamTimeout
from tollgate.images.billing import Terms, charge_of, usage_row
from tollgate.images.order import Unsaved
from tollgate.images.state import changes, is_job_id, job_facts, seconds_since, with_state
from tollgate.ledger import Generation
from tollgate.ledger.usage_row import outcome_without_answer
from tollgate.mapping.images.outcome import Outcome
from tollgate.wire import PENDING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tollgate.errors import TollgateError
    from tollgate.images.calls import Calls, StepAnswer
    from tollgate.ledger import Hold, UsageRow
    from tollgate.mapping.images.offer import ImageOffer
    from tollgate.services import Services

_TAKE_BACK_SECONDS = (0.0, 1.0, 4.0)
"""Pauses before each attempt to end a job that could not be stored."""


class Watch:
    """When this process polls a pending job next, how old the job is, what is held for it, and the terms on which this
    process accepted it (None: an earlier process did). `now` is of a monotonic clock: a job must not look old when the
    time is changed."""

    __slots__ = ("account_id", "began", "due", "every", "hold", "looks", "terms")

    def __init__(
        self, job: Generation, every: tuple[float, ...], now: float, hold: Hold | None, terms: Terms | None
    ) -> None:
        self.account_id = job.account_id
        self.every = every
        self.hold = hold
        self.terms = terms
        self.began = now - seconds_since(job.created_at)
        self.looks = 0
        self.due = now
        self.next(now)

    def next(self, now: float) -> None:
        """Set the time of the next poll, by the intervals in the provider's file, but not within two seconds, because
        the client may be polling too."""
        self.due = now + max(2.0, self.every[min(self.looks, len(self.every) - 1)])
        self.looks += 1


class TrackedJobs:
    """The jobs of one process by id, in `pending`."""

    def __init__(self, services: Services, clock: Callable[[], float] = time.monotonic) -> None:
        self._services = services
        self.clock = clock
        self.pending: dict[str, Watch] = {}

    def keep(self, generation: Generation, hold: Hold | None, terms: Terms | None = None) -> None:
        """Look after a running job from now on. Without `terms` it is charged by the prices at its end."""
        self.pending[generation.id] = Watch(generation, self.pace(generation), self.clock(), hold, terms)

    def forget(self, job_id: str) -> None:
        """Stop looking after a job, and release its hold."""
        watch = self.pending.pop(job_id, None)
        if watch is not None and watch.hold is not None:
            watch.hold.release()

    def rest(self, job_id: str, seconds: float) -> None:
        """Let the gateway's own polls of a job wait: its provider asked for it."""
        watch = self.pending.get(job_id)
        if watch is not None:
            most = self._services.runtime.current.gateway.retry.max_retry_after_seconds
            watch.due = max(watch.due, self.clock() + min(seconds, most))

    def age(self, generation: Generation) -> float:
        """Seconds since a job was made."""
        watch = self.pending.get(generation.id)
        return self.clock() - watch.began if watch is not None else seconds_since(generation.created_at)

    def is_late(self, generation: Generation) -> bool:
        """Whether a job has used up the time that its provider's file gives it."""
        ends = generation.deadline_at
        return ends is not None and self.age(generation) >= (ends - generation.created_at).total_seconds()

    def pace(self, generation: Generation) -> tuple[float, ...]:
        """Seconds before each poll of a job, from its provider's file; the last value is for all further polls."""
        offer = self.present_offer(generation)
        return offer.every if offer is not None else (5.0,)

    async def stored(self, account_id: str, job_id: str) -> Generation:
        """A job of this account as it is stored. Raises `NotFound` for a malformed, unknown or foreign id, and
        `Unsaved` for one that ended and could not be stored yet; `Unavailable` where none can be read."""
        if not is_job_id(job_id):
            raise NotFound("generation not found")
        try:
            generation = await self._services.ledger.generations.get(account_id, job_id.lower())
        except NotDurable as error:
            raise Unsaved(error.message) from error
        if generation is None:
            raise NotFound("generation not found")
        return generation

    async def store(self, generation: Generation) -> bool:
        """Store a job that is still pending; False when it has ended meanwhile."""
        return await self._services.ledger.generations.update(generation.id, changes(generation, ended=False))

    async def move(self, generation: Generation, answer: StepAnswer) -> Generation:
        """Store a job with the pending status and the state from an answer; writes nothing when nothing changed. An
        answer that says "done" without its pictures counts as processing."""
        reported = answer.outcome.status
        status = reported if reported in PENDING and generation.status != "processing" else "processing"
        moved = replace(with_state(generation, answer), status=status)
        if moved.status != generation.status or moved.upstream_state != generation.upstream_state:
            await self.store(moved)
        return moved

    async def settle(self, generation: Generation, calls: Calls, answer: StepAnswer) -> Generation:
        """Handle a final answer: fetch the pictures if they are elsewhere, then end the job and charge it. Raises
        `Unsaved` when it cannot be stored."""
        fetch = calls.offer.fetch
        if answer.outcome.status == "succeeded" and fetch is not None and not answer.outcome.images:
            fetched = await calls.run(fetch, job_facts(generation))
            if fetched.outcome.status in PENDING:
                return await self.move(generation, answer)
            generation, answer = with_state(generation, fetched), fetched
        outcome = answer.outcome
        terms = self._terms(generation.id)
        offer = terms.offers.get(generation.provider, calls.offer)
        charge = charge_of(offer, calls, answer, job_facts(generation, outcome), terms.rates)
        return await self._end(generation, outcome, usage_row(generation, outcome, self.age(generation), offer, charge))

    async def fail(self, generation: Generation, error: str, cause: TollgateError | None = None) -> Generation:
        """End a job without a result, which costs nothing; its row has the outcome and the code of `cause`. Raises
        `Unsaved` when that cannot be stored."""
        outcome = Outcome("failed", error=error)
        offer = self._terms(generation.id).offers.get(generation.provider) or self.present_offer(generation)
        row = usage_row(generation, outcome, self.age(generation), offer)
        if cause is not None:
            row.outcome, row.error_code = outcome_without_answer(cause), cause.code
        return await self._end(generation, outcome, row)

    def present_offer(self, generation: Generation) -> ImageOffer | None:
        """The offer of a job's model at its provider in the present configuration."""
        return self._services.runtime.current.images.offer(generation.model, generation.provider)

    def offer_to_poll(self, generation: Generation) -> ImageOffer | None:
        """The offer through which a job is polled: the present one, so that a mended file helps running jobs; where a
        reload removed it or left it without a poll, the one through which this process submitted the job."""
        present = self.present_offer(generation)
        if present is not None and present.poll is not None:
            return present
        return self._terms(generation.id).offers.get(generation.provider) or present

    def filled_input(self, generation: Generation, offer: ImageOffer) -> dict[str, Any]:
        """A job's input with the defaults with which it was submitted, which its price may depend on; those of `offer`
        if an earlier process submitted it."""
        accepted = self._terms(generation.id).offers.get(generation.provider, offer)
        return accepted.schema.filled(generation.input)

    def _terms(self, job_id: str) -> Terms:
        """The terms on which this process accepted a job; the present ones if an earlier process did."""
        watch = self.pending.get(job_id)
        terms = watch.terms if watch is not None else None
        return terms if terms is not None else Terms({}, self._services.runtime.current.gateway.credits.rates)

    async def _end(self, generation: Generation, outcome: Outcome, row: UsageRow) -> Generation:
        """The one transition out of a pending status: images, cost and usage row in one step. If the job has ended
        already, nothing changes. Raises `Unsaved` when it cannot be stored."""
        ended = replace(
            generation,
            status=outcome.status,
            images=outcome.images,
            error=outcome.error or None,
            cost=row.cost if outcome.status == "succeeded" else None,
            updated_at=datetime.now(UTC),
        )
        watch = self.pending.get(generation.id)
        hold = watch.hold if watch is not None else None
        try:
            won = await self._services.ledger.generations.update(generation.id, changes(ended, ended=True), row, hold)
        except Unavailable as error:
            raise Unsaved(error.message) from error
        self.forget(generation.id)
        if won:
            self._services.metrics.outcomes[row.outcome] += 1
            self._services.metrics.cost[row.provider] += row.cost
            return ended
        return await self.stored(generation.account_id, generation.id)

    async def take_back(self, generation: Generation) -> None:
        """End a job that could not be stored, and that neither a client nor a provider knows: it leaves no row. There
        are several attempts, because the job may be written a moment later than this begins."""
        for pause in _TAKE_BACK_SECONDS:
            await asyncio.sleep(pause)
            ended = replace(
                generation, status="failed", error="the job could not be stored", updated_at=datetime.now(UTC)
            )
            try:
                if await self._services.ledger.generations.update(generation.id, changes(ended, ended=True)):
                    return
            except Unavailable:  # the ledger will write its end after the job itself
                return

    async def expire(self, generation: Generation) -> Generation:
        """End a job whose deadline has passed. Raises as `fail` does."""
        assert generation.deadline_at is not None
        seconds = (generation.deadline_at - generation.created_at).total_seconds()
        late = UpstreamTimeout("total", seconds)
        return await self.fail(generation, f"the provider did not finish within {seconds:g} s", late)
