"""A stream in another protocol, or another framing, than the client's: frames in, the client's events out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from tollgate import sse
from tollgate.completions.attempt import judge_chunk
from tollgate.completions.estimate import estimate_usage, texts_of_parts
from tollgate.completions.native import parsed_event
from tollgate.errors import TollgateError, UpstreamError, UpstreamFailed
from tollgate.mapping import Context, Out, Pairs, StreamConverter, Tap
from tollgate.public_errors import public_message
from tollgate.upstream.framing import Frame, decoder
from tollgate.wire import is_last

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollgate.completions.exchange import Exchange
    from tollgate.routing import Offer


def converts_frames(offer: Offer) -> bool:
    """True when even a native stream must be taken apart: another framing, or edits on events."""
    return offer.framing != "sse" or offer.stream_edits is not None or offer.unwrap is not None


Received = tuple[str | None, Any, bool]
"""One event of a route: its framing's name, its value after unwrapping and edits, and whether it may tell an error."""


class _Events:
    """Frames of a route, parsed, unwrapped and edited."""

    def __init__(self, offer: Offer) -> None:
        self._decoder = decoder(offer.framing)
        self._offer = offer
        self._context = Context(model=offer.model_facts, can=offer.can)
        self._text = offer.framing == "sse-text"
        self._as_sent = offer.unwrap is None and offer.stream_edits is None and not self._text
        self.done = False
        """True once the upstream has said [DONE]."""

    def feed(self, block: bytes) -> list[Received]:
        """The events that this block completes."""
        lines = self._decoder
        if not isinstance(lines, sse.Decoder):
            return self._read_frames(lines.feed(block))
        if self._text:
            return self._read_texts(lines.feed_pairs(block))
        calm = self.is_calm(block)
        return self.read(lines.feed_pairs(block), calm=calm)

    def is_calm(self, block: bytes) -> bool:
        """Whether a block's events are taken as they came and none of them tells an error."""
        lines = self._decoder
        return self._as_sent and isinstance(lines, sse.Decoder) and not lines.pending and not self._offer.errors.may_match(block)

    def pairs(self, block: bytes) -> Pairs:
        """The events that a calm block completes, unread: to be given to `read`."""
        assert isinstance(self._decoder, sse.Decoder)
        return self._decoder.feed_pairs(block)

    def finish(self) -> list[Received]:
        """The events in what is left."""
        return self._read_frames(self._decoder.finish())

    def _read_frames(self, frames: Sequence[Frame | sse.Event]) -> list[Received]:
        found: list[Received] = []
        for frame in frames:
            if self._text:
                found += self._read_texts([(frame.name, frame.data)])
            elif not frame.error:
                found += self.read([(frame.name, frame.data)], calm=False)
            elif (told := parsed_event(frame.data)) is not None:
                message = told.get("message") if isinstance(told, dict) else None
                found.append((frame.name, {"type": "error", "error": {"type": frame.name, "message": message or frame.name}}, True))
        return found

    def read(self, pairs: Pairs, *, calm: bool) -> list[Received]:
        """Parsed events; `calm` when it is known that none of them tells an error."""
        as_sent, may_match = self._as_sent, self._offer.errors.may_match
        found: list[Received] = []
        for name, data in pairs:
            try:
                event = orjson.loads(data)
            except orjson.JSONDecodeError:
                if not data:
                    continue
                if data == b"[DONE]":
                    self.done = True
                    continue
                event = parsed_event(data)
                if event is None:
                    continue
            if calm:
                found.append((name, event, False))
            elif as_sent:
                found.append((name, event, may_match(data)))
            else:
                found.append((name, self._edited(event), True))
        return found

    def _read_texts(self, pairs: Pairs) -> list[Received]:
        found: list[Received] = []
        for name, data in pairs:
            if data == b"[DONE]":
                self.done = True
            elif data:
                found.append((name, self._edited(data.decode("utf-8", "replace")), True))
        return found

    def _edited(self, event: Any) -> Any:
        if self._offer.unwrap is not None:
            event = self._offer.unwrap(event)
        if self._offer.stream_edits is not None and isinstance(event, dict):
            event = self._offer.stream_edits(event, self._context)
        return event


class Reframed:
    """A native stream whose framing is not SSE, or whose events are edited, written again as the SSE clients expect."""

    def __init__(self, offer: Offer, dialect: str) -> None:
        self._events = _Events(offer)
        self._named = dialect != "chat"

    def feed(self, block: bytes) -> bytes:
        """SSE bytes for the frames this block completes."""
        return self._encode(self._events.feed(block))

    def finish(self) -> bytes:
        """SSE bytes for what is left."""
        return self._encode(self._events.finish())

    def _encode(self, events: list[Received]) -> bytes:
        out = []
        for name, event, _ in events:
            if self._named and isinstance(event, dict) and isinstance(event.get("type"), str):
                name = event["type"]
            out.append(sse.encode(orjson.dumps(event), name))
        return b"".join(out)


