"""The usage row of a request, made when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollgate.completions.annotations import end_user, metadata_text
from tollgate.errors import UpstreamRejected, UpstreamTimeout
from tollgate.ledger import UsageRow
from tollgate.ledger.usage_row import attempts_text

if TYPE_CHECKING:
    from tollgate.charge import Charge
    from tollgate.completions.exchange import Exchange
    from tollgate.errors import TollgateError, UpstreamError
    from tollgate.usage import Usage


def outcome_of(failure: UpstreamError | None) -> str:
    """The row's `outcome` for an answer that began, and later failed with `failure` if there is one."""
    if failure is None:
        return "ok"
    if isinstance(failure, UpstreamRejected):
        return "rejected"
    return "timeout" if isinstance(failure, UpstreamTimeout) else "upstream_error"


def usage_row(
    exchange: Exchange, usage: Usage, charge: Charge, outcome: str, status: int, error: TollgateError | None
) -> UsageRow:
    """The usage row of a request."""
    inbound, attempt = exchange.inbound, exchange.attempt
    offer, context = attempt.offer, attempt.context
    key, body = inbound.key, exchange.body
    # field by field: a call with forty keywords costs 3 µs, because CPython makes a dict of them
    row = UsageRow(inbound.request_id, key.account_id, key.id, inbound.dialect, inbound.received_at)
    row.asked_model = body["model"][:200]
    row.model = exchange.model.id
    if offer is not None:
        row.provider = offer.provider
        row.upstream_model = offer.model.upstream
        row.upstream_protocol = offer.protocol
        row.prices = offer.prices_text or None
    row.client_protocol = inbound.dialect
    row.attempts = exchange.attempts
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
    row.ttfb_ms = attempt.first_byte_ms
    row.total_ms = exchange.cut_ms if exchange.cut_ms is not None else inbound.elapsed_ms()
    row.stream = exchange.stream
    row.estimated = exchange.estimated
    row.end_user = end_user(body, inbound.dialect)
    if error is not None:
        row.error_code = error.code
    if context is not None and context.lost:
        row.lost = "; ".join(context.lost)[:2000]
    row.provider_cost = usage.reported_cost
    row.price_rule = charge.rule
    row.earlier_attempts = attempts_text(exchange.failed)
    row.metadata = metadata_text(body, inbound.dialect)
    return row
