"""`POST /v1/embeddings`: the pipeline from an authenticated request to its reply.

Its steps: check, resolve the model, plan the routes, hold, try the routes, record, answer. A batch that is too large
for a provider is sent in parts, and one failed part fails the attempt. So an answer is charged once, and a failed
attempt is not charged. A client that disconnects pays for the parts already sent.

Errors for the caller: `BadRequest` (its text follows `failed to bind request: `), `ModelNotFound`, `QuotaExhausted`,
`RateLimited`, `UpstreamError`, and `Unsaved`.
"""

from __future__ import annotations

from tollgate import tokens
from tollgate.catalog import CatalogModel
from tollgate.charge import upper_bound
from tollgate.completions.body import read_json
from tollgate.completions.exchange import Exchange
from tollgate.completions.models import model_of
from tollgate.completions.off_loop import is_large, run_off_loop
from tollgate.completions.retry import settle_failure, try_routes
from tollgate.embeddings.answer import Embedded
from tollgate.embeddings.attempt import embed_through
from tollgate.embeddings.reply import reply_of
from tollgate.embeddings.request import EmbeddingRequest, check_count, read_request
from tollgate.errors import BadRequest, ModelNotFound, TollgateError, Unavailable
from tollgate.mapping import holds
from tollgate.routing import Offer, Plan, plan
from tollgate.services import Inbound, Reply, Services

__all__ = ["embed"]


async def embed(services: Services, inbound: Inbound) -> Reply:
    """Answer one embeddings request. Its usage row is durable before the answer is sent."""
    large = is_large(len(inbound.body))
    request = await run_off_loop(_read, services, inbound) if large else _read(services, inbound)
    model = model_of(services, inbound, request.model, "embedding")
    check_count(request.items, model.facts.max_inputs)
    routes = _routes(services, model, request)
    exchange = Exchange(services, inbound, request.body, model, False)
    expected, rates = _expected_tokens(request), exchange.runtime.gateway.credits.rates
    most = upper_bound(expected, 0, routes.offers[0].tariff, rates, at=inbound.received_at)
    exchange.begin(await services.ledger.hold(inbound.key, most))
    try:
        exchange.admitted_tokens = expected
        exchange.limits = await services.ledger.admit(inbound.key, expected)
        found = await try_routes(exchange, routes, lambda exchange, offer: embed_through(exchange, request, offer))
        exchange.route_answered()
        await _record(exchange, found)
    except BaseException as error:
        await settle_failure(exchange, error)
        raise
    return reply_of(found, exchange.reply_headers())


def _read(services: Services, inbound: Inbound) -> EmbeddingRequest:
    """Parse and check the request."""
    runtime = services.runtime.current
    body, _ = read_json(inbound.body, runtime.gateway.server)
    return read_request(
        body, packed=holds(runtime.mappings["embeddings"], "request.base64_vectors", body, inbound.headers)
    )


def _routes(services: Services, model: CatalogModel, request: EmbeddingRequest) -> Plan:
    """The offers to try. Token ids depend on the model's tokenizer, so they are converted to another format only where
    the provider's file says that it takes them. Raises `BadRequest` or `ModelNotFound` if there are none."""
    attempts = services.runtime.current.gateway.retry.attempts
    found = plan(model, "embeddings", health=services.health, attempts=attempts)
    if request.has_token_ids:
        found = found._replace(offers=[offer for offer in found.offers if _takes_token_ids(offer)])
        if not found.offers:
            raise BadRequest(f"input holds token ids, which no provider of {model.id} takes; send text", "input")
    if not found.offers:
        raise ModelNotFound(request.model, f"model {request.model} is not available for this request")
    return found


def _takes_token_ids(offer: Offer) -> bool:
    told = offer.can.get("token_ids")
    return told is not False and (told is not None or offer.protocol == "embeddings")


def _expected_tokens(request: EmbeddingRequest) -> int:
    """The estimated tokens of the input, for the hold and the rate limit."""
    return sum(tokens.estimate(len(item)) if isinstance(item, str) else len(item) for item in request.items)


async def _record(exchange: Exchange, found: Embedded) -> None:
    exchange.note_usage({"input": found.tokens}, estimated=found.estimated)
    try:
        await exchange.settle("ok")
    except Unavailable as error:
        raise Unsaved(f"usage could not be saved: {error.message}") from error


class Unsaved(TollgateError):
    """The usage row could not be made durable: a 500 (SPEC errors of embeddings). The client must not retry, because
    that would cost again."""

    code = "usage_not_saved"
    billed = True
