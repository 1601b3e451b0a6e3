"""The expected cost of an image job, for its hold, and the usage row at its end, with its price in credits."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import orjson

from tollgate.errors import BadRequest, UpstreamError, UpstreamTimeout
from tollgate.ledger import UsageRow
from tollgate.ledger.usage_row import attempts_text
from tollgate.mapping import MappingFailure
from tollgate.mapping.images.outcome import Outcome
from tollgate.mapping.images.price import PriceMissing
from tollgate.money import CONTEXT, decimal_text, round_cost
from tollgate.public_errors import public_status

if TYPE_CHECKING:
    from tollgate.images.calls import StepAnswer
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


def usage_row(
    generation: Generation,
    outcome: Outcome,
    offer: ImageOffer | None,
    job_input: dict[str, Any],
    answer: StepAnswer | None,
    job: dict[str, Any],
    rates: Rates,
) -> UsageRow:
    """The row of a job that ends: priced when it succeeded, free when it did not."""
    good = outcome.status == "succeeded"
    native, currency, rate, prices = Decimal(0), "USD", Decimal(1), None
    if good and offer is not None:
        price = offer.price
        native = _charge(offer, job_input, answer, job, outcome)
        currency, rate = price.currency, rates.get(price.currency, Decimal(1))
        prices = orjson.dumps({"price": decimal_text(price.price), "per": price.per, "unit": price.unit}).decode()
    return UsageRow(
        request_id=generation.request_id or generation.id,
        account_id=generation.account_id,
        key_id=generation.key_id,
        endpoint=generation.row.endpoint,
        time=generation.created_at,
        asked_model=generation.row.asked_model or generation.model,
        model=generation.model,
        provider=generation.provider,
        upstream_model=offer.model.upstream if offer else "",
        client_protocol="images",
        upstream_protocol="images",
        attempts=max(1, generation.row.attempts),
        status=200,
        outcome="ok" if good else "upstream_error",
        images=len(outcome.images) if good else 0,
        cost=round_cost(CONTEXT.multiply(native, rate)),
        native_cost=round_cost(native),
        currency=currency,
        rate=rate,
        prices=prices,
        total_ms=max(0.0, (datetime.now(UTC) - generation.created_at).total_seconds() * 1000),
        error_code=None if good else "generation_failed",
        lost=generation.row.lost,
        earlier_attempts=attempts_text(generation.row.earlier),
    )


def refused_row(generation: Generation, offer: ImageOffer, error: UpstreamError) -> UsageRow:
    """The row of a request that no provider accepted: there is no job, and no charge."""
    row = usage_row(generation, Outcome("failed"), offer, {}, None, {}, {})
    # a tool reports its failures in a result, with status 200
    row.status = public_status("images", error) if row.endpoint == "images" else 200
    row.outcome = (
        "timeout" if isinstance(error, UpstreamTimeout) else "rejected" if error.status < 500 else "upstream_error"
    )
    row.error_code = error.code
    return row


def _charge(
    offer: ImageOffer, job_input: dict[str, Any], answer: StepAnswer | None, job: dict[str, Any], outcome: Outcome
) -> Decimal:
    body, http = (answer.body, answer.http) if answer else ({}, {})
    values = offer.values(answer=body, input=job_input, job=job, http=http)
    try:
        return offer.price.charge(values, outcome.images)
    except (PriceMissing, MappingFailure) as missing:
        # the input had a price at submission, so it is the answer; delivered pictures are never free by accident
        log.warning("provider %s: no price for %s; the declared price is charged", offer.provider, missing)
        return CONTEXT.multiply(offer.price.price, Decimal(len(outcome.images)))
