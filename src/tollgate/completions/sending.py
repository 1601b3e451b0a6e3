"""Sending a request to one route: the body in the route's format, and the status of the answer.

A failure before the first byte of the answer is raised as `AttemptFailed`.
"""

from __future__ import annotations

import time
from typing import Any

from tollgate.completions.exchange import Exchange
from tollgate.completions.inline import request_with_bytes
from tollgate.completions.judging import AttemptFailed, check_head
from tollgate.completions.kept_thoughts import with_thoughts
from tollgate.completions.minters import unreadable
from tollgate.completions.native import native_body, native_document, native_headers
from tollgate.completions.off_loop import run_off_loop
from tollgate.completions.preparing import prepared
from tollgate.completions.sealed import without_sealed
from tollgate.errors import BadRequest, UpstreamError
from tollgate.mapping import Context, Refused, request_to_hub
from tollgate.routing import Offer
from tollgate.upstream import Answer, call_to
from tollgate.wire import CLIENT_FORMATS


async def send(exchange: Exchange, offer: Offer) -> Answer:
    """Send the request to a route; returns once its status is known to be a success. Raises `AttemptFailed`, or
    `BadRequest` when the request cannot be expressed in the route's protocol."""
    inbound, attempt = exchange.inbound, exchange.attempt
    stream = asks_stream(exchange, offer)
    headers = offer.headers(inbound.headers, stream=stream, native=attempt.native)
    if attempt.native:
        edited = exchange.sealed or exchange.minters or offer.request_edits is not None
        body = (
            await run_off_loop(passed_body, exchange, offer, stream)
            if edited and exchange.is_long()
            else passed_body(exchange, offer, stream)
        )
        headers = native_headers(inbound.headers, headers, offer.made_headers)
        url = offer.url(stream, inbound.query)
    else:
        body, url = await converted_body(exchange, offer), offer.url(stream)
    method = "POST"
    if offer.shaped:
        if offer.prepares:
            document, attempt.document = attempt.document, None
            body = _written(exchange, offer, await prepared(exchange, offer, document), stream)
        if (sent := attempt.sent) is not None:
            method, url, headers = sent.method, sent.full_url(url), sent.all_headers(headers)
    call = call_to(offer, method, url, headers, body, stream)
    del body
    if not attempt.routes_left:
        exchange.drop_client_bytes()
    began = time.perf_counter()
    try:
        answer = await exchange.services.client.open(call)
        call.body = b""  # it was sent; the answer keeps the call, so free it here
    except UpstreamError as error:  # also when our own credentials cannot be used (alarm `key`)
        raise AttemptFailed(error) from None
    finally:
        attempt.called = call.sent
    exchange.first_byte(began)
    await check_head(answer, offer, stream=stream and offer.polling is None)
    return answer


def passed_body(exchange: Exchange, offer: Offer, stream: bool) -> bytes:
    """The bytes to send when both sides speak the same protocol: the client's own bytes if no edit applies. `stream`:
    whether the route is asked for a stream, which may differ from what the client asked for."""
    body, upstream, attempt = exchange.body, offer.model.upstream, exchange.attempt
    ask_usage = stream and offer.protocol == "chat"
    gathered, replayed = stream and not exchange.stream, exchange.stream and not stream
    if (gathered or replayed or offer.in_text is not None) and type(several := body.get("n")) is int and several > 1:
        raise BadRequest("n is greater than 1; this model returns one answer per request", param="n")
    if gathered:
        body = {**body, "stream": True}
    elif replayed:
        body = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
    rewritten = gathered or replayed or offer.encoding != "json" or offer.shaped
    foreign = unreadable(exchange.minters, offer) if exchange.minters else frozenset()
    sealed = exchange.sealed or bool(foreign)
    if sealed or offer.request_edits is not None or rewritten:
        context = attempt.context = context_of(exchange, offer)
        if sealed:
            body = without_sealed(offer.protocol, body, context, foreign)
        document = native_document(body, upstream, ask_usage=ask_usage)
        edited = offer.request_edits(document, context) if offer.request_edits is not None else document
        attempt.tier_sent = edited.get("service_tier") is not None
        attempt.words = offer.usage.words_of(edited)
        if sealed or edited is not document or rewritten:
            return _shaped(exchange, offer, edited, stream) if offer.shaped else offer.encoded(edited)
    elif offer.usage.words is not None:
        attempt.words = offer.usage.words_of(body)
    return native_body(exchange.inbound.body, body, upstream, ask_usage=ask_usage)


