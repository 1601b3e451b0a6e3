"""A whole answer put together out of a stream, for a route that gives no other (`can: {whole: false}`, or a mapping
without `response.to_hub`).

Until the stream has ended nothing has left for the client, so that whatever goes wrong may still move to another route.
"""

from __future__ import annotations

from functools import partial

import orjson

from tollgate.completions.converted_stream import ConvertedStream
from tollgate.completions.exchange import Exchange
from tollgate.completions.judging import AttemptFailed
from tollgate.completions.kept_items import keep_items
from tollgate.completions.sending import context_of
from tollgate.completions.stream import count_usage, rest_of
from tollgate.errors import UpstreamError
from tollgate.mapping import Context, MappingFailure, Refused, request_to_hub, response_from_hub
from tollgate.routing import Offer
from tollgate.services import Reply
from tollgate.upstream import Answer


async def gathered_reply(exchange: Exchange, offer: Offer, answer: Answer) -> Reply:
    """Read the stream to its end, convert what it came to, settle. Raises as `whole_reply` does."""
    attempt = exchange.attempt
    if attempt.context is None or attempt.native:
        convert_instead(exchange, offer)
    context = attempt.context
    assert context is not None
    stage = ConvertedStream(exchange, offer.hearing(answer.headers))
    attempt.count_part = partial(count_usage, exchange, stage, left=True)
    blocks = answer.chunks()
    try:
        async for block in blocks:
            stage.feed(block)
            if stage.ended or stage.error is not None:
                break
        if stage.ended and not stage.begun and stage.error is None:  # an answer that failed: why may follow
            await rest_of(blocks, stage)
        answer.abort()  # it may stay open behind its end
        if stage.error is None:
            stage.close()
        if stage.error is not None:
            raise AttemptFailed(stage.error)
        await count_usage(exchange, stage)
        hub = {**stage.whole(), "usage": exchange.reported_usage()}
        built = response_from_hub(exchange.client_format, hub, context)
        keep_items(exchange, built)
        out = orjson.dumps(built)
    except UpstreamError as error:
        raise AttemptFailed(error) from None
    await exchange.settle_answer()
    return Reply(200, exchange.reply_headers(), out)


def convert_instead(exchange: Exchange, offer: Offer) -> None:
    """Have a native route's answer converted after all, because its bytes cannot pass as they come: a whole answer is
    put together from a stream, or a stream made of a whole one, or its text holds marks (`in_text:`)."""
    attempt = exchange.attempt
    context = attempt.context = _answer_context(exchange, offer, attempt.context)
    if exchange.stream:
        context.estimate = {"input": exchange.admitted_tokens}  # as where the request is converted (`sending.py`)
    attempt.native = False


def _answer_context(exchange: Exchange, offer: Offer, before: Context | None) -> Context:
    """The context in which the answer to a native request is converted: it has the request as a hub request, which
    mappings of answers may read. What the request's edits lost (`before`) stays lost; what the hub would lose of it is
    not told, because the request was not converted."""
    context, read = context_of(exchange, offer), context_of(exchange, offer)
    context.lost = before.lost if before is not None else []
    context.asked = exchange.body
    read.strict = False
    try:
        context.request = request_to_hub(exchange.client_format, exchange.body, read)
    except (Refused, MappingFailure):
        context.request = {}
    return context
