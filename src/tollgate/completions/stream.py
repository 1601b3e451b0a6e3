"""A streamed answer: it begins when the upstream's answer begins, and ends only when its row is durable.

`stream_reply` waits for the first event with content (`opening.py`), so that a failure before it can still move on to
another route. After that nothing is retried, and the stream always ends properly: with the finish, with an error event,
or, if the client left, with the upstream call cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from tollgate.completions.converted_stream import ConvertedStream
from tollgate.completions.estimate import completed, missing_sides, plausible_usage
from tollgate.completions.exchange import Exchange
from tollgate.completions.judging import AttemptFailed, without_frames
from tollgate.completions.native_chat import NativeChat
from tollgate.completions.native_plain import NativePlain
from tollgate.completions.stage import Stage
from tollgate.completions.stateful import remember_state
from tollgate.errors import UpstreamError, UpstreamFailed, UpstreamRejected
from tollgate.routing import Offer
from tollgate.services import LastBlock, Reply
from tollgate.sse import BOM
from tollgate.upstream import Answer

_GRACE_SECONDS = 0.25
"""How long to wait for the end of the upstream's body after the answer's last event, so that its connection can be
reused."""
_MOST_BEFORE = 64 * 1024
"""Most bytes of comments before an answer: a keep-alive comment is some 25 bytes every few seconds."""
_MOST_OPENING = 4 * 1024 * 1024
"""Most bytes of events before the first content: some formats repeat the request's instructions and tools there."""


async def stream_reply(exchange: Exchange, offer: Offer, answer: Answer) -> Reply:
    """The reply for a stream whose answer has begun. Raises `AttemptFailed` while another route may still be tried."""
    offer = offer.for_answer(answer.headers, exchange.body)
    stage = _stage(exchange, offer)
    blocks = answer.chunks()
    try:
        first = await _first(blocks, stage)
    except UpstreamError as error:
        raise AttemptFailed(error) from None
    if not stage.begun:
        failed = stage.error
        if failed is None and exchange.attempt.routes_left:
            failed = stage.reported_error()
            if isinstance(failed, UpstreamRejected):  # no other route can help: its events are passed on
                failed = None
        if failed is not None:
            raise AttemptFailed(failed)
    return Reply(
        200,
        exchange.reply_headers(),
        stream=_pump(exchange, offer, answer, blocks, stage, first),
        error_events=stage.error_events,
    )


def _stage(exchange: Exchange, offer: Offer) -> Stage:
    if exchange.attempt.converts:
        return ConvertedStream(exchange, offer)
    return NativeChat(exchange, offer) if exchange.inbound.dialect == "chat" else NativePlain(exchange, offer)


async def _first(blocks: AsyncIterator[bytes], stage: Stage) -> bytes:
    """The client's bytes up to and including the block in which the answer begins (or already ends)."""
    first, starts = b"", True
    while not stage.begun and not stage.ended and stage.error is None:
        if len(first) > _MOST_BEFORE and b"data" not in first:  # comments
            raise UpstreamFailed("the stream holds comments and no answer")
        if len(first) > _MOST_OPENING:
            break
        try:
            block = await anext(blocks)
        except StopAsyncIteration:
            first += stage.close()
            break
        if starts:  # the stream's first block: after a byte order mark, client libraries lose the first event
            starts, block = False, block.removeprefix(BOM)
        first += stage.feed(block)
    if stage.ended and not stage.begun and stage.error is None:  # a failed answer: the reason may follow
        first += await rest_of(blocks, stage) + stage.close()
    return first


async def _pump(
    exchange: Exchange, offer: Offer, answer: Answer, blocks: AsyncIterator[bytes], stage: Stage, first: bytes
) -> AsyncIterator[bytes]:
    try:
        held = b""
        if first and stage.ended:
            held = first  # the whole answer is here: one write instead of two
        elif first:
            yield first
        try:
            if not stage.ended and stage.error is None:
                async for block in blocks:
                    out = stage.feed(block)
                    if out:
                        yield out
                    if stage.ended or stage.error is not None:
                        break
            if stage.error is None:
                rest = await rest_of(blocks, stage) if stage.ended and not answer.ended else b""
                held += rest + stage.close()
        except UpstreamError as error:
            if stage.answered:  # as where the body ends there: a client would repeat, and pay for, all of it
                held += stage.close()
            else:
                stage.error = without_frames(error)
        await count_usage(exchange, stage)
        exchange.attempt.failure = stage.error or stage.reported_error()
        if stage.error is not None:
            last = held + stage.error_events(stage.error)
        else:
            await remember_state(exchange, offer, stage.minted(), stage.encrypted())
            last = held + stage.tail()
        await exchange.settle_answer()  # after `tail`: the row also names what its conversion lost
        yield LastBlock(last)
    except (GeneratorExit, asyncio.CancelledError):
        if not exchange.settled:
            exchange.settle_cut(partial(count_usage, exchange, stage, left=True))
        raise
    except Exception:
        answer.abort()
        try:
            if exchange.hub_usage is None:  # it was not counted yet
                exchange.note_usage(plausible_usage(exchange, stage.usage()) or None)
        finally:  # the mistake may be in `usage`
            await exchange.settle_own_mistake()
        raise
    finally:
        answer.abort()


async def rest_of(blocks: AsyncIterator[bytes], stage: Stage) -> bytes:
    """The client's bytes for what the upstream still sends, within a moment, after the end of its answer."""
    out = b""
    try:
        async with asyncio.timeout(_GRACE_SECONDS):
            async for block in blocks:
                out += stage.feed(block)
    except (TimeoutError, UpstreamError):
        pass
    return out


async def count_usage(exchange: Exchange, stage: Stage, *, left: bool = False) -> None:
    """Note on the exchange the usage and the service tier of the answer.

    Tokens are estimated where the provider reported none, or only input or output, or where the client left (`left`)
    before the final count. A messages stream reports one output token at its start and the others at its end; when the
    provider breaks off, only what it reported is billed (DESIGN section 5).
    """
    usage = plausible_usage(exchange, stage.usage())
    exchange.hub_usage = usage or None  # billed if the estimate fails
    exchange.attempt.reported_tier = stage.tier()
    estimated = False
    lacking = missing_sides(usage)
    if len(lacking) == 2 or lacking and stage.error is None and stage.counted:
        usage, estimated = completed(usage, lacking, await stage.estimate())
    elif left and not stage.counted:
        received = await stage.estimate()
        if received["output"] > usage.get("output", 0):
            usage, estimated = {**received, **usage, "output": received["output"]}, True
    exchange.note_usage(usage, estimated=estimated)
