"""Sending a request to one route: the body in the route's format, and the status of the answer.

A failure before the first byte of the answer is raised as `AttemptFailed`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tollgate.completions.converted_fields import check_converted
from tollgate.completions.exchange import Exchange
from tollgate.completions.inline import with_bytes
from tollgate.completions.judging import AttemptFailed, check_head
from tollgate.completions.kept_thoughts import with_thoughts
from tollgate.completions.minters import unreadable
from tollgate.completions.native import native_body, native_document, native_headers
from tollgate.completions.off_loop import run_off_loop
from tollgate.completions.preparing import prepared
from tollgate.completions.sealed import without_sealed
from tollgate.completions.state_ids import PREVIOUS
from tollgate.errors import BadRequest, UpstreamError
from tollgate.mapping import Context, Refused, request_from_hub, request_to_hub
from tollgate.mapping.json_value import with_digits
from tollgate.routing import Offer
from tollgate.upstream import Answer, Call, call_to
from tollgate.wire import CLIENT_FORMATS

if TYPE_CHECKING:
    from tollgate.config.settings import Fetch


async def send(exchange: Exchange, offer: Offer) -> Answer:
    """Send the request to a route; returns once its status is known to be a success. Raises `AttemptFailed`, or
    `BadRequest` when the request cannot be expressed in the route's protocol."""
    attempt = exchange.attempt
    stream = asks_stream(exchange, offer)
    call = await _call(exchange, offer, stream)
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


async def _call(exchange: Exchange, offer: Offer, stream: bool) -> Call:
    """The request to a route, after the calls that it needs before it. `stream`: as for `edited_document`."""
    inbound = exchange.inbound
    native = offer.protocol == inbound.dialect
    headers = offer.headers(inbound.headers, stream=stream, native=native)
    document: Any
    if native:
        if exchange.sealed or exchange.minters or offer.request_edits is not None:
            context = context_of(exchange, offer)
            document = await with_bytes(
                lambda: edited_document(exchange, offer, stream, context),
                context,
                _fetch(exchange),
                long=exchange.is_long(),
            )
        else:
            document = edited_document(exchange, offer, stream)
        headers = native_headers(inbound.headers, headers, offer.made_headers)
        url = offer.url(stream, inbound.query)
        if document is None:
            asks_usage = _asks_usage(offer, stream)
            body = native_body(inbound.body, exchange.body, offer.model.upstream, ask_usage=asks_usage)
            return call_to(offer, "POST", url, headers, body)
    else:
        document, url = await converted_document(exchange, offer), offer.url(stream)
    if offer.prepares:
        document = await prepared(exchange, offer, document)
    body, sent = (
        await run_off_loop(offer.request_parts, document, stream=stream)
        if offer.encoding != "json" and exchange.is_long()
        else offer.request_parts(document, stream=stream)
    )
    if sent is None:
        return call_to(offer, "POST", url, headers, body)
    return call_to(offer, sent.method, sent.full_url(url), sent.all_headers(headers), body)


def edited_document(
    exchange: Exchange, offer: Offer, stream: bool, context: Context | None = None
) -> dict[str, Any] | None:
    """The request when both sides speak the same protocol; None if the client's own bytes are sent. `stream`: whether
    the route is asked for a stream, which may differ from what the client asked for. `context`: of all calls for this
    attempt, the earlier of which lacked the bytes of URLs."""
    body, attempt = _with_digits(exchange), exchange.attempt
    other_way = stream != exchange.stream
    if (other_way or offer.marked) and type(several := body.get("n")) is int and several > 1:
        raise BadRequest("n is greater than 1; this model returns one answer per request", param="n")
    if other_way and stream:
        body = {**body, "stream": True}
    elif other_way:
        body = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
    rewritten = other_way or offer.encoding != "json" or offer.shaped
    foreign = unreadable(exchange.minters, offer) if exchange.minters else frozenset()
    sealed = exchange.sealed or bool(foreign)
    if not sealed and offer.request_edits is None and not rewritten:
        if offer.usage.words is not None:
            attempt.words = offer.usage.words_of(body)
        return None
    context = attempt.context = context or context_of(exchange, offer)
    if sealed:
        body = without_sealed(offer.protocol, body, context, foreign)
    document = native_document(body, offer.model.upstream, ask_usage=_asks_usage(offer, stream))
    edited: dict[str, Any] = offer.request_edits(document, context) if offer.request_edits is not None else document
    attempt.tier_sent = edited.get("service_tier") is not None
    attempt.words = offer.usage.words_of(edited)
    return edited if sealed or rewritten or edited is not document else None


