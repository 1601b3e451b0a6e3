"""A streamed answer on its way to the client: begun only when the upstream has, ended only when the row is durable.

`stream_reply` waits for the first event, so that a failure before it may move to another route; from then on nothing
is retried and every end is told: the finish, an error event, or (client gone) the upstream call cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Protocol

from tollgate.completions.attempt import AttemptFailed, judge_chunk
from tollgate.completions.converted_stream import ConvertedStream, Reframed, converts_frames
from tollgate.completions.estimate import estimate_usage, texts_of_events
from tollgate.completions.exchange import Exchange
from tollgate.completions.native_stream import ChatStream, Judge, Marks, NativeStream, PlainStream, last_sequence
from tollgate.completions.stateful import keeps_thread, minted_ids
from tollgate.completions.untold import Untold
from tollgate.completions.whole import told_tier
from tollgate.errors import TollgateError, UpstreamError, UpstreamTimeout
from tollgate.mapping import Context, Tap, response_from_hub
from tollgate.public_errors import stream_error_events
from tollgate.routing import Offer
from tollgate.services import LastBlock, Reply
from tollgate.upstream import Answer
from tollgate.wire import is_last

_GRACE_SECONDS = 0.25
"""How long to wait for the upstream to close after the answer's last event, so that its connection can be used again."""


class Stage(Protocol):
    """What the pump drives: a native or a converted stream."""

    error: UpstreamError | None

    @property
    def ended(self) -> bool: ...

    def feed(self, block: bytes) -> bytes: ...

    def close(self) -> bytes: ...

    def usage(self) -> dict[str, Any] | None: ...

    @property
    def counted(self) -> bool: ...

    def tier(self) -> str | None: ...

    def minted(self) -> list[str]: ...

    async def estimate(self) -> dict[str, Any]: ...

    def tail(self, hub_usage: dict[str, Any], *, estimated: bool) -> bytes: ...

    def failure(self, error: TollgateError) -> bytes: ...


async def stream_reply(exchange: Exchange, offer: Offer, answer: Answer) -> Reply:
    """The reply for a stream that has begun. Raises `AttemptFailed` while another route may still be tried."""
    stage: Stage = _Native(exchange, offer) if exchange.native else ConvertedStream(exchange, offer)
    blocks = answer.chunks()
    first = b""
    try:
        while b"data" not in first and not stage.ended and stage.error is None:  # comments are no answer yet
            try:
                block = await anext(blocks)
            except StopAsyncIteration:
                first += stage.close()
                break
            first += stage.feed(block)
        if stage.error is not None and b"data" not in first:
            raise AttemptFailed(stage.error)
    except UpstreamError as error:
        await answer.close()
        raise AttemptFailed(error) from None
    except BaseException:
        answer.abort()
        raise
    return Reply(200, exchange.reply_headers(), stream=_pump(exchange, offer, answer, blocks, stage, first))


async def _pump(exchange: Exchange, offer: Offer, answer: Answer, blocks: AsyncIterator[bytes], stage: Stage, first: bytes) -> AsyncIterator[bytes]:
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
                rest = await _rest(blocks, stage) if stage.ended and not answer.ended else b""
                held += rest + stage.close()
        except UpstreamError as error:
            stage.error = error
        usage, estimated = await _used(exchange, stage, cut=stage.error is not None)
        if stage.error is not None:
            exchange.route_failed(stage.error)
            outcome = "timeout" if isinstance(stage.error, UpstreamTimeout) else "upstream_error"
            await exchange.settle(outcome, estimated=estimated, error=stage.error)
            yield LastBlock(held + stage.failure(stage.error))
            return
        exchange.route_answered()
        if ids := stage.minted():
            await exchange.services.minted.remember(exchange.inbound.key.account_id, offer.provider, ids)
        await exchange.settle_answer(estimated=estimated)
        yield LastBlock(held + stage.tail(usage, estimated=estimated))
    except (GeneratorExit, asyncio.CancelledError):
        answer.abort()
        if not exchange.settled:
            exchange.services.settlements.spawn(_settle_gone(exchange, stage, exchange.begun()))
        raise
    finally:
        if not exchange.settled and stage.error is not None:
            exchange.release()
        await answer.close()


async def _rest(blocks: AsyncIterator[bytes], stage: Stage) -> bytes:
    """What the upstream still says after the end of its answer, given a moment to say it."""
    out = b""
    try:
        async with asyncio.timeout(_GRACE_SECONDS):
            async for block in blocks:
                out += stage.feed(block)
    except (TimeoutError, UpstreamError):
        pass
    return out


async def _settle_gone(exchange: Exchange, stage: Stage, begun: bool) -> None:
    """The client left: what was used until then is billed, as reported or as estimated."""
    _, estimated = await _used(exchange, stage, cut=True)
    await exchange.settle_cut(begun=begun, estimated=estimated)


async def _used(exchange: Exchange, stage: Stage, *, cut: bool) -> tuple[dict[str, Any], bool]:
    """What the answer used, noted for its row, and whether it was counted here: where nothing was told, or only what held before
    the answer was cut off. A messages stream begins with one output token and tells the others at its end."""
    usage = stage.usage()
    exchange.told_tier = stage.tier()
    estimated = False
    if not usage:
        usage, estimated = await stage.estimate(), True
    elif cut and not stage.counted:
        received = await stage.estimate()
        if received["output"] > usage.get("output", 0):
            usage, estimated = {**received, **usage, "output": received["output"]}, True
    exchange.hub_usage = usage
    return usage, estimated


