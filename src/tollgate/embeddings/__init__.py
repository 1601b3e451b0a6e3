"""`POST /v1/embeddings`: one pipeline from an authenticated request to its reply.

check -> resolve the model -> plan at most three routes -> hold -> try the routes -> record -> answer. An attempt is all
or nothing: a batch too large for a provider is sent in parts, and one failing part fails the attempt, so what leaves is
charged once and what does not is not charged at all.

Raised for the surface to tell: `BadRequest` (the detail after `failed to bind request: `), `ModelNotFound`,
`QuotaExhausted`, `RateLimited`, `UpstreamError`; a usage row that could not be made durable is an error with `billed`
set (a 500 that must not be repeated: it would cost again).
"""

from __future__ import annotations

import asyncio

from tollgate import tokens
from tollgate.catalog import CatalogModel, access_of
from tollgate.completions.attempt import AttemptFailed
from tollgate.completions.body import read_json
from tollgate.completions.exchange import Exchange
from tollgate.embeddings.attempt import Embedded, attempt
from tollgate.embeddings.reply import reply_of
from tollgate.embeddings.request import EmbeddingRequest, check_count, read_request
from tollgate.errors import BadRequest, ModelNotFound, TollgateError, Unavailable, UpstreamError, UpstreamFailed
from tollgate.routing import Needs, Offer, plan
from tollgate.services import Inbound, Reply, Services
from tollgate.usage import upper_bound

__all__ = ["embed"]


async def embed(services: Services, inbound: Inbound) -> Reply:
    """Answer one embeddings request; its row is durable before the answer leaves."""
    gateway = services.runtime.current.gateway
    body = read_json(inbound.body, gateway.server.max_nesting)
    request = read_request(body)
    model = services.runtime.current.catalog.find(request.model, access_of(inbound.key))
    if model is None or model.type != "embedding":
        raise ModelNotFound(request.model[:200])
    check_count(request.items, model.facts.max_inputs)
    offers = _routes(services, model, request, gateway.retry.attempts)
    exchange = Exchange(services, inbound, body, model, stream=False, rates=gateway.credits.rates)
    expected = _expected_tokens(request)
    exchange.hold = services.ledger.hold(inbound.key, upper_bound(expected, 0, offers[0].tariff, exchange.rates))
    try:
        exchange.admitted_tokens = expected
        exchange.limits = services.ledger.admit(inbound.key, expected)
        found = await _attempts(exchange, request, offers)
        await _record(exchange, found)
    except asyncio.CancelledError:
        if not exchange.attempts:
            exchange.release()
        elif not exchange.settled:
            services.settlements.spawn(exchange.settle("client_gone", status=499))
        raise
    except TollgateError as error:
        if not exchange.attempts:
            exchange.release()
        elif not exchange.settled:
            await exchange.settle("rejected" if error.status < 500 else "upstream_error", status=error.status, error=error)
        raise
    except BaseException:
        exchange.release()
        raise
    return reply_of(found, exchange.reply_headers())


def _routes(services: Services, model: CatalogModel, request: EmbeddingRequest, attempts: int) -> list[Offer]:
    """The offers to try. Token ids mean something only to the tokenizer they came from, so they are never converted."""
    offers = plan(model, "embeddings", Needs(native=request.tokens_given), services.health, None, attempts=attempts)
    if request.tokens_given:
        offers = [offer for offer in offers if offer.can.get("token_ids") is not False]
        if not offers:
            raise BadRequest(f"input holds token ids, which no provider of {model.id} takes; send text", "input")
    if not offers:
        raise ModelNotFound(request.model, f"model {request.model} is not available for this request")
    return offers


def _expected_tokens(request: EmbeddingRequest) -> int:
    """About how many tokens the input has, without tokenising: for the hold and the rate limit."""
    return sum(tokens.estimate(len(item)) if isinstance(item, str) else len(item) for item in request.items)


async def _attempts(exchange: Exchange, request: EmbeddingRequest, offers: list[Offer]) -> Embedded:
    """Try the routes in order; the first that answers wins."""
    metrics = exchange.services.metrics
    errors: list[UpstreamError] = []
    for offer in offers:
        exchange.attempts += 1
        try:
            found = await attempt(exchange, request, offer)
        except AttemptFailed as failure:
            metrics.attempts[offer.provider, failure.error.code] += 1
            if failure.final:
                exchange.services.health.rejected(offer.route, offer.provider)
                raise failure.error from None
            exchange.route_failed(failure.error)
            errors.append(failure.error)
        else:
            metrics.attempts[offer.provider, "ok"] += 1
            exchange.route_answered()
            return found
    answered = [error for error in errors if isinstance(error, UpstreamFailed)]
    worst = (answered or errors)[-1]
    waits = [error.retry_after for error in errors if error.retry_after is not None]
    worst.retry_after = min(waits) if waits else None
    raise worst


async def _record(exchange: Exchange, found: Embedded) -> None:
    exchange.hub_usage = {"input": found.tokens}
    try:
        await exchange.settle("ok", estimated=found.estimated)
    except Unavailable as error:
        raise Unsaved(f"usage could not be saved: {error.message}") from error


class Unsaved(TollgateError):
    """The row could not be made durable: a 500 (SPEC errors of embeddings) that must not be repeated, it would cost again."""

    code = "usage_not_saved"
    billed = True
