"""A whole answer assembled from a stream, for routes that can only stream (`can: {whole: false}`, or a mapping without
`response.to_hub`).

Nothing is sent to the client before the stream has ended, so that every failure can still move on to another route.
"""

from __future__ import annotations

from functools import partial

from tollgate.completions.converted_stream import ConvertedStream
from tollgate.completions.exchange import Exchange
from tollgate.completions.judging import AttemptFailed
from tollgate.completions.sending import context_of
from tollgate.completions.stream import count_usage, rest_of
from tollgate.completions.whole import written_answer
from tollgate.errors import UpstreamError
from tollgate.mapping import MappingFailure, Refused, request_to_hub
from tollgate.routing import Offer
from tollgate.services import Reply
from tollgate.upstream import Answer


async def gathered_reply(exchange: Exchange, offer: Offer, answer: Answer) -> Reply:
    """Read the stream to its end, convert the assembled answer, settle. Raises like `whole_reply`."""
    stage = ConvertedStream(exchange, offer.for_answer(answer.headers, exchange.body))
    exchange.attempt.count_part = partial(count_usage, exchange, stage, left=True)
    blocks = answer.chunks()
    try:
        try:
            async for block in blocks:
                stage.feed(block)
                if stage.ended or stage.error is not None:
                    break
        except UpstreamError:
            if not stage.answered:
                raise
        if stage.ended and not stage.begun and stage.error is None:  # a failed answer: the reason may follow
            await rest_of(blocks, stage)
        answer.abort()  # the upstream may keep the stream open
        if stage.error is None:
            stage.close()
        if stage.error is not None:
            raise AttemptFailed(stage.error)
        await count_usage(exchange, stage)
        hub = {**stage.whole(), "usage": exchange.client_usage()}
        out = written_answer(exchange, hub)
    except UpstreamError as error:
        raise AttemptFailed(error) from None
    await exchange.settle_answer()
    return Reply(200, exchange.reply_headers(), out)


def convert_instead(exchange: Exchange, offer: Offer) -> None:
    """Make the answer of a native route be converted, because its bytes cannot pass unchanged: a whole answer is
    assembled from a stream, a stream is made from a whole answer, or its text holds marks (`in_text:`).

    Mappings of answers may read the request, so it is converted to the hub; what that loses is not reported, because
    the request itself was sent unconverted. What its edits lost still is.
    """
    attempt = exchange.attempt
    context, read = context_of(exchange, offer), context_of(exchange, offer)
    context.lost = attempt.context.lost if attempt.context is not None else []
    context.asked = exchange.body
    if exchange.stream:
        context.estimate = {"input": exchange.admitted_tokens}  # as for converted requests (`sending.py`)
    read.strict = False
    try:
        context.request = request_to_hub(exchange.client_format, exchange.body, read)
    except (Refused, MappingFailure):
        context.request = {}
    attempt.context, attempt.converts = context, True
