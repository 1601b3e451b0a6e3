"""The life of image jobs: created, submitted (by `submitting.py`), polled. `tracked.py` stores, ends and charges them.

What must stay true: nothing here waits for a provider while it has something that another request needs.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tollgate.errors import BadRequest, Unavailable, UpstreamError, UpstreamRejected
from tollgate.images.billing import Terms, expected_cost, is_priced
from tollgate.images.calls import Calls, JobGone, job_error
from tollgate.images.catalog import image_routes
from tollgate.images.order import Order, Unsaved
from tollgate.images.routes import in_order, note_failure
from tollgate.images.state import check_storable, job_facts, was_submitted, with_state
from tollgate.images.submitting import Submissions, log_failure
from tollgate.images.tracked import TrackedJobs
from tollgate.ledger import Generation, JobRow
from tollgate.process.concurrency import shielded
from tollgate.wire import PENDING

if TYPE_CHECKING:
    from decimal import Decimal

    from tollgate.config.model import Gateway
    from tollgate.mapping.images.offer import ImageOffer
    from tollgate.services import Services

log = logging.getLogger("tollgate.images")

_FORGETFUL_SECONDS = 60.0
"""When a provider does not know a job younger than this, it may not have stored it yet; later the job is lost."""


class Jobs:
    """All jobs of one gateway process. The pending jobs that it looks after are in `tracked`."""

    def __init__(self, services: Services, clock: Callable[[], float] = time.monotonic) -> None:
        self.services = services
        self.tracked = TrackedJobs(services, clock)
        self.submissions = Submissions(services, self.tracked)
        self._flights: dict[str, asyncio.Task[Generation]] = {}

    # ---- what the endpoints and the tools call

    async def create(self, order: Order) -> Generation:
        """Check, hold, submit and store a job. Raises `ModelNotFound`, `BadRequest`, `QuotaExhausted`, `RateLimited`,
        `UpstreamError`, and `Unsaved` when the provider took the job and it could not be stored."""
        candidates = self._candidates(order)
        terms = Terms({calls.offer.provider: calls.offer for calls in candidates}, self._gateway.credits.rates)
        most = max(expected_cost(calls.offer, calls.input, terms.rates) for calls in candidates)
        hold = await self.services.ledger.hold(order.key, most)
        if not order.counted:
            try:
                await self.services.ledger.admit(order.key)
            except BaseException:
                hold.release()
                raise
        generation = self._generation(order, candidates[0].offer, most)
        # goes on when the client leaves: the provider may have begun the job
        begun = self.services.settlements.spawn(self.submissions.begin(generation, candidates, hold, terms))
        return await _shielded(begun)

    async def refreshed(self, account_id: str, job_id: str) -> Generation:
        """A job of this account in its present state at the provider. Raises `NotFound`, and `UpstreamError` when the
        provider does not answer."""
        generation = await self.tracked.stored(account_id, job_id)
        return await self._refresh(generation) if generation.status in PENDING else generation

    async def wait(
        self, generation: Generation, seconds: float, progress: Callable[[float], Any] | None = None
    ) -> Generation:
        """The job once it has ended, or as it is after so many seconds or when the gateway stops. Errors of the
        provider or of our store in between are ignored."""
        ends = self.tracked.clock() + seconds
        every = self.tracked.pace(generation)
        polls = 0
        while generation.status in PENDING and not self.services.draining:
            pause = min(every[min(polls, len(every) - 1)], ends - self.tracked.clock())
            if pause <= 0:
                break
            running = self.submissions.running.get(generation.id)
            if running is not None:
                await asyncio.wait({running}, timeout=pause)
            else:
                await asyncio.sleep(pause)
            polls += 1
            if progress is not None:
                await progress(seconds - max(0.0, ends - self.tracked.clock()))
            try:
                generation = await asyncio.wait_for(
                    self.refreshed(generation.account_id, generation.id), max(0.05, ends - self.tracked.clock())
                )
            except TimeoutError:
                break
            except (UpstreamError, Unavailable, Unsaved):  # a waiter that gets an error would have a new job made
                continue
        return generation

    def _candidates(self, order: Order) -> list[Calls]:
        """The routes to try, best first: the catalog's first one, and others that accept the same input, have its
        fields and have a price for it. Raises like `create`."""
        offers = image_routes(self.services.runtime.current, order.model, order.key)
        check_storable(order.input, self._gateway.server.max_nesting)
        client = self.services.client
        job_input = offers[0].schema.admit(order.input)
        candidates = [Calls(client, offers[0], job_input)]
        assert isinstance(order.input, dict)  # or it was not admitted
        given = offers[0].schema.fields & order.input.keys()  # schemas are open: another route would ignore these
        for offer in offers[1:]:
            if not given <= offer.schema.fields or not offer.schema.admits(order.input):
                continue
            if is_priced(offer, job_input := offer.schema.admit(order.input)):
                candidates.append(Calls(client, offer, job_input))
        return in_order(self.services.health, candidates)[: self._gateway.retry.attempts]

    def _generation(self, order: Order, first: ImageOffer, held: Decimal) -> Generation:
        """The job of an order, before it is submitted."""
        now = order.received_at or datetime.now(UTC)
        return Generation(
            id=str(uuid.uuid4()),
            account_id=order.key.account_id,
            key_id=order.key.id,
            request_id=order.request_id,
            model=first.model.id,
            provider=first.provider,
            input=order.input,
            webhook=order.webhook,
            created_at=now,
            updated_at=now,
            deadline_at=now + timedelta(seconds=first.give_up),
            row=JobRow(
                endpoint=order.endpoint,
                asked_model=order.model[:200],
                lost="; ".join(order.lost)[:2000] or None,
                held=held,
                instance=self.services.ledger.store.instance,
            ),
        )

    # ---- polling

    async def _refresh(self, generation: Generation) -> Generation:
        """Poll the provider, once for all who ask at the same time."""
        running = self.submissions.running.get(generation.id)
        if running is not None:
            return await self.tracked.stored(generation.account_id, generation.id)
        flight = self._flights.get(generation.id)
        if flight is None:
            flight = self.services.settlements.spawn(self._poll(generation))
            self._flights[generation.id] = flight
            flight.add_done_callback(lambda _: self._flights.pop(generation.id, None))
        return await _shielded(flight)

    async def _poll(self, generation: Generation) -> Generation:
        late = self.tracked.is_late(generation)
        offer = self.tracked.offer_to_poll(generation)
        try:
            if offer is None or not was_submitted(generation):
                return await self.tracked.expire(generation) if late else generation
            calls = Calls(self.services.client, offer, self.tracked.filled_input(generation, offer))
            if (answer := calls.kept_answer(generation)) is None:
                if offer.poll is None:
                    return await self.tracked.expire(generation) if late else generation
                answer = await calls.run(offer.poll, job_facts(generation))
            if answer.outcome.status not in PENDING:
                generation = await self.tracked.settle(with_state(generation, answer), calls, answer)
            elif not late:
                generation = await self.tracked.move(generation, answer)
            # a job whose pictures never come, although its provider says that it is done, is late like any other
            return await self.tracked.expire(generation) if late and generation.status in PENDING else generation
        except JobGone:
            if self.tracked.age(generation) < _FORGETFUL_SECONDS and not late:
                return generation
            return await self.tracked.fail(generation, "the provider no longer knows this job")
        except (UpstreamRejected, BadRequest) as error:
            return await self.tracked.fail(generation, job_error(error), error)
        except UpstreamError as error:
            # our key or balance there, so new jobs will fail too
            if error.alarm is not None and offer is not None and offer is self.tracked.present_offer(generation):
                note_failure(self.services, offer, error, generation.id)
            if late:
                return await self.tracked.expire(generation)
            self.tracked.rest(generation.id, error.retry_after or 0.0)
            raise

    def has(self, job_id: str) -> bool:
        """Whether this process looks after this job, or is about to."""
        return job_id in self.tracked.pending or job_id in self.submissions.beginning

    def busy(self, job_id: str) -> bool:
        """Whether this job is being polled already, or its synchronous call is running."""
        return job_id in self.submissions.running or job_id in self._flights

    @property
    def _gateway(self) -> Gateway:
        return self.services.runtime.current.gateway


async def _shielded(task: asyncio.Task[Generation]) -> Generation:
    """Wait for a task that goes on when the waiting is cancelled; its failure is logged then."""
    try:
        return await shielded(task)
    except asyncio.CancelledError:
        task.add_done_callback(log_failure)
        raise
