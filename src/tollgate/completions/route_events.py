"""A route's stream as parsed events: frames decoded by its framing, then unwrapped and edited as its provider file
says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from tollgate import sse
from tollgate.completions.native import LARGE_EVENT, check_depth, check_event, parsed_event
from tollgate.config.model import TEXT_FRAMINGS
from tollgate.json_bounds import MAY_BE_DEEP
from tollgate.mapping import Context, MappingFailure
from tollgate.mapping.context import PieceContext
from tollgate.upstream.framing import Frame, decoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollgate.routing import Offer


def converts_frames(offer: Offer) -> bool:
    """True when even a native stream must be taken apart: another framing, or edits on events."""
    return (
        offer.framing != "sse" or offer.stream_edits is not None or offer.unwrap is not None or offer.inner is not None
    )


Received = tuple[str | None, Any, bool]
"""One event of a route: its name in the framing, its value after unwrapping and edits, and whether it may report an
error."""


_PIECES = PieceContext()


class RouteEvents:
    """Decodes the bytes of one route's stream. Events without data are left out, except those named in `dataless`."""

    def __init__(self, offer: Offer, dataless: frozenset[str] = frozenset()) -> None:
        self._dataless = dataless
        has_pieces = offer.inner is not None and offer.inner_of is not None
        self._decoder = decoder(offer.framing, inner=offer.inner, piece_of=self._piece_of if has_pieces else None)
        self._offer = offer
        self._context = Context(model=offer.model_facts, can=offer.can)
        self._text = (offer.inner or offer.framing) in TEXT_FRAMINGS
        self._as_sent = offer.unwrap is None and offer.stream_edits is None
        self.plain = self._as_sent and offer.framing == "sse" and offer.inner is None
        """Events are server-sent events, neither unwrapped nor edited."""
        self.done = False
        """True once the upstream has sent `[DONE]`."""
        self.unfit: MappingFailure | None = None
        """Why an event could not be unwrapped or edited; nothing from that event on is returned."""
        self.not_json = 0
        """How many events were left out because their data is not JSON."""
        self.unparsed: list[tuple[str | None, bytes]] = []
        """The events read last: their names, and their data before parsing."""

    def feed(self, block: bytes) -> list[Received]:
        """The events that this block completes."""
        lines = self._decoder
        if not isinstance(lines, sse.Decoder):
            return self._read_frames(lines.feed(block))
        if self._text:
            return self._read_texts(lines.feed_pairs(block))
        quiet = self._as_sent and not lines.pending and self.is_quiet(block)
        return self._read(lines.feed_pairs(block), quiet=quiet)

    @property
    def pending(self) -> bool:
        """True while an event is incomplete."""
        return isinstance(self._decoder, sse.Decoder) and self._decoder.pending

    def is_quiet(self, block: bytes) -> bool:
        """Whether no event in `block` can report an error."""
        return not self._offer.errors.may_match(block)

    def finish(self) -> list[Received]:
        """The events in what is left when the stream has ended."""
        return self._read_frames(self._decoder.finish())

    def _piece_of(self, data: bytes) -> bytes:
        """The piece of the inner stream in a frame; nothing where the file's expression finds no text."""
        event: Any
        if self._offer.framing in TEXT_FRAMINGS:
            event = data.decode("utf-8", "replace")
        else:
            event = parsed_event(data)
            if event is None:
                self.done = self.done or sse.is_end_mark(data)
                return b""
        try:
            piece = self._offer.inner_of(event, _PIECES) if self._offer.inner_of is not None else None
        except MappingFailure as failure:
            self.unfit = self.unfit or failure
            return b""
        return piece.encode("utf-8", "surrogateescape") if isinstance(piece, str) else b""

    def _read_frames(self, frames: Sequence[Frame | sse.Event]) -> list[Received]:
        found: list[Received] = []
        for frame in frames:
            if self._text:
                found += self._read_texts([(frame.name, frame.data)])
            elif not frame.error:
                found += self._read([(frame.name, frame.data)], quiet=False)
            else:
                error = parsed_event(frame.data)
                message = (
                    error.get("message") or error.get("Message")
                    if isinstance(error, dict)
                    else frame.data.decode("utf-8", "replace")
                )
                found.append(
                    (
                        frame.name,
                        {"type": "error", "error": {"type": frame.name, "message": message or frame.name}},
                        True,
                    )
                )
        return found

    def _read(self, pairs: list[tuple[str | None, bytes]], *, quiet: bool) -> list[Received]:
        """The parsed events; `quiet`: none of them can report an error."""
        self.unparsed = pairs
        found: list[Received] = []
        for name, data in pairs:
            if len(data) > LARGE_EVENT:
                check_event(data)
            try:
                event = orjson.loads(data)
            except orjson.JSONDecodeError:
                if not data:
                    if name in self._dataless:
                        found.append((name, {}, False))
                    continue
                if sse.is_end_mark(data):
                    self.done = True
                    continue
                event = parsed_event(data)
                if event is None:
                    self.not_json += 1
                    continue
            if len(data) > MAY_BE_DEEP:
                check_depth(data, event)
            if quiet:
                found.append((name, event, False))
            elif self._as_sent:
                found.append((name, event, self._offer.errors.may_match(data)))
            elif not self._add_edited(found, name, event):
                break
        return found

    def _read_texts(self, pairs: list[tuple[str | None, bytes]]) -> list[Received]:
        found: list[Received] = []
        for name, data in pairs:
            if sse.is_end_mark(data):
                self.done = True
            elif not data:
                if name in self._dataless:
                    found.append((name, "", False))
            elif not self._add_edited(found, name, data.decode("utf-8", "replace")):
                break
        return found

    def _add_edited(self, found: list[Received], name: str | None, event: Any) -> bool:
        """Add an event, unwrapped and edited, to `found`; False if the provider file's rules cannot be applied to it.
        Edits are not applied to an event that an error rule matches."""
        if self.unfit is not None:
            return False
        try:
            if self._offer.unwrap is not None:
                event = self._offer.unwrap(event)
            if (
                self._offer.stream_edits is not None
                and isinstance(event, dict)
                and not self._offer.errors.judge(200, {}, event, chunk=True, inside=False)
            ):
                event = self._offer.stream_edits(event, self._context)
        except MappingFailure as failure:
            self.unfit = failure
            return False
        found.append((name, event, True))
        return True


