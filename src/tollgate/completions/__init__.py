"""Chat, responses and messages: one pipeline from an authenticated request to its reply.

resolve the model -> check access -> plan the routes -> hold an upper bound of the cost -> try the routes until one
begins to answer -> convert the answer, record the row, send the end of the answer.
"""

from __future__ import annotations

from collections.abc import Callable

from tollgate.completions.body import may_have_large_numbers
from tollgate.completions.cost_bound import most_it_costs
from tollgate.completions.counting import count_tokens
from tollgate.completions.exchange import Exchange
from tollgate.completions.gathered import convert_instead, gathered_reply
from tollgate.completions.judging import AttemptFailed, unfit_answer
from tollgate.completions.minters import minters_of, readers
from tollgate.completions.models import check_consulted, model_of
from tollgate.completions.naming import asked_model
from tollgate.completions.off_loop import run_off_loop
from tollgate.completions.polling import Job, streamed_job
from tollgate.completions.request import CompletionRequest, read_request
from tollgate.completions.retry import settle_failure, try_routes
from tollgate.completions.sealed import holds_sealed
from tollgate.completions.sending import asks_stream, gives_whole, send
from tollgate.completions.stateful import StateNotFound, ThreadUnsupported, check_looked_up, provider_for
from tollgate.completions.stream import stream_reply
from tollgate.completions.whole import whole_reply
from tollgate.errors import ModelNotFound
from tollgate.mapping import MappingFailure
from tollgate.routing import Offer, Plan, fingerprint, plan
from tollgate.services import Inbound, Reply, Services

__all__ = ["complete", "count_tokens"]


async def complete(
    services: Services,
    inbound: Inbound,
    *,
    streaming: Callable[[], None] = lambda: None,
    status_sent: Callable[[], bool] = lambda: False,
) -> Reply:
    """Answer one chat, responses or messages request.

    `streaming` is called when the answer will be a stream. `status_sent` is called to decide on the status of a request
    without an answer; it returns True if the client has a status already, from the first keep-alive comment.

    Raises `RequestError` for the caller's mistakes, `UpstreamError` when no route answered.
    """
    request = await read_request(services, inbound)
    body, needs = request.body, request.needs
    model, stream = model_of(services, inbound, body["model"]), body.get("stream") is True
    exchange = Exchange(services, inbound, body, model, stream, status_sent)
    if needs.prefer_native or "fallbacks" in body or "models" in body:
        check_consulted(services, inbound, model, body)
    if request.looked_up:
        await check_looked_up(services, inbound, request.looked_up)
    exchange.large_numbers = may_have_large_numbers(request.outline)
    exchange.sealed = holds_sealed(request.outline)
    exchange.continues = request.continues
    exchange.asked_model = asked_model(exchange.client_format, body, inbound.headers)
    exchange.admitted_tokens = needs.prompt_tokens
    if exchange.runtime.several_minters:
        exchange.minters = await minters_of(services, inbound, body, request.outline)
    conversation = fingerprint(inbound.key.account_id, model.id, body) if len(model.routes) > 1 else b""
    routes = await _routes(exchange, request, services.sticky.get(conversation) if conversation else None)
    exchange.begin(
        await services.ledger.hold(inbound.key, most_it_costs(exchange, routes.offers[0], needs, request.outline))
    )
    request.outline = ""  # with pictures, as large as the body
    try:
        if stream:
            streaming()
        exchange.limits = await services.ledger.admit(inbound.key, needs.prompt_tokens)
        reply = await try_routes(exchange, routes, _answer)
    except BaseException as error:
        await settle_failure(exchange, error)
        raise
    exchange.drop_client_bytes()
    if conversation:
        offer = exchange.attempt.offer
        assert offer is not None
        services.sticky.remember(conversation, offer.route)
    return reply


async def _routes(exchange: Exchange, request: CompletionRequest, last: str | None) -> Plan:
    """The offers to try, in order.

    A request that refers to a provider's stored state can only go to that provider; one with encrypted reasoning only
    to a provider that can decrypt it. `last` is the route that answered the conversation's previous request. Raises
    `RequestError` when no offer is left.
    """
    services, references = exchange.services, request.references
    keeper = await provider_for(services, exchange.inbound, references) if references else None
    found = plan(
        exchange.model,
        exchange.inbound.dialect,
        request.needs,
        services.health,
        last,
        attempts=exchange.runtime.gateway.retry.attempts,
        pinned=keeper,
    )
    if exchange.minters:
        found = found._replace(offers=readers(found.offers, exchange.minters, exchange.body))
    if found.offers:
        return found
    name = request.body["model"]
    if request.needs.threads:
        raise ThreadUnsupported(name)
    if references:
        raise StateNotFound(*references[0], f" The provider that keeps it does not serve {name}.")
    raise ModelNotFound(name, f"model {name} is not available for this request")


async def _answer(exchange: Exchange, offer: Offer) -> Reply:
    """The reply of one route; returns as soon as the route begins to answer."""
    answer = await send(exchange, offer)
    job: Job | None = None
    try:
        whole = gives_whole(exchange, offer)
        if not exchange.attempt.converts and (offer.marked or not (offer.streams if exchange.stream else whole)):
            if exchange.is_long():
                await run_off_loop(convert_instead, exchange, offer)
            else:
                convert_instead(exchange, offer)
        if offer.polling is not None and asks_stream(exchange, offer):
            job = await streamed_job(exchange, offer, answer)
            answer = await job.stream()
        if exchange.stream and offer.streams:
            reply = await stream_reply(exchange, offer, answer)
            if job is not None and reply.stream is not None:
                reply.stream = job.cancelled_early(reply.stream)
            return reply
        try:
            return await (whole_reply if whole else gathered_reply)(exchange, offer, answer)
        except MappingFailure as failure:  # no byte was sent and no row written yet, so another route may be tried
            raise AttemptFailed(unfit_answer(offer, failure)) from None
    except BaseException:
        answer.abort()
        if job is not None:
            job.cancel()
        raise
