"""A native stream as a stage of the pump: the bytes pass (`native_stream.py`); usage, tier and state are read as the
format tells them."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

from tollgate.completions.attempt import judge_chunk, reported_failure, unfit_answer, without_secrets
from tollgate.completions.chat_chunks import says_nothing
from tollgate.completions.estimate import estimate_usage, texts_of_events
from tollgate.completions.exchange import Exchange
from tollgate.completions.minters import encrypted_in
from tollgate.completions.missing_usage import MissingUsage, written_usage
from tollgate.completions.native_stream import ChatStream, NativeStream, PlainStream, last_sequence
from tollgate.completions.opening import answers, opening_of
from tollgate.completions.route_events import Reframed, converts_frames
from tollgate.completions.state_ids import keeps_thread, may_mint, minted_ids
from tollgate.completions.usage_rule import UsageRule
from tollgate.completions.whole import reported_tier
from tollgate.errors import AnswerLost, TollgateError, UpstreamError
from tollgate.mapping import Tap, tap_usage
from tollgate.mapping.streams.run import ENDED_EARLY
from tollgate.public_errors import stream_error_events
from tollgate.routing import Offer
from tollgate.sse import BLANK, encode
from tollgate.wire import ENDS, ends_unusually, is_last

_WATCHED = {
    "messages": (b'"message_', b'"web_search_tool_result"'),
    "responses": (
        b'"response.created"',
        b'"response.completed"',
        b'"response.incomplete"',
        b'"response.failed"',
        b'"web_search_call"',
        b'"encrypted_content"',
    ),
}
"""Marks of the events that hold usage, state or the end, by protocol."""


def native_stage(exchange: Exchange, offer: Offer) -> NativeChat | NativePlain:
    """The stage for a route that speaks the client's own format."""
    return NativeChat(exchange, offer) if exchange.inbound.dialect == "chat" else NativePlain(exchange, offer)


class _Native:
    """What both have in common. No part holds the whole, so that it is freed at once."""

    def __init__(self, exchange: Exchange, offer: Offer, inner: NativeStream) -> None:
        self._exchange = exchange
        self._offer = offer
        self._dialect = exchange.inbound.dialect
        self._inner = inner
        self._sent = b""
        """The last bytes that left for the client; of a responses stream the last with a `sequence_number`."""
        self.begun = False
        self._opening = opening_of(exchange, offer)
        self._reframed = Reframed(offer, self._dialect) if converts_frames(offer) else None

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
        if self._reframed is None:
            out = self._inner.feed(block)
        else:
            out = self._inner.feed(self._reframed.feed(block))
            self._note_unfit()
        if out and (self._dialect != "responses" or b'"sequence_number"' in out):
            self._sent = out
        if not self.begun and out:
            self.begun = answers(out, self._opening)
        return out

    def close(self) -> bytes:
        out = self._inner.feed(rest) if self._reframed is not None and (rest := self._reframed.finish()) else b""
        self._note_unfit()
        out += self._inner.close()
        if out:
            self._sent = out
            self.begun = self.begun or answers(out, self._opening)
        if self.error is None and not self._says_anything():
            self.error = AnswerLost(ENDED_EARLY)
        return out

    def _says_anything(self) -> bool:
        """Whether an answer that has ended holds content, or says why it stopped: an end alone ends no answer."""
        raise NotImplementedError

    def _ending(self) -> Tap | None:
        """What the mapping reads of the answer's end; None where that cannot tell a failure."""
        raise NotImplementedError

    def reported_error(self) -> UpstreamError | None:
        """An answer may end by saying that it failed: it passes as it came, unless another route is left."""
        tap = self._ending()
        if tap is None or tap.error is None and tap.stop != "error":
            return None
        return reported_failure(self._offer, tap.error)

    def _note_unfit(self) -> None:
        """An event that its file's edits could not work with is the end of what can be read of the answer."""
        unfit = self._reframed.unfit if self._reframed is not None else None
        if unfit is not None and self.error is None:
            self.error = unfit_answer(self._offer, unfit)

    async def estimate(self) -> dict[str, Any]:
        inner = self._inner
        return await estimate_usage(
            self._exchange, texts_of_events(self._exchange, inner.received()), scale=inner.kept.scale
        )

    def failure(self, error: TollgateError) -> bytes:
        return self._apart() + stream_error_events(self._dialect, error)

    def encrypted(self) -> Collection[str]:
        return ()

    def _apart(self) -> bytes:
        """The blank line that ends what was sent so far, if it lacks one, before an event of our own."""
        return b"" if not self._sent or self._sent.endswith(BLANK) else b"\n\n"