class Reframed:
    """Rewrites a native stream whose framing is not SSE, or whose events are edited, as server-sent events. Frames in
    which `unwrap` finds nothing are no events of the format, and neither is the envelope that ends a stream, if it has
    no error: client libraries would read them as chunks without choices."""

    def __init__(self, offer: Offer, dialect: str) -> None:
        self._events = RouteEvents(offer)
        self._enveloped = offer.framing == "enveloped"
        self._named = dialect != "chat"
        self._ended = False

    @property
    def unfit(self) -> MappingFailure | None:
        """`RouteEvents.unfit`."""
        return self._events.unfit

    def feed(self, block: bytes) -> bytes:
        """Server-sent events for the frames that `block` completes."""
        return self._encode(self._events.feed(block))

    def finish(self) -> bytes:
        """Server-sent events for what is left when the stream has ended."""
        return self._encode(self._events.finish())

    def _encode(self, events: list[Received]) -> bytes:
        out = []
        for name, event, _ in events:
            failed = isinstance(event, dict) and event.get("error")
            if event is None or self._enveloped and name == "end" and not failed:
                continue
            if self._named and isinstance(event, dict) and isinstance(event.get("type"), str):
                name = event["type"]
            out.append(sse.encode(orjson.dumps(event), name))
        if self._events.done and not self._ended:
            self._ended = True
            out.append(sse.encode(b"[DONE]"))
        return sse.escape_line_breaks(b"".join(out))