async def converted_document(exchange: Exchange, offer: Offer) -> Any:
    """The request in another protocol: converted, then the provider's edits applied."""
    attempt = exchange.attempt
    attempt.converts = True
    check_converted(exchange.inbound.dialect, exchange.body)
    context = attempt.context = context_of(exchange, offer)
    if exchange.stream:
        # for formats whose first stream event already holds usage (PITFALLS 12)
        context.estimate = {"input": exchange.admitted_tokens}
    long = exchange.is_long()
    hub = await run_off_loop(_hub_of, exchange, offer, context) if long else _hub_of(exchange, offer, context)
    if exchange.continues is not None:  # the answer repeats it
        context.asked = {**exchange.body, PREVIOUS: exchange.continues}
    if not offer.streams and "stream" in hub:
        hub = {name: value for name, value in hub.items() if name != "stream"}
    elif not exchange.stream and not gives_whole(exchange, offer):
        hub = {**hub, "stream": True}
    context.request = hub
    try:
        document = await with_bytes(
            lambda: request_from_hub(offer.mapping, hub, context), context, _fetch(exchange), long=long
        )
    except Refused as error:
        if error.param == "messages":  # mappings name the turns so; the client's format may call the field otherwise
            error.param = CLIENT_FORMATS[exchange.inbound.dialect].turns_field
        raise
    if (edits := offer.request_edits) is not None:
        made = document
        document = await with_bytes(lambda: edits(made, context), context, _fetch(exchange), long=long)
    read_tier = offer.mapping.sent_tier
    attempt.tier_sent = read_tier is not None and read_tier(document, context) is not None
    if offer.usage.words is not None:
        attempt.words = offer.usage.words_of(document)
    return document


def _fetch(exchange: Exchange) -> Fetch:
    return exchange.runtime.gateway.fetch


def _asks_usage(offer: Offer, stream: bool) -> bool:
    """Whether a native body asks for usage at the end of the stream."""
    return stream and offer.protocol == "chat"


def _hub_of(exchange: Exchange, offer: Offer, context: Context) -> dict[str, Any]:
    return with_thoughts(exchange, offer, request_to_hub(exchange.client_format, _with_digits(exchange), context))


def _with_digits(exchange: Exchange) -> dict[str, Any]:
    """The client's request, in which large numbers of calls have their digits."""
    body: dict[str, Any] = exchange.body
    return with_digits(body, exchange.inbound.body) if exchange.large_numbers else body


def asks_stream(exchange: Exchange, offer: Offer) -> bool:
    """Whether the route is asked for a stream: the client wants one and the route can stream, or it can only stream."""
    return exchange.stream and offer.streams or not gives_whole(exchange, offer)


def gives_whole(exchange: Exchange, offer: Offer) -> bool:
    """Whether the route gives an answer of the length that the client allows as a whole."""
    return offer.whole and (offer.longest_whole is None or exchange.most_output <= offer.longest_whole)


def context_of(exchange: Exchange, offer: Offer, kind: type[Context] = Context) -> Context:
    """The context for converting the request to this route; strict when the key or the request says so."""
    inbound = exchange.inbound
    context = kind(offer.model_facts, offer.can, inbound.strict)
    context.asked_model = exchange.asked_model
    context.inlined = exchange.inlined
    if offer.request_edits is not None and offer.request_edits.reads_headers:
        context.set_headers(inbound.headers)
    return context
