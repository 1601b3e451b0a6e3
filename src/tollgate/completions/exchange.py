"""One request on its way: what is known of it so far, and the one place where it is settled.

Every exit path ends in `settle`: usage is completed (estimated if missing), priced, recorded, and the hold released.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tollgate.completions.annotations import end_user, metadata_text
from tollgate.completions.charging import charge_of
from tollgate.completions.minters import NOBODY
from tollgate.completions.off_loop import is_large, is_long
from tollgate.errors import InternalError, ShuttingDown, TollgateError, Unavailable, UpstreamError
from tollgate.health import tell_failure
from tollgate.ledger import Hold, UsageRow
from tollgate.ledger.limits import UNLIMITED
from tollgate.ledger.usage_row import FailedAttempt, attempts_text
from tollgate.limit_headers import limit_headers
from tollgate.services import Headers, Inbound, Services, dropped_text
from tollgate.tariff import Charge, no_charge, price_usage
from tollgate.tokenizer.texts import count_pictures
from tollgate.usage import Usage, from_hub

if TYPE_CHECKING:
    from tollgate.catalog import CatalogModel
    from tollgate.mapping import Context, Mapping
    from tollgate.routing import Offer

log = logging.getLogger("tollgate.completions")


class Exchange:
    """The state of one completion request. `hub_usage` is usage as the mapping's hub has it, once known; `sealed`
    whether the request may carry a sealed token of another provider."""

    __slots__ = (
        "_large",
        "admitted_tokens",
        "asked_model",
        "attempts",
        "begun",
        "body",
        "called",
        "charge",
        "context",
        "failed",
        "failure",
        "first_byte_ms",
        "hold",
        "hub_usage",
        "inbound",
        "last_attempt",
        "limits",
        "minters",
        "model",
        "native",
        "offer",
        "rates",
        "reported_tier",
        "sealed",
        "services",
        "settled",
        "stream",
        "tier_sent",
        "upstream_ms",
        "usage",
        "words",
    )

    def __init__(
        self,
        services: Services,
        inbound: Inbound,
        body: dict[str, Any],
        model: CatalogModel,
        stream: bool,
        rates: Any,
        begun: Callable[[], bool] = lambda: False,
    ) -> None:
        self.services = services
        self.inbound = inbound
        self.body = body
        self.model = model
        self.stream = stream
        self.rates = rates
        self.begun = begun
        self.offer: Offer | None = None
        self.native = False
        """The client's protocol is that of the route in use."""
        self.called = False
        """The route in use has been called: from then on it may cost something."""
        self.context: Context | None = None
        self.hold: Hold | None = None
        self.attempts = 0
        self.failed: list[FailedAttempt] = []
        """The attempts that gave no answer, as rows tell them."""
        self.last_attempt = 0
        """The number of the attempt after which there is no other route; 0 where nobody has counted them."""
        self._large = is_large(inbound.body)
        self.admitted_tokens = 0
        self.limits = UNLIMITED
        self.first_byte_ms: float | None = None
        self.upstream_ms = 0.0
        self.hub_usage: dict[str, Any] | None = None
        self.usage: Usage | None = None
        """`hub_usage` in buckets, once somebody asked."""
        self.charge: Charge | None = None
        self.failure: UpstreamError | None = None
        """What a whole answer that passes as it came tells of its own failure."""
        self.reported_tier: str | None = None
        """The service tier the upstream says it used."""
        self.tier_sent = True
        """Whether what was sent says a service tier, where the caller's request does."""
        self.words: tuple[str, ...] = ()
        """Words of what was sent that the prices may ask for."""
        self.settled = False
        self.sealed = False
        self.minters = NOBODY
        """Who encrypted what the request carries, where that is known (`minters.py`)."""
        self.asked_model: str | None = None
        """What the answer must call its model, where the client takes no other name (`naming.py`)."""

    def begin(self, hold: Hold) -> None:
        """The request is admitted: it holds `hold`, and is shown as live, until it is settled or released."""
        self.hold = hold
        self.services.live.add(self)

    def attempt(self, offer: Offer) -> None:
        """Begin to try a route; what was noted of an earlier one (such as what its conversion lost) is forgotten."""
        self.offer = offer
        self.native = offer.protocol == self.inbound.dialect
        self.context = None
        self.called = False
        self.tier_sent = True
        self.words = ()

    def pass_over(self) -> None:
        """The route in use cannot carry the request and was not called: it does not count as tried."""
        self.attempts -= 1
        self.last_attempt -= 1

    def has_other_route(self) -> bool:
        """Whether another route may be tried when this attempt fails."""
        return self.attempts < self.last_attempt

    def is_large(self) -> bool:
        """`off_loop.is_large` of the client's bytes, also after they were dropped."""
        return self._large

    def is_long(self) -> bool:
        """`off_loop.is_long` of the client's bytes, also after they were dropped."""
        return self._large or is_long(self.inbound.body)

    def drop_client_bytes(self) -> None:
        """Free the client's bytes, which nobody will read again, where they are large (`is_large`)."""
        if self._large:
            self.inbound.body = b""

    @property
    def client_format(self) -> Mapping:
        """The mapping of the format that the client speaks."""
        return self.services.runtime.current.mappings[self.inbound.dialect]

    def asked_tier(self) -> str | None:
        """The service tier the caller asks for. A batch is another API's: nobody waits for one here."""
        tier = self.body.get("service_tier")
        return tier if isinstance(tier, str) and tier != "batch" else None

    def _tier(self) -> str | None:
        """The service tier to bill: the one the upstream says it used, else the one it was asked for, if that reached
        it."""
        if self.reported_tier is not None:
            return self.reported_tier
        return self.asked_tier() if self.tier_sent else None

    def reported_usage(self) -> dict[str, Any]:
        """`hub_usage` for a client of another format than the provider's: what is billed, where the provider counts in
        its own way."""
        hub_usage = self.hub_usage or {}
        usage = self._used()
        excludes = self.offer.usage_excludes if self.offer else ()
        return usage.in_hub(hub_usage) if usage.flags or excludes else hub_usage

    def _used(self) -> Usage:
        if self.usage is None:
            offer = self.offer
            usage = self.usage = from_hub(self.hub_usage, excludes=offer.usage_excludes if offer else ())
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
        """The headers of a success (CLIENTS 3c); the cost only once it is known."""
        assert self.offer is not None
        elapsed = self.inbound.elapsed_ms()
        overhead = elapsed - self.upstream_ms
        names = self.services.runtime.current.mappings[self.inbound.dialect].reply_headers
        headers = [
            (b"x-tollgate-provider", self.offer.provider.encode()),
            (b"x-tollgate-attempts", b"%d" % self.attempts),
            (b"x-tollgate-overhead-ms", b"%.2f" % (overhead if overhead > 0 else 0.0)),
        ]
        if names.elapsed is not None:
            headers.append((names.elapsed, b"%d" % elapsed))
        if self.context is not None and self.context.lost:
            headers.append((b"x-tollgate-dropped", dropped_text(self.context.lost)))
        headers += self.limits_told()
        if self.charge is not None:
            headers.append((b"x-tollgate-cost", format(self.charge.cost, "f").encode()))
        return headers

    def limits_told(self) -> Headers:
        """How the key's rate limits stand, under the names of the client's format."""
        if self.limits is UNLIMITED:
            return []
        return limit_headers(self.client_format.reply_headers, self.limits)

    async def settle(
        self, outcome: str, *, status: int = 200, estimated: bool = False, error: TollgateError | None = None
    ) -> Charge:
        """Price what was used and record it durably; a second call does nothing. Returns the charge.

        Raises `Unavailable` when the row is not durable yet, and ValueError when it cannot be stored; the hold is gone
        either way.
        """
        if self.settled:
            assert self.charge is not None
            return self.charge
        self.settled = True
        self.services.live.discard(self)
        usage = self._used()
        charge = self.charge = self._price(usage)
        if usage.flags:
            log.warning(
                "request %s: provider %s counts what cannot be: %s",
                self.inbound.request_id,
                self.offer.provider if self.offer else "",
                "; ".join(usage.flags),
            )
        row = self._row(outcome, usage, charge, status=status, estimated=estimated, error=error)
        self._count(row)
        try:
            await self.services.ledger.record(row, self.hold)
        except ValueError:  # refused before it was charged
            self.release()
            raise
        return charge

    def _price(self, usage: Usage) -> Charge:
        """What `usage` costs; nothing, where nobody told or estimated any."""
        tariff = self.offer.tariff if self.offer else None
        if self.hub_usage is None:
            return no_charge(tariff, self.rates)
        multipliers = self.hub_usage.get("multipliers", ())
        if self.words:
            multipliers = (*multipliers, *self.words)
        if usage.others:
            catalog = self.services.runtime.current.catalog
            provider = self.offer.provider if self.offer else ""
            return charge_of(
                usage,
                tariff,
                self.model,
                provider,
                catalog,
                self.rates,
                at=self.inbound.received_at,
                service_tier=self._tier(),
                multipliers=multipliers,
            )
        return price_usage(
            usage, tariff, self.rates, at=self.inbound.received_at, service_tier=self._tier(), multipliers=multipliers
        )

    def _row(
        self, outcome: str, usage: Usage, charge: Charge, *, status: int, estimated: bool, error: TollgateError | None
    ) -> UsageRow:
        """The usage row of this request as it ends now."""
        offer, inbound = self.offer, self.inbound
        key, context = inbound.key, self.context
        # field by field: forty keywords in one call cost 3 µs, because CPython makes a dict of them
        row = UsageRow(inbound.request_id, key.account_id, key.id, inbound.dialect, inbound.received_at)
        row.asked_model = self.body["model"][:200]
        row.model = self.model.id
        if offer is not None:
            row.provider = offer.provider
            row.upstream_model = offer.model.upstream
            row.upstream_protocol = offer.protocol
            row.prices = offer.prices_text or None
        row.client_protocol = inbound.dialect
        row.attempts = self.attempts
        row.status = status
        row.outcome = outcome
        row.input_tokens = usage.input + usage.audio_input
        row.cache_read_tokens = usage.cache_read + usage.audio_cache_read
        row.cache_write_tokens = usage.cache_write + usage.cache_write_1h
        row.output_tokens = usage.output + usage.audio_output + usage.image_output
        row.reasoning_tokens = usage.reasoning
        row.searches = usage.searches
        row.images = usage.images
        row.cost = charge.cost
        row.native_cost = charge.native
        row.currency = charge.currency
        row.rate = charge.rate
        row.ttfb_ms = self.first_byte_ms
        row.total_ms = inbound.elapsed_ms()
        row.stream = self.stream
        row.estimated = estimated
        row.end_user = end_user(self.body, inbound.dialect)
        if error is not None:
            row.error_code = error.code
        if context is not None and context.lost:
            row.lost = "; ".join(context.lost)[:2000]
        row.provider_cost = usage.reported_cost
        row.price_rule = charge.rule
        if self.failed:
            row.earlier_attempts = attempts_text(self.failed[: self.attempts - 1])
        row.metadata = metadata_text(self.body, inbound.dialect)
        return row

    async def settle_answer(self, *, estimated: bool, failure: UpstreamError | None = None) -> None:
        """`settle` for an answer that came, if only to say in its last words that it failed (`failure`).

        When its row cannot be written, asking again would cost again, and the error says so.
        """
        try:
            await self.settle("ok" if failure is None else "upstream_error", estimated=estimated, error=failure)
        except Unavailable as error:
            error.billed = True
            raise

    async def settle_own_mistake(self) -> None:
        """`settle` where an unexpected exception of ours ended the request: its row says so, and bills `hub_usage`."""
        try:
            await self.settle("error", error=InternalError())
        finally:
            self.release()

    async def settle_cut(self, *, begun: bool, estimated: bool) -> None:
        """`settle` for an answer that was cut off: its client left, or the gateway had to end it; `begun` as of that
        moment."""
        try:
            if self.services.cut:
                ended = ShuttingDown()
                await self.settle("error", status=200 if begun else ended.status, estimated=estimated, error=ended)
            else:
                await self.settle("client_gone", status=499, estimated=estimated)
        except Unavailable as error:  # there is nobody left to tell
            log.error("the row of request %s is not durable: %s", self.inbound.request_id, error.message)

    def route_answered(self) -> None:
        """Tell the health of the route in use that it answered."""
        assert self.offer is not None
        latency = self.first_byte_ms / 1000 if self.first_byte_ms is not None else None
        self.services.health.succeeded(self.offer.route, self.offer.provider, latency)

    def route_failed(self, error: UpstreamError) -> None:
        """Tell the health of the route in use, and the log, that it failed; an alarm of its error rules goes along."""
        assert self.offer is not None
        if error.alarm == "key" and self.offer.auth is not None:  # some say in a 200 that a token is no good
            self.services.client.refused(self.offer.auth)
        tell_failure(
            self.services.health,
            log,
            self.offer.route,
            self.offer.provider,
            error,
            f"request {self.inbound.request_id}",
        )

    def first_byte(self, began: float) -> None:
        """Note when the upstream began to answer (`began`: perf_counter when it was called)."""
        now = time.perf_counter()
        self.upstream_ms += (now - began) * 1000
        if self.first_byte_ms is None:
            self.first_byte_ms = (now - self.inbound.started) * 1000

    def release(self) -> None:
        """Give the hold back; for exits on which nothing was recorded."""
        self.services.live.discard(self)
        if self.hold is not None:
            self.hold.release()

    def _count(self, row: UsageRow) -> None:
        metrics = self.services.metrics
        metrics.outcomes[row.outcome] += 1
        prompt = row.input_tokens + row.cache_read_tokens + row.cache_write_tokens
        completion = row.output_tokens + row.reasoning_tokens
        if self.offer is not None:
            provider = self.offer.provider
            metrics.tokens[provider, "prompt"] += prompt
            metrics.tokens[provider, "completion"] += completion
            metrics.cost[provider] += row.cost
        if self.limits is not UNLIMITED:
            self.services.ledger.used_tokens(self.inbound.key, prompt + completion, self.admitted_tokens)
