"""A stream in another protocol, or another framing, than the client's: frames in, the client's events out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from tollgate import sse
from tollgate.completions.attempt import judge_chunk
from tollgate.completions.estimate import estimate_usage, texts_of_parts
from tollgate.errors import TollgateError, UpstreamError, UpstreamFailed
from tollgate.mapping import Context, StreamConverter
from tollgate.public_errors import public_message
from tollgate.upstream.framing import Frame, decoder
from tollgate.wire import is_last

if TYPE_CHECKING:
    from tollgate.completions.exchange import Exchange
    from tollgate.routing import Offer


def converts_frames(offer: Offer) -> bool:
    """True when even a native stream must be taken apart: another framing, or edits on events."""
    return offer.framing != "sse" or offer.stream_edits is not None or offer.unwrap is not None


class _Events:
    """Frames of a route, parsed, unwrapped and edited."""

    def __init__(self, offer: Offer) -> None:
        self._decoder = decoder(offer.framing)
        self._offer = offer
        self._context = Context(model=offer.model_facts, can=offer.can)
        self.done = False
        """True once the upstream has said [DONE]."""

    def feed(self, block: bytes) -> list[tuple[str | None, Any]]:
        return [event for frame in self._decoder.feed(block) if (event := self._read(frame)) is not None]

    def finish(self) -> list[tuple[str | None, Any]]:
        return [event for frame in self._decoder.finish() if (event := self._read(frame)) is not None]

    def _read(self, frame: Frame) -> tuple[str | None, Any] | None:
        data = frame.data
        if not data:
            return None
        if data == b"[DONE]":
            self.done = True
            return None
        try:
            event = orjson.loads(data)
        except orjson.JSONDecodeError:
            try:
                event = orjson.loads(data.decode("utf-8", "replace"))
            except orjson.JSONDecodeError:
                return None
        if frame.error:
            message = event.get("message") if isinstance(event, dict) else None
            return frame.name, {"type": "error", "error": {"type": frame.name, "message": message or frame.name}}
        if self._offer.unwrap is not None:
            event = self._offer.unwrap(event)
        if self._offer.stream_edits is not None and isinstance(event, dict):
            event = self._offer.stream_edits(event, self._context)
        return frame.name, event


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

    def _encode(self, events: list[tuple[str | None, Any]]) -> bytes:
        out = []
        for name, event in events:
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
        self._converter = StreamConverter(offer.mapping, mappings[exchange.inbound.dialect], exchange.context)
        self._rule_usage: dict[str, Any] | None = None
        self.error: UpstreamError | None = None
        self.ended = False

    def feed(self, block: bytes) -> bytes:
        """The client's events for this block of the upstream's."""
        out = self._take(self._events.feed(block))
        if self._events.done and not self.ended:
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

    def minted(self) -> list[str]:
        """A built answer names no state of the provider's."""
        return []

    async def estimate(self) -> dict[str, Any]:
        """Hub usage counted from what was received."""
        return await estimate_usage(self._exchange, texts_of_parts(self._converter.parts()))

    def tail(self, hub_usage: dict[str, Any], *, estimated: bool) -> bytes:
        """The finishing events, carrying `hub_usage`."""
        self._converter.usage = hub_usage
        return _encode(self._converter.finish())

    def failure(self, error: TollgateError) -> bytes:
        """The events that tell an error and end the stream."""
        kind = "overloaded_error" if getattr(error, "overloaded", False) else None
        return _encode(self._converter.fail(public_message(error), kind))

    def _take(self, events: list[tuple[str | None, Any]]) -> bytes:
        out: list[tuple[str | None, Any]] = []
        for name, event in events:
            if self.error is not None:
                break
            if isinstance(event, dict):
                self.error = judge_chunk(self._offer, event)
                if self.error is not None:
                    break
                self.ended = self.ended or is_last(event.get("type"))
            if self._offer.usage_read is not None:
                self._rule_usage = self._offer.usage_read(event) or self._rule_usage
            out.extend(self._converter.feed(event, name))
            if self._converter.error is not None:
                self.error = UpstreamFailed(str(self._converter.error.get("message") or "the upstream reported an error"), provider=self._offer.provider)
        return _encode(out)


def _encode(events: list[tuple[str | None, Any]]) -> bytes:
    out: list[bytes] = []
    for name, event in events:
        data = event.encode() if isinstance(event, str) else orjson.dumps(event)
        out.append(b"event: " + name.encode() + b"\ndata: " + data + b"\n\n" if name else b"data: " + data + b"\n\n")
    return b"".join(out)
