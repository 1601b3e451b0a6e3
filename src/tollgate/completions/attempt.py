"""One attempt at one route: build the upstream request, send it, and judge whether it began to answer.

A failure before the first byte is an `AttemptFailed` that says whether another route may do better.
"""

from __future__ import annotations

import time
from typing import Any, TypeVar

import orjson

from tollgate.completions.exchange import Exchange
from tollgate.completions.inline import request_with_bytes
from tollgate.completions.kept_thoughts import with_thoughts
from tollgate.completions.minters import unreadable
from tollgate.completions.native import native_body, native_document, native_headers, parsed_answer
from tollgate.completions.off_loop import run_off_loop
from tollgate.completions.sealed import without_sealed
from tollgate.errors import (
    BadRequest,
    TollgateError,
    UpstreamError,
    UpstreamFailed,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from tollgate.json_bounds import too_many
from tollgate.mapping import Context, MappingFailure, Refused, request_to_hub
from tollgate.routing import Offer
from tollgate.upstream import Answer, call_to
from tollgate.wire import CLIENT_FORMATS

_MAX_ERROR_BYTES = 256 * 1024
MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""Of an answer that is no stream; pictures and sound stand in it as base64. More is refused rather than held in
memory."""
_MOST_VALUES = 3_000_000
"""In a whole answer. Ten thousand tokens with the log probabilities of twenty others each, the most that providers
tell, are half of that."""
_JSON_FRAMINGS = ("ndjson", "json-array")
Failure = TypeVar("Failure", bound=TollgateError)


class AttemptFailed(Exception):
    """This route did not answer. `error` is what the caller would be told if it were the last."""

    def __init__(self, error: UpstreamError) -> None:
        super().__init__(error.message)
        self.error = error


async def send(exchange: Exchange, offer: Offer) -> Answer:
    """Send the request to a route; returns once the status is known and good. Raises `AttemptFailed`, or
    `BadRequest` when the request cannot be carried to this protocol."""
    exchange.attempt(offer)
    inbound = exchange.inbound
    stream = asks_stream(exchange, offer)
    headers = offer.headers(inbound.headers, stream=stream, native=exchange.native)
    if exchange.native:
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
    call = call_to(offer, "POST", url, headers, body, stream)
    del body
    if not exchange.routes_left:
        exchange.drop_client_bytes()
    began = time.perf_counter()
    try:
        answer = await exchange.services.client.open(call)
        call.body = b""  # it is there, and the answer remembers the call
    except UpstreamError as error:  # unusable credentials of ours included (alarm `key`)
        raise AttemptFailed(error) from None
    finally:
        exchange.called = call.sent
    exchange.first_byte(began)
    await check_head(answer, offer, stream=stream and offer.polling is None)
    return answer


async def check_head(answer: Answer, offer: Offer, *, stream: bool) -> None:
    """Raises `AttemptFailed` for an answer that is a refusal, or no stream where one is to come."""
    try:
        if not 200 <= answer.status < 300:
            raise await _refused(answer, offer)
        if stream and not _is_stream(answer, offer):
            raise await _not_a_stream(answer, offer)
    except BaseException:  # also of a client that left while the reasons were read
        answer.abort()
        raise


def passed_body(exchange: Exchange, offer: Offer, stream: bool) -> bytes:
    """The bytes to send where the protocols match: the client's own when no edit applies. `stream`: the route is asked
    for one, whatever its client wants."""
    body, upstream = exchange.body, offer.model.upstream
    ask_usage = stream and offer.protocol == "chat"
    gathered, told_anew = stream and not exchange.stream, exchange.stream and not stream
    if (gathered or told_anew or offer.in_text is not None) and type(several := body.get("n")) is int and several > 1:
        why = "which answers as a stream only" if gathered else "whose answers are made anew"
        raise BadRequest(f"n greater than 1 cannot be had of this model, {why}", param="n")
    if gathered:
        body = {**body, "stream": True}
    elif told_anew:
        body = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
    anew = gathered or told_anew or offer.encoding != "json"
    foreign = unreadable(exchange.minters, offer) if exchange.minters else frozenset()
    sealed = exchange.sealed or bool(foreign)
    if sealed or offer.request_edits is not None or anew:
        context = exchange.context = context_of(exchange, offer)
        if sealed:
            body = without_sealed(offer.protocol, body, context, foreign)
        document = native_document(body, upstream, ask_usage=ask_usage)
        edited = offer.request_edits(document, context) if offer.request_edits is not None else document
        exchange.tier_sent = edited.get("service_tier") is not None
        exchange.words = offer.usage.words_of(edited)
        if sealed or edited is not document or anew:
            return offer.encoded(edited)
    elif offer.usage.words is not None:
        exchange.words = offer.usage.words_of(body)
    return native_body(exchange.inbound.body, body, upstream, ask_usage=ask_usage)


async def converted_body(exchange: Exchange, offer: Offer) -> bytes:
    """The bytes to send in another protocol: converted, then edited."""
    context = exchange.context = context_of(exchange, offer)
    if exchange.stream:
        # for formats whose first event already tells usage (PITFALLS 12)
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
        if error.param == "messages":  # so mappings call the turns, whose field the upstream's format cannot know
            error.param = CLIENT_FORMATS[exchange.inbound.dialect].turns_field
        raise
    if offer.request_edits is not None:
        document = (
            await run_off_loop(offer.request_edits, document, context)
            if long
            else offer.request_edits(document, context)
        )
    read_tier = offer.mapping.sent_tier
    exchange.tier_sent = read_tier is not None and read_tier(document, context) is not None
    exchange.words = offer.usage.words_of(document)
    try:
        return offer.encoded(document)
    except TypeError as error:
        # arguments of a call, which are JSON of their own: as deep, or with numbers as large, as one likes
        raise BadRequest(
            f"the request cannot be converted for this model: {str(error)[:200]}", code="cannot_convert"
        ) from None


def _hub_of(exchange: Exchange, offer: Offer, context: Context) -> dict[str, Any]:
    return with_thoughts(exchange, offer, request_to_hub(exchange.client_format, exchange.body, context))


def asks_stream(exchange: Exchange, offer: Offer) -> bool:
    """Whether a route is asked for a stream: where its client wants one and it streams, or it does nothing else."""
    return exchange.stream and offer.streams or not offer.whole


def context_of(exchange: Exchange, offer: Offer) -> Context:
    """What a conversion of the request for this route may read; strict where the key or the request asks for it."""
    inbound = exchange.inbound
    context = Context(offer.model_facts, offer.can, None, inbound.strict)
    context.asked_model = exchange.asked_model
    if offer.request_edits is not None and offer.request_edits.reads_headers:
        context.hear(inbound.headers)
    return context


async def read_answer(exchange: Exchange, answer: Answer) -> bytes:
    """A whole answer as it came. Raises `AttemptFailed` when it does not come whole."""
    began = time.perf_counter()
    try:
        return await answer.read(MAX_ANSWER_BYTES)
    except (UpstreamUnreachable, UpstreamTimeout, UpstreamFailed) as error:
        raise AttemptFailed(error) from None
    finally:
        exchange.upstream_ms += (time.perf_counter() - began) * 1000


def judged_answer(exchange: Exchange, offer: Offer, answer: Answer, raw: bytes) -> tuple[bytes, Any]:
    """A whole answer, raw and parsed. Raises `AttemptFailed` when it is no answer."""
    if holds_too_much(raw):
        raise unusable(f"the answer holds more than {_MOST_VALUES} values", answer.status)
    try:
        body, raw = parsed_answer(raw)
    except orjson.JSONDecodeError:
        raise unusable("the answer is not JSON", answer.status) from None
    verdict = offer.errors.judge(answer.status, answer.headers, body)
    if verdict is not None:
        raise AttemptFailed(verdict.error())
    if not isinstance(body, dict) and (exchange.native or not isinstance(body, list)):
        raise unusable("the answer is not a JSON object", answer.status)
    return raw, body


def holds_too_much(raw: bytes) -> bool:
    """Whether an answer holds more values than are read: everybody else waits meanwhile."""
    return len(raw) > _MOST_VALUES and too_many(raw, _MOST_VALUES)


def judge_chunk(offer: Offer, chunk: dict[str, Any]) -> UpstreamError | None:
    """The error a stream event reports, or None."""
    verdict = offer.errors.judge(200, {}, chunk, chunk=True)
    return verdict.error() if verdict is not None else None


def reported_failure(offer: Offer, hub_error: dict[str, Any] | None) -> UpstreamFailed:
    """The error for what a mapping found told in an answer: a hub error, or None where it stopped because of an error
    without a word about it."""
    told = {"message": "the upstream could not finish the answer"} if hub_error is None else hub_error
    message = offer.errors.redact(str(told.get("message") or "the upstream reported an error"))
    overloaded = "overloaded_error" in (told.get("type"), told.get("code"))
    return UpstreamFailed(message, overloaded=overloaded)


def unfit_answer(offer: Offer, failure: MappingFailure) -> UpstreamFailed:
    """The error for an answer of a form that the route's mapping or edits cannot work with: no answer of this route, so
    another may be tried while nothing was sent (DESIGN section 4). The log has the line that could not."""
    message = offer.errors.redact(f"the answer does not fit its mapping: {failure}")
    return UpstreamFailed(message, upstream_status=200)


def without_frames(error: Failure) -> Failure:
    """The error without its traceback, cause and context.

    The frames of a traceback hold the answer, which holds the error: such a cycle, with the request's body in it, stays
    in memory until the garbage collector runs, which may be many requests later.
    """
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error


def without_secrets(raw: bytes, offer: Offer) -> bytes:
    """Bytes of a provider's own that tell a failure: it may quote our key in them."""
    return offer.errors.redact(raw.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def unusable(why: str, status: int) -> AttemptFailed:
    """The failure of an attempt whose answer, of this status, is of no use."""
    return AttemptFailed(UpstreamFailed(why, upstream_status=status))


async def _refused(answer: Answer, offer: Offer) -> AttemptFailed:
    body: Any
    try:
        raw = await answer.read(_MAX_ERROR_BYTES)
    except TollgateError:
        raw = b""
    try:
        body, _ = parsed_answer(raw)
    except orjson.JSONDecodeError:
        body = raw.decode("utf-8", "replace")
    verdict = offer.errors.judge(answer.status, answer.headers, body)
    assert verdict is not None
    return AttemptFailed(verdict.error(body))


async def _not_a_stream(answer: Answer, offer: Offer) -> AttemptFailed:
    """A 200 that is no event stream: an error in a JSON body, or an HTML page from something in between."""
    try:
        raw = await answer.read(_MAX_ERROR_BYTES)
        body = orjson.loads(raw)
    except (TollgateError, orjson.JSONDecodeError):
        body = None
    if isinstance(body, (dict, list)):
        verdict = offer.errors.judge(answer.status, answer.headers, body)
        if verdict is not None:
            return AttemptFailed(verdict.error())
    kind = answer.headers.get("content-type", "")[:100]
    return unusable(
        f"a stream was asked for and none came: with `framing: {offer.framing}` {kind!r} is none "
        "(`can: {streams: false}` is for an upstream that does not stream)",
        answer.status,
    )


def _is_stream(answer: Answer, offer: Offer) -> bool:
    """Whether a 200 is the stream that was asked for. JSON is, where the stream's own framing is made of JSON
    documents: what comes instead is an event there, and judged as one."""
    kind = answer.headers.get("content-type", "")
    return not kind.startswith("text/html" if offer.framing in _JSON_FRAMINGS else ("text/html", "application/json"))