async def converted_body(exchange: Exchange, offer: Offer) -> bytes:
    """The bytes to send in another protocol: the request converted, then the provider's edits applied."""
    attempt = exchange.attempt
    context = attempt.context = context_of(exchange, offer)
    if exchange.stream:
        # for formats whose first stream event already holds usage (PITFALLS 12)
        context.estimate = {"input": exchange.admitted_tokens}
    long = exchange.is_long()
    hub = await run_off_loop(_hub_of, exchange, offer, context) if long else _hub_of(exchange, offer, context)
    if not offer.streams and "stream" in hub:
        hub = {name: value for name, value in hub.items() if name != "stream"}
    elif not offer.whole and not exchange.stream:
        hub = {**hub, "stream": True}
    context.request = hub
    settings = exchange.services.runtime.current.gateway.fetch
    try:
        document = await request_with_bytes(offer.mapping, hub, context, settings, long=long)
    except Refused as error:
        if error.param == "messages":  # mappings name the turns so; the client's format may call the field otherwise
            error.param = CLIENT_FORMATS[exchange.inbound.dialect].turns_field
        raise
    if offer.request_edits is not None:
        document = (
            await run_off_loop(offer.request_edits, document, context)
            if long
            else offer.request_edits(document, context)
        )
    read_tier = offer.mapping.sent_tier
    attempt.tier_sent = read_tier is not None and read_tier(document, context) is not None
    attempt.words = offer.usage.words_of(document)
    try:
        if offer.shaped:
            return _shaped(exchange, offer, document, asks_stream(exchange, offer))
        return offer.encoded(document)
    except TypeError as error:
        # the arguments of a tool call are JSON text of their own, perhaps too deep or with too large numbers to write
        raise BadRequest(
            f"the request cannot be converted for this model: {str(error)[:200]}", code="cannot_convert"
        ) from None


def _shaped(exchange: Exchange, offer: Offer, document: Any, stream: bool) -> bytes:
    """The bytes of the request's body; empty if calls are made before it: the attempt keeps the request for them."""
    if offer.prepares:
        exchange.attempt.document = document
        return b""
    return _written(exchange, offer, document, stream)


def _written(exchange: Exchange, offer: Offer, document: Any, stream: bool) -> bytes:
    """The bytes of the request's body; the parts outside of it are noted in the attempt."""
    body, exchange.attempt.sent = offer.request_parts(document, stream=stream)
    return body


def _hub_of(exchange: Exchange, offer: Offer, context: Context) -> dict[str, Any]:
    return with_thoughts(exchange, offer, request_to_hub(exchange.client_format, exchange.body, context))


def asks_stream(exchange: Exchange, offer: Offer) -> bool:
    """Whether the route is asked for a stream: the client wants one and the route can stream, or it can only stream."""
    return exchange.stream and offer.streams or not offer.whole


def context_of(exchange: Exchange, offer: Offer) -> Context:
    """The context for converting the request to this route; strict when the key or the request says so."""
    inbound = exchange.inbound
    context = Context(offer.model_facts, offer.can, None, inbound.strict)
    context.asked_model = exchange.asked_model
    if offer.request_edits is not None and offer.request_edits.reads_headers:
        context.set_headers(inbound.headers)
    return context
