"""One request in flight: its state, and the one place where it is settled.

Every exit path ends in `settle`: usage is completed (estimated if missing), priced and recorded, and the hold is
released.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tollgate.charge import Charge, no_charge, price_usage
from tollgate.completions.attempt import NOT_TRIED, Attempt
from tollgate.completions.charging import charge_of
from tollgate.completions.off_loop import is_large, is_long
from tollgate.completions.row import outcome_of, usage_row
from tollgate.errors import BILLED, InternalError, ShuttingDown, TollgateError, Unavailable, UpstreamError
from tollgate.health import record_failure
from tollgate.ledger.limits import UNLIMITED
from tollgate.limit_headers import limit_headers
from tollgate.services import CLIENT_LEFT, Headers, Inbound, Services, dropped_text
from tollgate.tokenizer.texts import count_pictures
from tollgate.usage import Usage, from_hub
from tollgate.wire import CLIENT_FORMATS

if TYPE_CHECKING:
    from tollgate.catalog import CatalogModel
    from tollgate.ledger import Hold, Limits, UsageRow
    from tollgate.ledger.usage_row import FailedAttempt
    from tollgate.mapping import CompiledMapping
    from tollgate.runtime import Runtime

log = logging.getLogger("tollgate.completions")


@dataclass(slots=True, eq=False)
class Exchange:
    """The state of one completion request."""

    services: Services
    inbound: Inbound
    body: dict[str, Any]
    model: CatalogModel
    stream: bool
    status_sent: Callable[[], bool] = lambda: False
    """Whether the client has a status already, which the row must show then (`complete`)."""
    attempt: Attempt = NOT_TRIED
    """The current attempt, or the last one."""
    hold: Hold | None = None
    attempts: int = 0
    failed: list[FailedAttempt] = field(default_factory=list)
    """The failed attempts, as the usage row lists them: without `attempt`."""
    admitted_tokens: int = 0
    limits: Limits = UNLIMITED
    upstream_ms: float = 0.0
    hub_usage: dict[str, Any] | None = None
    """Usage in the hub's form, once known."""
    estimated: bool = False
    """Part of `hub_usage` is an estimate of ours."""
    usage: Usage | None = None
    """`hub_usage` in disjoint buckets; computed on first use."""
    charge: Charge | None = None
    settled: bool = False
    cut_ms: float | None = None
    """Milliseconds from the request's arrival until its answer was cut off; counting its tokens takes longer."""
    large_numbers: bool = False
    """The arguments of its calls may have whole numbers beyond 64 bits."""
    sealed: bool = False
    """The request may carry opaque tokens that this gateway sealed for another provider."""
    minters: Mapping[str, str] = field(default_factory=dict)
    """For encrypted values in the request: which provider encrypted each, where known (`minters.py`)."""
    asked_model: str | None = None
    """The model name that the answer must show, for clients that accept no other (`naming.py`)."""
    continues: str | None = None
    """The answer of ours that the client continues by its id (`CompletionRequest.continues`)."""
    inlined: dict[str, dict[str, str]] = field(default_factory=dict)
    """What was downloaded for an attempt (`inline.py`): the next one may need it, too."""
    client_format: CompiledMapping = field(init=False)
    """The mapping of the client's format."""
    runtime: Runtime = field(init=False, repr=False)
    """The configuration when the request came: a reload changes neither its prices nor its attempts."""
    most_output: int = field(init=False)
    """The output tokens that the client allows; 0 if it sets no limit."""
    size: int = field(init=False)
    """Length of the client's body in bytes; a `large` body (`off_loop.is_large`) is freed early."""
    large: bool = field(init=False)

    def __post_init__(self) -> None:
        self.runtime = runtime = self.services.runtime.current
        self.client_format = runtime.mappings[self.inbound.dialect]
        self.most_output = 0
        for name in CLIENT_FORMATS[self.inbound.dialect].limit_fields:
            limit = self.body.get(name)
            if isinstance(limit, int) and limit > self.most_output:
                self.most_output = limit
        self.size = size = len(self.inbound.body)
        self.large = is_large(size)

    def begin(self, hold: Hold) -> None:
        """The request is admitted: until it is settled or released it owns `hold` and is listed as live."""
        self.hold = hold
        self.services.live.add(self)

    def is_long(self) -> bool:
        """`off_loop.is_long` of the client's body, also after the body was freed."""
        return self.large or is_long(self.inbound.body)

    def drop_client_bytes(self) -> None:
        """Free the client's body if it is `large`, and what its URLs hold; called once nothing will read them again."""
        self.inlined.clear()
        if self.large:
            self.inbound.body = b""

    def asked_tier(self) -> str | None:
        """The service tier the caller asks for. "batch" belongs to another API and is ignored."""
        tier = self.body.get("service_tier")
        return tier if isinstance(tier, str) and tier != "batch" else None

    def _tier(self) -> str | None:
        """The service tier to bill: the one the upstream reports, else the one that was sent to it."""
        attempt = self.attempt
        if attempt.reported_tier is not None:
            return attempt.reported_tier
        return self.asked_tier() if attempt.tier_sent else None

    def client_usage(self) -> dict[str, Any]:
        """`hub_usage` as it is written for the client: the billed counts, where the provider's own way of counting
        differs."""
        hub_usage = self.hub_usage or {}
        usage, offer = self._used(), self.attempt.offer
        excludes = offer.usage.excludes if offer is not None else ()
        return usage.in_hub(hub_usage) if usage.flags or excludes else hub_usage

    def _used(self) -> Usage:
        if self.usage is None:
            offer = self.attempt.offer
            usage = self.usage = from_hub(self.hub_usage, excludes=offer.usage.excludes if offer else ())
            if offer is not None and self.hub_usage is not None:
                if not usage.searches and offer.can.get("always_searches"):
                    usage.searches = 1
                if (
                    not usage.images
                    and offer.tariff is not None
                    and offer.tariff.of_pictures
                    and self.inbound.dialect != "embeddings"
                ):
                    usage.images = count_pictures(self.inbound.dialect, self.body)
        return self.usage

    def reply_headers(self) -> Headers:
        """The headers of a successful answer (CLIENTS 3c); with the cost if it is known by now."""
        attempt = self.attempt
        assert attempt.offer is not None
        elapsed = self.inbound.elapsed_ms()
        overhead = elapsed - self.upstream_ms
        names = self.client_format.reply_headers
        headers = [
            (b"x-tollgate-provider", attempt.offer.provider.encode()),
            (b"x-tollgate-attempts", b"%d" % self.attempts),
            (b"x-tollgate-overhead-ms", b"%.2f" % (overhead if overhead > 0 else 0.0)),
        ]
        if names.elapsed is not None:
            headers.append((names.elapsed, b"%d" % elapsed))
        if attempt.context is not None and attempt.context.lost:
            headers.append((b"x-tollgate-dropped", dropped_text(attempt.context.lost)))
        headers += self.rate_limit_headers()
        if self.charge is not None:
            headers.append((b"x-tollgate-cost", format(self.charge.cost, "f").encode()))
        return headers

    def rate_limit_headers(self) -> Headers:
        """The headers about the key's rate limits, named as in the client's format."""
        if self.limits is UNLIMITED:
            return []
        return limit_headers(self.client_format.reply_headers, self.limits)

    def note_usage(self, hub_usage: dict[str, Any] | None, *, estimated: bool = False) -> None:
        """Set the usage, in the hub's form; `estimated` when part of it is an estimate of ours."""
        self.hub_usage, self.usage, self.estimated = hub_usage, None, estimated

    async def settle(self, outcome: str, *, status: int = 200, error: TollgateError | None = None) -> None:
        """Price the usage and record it durably; a second call does nothing.

        Raises `Unavailable` when the row is not durable yet, ValueError when it cannot be stored. The hold is released
        in every case.
        """
        if self.settled:
            return
        self.settled = True
        self.attempt.count_part = None  # it refers to this exchange: a reference cycle
        self.services.live.discard(self)
        try:
            usage = self._used()
            charge = self.charge = self._price(usage)
            if usage.flags:
                log.warning(
                    "request %s: provider %s reports impossible usage: %s",
                    self.inbound.request_id,
                    self.attempt.provider,
                    "; ".join(usage.flags),
                )
            row = usage_row(self, usage, charge, outcome, status, error)
            self._count(row)
            await self.services.ledger.record(row, self.hold)
        except Exception:  # failed before the hold was turned into a charge
            self.release()
            raise

    def _price(self, usage: Usage) -> Charge:
        """The cost of `usage`; zero when usage was neither reported nor estimated, or the provider charges nothing."""
        attempt = self.attempt
        tariff = attempt.offer.tariff if attempt.offer is not None else None
        rates = self.runtime.gateway.credits.rates
        if self.hub_usage is None or self.hub_usage.get("free") is True:
            return no_charge(tariff, rates)
        multipliers = self.hub_usage.get("multipliers", ())
        if attempt.words:
            multipliers = (*multipliers, *attempt.words)
        if usage.others:
            return charge_of(
                usage,
                tariff,
                self.model,
                attempt.provider,
                self.runtime.catalog,
                rates,
                at=self.inbound.received_at,
                service_tier=self._tier(),
                multipliers=multipliers,
            )
        return price_usage(
            usage, tariff, rates, at=self.inbound.received_at, service_tier=self._tier(), multipliers=multipliers
        )

    async def settle_answer(self) -> None:
        """`settle` an answer that began, also one that failed later (`attempt.failure`); updates the route's health.

        `Unavailable` raised from here is marked as billed, so that clients are told not to retry: a repeat would be
        charged again. So is a cancellation while the row is written: the drain time is over.
        """
        failure = self.attempt.failure
        if failure is None:
            self.route_answered()
        else:
            self.route_failed(failure)
        try:
            await self.settle(outcome_of(failure), error=failure)
        except Unavailable as error:
            error.billed = True
            raise
        except asyncio.CancelledError as cancelled:
            cancelled.add_note(BILLED)
            raise

    async def settle_own_mistake(self) -> None:
        """`settle` a request that ended in an unexpected exception of ours; what `hub_usage` says is billed."""
        await self.settle("error", error=InternalError())

    def settle_cut(self, count: Callable[[], Awaitable[None]]) -> None:
        """`settle`, in a task of its own, an answer that was cut off because the client left or the gateway shuts down.
        `count` notes the usage up to that point."""
        self.cut_ms = self.inbound.elapsed_ms()
        self.services.settlements.spawn(self._settle_cut(count, self.status_sent()), place=self.inbound.place)

    async def _settle_cut(self, count: Callable[[], Awaitable[None]], status_sent: bool) -> None:
        try:
            await count()
        except Exception:
            await self.settle_own_mistake()
            raise
        try:
            if self.services.cut:
                ended = ShuttingDown()
                await self.settle("error", status=200 if status_sent else ended.status, error=ended)
            else:
                await self.settle("client_gone", status=CLIENT_LEFT)
        except Unavailable as error:  # no client is left to answer
            log.error("the row of request %s is not durable: %s", self.inbound.request_id, error.message)

    def route_answered(self) -> None:
        """Record in the route's health that it answered."""
        attempt = self.attempt
        offer, first_byte_ms = attempt.offer, attempt.first_byte_ms
        assert offer is not None
        latency = first_byte_ms / 1000 if first_byte_ms is not None else None
        self.services.health.succeeded(offer.route, offer.provider, latency, time.perf_counter() - attempt.sent_at)

    def route_failed(self, error: UpstreamError) -> None:
        """Record in the route's health, and in the log, that it failed, with the alarm of its error rules if any."""
        offer = self.attempt.offer
        assert offer is not None
        if error.alarm == "key" and offer.auth is not None:  # some providers reject a token in a 200
            self.services.client.invalidate(offer.auth)
        where = f"request {self.inbound.request_id}"
        record_failure(self.services.health, log, offer.route, offer.provider, error, where)

    def first_byte(self, began: float) -> None:
        """Note when the upstream began to answer (`began`: perf_counter when it was called)."""
        now = time.perf_counter()
        self.upstream_ms += (now - began) * 1000
        attempt = self.attempt
        if attempt.first_byte_ms is None:
            attempt.first_byte_ms, attempt.sent_at = (now - self.inbound.started) * 1000, began

    def release(self) -> None:
        """Release the hold; for exits that record no row."""
        self.services.live.discard(self)
        if self.hold is not None:
            self.hold.release()

    def _count(self, row: UsageRow) -> None:
        metrics = self.services.metrics
        metrics.outcomes[row.outcome] += 1
        prompt = row.input_tokens + row.cache_read_tokens + row.cache_write_tokens
        completion = row.output_tokens + row.reasoning_tokens
        if provider := row.provider:
            metrics.tokens[provider, "prompt"] += prompt
            metrics.tokens[provider, "completion"] += completion
            metrics.cost[provider] += row.cost
        if self.limits is not UNLIMITED:
            self.services.ledger.used_tokens(self.inbound.key, prompt + completion, self.admitted_tokens)
