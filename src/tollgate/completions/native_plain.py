"""A native stream of messages or responses: every byte passes, the events that end the answer are held back, and the
few events with usage or state are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import orjson

from tollgate.completions.estimate import texts_of_events
from tollgate.completions.exchange import Exchange
from tollgate.completions.judging import judge_chunk, without_secrets
from tollgate.completions.minters import encrypted_in
from tollgate.completions.missing_usage import MissingUsage, filled, written_usage
from tollgate.completions.native import parsed_event, valid_utf8
from tollgate.completions.native_stage import NativeStage
from tollgate.completions.native_stream import Judge, Marks, NativeStream
from tollgate.completions.state_ids import keeps_thread, minted_ids
from tollgate.completions.usage_rule import UsageRule
from tollgate.completions.whole import reported_tier
from tollgate.errors import TollgateError, UpstreamError
from tollgate.mapping import Tap
from tollgate.public_errors import stream_error_events
from tollgate.routing import Offer
from tollgate.sse import Event, encode
from tollgate.wire import END_EVENTS, is_last

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
_SEQUENCE = re.compile(rb'"sequence_number"\s*:\s*([0-9]{1,15})(?![0-9])')


class PlainStream(NativeStream):
    """A messages or responses stream: every byte passes; the events that end the answer are held back.

    Events that contain one of the `watched` marks are parsed and given to `watch`, which returns True for the one that
    ends the answer. `missing_usage` adds usage where the provider left it out; `missing_end` makes the last event where
    a complete answer came without it.
    """

    def __init__(
        self,
        judge: Judge,
        marks: Marks,
        watched: tuple[bytes, ...],
        watch: Callable[[str | None, dict[str, Any]], bool],
        missing_usage: MissingUsage,
        missing_end: Callable[[], bytes] = bytes,
    ) -> None:
        super().__init__(judge, None if marks is None else (*watched, *marks))
        self._watch = watch
        self._missing_usage = missing_usage
        self._missing_end = missing_end
        self._held: list[bytes] = []
        self._lacking: tuple[str | None, dict[str, Any]] | None = None
        """The first event held back, if it lacks usage: its name and its data."""

    def _rest(self) -> bytes:
        """Also adds the last event, where the answer gave its stop reason but that event never came."""
        out = super()._rest()
        if not self.ended and self.error is None and (end := self._missing_end()):
            self._held.append(end)
            self.ended = True
        return out

    def tail(self, usage: dict[str, Any] | None) -> bytes:
        """The events held back, with `usage` added where it is missing."""
        if self._lacking is not None and usage is not None:
            name, event = self._lacking
            self._held[0] = encode(orjson.dumps(filled(event, usage)), name)
        return b"".join(self._held)

    def _event(self, event: Event, out: list[bytes]) -> None:
        if self.ended:
            self._held.append(valid_utf8(event.raw))
            return
        parsed = parsed_event(event.data) if event.data else None
        if isinstance(parsed, dict):
            self.error = self._judge(parsed)
            if self.error is not None:
                return
            self.ended = self._watch(event.name, parsed)
            begun = self._missing_usage.begun(parsed)
            if begun is not None:
                out.append(encode(orjson.dumps(begun), event.name))
                return
            if not self._held and self._missing_usage.lacks(parsed):
                self._lacking = (event.name, parsed)
        (self._held if self.ended or self._lacking is not None else out).append(valid_utf8(event.raw))


def last_sequence(sent: bytes) -> int:
    """The `sequence_number` of the last event in `sent`; -1 when it has none, or an impossibly large one."""
    at = sent.rfind(b'"sequence_number"')
    found = _SEQUENCE.match(sent, at) if at >= 0 else None
    return int(found.group(1)) if found else -1


class NativePlain(NativeStage):
    """The stage for a messages or responses stream."""

    _inner: PlainStream

    def __init__(self, exchange: Exchange, offer: Offer) -> None:
        self._tap = tap = Tap(offer.mapping)
        self._watch = watch = _Watch(tap, UsageRule(offer.usage.read) if offer.usage.read is not None else None)
        dialect = exchange.inbound.dialect
        missing_usage = MissingUsage(
            partial(written_usage, exchange), exchange.admitted_tokens, watch.has_usage, exchange.asked_model
        )

        def judge(event: dict[str, Any]) -> UpstreamError | None:
            error = judge_chunk(offer, event)
            if error is not None:
                watch.count(event)
            return error

        def missing_end() -> bytes:
            name, data = END_EVENTS.get(dialect, ("", b""))
            return encode(data, name) if data and tap.stop is not None else b""

        marks = offer.errors.event_marks
        super().__init__(
            exchange, offer, PlainStream(judge, marks, _WATCHED[dialect], watch.see, missing_usage, missing_end)
        )

    @property
    def counted(self) -> bool:
        return self._tap.stop is not None or self.ended

    def _has_content(self) -> bool:
        ending = self._tap.error or self._tap.stop
        return ending is not None or bool(texts_of_events(self._exchange, self._inner.received()))

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
        return out if exchange.attempt.failure is None else without_secrets(out, self._offer)

    def failure(self, error: TollgateError) -> bytes:
        response = self._watch.response
        if response is not None and self._exchange.hub_usage:
            response = {**response, "usage": written_usage(self._exchange, self._exchange.hub_usage)}
        return self._apart() + stream_error_events(
            self._dialect, error, sequence=last_sequence(self._sent) + 1, response=response
        )


class _Watch:
    """Reads events of the messages and responses formats: usage, ids of provider state, the end of the answer."""

    __slots__ = ("encrypted", "message", "minted", "response", "rule", "tap")

    def __init__(self, tap: Tap, rule: UsageRule | None) -> None:
        self.tap = tap
        self.rule = rule
        self.minted: list[str] = []
        self.encrypted: dict[str, str] = {}
        self.response: dict[str, Any] | None = None
        self.message: dict[str, Any] | None = None

    def count(self, event: dict[str, Any], name: str | None = None) -> None:
        """Note the usage in an event."""
        self.tap.feed(event, name)
        if self.rule is not None:
            self.rule.note(event)

    def has_usage(self) -> bool:
        """Whether the provider has reported usage that is final."""
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
            self.encrypted |= encrypted_in(self.response.get("output"))  # may differ from the item's own event
        elif event.get("type") == "response.output_item.done":  # the value in the item's first event is not final
            self.encrypted |= encrypted_in([event.get("item")])
        elif isinstance(event.get("message"), dict):
            self.message = event["message"]
        return is_last(event.get("type"))
