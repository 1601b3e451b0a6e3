"""A stream converted between protocols: the route's events in, the client's events out."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import orjson

from tollgate.completions.estimate import estimate_usage, texts_of_parts
from tollgate.completions.judging import judge_chunk, reported_failure, unfit_answer
from tollgate.completions.kept_items import keep_streamed_items
from tollgate.completions.kept_thoughts import keep_thoughts
from tollgate.completions.opening import is_opening, opening_of
from tollgate.completions.repeated_deltas import take_repeated_deltas
from tollgate.completions.route_events import Received, RouteEvents
from tollgate.completions.stage import Stage
from tollgate.completions.usage_rule import UsageRule
from tollgate.errors import TollgateError, UpstreamFailed, UpstreamRejected
from tollgate.mapping import Out, StreamConverter, Tap
from tollgate.mapping.streams.run import ENDED_EARLY
from tollgate.public_errors import public_message
from tollgate.sse import escape_line_breaks
from tollgate.wire import is_last

if TYPE_CHECKING:
    from tollgate.completions.exchange import Exchange
    from tollgate.routing import Offer

log = logging.getLogger("tollgate.completions")

_FEW = 6
"""Events converted one by one before the last of them is tried as a pattern for the following ones: most answers begin
with about four different events."""
_MOST_RECEIVED = 256 * 1024 * 1024
"""Most bytes of a stream. The converter keeps the answer's text, because the last event of some formats repeats it. A
million tokens, one event each, are less than this."""


class ConvertedStream(Stage):
    """The stage for a route of another protocol. The converter knows which parts are open; this class moves bytes.

    A converted answer holds no ids of provider state, its encrypted values are sealed with their provider's name, and a
    failure is never passed on unchanged.
    """

    def __init__(self, exchange: Exchange, offer: Offer) -> None:
        context = exchange.attempt.context
        assert context is not None
        self._exchange = exchange
        self._offer = offer
        self._events = RouteEvents(offer, offer.mapping.stream_names)
        self._converter = StreamConverter(
            offer.mapping, exchange.client_format, context, frames=True, defer_errors=True, in_text=offer.in_text
        )
        self._rule = UsageRule(offer.usage.read) if offer.usage.read is not None else None
        self._plain = self._events.plain and self._rule is None
        self._received = 0
        self._received_any = False
        self._opening = opening_of(exchange, offer)

    def feed(self, block: bytes) -> bytes:
        events, converter = self._events, self._converter
        began = converter.started
        self._received += len(block)
        if self._received > _MOST_RECEIVED:
            self.error = UpstreamFailed(f"the stream exceeds {_MOST_RECEIVED} bytes")
        out = (
            self._take_alike(block)
            if self._plain and converter.follows and events.is_quiet(block)
            else self._take(events.feed(block))
        )
        self._end_at_done()
        return out if began else self._if_answered(out)

    def _close(self) -> bytes:
        converter = self._converter
        began = converter.started
        out = self._take(self._events.finish())
        self._end_at_done()  # `[DONE]` may have come without its blank line
        if converter.unmatched:
            self._exchange.services.metrics.count_unmatched(self._offer.protocol, converter.unmatched)
        if self.error is None and converter.stop is None:
            self.error = UpstreamFailed(self._ended_early())
        elif self.error is None and converter.stop == "error":
            self.error = reported_failure(self._offer, None)
        elif self.error is None and self._events.not_json and not converter.parts():
            log.warning(
                "provider %s: an answer is empty, and events of its stream (%d) are not JSON, which `framing: %s` "
                "leaves out (`sse-text` and `lines` read text)",
                self._offer.provider,
                self._events.not_json,
                self._offer.framing,
            )
        return out if began else self._if_answered(out)

    def _end_at_done(self) -> None:
        """End the answer at `[DONE]` if no event before it gave a stop reason."""
        if self._events.done and not self.ended:
            self._converter.feed("[DONE]")
            self.ended = True
            if self._converter.stop == "error" and not self._converter.parts():
                self.error = reported_failure(self._offer, None)

    def _ended_early(self) -> str:
        """The log's words for a stream that broke off. A wrong `framing` or missing rules in the provider's file look
        the same, so they are named."""
        if not self._received_any:
            return f"{ENDED_EARLY}: there is no event in what it sent, read with `framing: {self._offer.framing}`"
        unmatched = ", ".join(list(self._converter.unmatched)[:5])
        return (
            f"{ENDED_EARLY}: `{self._offer.mapping.name}` has no rule for its events {unmatched[:100]!r}"
            if unmatched
            else ENDED_EARLY
        )

    def usage(self) -> dict[str, Any] | None:
        return self._rule and self._rule.usage or self._converter.usage or None

    @property
    def counted(self) -> bool:
        return self._converter.stop is not None  # every format sends its usage with the end

    @property
    def answered(self) -> bool:
        return self._converter.stop not in (None, "error")

    def tier(self) -> str | None:
        tier = self._converter.response_field("service_tier")
        return tier if isinstance(tier, str) else None

    async def estimate(self) -> dict[str, Any]:
        return await estimate_usage(self._exchange, texts_of_parts(self._converter.parts()))

    def tail(self) -> bytes:
        keep_thoughts(self._exchange, self._offer, self._converter.parts())
        self._converter.usage = self._exchange.client_usage()
        ending = self._converter.finish()
        keep_streamed_items(self._exchange, ending)
        return encode_events(ending)

    def whole(self) -> dict[str, Any]:
        """The whole answer as a hub response, once the stream has ended."""
        keep_thoughts(self._exchange, self._offer, self._converter.parts())
        self._converter.finish()
        return self._converter.hub

    def error_events(self, error: TollgateError) -> bytes:
        if self._exchange.hub_usage:
            self._converter.usage = self._exchange.client_usage()
        kind = "overloaded_error" if getattr(error, "overloaded", False) else None
        if isinstance(error, UpstreamRejected):
            kind = "invalid_request_error"  # clients repeat a request after any other
        return encode_events(self._converter.fail(public_message(error), kind))

    def _answers(self, events: list[Received], written: bool) -> bool:
        """Whether `events` hold content of the answer; `written`: they gave events for the client."""
        if self.error is not None or self._converter.stop == "error":
            return bool(self._converter.parts())
        opening = self._opening
        return written if opening is None else any(not is_opening(event, opening) for _, event, _ in events)

    def _count_last(self, event: dict[str, Any], name: str | None) -> None:
        """Note the usage in an event that reports an error: it is billed like any other reported usage."""
        tap = Tap(self._offer.mapping)
        tap.feed(event, name)
        self._converter.usage = {**self._converter.usage, **tap.usage}
        if self._rule is not None:
            self._rule.note(event)

    def _if_answered(self, out: bytes) -> bytes:
        """These first events, or none where the upstream failed before any answer: another route may still give one, so
        the client must not be told of an error yet."""
        return out if self._converter.error is None or self._converter.parts() else b""

    def _take_alike(self, block: bytes) -> bytes:
        """The same result as `_take` for a block's events, with runs of similar events converted together
        (`repeated_deltas.py`): a few are converted one by one, the last of them is tried as the pattern for the
        following ones, and so on."""
        out: list[bytes] = []
        events, converter = self._events, self._converter
        at, end = 0, len(block)
        while at < end and self.error is None:
            if not events.pending:
                converted, at = take_repeated_deltas(converter, block, at)
                if converted:
                    out.append(escape_line_breaks(converted))
                    continue
            *few, rest = block[at:].split(b"\n\n", _FEW if converter.follows else 0)
            until = end - len(rest) if len(few) == _FEW else end
            out.append(self._take(events.feed(block[at:until])))
            if events.unparsed:
                converter.follow(*events.unparsed[-1])
            at = until
        return b"".join(out)

    def _take(self, events: list[Received]) -> bytes:
        if self.error is not None:
            return b""
        self._received_any = self._received_any or bool(events)
        out: list[Out] = []
        converter, rule = self._converter, self._rule
        convert = converter.feed_into
        for name, event, suspect in events:
            if type(event) is dict:
                if suspect:
                    self.error = judge_chunk(self._offer, event)
                    if self.error is not None:
                        self._count_last(event, name)
                        break
                if is_last(event.get("type")):
                    self.ended = True
            if rule is not None:
                rule.note(event)
            if not convert(out, event, name):
                assert converter.error is not None
                unfit = converter.failure
                self.error = (
                    unfit_answer(self._offer, unfit) if unfit else reported_failure(self._offer, converter.error)
                )
                break
        if self._events.unfit is not None and self.error is None:
            self.error = unfit_answer(self._offer, self._events.unfit)
        if not self.begun:
            self.begun = self._answers(events, bool(out))
        encoded = encode_events(out)
        out.clear()  # the converter refers to this list until the row is durable
        return encoded


def encode_events(events: list[Out]) -> bytes:
    """The bytes of a client's events."""
    out: list[bytes] = []
    for name, event in events:
        data = event if type(event) is bytes else orjson.dumps(event) if type(event) is dict else event.encode()
        out.append(b"event: %b\ndata: %b\n\n" % (name.encode(), data) if name else b"data: %b\n\n" % data)
    return escape_line_breaks(b"".join(out))
