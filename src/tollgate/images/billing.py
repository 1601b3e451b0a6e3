"""What an image job costs: at most, for its hold, and at its end, for the usage row."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import orjson

from tollgate.charge import NO_CHARGE, Charge
from tollgate.errors import BadRequest, UpstreamError
from tollgate.ledger import UsageRow
from tollgate.ledger.usage_row import attempts_text, outcome_without_answer
from tollgate.mapping import MappingFailure
from tollgate.mapping.images.outcome import Outcome
from tollgate.mapping.images.price import ImagePrice, PriceMissing
from tollgate.money import CONTEXT, decimal_text, round_cost
from tollgate.public_errors import public_status

if TYPE_CHECKING:
    from tollgate.images.calls import Calls, StepAnswer
    from tollgate.ledger import Generation
    from tollgate.mapping.images.offer import ImageOffer

log = logging.getLogger("tollgate.images")

Rates = Mapping[str, Decimal]


@dataclass(frozen=True, slots=True)
class Terms:
    """The offers, by provider, and the exchange rates when a job was accepted. It is charged by these, whatever a
    reload brings while it runs."""

    offers: Mapping[str, ImageOffer]
    rates: Rates


def is_priced(offer: ImageOffer, job_input: dict[str, Any]) -> bool:
    """Whether the offer's price table has a price for this input."""
    try:
        offer.price.expected(offer.values(answer={}, input=job_input))
    except PriceMissing:
        return False
    return True


def expected_cost(offer: ImageOffer, job_input: dict[str, Any], rates: Rates) -> Decimal:
    """The expected cost in credits of a job with this input. Raises `BadRequest` when there is no price for it."""
    try:
        native = offer.price.expected(offer.values(answer={}, input=job_input))
    except PriceMissing as missing:
        raise BadRequest(f"input: no price is set for {missing}", "input") from None
    return round_cost(CONTEXT.multiply(native, rates.get(offer.price.currency, Decimal(1))))


def charge_of(offer: ImageOffer, calls: Calls, answer: StepAnswer, job: dict[str, Any], rates: Rates) -> Charge:
    """What a job that ended with this answer costs: nothing unless it succeeded. `offer` has the price, which may be an
    older one than that of `calls`; `job` is what templates read as `$job`."""
    outcome = answer.outcome
    if outcome.status != "succeeded":
        return NO_CHARGE
    try:
        values = offer.values(answer=answer.body, input=calls.input, job=job, http=answer.http)
        native = offer.price.charge(values, outcome.images)
    except (PriceMissing, MappingFailure) as missing:
        # the input had a price at submission, so it is the answer; delivered pictures are never free by accident
        log.warning("provider %s: no price for %s; the declared price is charged", offer.provider, missing)
        native = CONTEXT.multiply(offer.price.price, Decimal(len(outcome.images)))
    currency = offer.price.currency
    rate = rates.get(currency, Decimal(1))
    return Charge(round_cost(CONTEXT.multiply(native, rate)), round_cost(native), currency, rate)


def usage_row(
    generation: Generation,
    outcome: Outcome,
    seconds: float,
    offer: ImageOffer | None = None,
    charge: Charge = NO_CHARGE,
) -> UsageRow:
    """The row of a job that ends `seconds` after its request, at the price of `offer`."""
    good, made = outcome.status == "succeeded", generation.row
    return UsageRow(
        request_id=generation.request_id or generation.id,
        account_id=generation.account_id,
        key_id=generation.key_id,
        endpoint=made.endpoint,
        time=generation.created_at,
        asked_model=made.asked_model or generation.model,
        model=generation.model,
        provider=generation.provider,
        upstream_model=offer.model.upstream if offer else "",
        client_protocol="images",
        upstream_protocol="images",
        attempts=max(1, made.attempts),
        status=200,
        outcome="ok" if good else "upstream_error",
        images=len(outcome.images) if good else 0,
        cost=charge.cost,
        native_cost=charge.native,
        currency=charge.currency,
        rate=charge.rate,
        prices=_prices_text(offer.price) if good and offer else None,
        total_ms=max(0.0, seconds) * 1000,
        error_code=None if good else "generation_failed",
        lost=made.lost,
        earlier_attempts=attempts_text(made.earlier),
    )


def refused_row(generation: Generation, offer: ImageOffer, error: UpstreamError, seconds: float) -> UsageRow:
    """The row of a request that no provider accepted: there is no job, and no charge."""
    row = usage_row(generation, Outcome("failed"), seconds, offer)
    # a tool reports its failures in a result, with status 200
    row.status = public_status("images", error) if row.endpoint == "images" else 200
    row.outcome = outcome_without_answer(error)
    row.error_code = error.code
    return row


def _prices_text(price: ImagePrice) -> str:
    return orjson.dumps({"price": decimal_text(price.price), "per": price.per, "unit": price.unit}).decode()
