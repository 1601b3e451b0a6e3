"""A streamed answer on its way to the client: begun only when the upstream has, ended only when the row is durable.

`stream_reply` waits for the first event of the answer itself (`opening.py`), so that a failure before it may move to
another route; from then on nothing is retried and every end is told: the finish, an error event, or (client gone) the
upstream call cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from functools import partial
from typing import Any, Protocol

from tollgate.completions.converted_stream import ConvertedStream
from tollgate.completions.estimate import completed, missing_sides, plausible_usage
from tollgate.completions.exchange import Exchange
from tollgate.completions.judging import AttemptFailed, without_frames
from tollgate.completions.native_chat import NativeChat
from tollgate.completions.native_plain import NativePlain
from tollgate.completions.stateful import remember_state
from tollgate.errors import TollgateError, UpstreamError, UpstreamFailed
from tollgate.routing import Offer
from tollgate.services import LastBlock, Reply
from tollgate.sse import BOM
from tollgate.upstream import Answer

_GRACE_SECONDS = 0.25
"""How long to wait for the upstream to close after the answer's last event, so that its connection can be used
again."""
_MOST_BEFORE = 64 * 1024
"""Of comments before an answer: a provider's sign of life is some 25 bytes every few seconds."""
_MOST_OPENING = 4 * 1024 * 1024
"""Of events before an answer: in some formats they repeat the instructions and tools of the request."""


class Stage(Protocol):
    """What the pump drives: a native stream (`native_chat.py`, `native_plain.py`) or a converted one
    (`converted_stream.py`)."""

    error: UpstreamError | None
    """Why the answer failed, once the upstream told so or broke off; nothing more is fed then."""

    begun: bool
    """Something of the answer itself has come; what came before it is not worth keeping from another route."""

    @property
    def ended(self) -> bool:
        """True once the upstream has said the end of its answer."""

    def feed(self, block: bytes) -> bytes:
        """The client's bytes for a block of the upstream's; the end of the answer is kept for `tail`."""

    def close(self) -> bytes:
        """The upstream closed: the client's bytes for what it left unfinished. Sets `error` when the answer is not
        whole."""

    def usage(self) -> dict[str, Any] | None:
        """Hub usage as the upstream told it so far."""

    @property
    def counted(self) -> bool:
        """Whether the usage told by now is that of the whole answer."""

    def tier(self) -> str | None:
        """The service tier the upstream says it used."""

    def minted(self) -> list[str]:
        """Ids in the answer under which the provider keeps something (`state_ids.py`)."""

    def encrypted(self) -> Collection[str]:
        """What in the answer only its provider can read (`minters.py`)."""

    def reported_error(self) -> UpstreamError | None:
        """The failure that an answer told in its own last event, which the client gets as it came."""

    async def estimate(self) -> dict[str, Any]:
        """Hub usage counted from what was received."""

    def tail(self) -> bytes:
        """The end of the answer, with the exchange's usage where it is to be told."""

    def failure(self, error: TollgateError) -> bytes:
        """The events that tell `error` and end the stream."""


async def stream_reply(exchange: Exchange, offer: Offer, answer: Answer) -> Reply:
    """The reply for a stream that has begun. Raises `AttemptFailed` while another route may still be tried."""
    offer = offer.hearing(answer.headers)
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
        if failed is not None:
            raise AttemptFailed(failed)
    return Reply(200, exchange.reply_headers(), stream=_pump(exchange, offer, answer, blocks, stage, first))


def _stage(exchange: Exchange, offer: Offer) -> Stage:
    if not exchange.attempt.native:
        return ConvertedStream(exchange, offer)
    return NativeChat(exchange, offer) if exchange.inbound.dialect == "chat" else NativePlain(exchange, offer)


async def _first(blocks: AsyncIterator[bytes], stage: Stage) -> bytes:
    """The client's bytes of a stream up to the block in which its answer begins, or ends."""
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
        if starts:  # of a stream; official client libraries would lose its first event
            starts, block = False, block.removeprefix(BOM)
        first += stage.feed(block)
    if stage.ended and not stage.begun and stage.error is None:  # an answer that failed: why may follow
        first += await rest_of(blocks, stage) + stage.close()
    return first


async def _pump(
    exchange: Exchange, offer: Offer, answer: Answer, blocks: AsyncIterator[bytes], stage: Stage, first: bytes
) -> AsyncIterator[bytes]:
    try:
        held = b""
        if first and stage.ended:
            held = first  # it is all here: one write instead of two
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
            stage.error = without_frames(error)
        await count_usage(exchange, stage)
        exchange.attempt.failure = stage.error or stage.reported_error()
        if stage.error is not None:
            last = held + stage.failure(stage.error)
        else:
            await remember_state(exchange, offer, stage.minted(), stage.encrypted())
            last = held + stage.tail()
        await exchange.settle_answer()  # behind the making of the last words: what that loses is named in the row
        yield LastBlock(last)
    except (GeneratorExit, asyncio.CancelledError):
        if not exchange.settled:
            exchange.settle_cut(partial(count_usage, exchange, stage, left=True))
        raise
    except Exception:
        answer.abort()
        exchange.note_usage(stage.usage())
        await exchange.settle_own_mistake()
        raise
    finally:
        answer.abort()


async def rest_of(blocks: AsyncIterator[bytes], stage: Stage) -> bytes:
    """What the upstream still says after the end of its answer, given a moment to say it."""
    out = b""
    try:
        async with asyncio.timeout(_GRACE_SECONDS):
            async for block in blocks:
                out += stage.feed(block)
    except (TimeoutError, UpstreamError):
        pass
    return out


async def count_usage(exchange: Exchange, stage: Stage, *, left: bool = False) -> None:
    """Note on the exchange what the answer used, and which service tier was told. Tokens are estimated where the
    provider told none or half of them, or the client left (`left`) before the final count. A messages stream begins
    with one output token and tells the others at its end; of a provider that breaks off, what it told is all that is
    billed (DESIGN section 5)."""
    told = stage.usage()
    exchange.hub_usage = told  # what is billed if counting fails
    usage = plausible_usage(exchange, told)
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