_WATCHED = {
    "messages": (b'"message_',),
    "responses": (b'"response.created"', b'"response.completed"', b'"response.incomplete"', b'"response.failed"'),
}
"""Marks of the events that hold usage, state or the end, by protocol."""


class _Watch:
    """What the events of the messages and responses formats tell: usage, state that was handed out, the end."""

    __slots__ = ("message", "minted", "response", "tap")

    def __init__(self, tap: Tap) -> None:
        self.tap = tap
        self.minted: list[str] = []
        self.response: dict[str, Any] | None = None
        self.message: dict[str, Any] | None = None

    def see(self, name: str | None, event: dict[str, Any]) -> bool:
        """Take one event; True when it ends the answer."""
        self.tap.feed(event, name)
        for holder in (event.get("message"), event.get("delta")):
            if isinstance(holder, dict) and "container" in holder:
                self.minted.extend(minted_ids(holder))
        if isinstance(event.get("response"), dict):
            self.response = event["response"]
        elif isinstance(event.get("message"), dict):
            self.message = event["message"]
        return is_last(event.get("type"))


class _Native:
    """A native stream as a stage: the bytes pass, the tap reads usage. No part holds the whole, so that it is freed at once."""

    def __init__(self, exchange: Exchange, offer: Offer) -> None:
        self._exchange = exchange
        self._tap = Tap(offer.mapping)
        self._dialect = exchange.inbound.dialect
        self._offer = offer
        self._watch = _Watch(self._tap)
        self._left = b""
        judge = partial(judge_chunk, offer)
        marks = offer.errors.event_marks
        self._inner: NativeStream = ChatStream(judge, marks) if self._dialect == "chat" else self._plain(judge, marks)
        self._reframed = Reframed(offer, self._dialect) if converts_frames(offer) else None

    def _plain(self, judge: Judge, marks: Marks) -> PlainStream:
        untold = Untold(partial(self._told_usage, self._dialect), self._exchange.admitted_tokens, lambda: bool(self._tap.usage))
        return PlainStream(judge, marks, _WATCHED[self._dialect], self._watch.see, untold)

    @property
    def error(self) -> UpstreamError | None:
        return self._inner.error

    @error.setter
    def error(self, value: UpstreamError | None) -> None:
        self._inner.error = value

    @property
    def ended(self) -> bool:
        return self._inner.ended

    def feed(self, block: bytes) -> bytes:
        out = self._inner.feed(self._reframed.feed(block) if self._reframed is not None else block)
        if out and (self._dialect != "responses" or b'"sequence_number"' in out):
            self._left = out
        return out

    def close(self) -> bytes:
        out = self._inner.feed(rest) if self._reframed is not None and (rest := self._reframed.finish()) else b""
        out += self._inner.close()
        if out:
            self._left = out
        return out

    def usage(self) -> dict[str, Any] | None:
        if self._inner.usage is not None:
            self._tap.feed({"choices": [], "usage": self._inner.usage})
        elif isinstance(self._inner, ChatStream) and self._inner.elsewhere is not None:
            self._tap.feed({**self._inner.elsewhere, "choices": []})
        if self._offer.usage_read is not None and self._inner.usage is not None:
            read: dict[str, Any] | None = self._offer.usage_read({"usage": self._inner.usage})
            return read
        return self._tap.usage or None

    @property
    def counted(self) -> bool:
        return isinstance(self._inner, ChatStream) or self._tap.stop is not None

    def tier(self) -> str | None:
        if isinstance(self._inner, ChatStream):
            return self._inner.tier
        return told_tier(self._watch.response or self._watch.message or {})

    def minted(self) -> list[str]:
        if self._dialect == "responses":
            return minted_ids(self._watch.response or {})
        if keeps_thread(self._dialect, self._exchange.body) and self._watch.message is not None:
            return [*self._watch.minted, *minted_ids(self._watch.message, thread=True)]
        return self._watch.minted

    async def estimate(self) -> dict[str, Any]:
        inner = self._inner
        return await estimate_usage(self._exchange, texts_of_events(self._exchange, inner.received()), scale=inner.kept.scale)

    def tail(self, hub_usage: dict[str, Any], *, estimated: bool) -> bytes:
        usage = self._inner.usage
        if usage is None and hub_usage and (estimated or self._dialect == "chat"):
            usage = self._told_usage(self._dialect, hub_usage)
        return self._inner.tail(usage)

    def failure(self, error: TollgateError) -> bytes:
        response = self._watch.response
        if response is not None and self._exchange.hub_usage:
            response = {**response, "usage": self._told_usage("responses", self._exchange.hub_usage)}
        apart = b"" if not self._left or self._left.endswith((b"\n\n", b"\r\r", b"\n\r\n")) else b"\n\n"
        return apart + stream_error_events(self._dialect, error, sequence=last_sequence(self._left) + 1, response=response)

    def _told_usage(self, protocol: str, hub_usage: dict[str, Any]) -> Any:
        target = self._exchange.services.runtime.current.mappings[protocol]
        return response_from_hub(target, {"parts": [], "usage": hub_usage}, Context(model={}, can={})).get("usage")