class NativeChat(_Native):
    """A chat stream: its usage is one object, wherever it stood."""

    _inner: ChatStream

    def __init__(self, exchange: Exchange, offer: Offer) -> None:
        self._rule = UsageRule(offer.usage.read) if offer.usage.apart and offer.usage.read is not None else None
        observe = self._rule.note if self._rule is not None else None
        super().__init__(exchange, offer, ChatStream(partial(judge_chunk, offer), offer.errors.event_marks, observe))

    @property
    def counted(self) -> bool:
        return self._inner.finished

    def usage(self) -> dict[str, Any] | None:
        if self._rule is not None:
            return self._rule.usage or None
        reported = self._inner.usage or self._inner.overlooked(self._sent)
        if reported is not None:
            if self._offer.usage.read is not None:
                read: dict[str, Any] | None = self._offer.usage.read({"usage": reported})
                return read
            counted = {"choices": [{}], "usage": reported}  # without a choice there is no answer that usage counts
            return tap_usage(self._offer.mapping, counted) or None
        if self._inner.elsewhere is None:
            return None
        tap = Tap(self._offer.mapping)
        told_in = self._inner.elsewhere
        choices = [
            {name: value for name, value in choice.items() if name != "delta"}  # a choice may tell it, what it says not
            for choice in told_in.get("choices") or ()
            if isinstance(choice, dict)
        ]
        tap.feed({**told_in, "choices": choices})
        return tap.usage or None

    def tier(self) -> str | None:
        return self._inner.tier

    def minted(self) -> list[str]:
        if not may_mint("chat", self._exchange.body):
            return []
        return [each for event in self._inner.received() if isinstance(event, dict) for each in minted_ids(event)]

    def _says_anything(self) -> bool:
        return self._inner.finish is not None or not all(map(says_nothing, self._inner.received()))

    def _ending(self) -> Tap | None:
        finish = self._inner.finish
        if finish is None or not ends_unusually(finish):
            return None
        tap = Tap(self._offer.mapping)
        tap.feed(finish)
        return tap

    def tail(self) -> bytes:
        usage, hub_usage = self._inner.usage, self._exchange.reported_usage()
        out = self._inner.tail(written_usage(self._exchange, hub_usage) if usage is None and hub_usage else usage)
        return out if self._exchange.failure is None else without_secrets(out, self._offer)


class NativePlain(_Native):
    """A messages or responses stream: a tap reads the few events that tell something."""

    _inner: PlainStream

    def __init__(self, exchange: Exchange, offer: Offer) -> None:
        self._tap = tap = Tap(offer.mapping)
        self._watch = watch = _Watch(tap, UsageRule(offer.usage.read) if offer.usage.read is not None else None)
        dialect = exchange.inbound.dialect
        missing_usage = MissingUsage(
            partial(written_usage, exchange), exchange.admitted_tokens, watch.tells_usage, exchange.asked_model
        )

        def judge(event: dict[str, Any]) -> UpstreamError | None:
            error = judge_chunk(offer, event)
            if error is not None:
                watch.count(event)
            return error

        def missing_end() -> bytes:
            name, data = ENDS.get(dialect, ("", b""))
            return encode(data, name) if data and tap.stop is not None else b""

        marks = offer.errors.event_marks
        super().__init__(
            exchange, offer, PlainStream(judge, marks, _WATCHED[dialect], watch.see, missing_usage, missing_end)
        )

    @property
    def counted(self) -> bool:
        return self._tap.stop is not None or self.ended

    def _says_anything(self) -> bool:
        told = self._tap.error or self._tap.stop
        return told is not None or bool(texts_of_events(self._exchange, self._inner.received()))

    def _ending(self) -> Tap:
        return self._tap

    def usage(self) -> dict[str, Any] | None:
        rule = self._watch.rule
        return rule and rule.usage or self._tap.usage or None

    def tier(self) -> str | None:
        return reported_tier(self._watch.response or self._watch.message or {})

    def minted(self) -> list[str]:
        if self._dialect == "responses":
            return minted_ids(self._watch.response or {})
        if keeps_thread(self._dialect, self._exchange.body) and self._watch.message is not None:
            return [*self._watch.minted, *minted_ids(self._watch.message, thread=True)]
        return self._watch.minted

    def encrypted(self) -> Collection[str]:
        return self._watch.encrypted

    def tail(self) -> bytes:
        exchange = self._exchange
        counted = exchange.hub_usage if exchange.estimated else None
        out = self._inner.tail(written_usage(exchange, counted) if counted else None)
        return out if exchange.failure is None else without_secrets(out, self._offer)

    def failure(self, error: TollgateError) -> bytes:
        response = self._watch.response
        if response is not None and self._exchange.hub_usage:
            response = {**response, "usage": written_usage(self._exchange, self._exchange.hub_usage)}
        return self._apart() + stream_error_events(
            self._dialect, error, sequence=last_sequence(self._sent) + 1, response=response
        )


class _Watch:
    """What the events of the messages and responses formats tell: usage, state that was handed out, the end."""

    __slots__ = ("encrypted", "message", "minted", "response", "rule", "tap")

    def __init__(self, tap: Tap, rule: UsageRule | None) -> None:
        self.tap = tap
        self.rule = rule
        self.minted: list[str] = []
        self.encrypted: dict[str, str] = {}
        self.response: dict[str, Any] | None = None
        self.message: dict[str, Any] | None = None

    def count(self, event: dict[str, Any], name: str | None = None) -> None:
        """Note what an event tells of usage."""
        self.tap.feed(event, name)
        if self.rule is not None:
            self.rule.note(event)

    def tells_usage(self) -> bool:
        """Whether the provider has told usage that holds to the end."""
        if self.rule is not None and self.rule.usage:
            return True
        return bool(self.tap.usage.keys() - {"searches"}) and not self.tap.usage.get("early")

    def see(self, name: str | None, event: dict[str, Any]) -> bool:
        """Take one event; True when it ends the answer."""
        self.count(event, name)
        for holder in (event.get("message"), event.get("delta")):
            if isinstance(holder, dict) and "container" in holder:
                self.minted.extend(minted_ids(holder))
        if isinstance(event.get("response"), dict):
            self.response = event["response"]
            self.encrypted |= encrypted_in(self.response.get("output"))  # not what the item's own event said
        elif event.get("type") == "response.output_item.done":  # what was said when it began is of no use
            self.encrypted |= encrypted_in([event.get("item")])
        elif isinstance(event.get("message"), dict):
            self.message = event["message"]
        return is_last(event.get("type"))
