"""A native stream of messages or responses: every byte passes, the events that end the answer are held back, and the
few events with usage or state are read."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import orjson

from tollgate.completions.estimate import texts_of_events
from tollgate.completions.judging import judge_chunk, without_secrets
from tollgate.completions.minters import encrypted_in
from tollgate.completions.missing_usage import filled, filled_start, lacks_usage, written_usage
from tollgate.completions.native import parsed_event, valid_utf8
from tollgate.completions.native_stream import NativeStream
from tollgate.completions.state_ids import keeps_thread, minted_ids
from tollgate.completions.usage_rule import UsageRule
from tollgate.completions.whole import reported_tier
from tollgate.errors import TollgateError, UpstreamFailed
from tollgate.mapping import Tap
from tollgate.public_errors import stream_error_events
from tollgate.sse import Event, encode
from tollgate.wire import END_EVENTS, is_last

if TYPE_CHECKING:
    from tollgate.completions.exchange import Exchange
    from tollgate.routing import Offer

_WATCHED = {
    "messages": (b'"message_', b'"content_block_start"'),
    "responses": (
        b'"response.created"',
        b'"response.completed"',
        b'"response.incomplete"',
        b'"response.failed"',
        b'"web_search_call"',
        b'"encrypted_content"',
    ),
}
"""Marks of the events that hold usage, state or the end, by protocol; in messages, also of those that begin a block:
what a search or a refusal costs depends on them."""
_CONTENT = ("content_block_start", "content_block_delta")
"""The types of events with content, in messages."""
_SEQUENCE = re.compile(rb'"sequence_number"\s*:\s*([0-9]{1,15})(?![0-9])')


def last_sequence(sent: bytes) -> int:
    """The `sequence_number` of the last event in `sent`; -1 when it has none, or an impossibly large one."""
    at = sent.rfind(b'"sequence_number"')
    found = _SEQUENCE.match(sent, at) if at >= 0 else None
    return int(found.group(1)) if found else -1


class NativePlain(NativeStream):
    """The stage for a messages or responses stream. Every byte passes but a start that is repeated; the events from the
    first one that ends the answer, or lacks its final usage, are held back."""

    def __init__(self, exchange: Exchange, offer: Offer) -> None:
        marks = offer.errors.event_marks
        if offer.usage.read is not None and offer.usage.apart:
            marks = None  # the rule may read any event
        super().__init__(exchange, offer, None if marks is None else (*_WATCHED[exchange.inbound.dialect], *marks))
        self._tap = Tap(offer.mapping)
        self._rule = UsageRule(offer.usage.read) if offer.usage.read is not None else None
        self._held: list[bytes] = []
        self._lacking: tuple[str | None, dict[str, Any]] | None = None
        """The first event held back, if it lacks usage: its name and its data."""
        self._minted: list[str] = []
        self._encrypted: dict[str, str] = {}
        self._response: dict[str, Any] | None = None
        self._message: dict[str, Any] | None = None

    @property
    def counted(self) -> bool:
        return self._tap.stop is not None or self.ended

    def usage(self) -> dict[str, Any] | None:
        return self._rule and self._rule.usage or self._tap.usage or None

    def tier(self) -> str | None:
        return reported_tier(self._response or self._message or {})

    def minted(self) -> list[str]:
        if self._dialect == "responses":
            return minted_ids(self._response or {})
        if keeps_thread(self._dialect, self._exchange.body) and self._message is not None:
            return [*self._minted, *minted_ids(self._message, thread=True)]
        return self._minted

    @property
    def answered(self) -> bool:
        return self._tap.stop is not None

    def encrypted(self) -> Collection[str]:
        return self._encrypted

    def tail(self) -> bytes:
        exchange = self._exchange
        if self._lacking is not None and (usage := exchange.client_usage()):
            name, event = self._lacking
            self._held[0] = encode(orjson.dumps(filled(event, written_usage(exchange, usage))), name)
        out = b"".join(self._held)
        return out if exchange.attempt.failure is None else without_secrets(out, self._offer)

    def error_events(self, error: TollgateError) -> bytes:
        response = self._response
        if response is not None and self._exchange.hub_usage:
            response = {**response, "usage": written_usage(self._exchange, self._exchange.hub_usage)}
        return self._apart() + stream_error_events(
            self._dialect, error, sequence=last_sequence(self._sent) + 1, response=response
        )

    def _is_complete(self) -> bool:
        tap = self._tap
        return self.ended and (
            bool(tap.error) or tap.stop is not None or bool(texts_of_events(self._offer.mapping, self.received()))
        )

    def _ending(self) -> Tap:
        return self._tap

    def _rest(self) -> bytes:
        """Also adds the last event, where the answer gave its stop reason but that event never came."""
        out = super()._rest()
        last = END_EVENTS.get(self._dialect)
        if last is not None and not self.ended and self.error is None and self._tap.stop is not None:
            name, data = last
            self._held.append(encode(data, name))
            self.ended = True
        return out

    def _event(self, event: Event, out: list[bytes]) -> None:
        parsed = parsed_event(event.data) if event.data else None
        if event.name is None and self._dialect == "messages" and isinstance(parsed, dict):
            event = self._named(event, parsed.get("type"))
        if self.ended:
            if self._tap.stop == "error" and self._tap.error is None and event.data:
                self._tap.feed(parsed, event.name)  # the reason may follow the event of the failure
            self._held.append(valid_utf8(event.raw))
            return
        if isinstance(parsed, dict):
            if self._message is not None and parsed.get("type") == "message_start":
                self.error = self._second_start(parsed.get("message"))
                return
            self._count(event.name, parsed)
            self.error = judge_chunk(self._offer, parsed)
            if self.error is not None:
                return
            self._note_state(parsed)
            self.ended = is_last(parsed.get("type"))
            started = filled_start(parsed, self._exchange)
            if started is not parsed:
                out.append(encode(orjson.dumps(started), event.name))
                return
            if self._lacking is not None and parsed.get("type") in _CONTENT:  # it was not the end
                out += self._held
                self._held.clear()
                self._lacking = None
            if not self._held and lacks_usage(parsed, self._has_usage):
                self._lacking = (event.name, parsed)
                self._marks = None  # what follows waits behind it, so that the order stays
        (self._held if self.ended or self._lacking is not None else out).append(valid_utf8(event.raw))

    def _named(self, event: Event, kind: object) -> Event:
        """An event of messages without a name, with the one of its type: Anthropic's SDKs ignore nameless events
        (CLIENTS). The events that follow need theirs, too, so each of them is read."""
        if not isinstance(kind, str) or not kind.isprintable():
            return event
        self._marks = None
        # not put before the raw bytes, which may begin with a byte order mark, or have an empty name that would win
        return event._replace(name=kind, raw=encode(event.data, kind))

    def _second_start(self, message: Any) -> UpstreamFailed | None:
        """The error where a message begins within another one: a proxy asked again, and added the second answer to the
        first. The same start sent again, as by some servers, is none, and clients must not get it."""
        first = self._message or {}
        if isinstance(message, dict) and message.get("id") == first.get("id"):
            return None
        return UpstreamFailed("another message begins within the first")

    def _count(self, name: str | None, event: dict[str, Any]) -> None:
        """Note the usage in an event, also in one that reports an error."""
        self._tap.feed(event, name)
        if self._rule is not None:
            self._rule.note(event)

    def _has_usage(self) -> bool:
        """Whether the client got the final count of the output in an earlier event."""
        return self._tap.usage.get("output") is not None and not self._tap.usage.get("early")

    def _note_state(self, event: dict[str, Any]) -> None:
        """Note the ids of provider state in an event, and the encrypted values."""
        for holder in (event.get("message"), event.get("delta")):
            if isinstance(holder, dict) and "container" in holder:
                self._minted.extend(minted_ids(holder))
        if isinstance(event.get("response"), dict):
            self._response = event["response"]
            self._encrypted |= encrypted_in(self._response.get("output"))  # may differ from the item's own event
        elif event.get("type") == "response.output_item.done":  # the value in the item's first event is not final
            self._encrypted |= encrypted_in([event.get("item")])
        elif isinstance(event.get("message"), dict):
            self._message = event["message"]