class ConvertedStream:
    """The stage for a route of another protocol. The converter owns every part's life; this class moves bytes."""

    def __init__(self, exchange: Exchange, offer: Offer) -> None:
        mappings = exchange.services.runtime.current.mappings
        assert exchange.context is not None
        self._exchange = exchange
        self._offer = offer
        self._events = _Events(offer)
        self._converter = StreamConverter(offer.mapping, mappings[exchange.inbound.dialect], exchange.context, frames=True)
        self._rule_usage: dict[str, Any] | None = None
        self.error: UpstreamError | None = None
        self.ended = False

    def feed(self, block: bytes) -> bytes:
        """The client's events for this block of the upstream's."""
        events = self._events
        if self._converter.follows and self._offer.usage_read is None and events.is_calm(block):
            out = self._take_alike(events.pairs(block))
        else:
            out = self._take(events.feed(block))
        if events.done and not self.ended:
            self._converter.feed("[DONE]")
            self.ended = True
        return out

    def close(self) -> bytes:
        """The upstream has ended; the finish itself is said by `tail`."""
        out = self._take(self._events.finish())
        converter = self._converter
        if converter.unmatched:
            self._exchange.services.metrics.unmatched(self._offer.protocol, converter.unmatched)
        if self.error is None and not converter.stop:
            self.error = UpstreamFailed("the upstream ended before the answer was finished", provider=self._offer.provider)
        return out

    def usage(self) -> dict[str, Any] | None:
        """Hub usage as reported so far."""
        return self._rule_usage or self._converter.usage or None

    @property
    def counted(self) -> bool:
        """Whether the usage told is the whole answer's: it comes with the end, in every format."""
        return self._converter.stop is not None

    def tier(self) -> str | None:
        """The service tier the upstream named at the start."""
        tier = self._converter.told("service_tier")
        return tier if isinstance(tier, str) else None

    def minted(self) -> list[str]:
        """A built answer names no state of the provider's."""
        return []

    async def estimate(self) -> dict[str, Any]:
        """Hub usage counted from what was received."""
        return await estimate_usage(self._exchange, texts_of_parts(self._converter.parts()))

    def tail(self, hub_usage: dict[str, Any], *, estimated: bool) -> bytes:
        """The finishing events, carrying `hub_usage`."""
        self._converter.usage = self._exchange.told_usage()
        return encode_events(self._converter.finish())

    def failure(self, error: TollgateError) -> bytes:
        """The events that tell an error and end the stream."""
        if self._exchange.hub_usage:
            self._converter.usage = self._exchange.told_usage()
        kind = "overloaded_error" if getattr(error, "overloaded", False) else None
        return encode_events(self._converter.fail(public_message(error), kind))

    def _count_last(self, event: dict[str, Any], name: str | None) -> None:
        """Note what an event that tells an error says of usage: it is billed, as the rest of what was told."""
        tap = Tap(self._offer.mapping)
        tap.feed(event, name)
        self._converter.usage = {**self._converter.usage, **tap.usage}
        if self._offer.usage_read is not None:
            self._rule_usage = self._offer.usage_read(event) or self._rule_usage

    def _take(self, events: list[Received]) -> bytes:
        out: list[Out] = []
        self._convert(out, events)
        return _encoded(out)

    def _take_alike(self, pairs: Pairs) -> bytes:
        """`_take` for calm events, most of which are the one before but for their text."""
        out: list[Out] = []
        events, converter = self._events, self._converter
        at, count = 0, len(pairs)
        while self.error is None and (at := converter.feed_alike(out, pairs, at)) < count:
            if not converter.follows:
                self._convert(out, events.read(pairs[at:], calm=True))
                break
            self._convert(out, events.read(pairs[at:at + 1], calm=True))
            converter.follow(*pairs[at])
            at += 1
        return _encoded(out)

    def _convert(self, out: list[Out], events: list[Received]) -> None:
        if self.error is not None:
            return
        converter, usage_read = self._converter, self._offer.usage_read
        began = converter.started
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
            if usage_read is not None:
                self._rule_usage = usage_read(event) or self._rule_usage
            if not convert(out, event, name):
                assert converter.error is not None
                self.error = UpstreamFailed(str(converter.error.get("message") or "the upstream reported an error"), provider=self._offer.provider)
                if not began and not converter.parts():
                    out.clear()  # nothing of an answer was told: another route may give it, so the client hears of no error yet
                break


def _encoded(out: list[Out]) -> bytes:
    encoded = encode_events(out)
    out.clear()  # the converter has it still, until the row is durable
    return encoded


def encode_events(events: list[Out]) -> bytes:
    """A client's events as they are sent."""
    out: list[bytes] = []
    for name, event in events:
        data = event if type(event) is bytes else orjson.dumps(event) if type(event) is dict else event.encode()
        out.append(b"event: %b\ndata: %b\n\n" % (name.encode(), data) if name else b"data: %b\n\n" % data)
    return b"".join(out)
