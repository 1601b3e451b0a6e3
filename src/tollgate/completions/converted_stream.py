"""A stream in another protocol than the client's: a route's events in, the client's out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from tollgate.completions.estimate import estimate_usage, texts_of_parts
from tollgate.completions.judging import judge_chunk, reported_failure, unfit_answer
from tollgate.completions.kept_items import keep_streamed_items
from tollgate.completions.kept_thoughts import keep_thoughts
from tollgate.completions.opening import is_opening, opening_of
from tollgate.completions.repeated_deltas import take_repeated_deltas
from tollgate.completions.route_events import Received, RouteEvents
from tollgate.completions.usage_rule import UsageRule
from tollgate.errors import TollgateError, UpstreamError, UpstreamFailed
from tollgate.mapping import Out, StreamConverter, Tap
from tollgate.mapping.streams.run import ENDED_EARLY
from tollgate.public_errors import public_message
from tollgate.sse import in_lines
from tollgate.wire import is_last

if TYPE_CHECKING:
    from tollgate.completions.exchange import Exchange
    from tollgate.routing import Offer

_FEW = 6
"""Events read before one is tried as a pattern: an answer begins with some four of them."""


_MOST_RECEIVED = 256 * 1024 * 1024
"""The converter keeps the answer's text to its end, for a last event that repeats it. A million tokens, an event each,
come to less."""


class ConvertedStream:
    """The stage for a route of another protocol. The converter owns every part's life; this class moves bytes."""

    def __init__(self, exchange: Exchange, offer: Offer) -> None:
        context = exchange.attempt.context
        assert context is not None
        self._exchange = exchange
        self._offer = offer
        self._events = RouteEvents(offer)
        self._converter = StreamConverter(
            offer.mapping, exchange.client_format, context, frames=True, hushed=True, in_text=offer.in_text
        )
        self._plain = self._events.plain and offer.usage.read is None
        self._rule = UsageRule(offer.usage.read) if offer.usage.read is not None else None
        self._received = 0
        self._heard = False
        self.begun = False
        self._opening = opening_of(exchange, offer)
        self.error: UpstreamError | None = None
        self.ended = False

    def feed(self, block: bytes) -> bytes:
        """The client's events for this block of the upstream's."""
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
        self._hear_done()
        return out if began else self._if_answered(out)

    def close(self) -> bytes:
        """The upstream has ended; the finish itself is said by `tail`."""
        converter = self._converter
        began = converter.started
        out = self._take(self._events.finish())
        self._hear_done()  # the last line may lack its blank one
        if converter.unmatched:
            self._exchange.services.metrics.unmatched(self._offer.protocol, converter.unmatched)
        if self.error is None and converter.stop is None:
            self.error = UpstreamFailed(self._ended_early())
        elif self.error is None and converter.stop == "error":
            self.error = reported_failure(self._offer, None)
        return out if began else self._if_answered(out)

    def _hear_done(self) -> None:
        """End the answer at `[DONE]` where no event told why it stopped."""
        if self._events.done and not self.ended:
            self._converter.feed("[DONE]")
            self.ended = True
            if self._converter.stop == "error" and not self._converter.parts():
                self.error = reported_failure(self._offer, None)

    def _ended_early(self) -> str:
        """What the log says of an answer that broke off: a framing or rules that do not fit what was sent look just
        like it."""
        if not self._heard:
            return f"{ENDED_EARLY}: there is no event in what it sent, read with `framing: {self._offer.framing}`"
        unmatched = ", ".join(list(self._converter.unmatched)[:5])
        return (
            f"{ENDED_EARLY}: `{self._offer.mapping.name}` has no rule for its events {unmatched[:100]!r}"
            if unmatched
            else ENDED_EARLY
        )

    def usage(self) -> dict[str, Any] | None:
        """Hub usage as reported so far."""
        return self._rule and self._rule.usage or self._converter.usage or None

    @property
    def counted(self) -> bool:
        """Whether the usage told is the whole answer's: it comes with the end, in every format."""
        return self._converter.stop is not None

    def tier(self) -> str | None:
        """The service tier the upstream named at the start."""
        tier = self._converter.response_field("service_tier")
        return tier if isinstance(tier, str) else None

    def minted(self) -> list[str]:
        """A built answer names no state of the provider's."""
        return []

    def encrypted(self) -> tuple[str, ...]:
        """What it carries of a provider's tells itself whose it is."""
        return ()

    def reported_error(self) -> None:
        """A failure is never passed on as it came."""

    async def estimate(self) -> dict[str, Any]:
        """Hub usage counted from what was received."""
        return await estimate_usage(self._exchange, texts_of_parts(self._converter.parts()))

    def tail(self) -> bytes:
        """The finishing events, with the usage that was recorded."""
        keep_thoughts(self._exchange, self._offer, self._converter.parts())
        self._converter.usage = self._exchange.reported_usage()
        ending = self._converter.finish()
        keep_streamed_items(self._exchange, ending)
        return encode_events(ending)

    def whole(self) -> dict[str, Any]:
        """All of the answer as a hub response, once it has ended."""
        keep_thoughts(self._exchange, self._offer, self._converter.parts())
        self._converter.finish()
        return self._converter.hub

    def failure(self, error: TollgateError) -> bytes:
        """The events that tell an error and end the stream."""
        if self._exchange.hub_usage:
            self._converter.usage = self._exchange.reported_usage()
        kind = "overloaded_error" if getattr(error, "overloaded", False) else None
        return encode_events(self._converter.fail(public_message(error), kind))

    def _answers(self, events: list[Received], said: bool) -> bool:
        """Whether something of the answer itself came in `events`; `said` is whether the client hears anything."""
        if self.error is not None or self._converter.stop == "error":
            return bool(self._converter.parts())
        opening = self._opening
        return said if opening is None else any(not is_opening(event, opening) for _, event, _ in events)

    def _count_last(self, event: dict[str, Any], name: str | None) -> None:
        """Note what an event that tells an error says of usage: it is billed, as the rest of what was told."""
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
        """The same as `_take` of a block's events, with those taken together that are alike
        (`repeated_deltas.py`): a few are read one by one, the last of them is tried as the pattern for those behind it,
        and so on."""
        out: list[bytes] = []
        events, converter = self._events, self._converter
        at, end = 0, len(block)
        while at < end and self.error is None:
            if not events.pending:
                converted, at = take_repeated_deltas(converter, block, at)
                if converted:
                    out.append(in_lines(converted))
                    continue
            *few, rest = block[at:].split(b"\n\n", _FEW if converter.follows else 0)
            until = end - len(rest) if len(few) == _FEW else end
            out.append(self._take(events.feed(block[at:until])))
            if events.written:
                converter.follow(*events.written[-1])
            at = until
        return b"".join(out)

    def _take(self, events: list[Received]) -> bytes:
        if self.error is not None:
            return b""
        self._heard = self._heard or bool(events)
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
        out.clear()  # the converter has it still, until the row is durable
        return encoded


def encode_events(events: list[Out]) -> bytes:
    """A client's events as they are sent."""
    out: list[bytes] = []
    for name, event in events:
        data = event if type(event) is bytes else orjson.dumps(event) if type(event) is dict else event.encode()
        out.append(b"event: %b\ndata: %b\n\n" % (name.encode(), data) if name else b"data: %b\n\n" % data)
    return in_lines(b"".join(out))
