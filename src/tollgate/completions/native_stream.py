"""A native stream: bytes in, bytes out, while watching for usage, the end and errors.

Most bytes pass unparsed; an event is parsed only if it contains a mark of usage, a finish or an error. The end of the
answer is held back until it is recorded (DESIGN invariant 1): `feed` returns what may be sent now, `tail` what may be
sent once the row is durable. `native_chat.py` and `native_plain.py` interpret the events.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import orjson

from tollgate.completions.estimate import estimate_usage, texts_of_events
from tollgate.completions.judging import reported_failure, unfit_answer
from tollgate.completions.marked_events import split_at_marks
from tollgate.completions.native import parsed_event, valid_utf8
from tollgate.completions.opening import answers, opening_of
from tollgate.completions.route_events import Reframed, converts_frames
from tollgate.completions.stage import Stage
from tollgate.errors import AnswerLost, TollgateError, UpstreamError, UpstreamFailed
from tollgate.mapping.streams.run import ENDED_EARLY
from tollgate.public_errors import stream_error_events
from tollgate.sse import BLANK, Decoder, Event, is_end_mark

if TYPE_CHECKING:
    from tollgate.completions.exchange import Exchange
    from tollgate.mapping import Tap
    from tollgate.routing import Offer

Marks = tuple[bytes, ...] | None
"""Substrings of the events that must be parsed: every such event contains one; None: every event must be parsed."""

_KEEP_BYTES = 64 * 1024
"""How much of an answer is kept for estimating its tokens if the upstream reports none; the estimate is scaled up for
the rest."""


class KeptBlocks:
    """The first part of a stream, kept for a token estimate: references to blocks, not copies."""

    __slots__ = ("blocks", "held", "total")

    def __init__(self) -> None:
        self.blocks: list[bytes] = []
        self.held = 0
        self.total = 0

    def add(self, block: bytes) -> None:
        """Note a block of the stream."""
        size = len(block)
        self.total += size
        if self.held < _KEEP_BYTES:
            self.blocks.append(block)
            self.held += size

    def holds(self, marks: Iterable[bytes]) -> bool:
        """Whether one of these substrings is in the kept part."""
        return any(block.find(mark) >= 0 for mark in marks for block in self.blocks)

    def events(self) -> list[Any]:
        """The parsed events of the kept part."""
        decoder = Decoder()
        found: list[Event] = []
        with contextlib.suppress(UpstreamFailed):  # for thousands of blank lines, which passed unparsed
            for block in self.blocks:
                found += decoder.feed(block)
            # where lines end with CR alone, only the next byte shows that an event is complete
            found += decoder.finish()
        parsed = []
        for event in found:
            with contextlib.suppress(orjson.JSONDecodeError):  # a comment, or the end mark
                parsed.append(orjson.loads(event.data))
        return parsed

    @property
    def scale(self) -> float:
        """The factor from a count over the kept part to the whole stream."""
        return self.total / self.held if self.held else 1.0


class NativeStream(Stage):
    """What both kinds of native stream share: cutting blocks at marks, and decoding the events that must be parsed.

    Its parts never refer back to it, so it is freed without garbage collection.
    """

    def __init__(self, exchange: Exchange, offer: Offer, marks: Marks) -> None:
        self._exchange = exchange
        self._offer = offer
        self._dialect = exchange.inbound.dialect
        self._marks = marks
        self._decoder = Decoder()
        self._kept = KeptBlocks()
        self._sent = b""
        """The last bytes sent to the client; in a responses stream the last ones with a `sequence_number`."""
        self._unread = b""
        """The last bytes that passed unparsed."""
        self._opening = opening_of(exchange, offer)
        self._reframed = Reframed(offer, self._dialect) if converts_frames(offer) else None

    def feed(self, block: bytes) -> bytes:
        if self._reframed is None:
            out = self._pass(block)
        else:
            out = self._pass(self._reframed.feed(block))
            self._note_unfit()
        if out:
            self._kept.add(out)
            if self._dialect != "responses" or b'"sequence_number"' in out:
                self._sent = out
            if not self.begun:
                self.begun = answers(out, self._opening)
        return out

    def _close(self) -> bytes:
        out = b""
        if self._reframed is not None:
            out = self._pass(self._reframed.finish())
            self._kept.add(out)
            self._note_unfit()
        out += self._rest()
        if out:
            self._sent = out
            self.begun = self.begun or answers(out, self._opening)
        if self.error is None and not self._is_complete():
            self.error = AnswerLost(ENDED_EARLY)
        return out

    async def estimate(self) -> dict[str, Any]:
        texts = texts_of_events(self._offer.mapping, self.received())
        return await estimate_usage(self._exchange, texts, scale=self._kept.scale)

    def reported_error(self) -> UpstreamError | None:
        tap = self._ending()
        if tap is None or tap.error is None and tap.stop != "error":
            return None
        return reported_failure(self._offer, tap.error)

    def error_events(self, error: TollgateError) -> bytes:
        return self._apart() + stream_error_events(self._dialect, error)

    @abstractmethod
    def _event(self, event: Event, out: list[bytes]) -> None:
        """Read one event; adds to `out` what may be sent now."""

    @abstractmethod
    def _is_complete(self) -> bool:
        """Whether an answer whose body ended has its end, and content or a stop reason."""

    @abstractmethod
    def _ending(self) -> Tap | None:
        """What the mapping reads in the answer's end; None where the end cannot report a failure."""

    def received(self) -> list[Any]:
        """The parsed events of the kept part, for a token estimate."""
        return self._kept.events()

    def _apart(self) -> bytes:
        """The blank line that must come before an event of our own, if what was sent does not end in one."""
        return b"" if not self._sent or self._sent.endswith(BLANK) else b"\n\n"

    def _note_unfit(self) -> None:
        """Fail the answer at an event that the provider file's edits could not be applied to."""
        unfit = self._reframed.unfit if self._reframed is not None else None
        if unfit is not None and self.error is None:
            self.error = unfit_answer(self._offer, unfit)

    def _pass(self, block: bytes) -> bytes:
        """The bytes that may be sent after this block of upstream bytes."""
        if self._marks is None or block.find(b"\r") >= 0 or self.ended:
            return self._take(self._decoder.feed(block))
        before = b""
        if self._decoder.pending:
            end = block.find(b"\n\n") + 2
            if end < 2:
                end = len(block)
            before = self._take(self._decoder.feed(block[:end]))
            block = block[end:]
            # a part of the separator came with the block before, or the finish or the end was seen
            if self._decoder.pending or self._marks is None or self.ended:
                return before + self._take(self._decoder.feed(block))
            if not block or self.error is not None:
                return before
        cut, rest = split_at_marks(block, self._marks)
        if len(cut) == 1 and not cut[0][0] and not rest and not before:
            self._unread = cut[0][1]
            return valid_utf8(cut[0][1])
        out = [before]
        for marked, piece in cut:
            if self.error is not None:
                break
            if marked or self.ended or self._marks is None:
                out.append(self._take(self._decoder.feed(piece)))
            else:
                self._unread = piece
                out.append(valid_utf8(piece))
        if rest and self.error is None:
            out.append(self._take(self._decoder.feed(rest)))
        return b"".join(filter(None, out))  # a single piece is not copied

    def _rest(self) -> bytes:
        """The last event of an ended upstream body, if it lacks its blank line but its data is complete. The blank line
        is added, because clients ignore an event without it, and it may be the one that ends the answer. An event
        without data (`event: response.created`, `data:`) is dropped: clients would fail to parse its empty data as
        JSON."""
        return self._take(
            [
                event if event.raw.endswith(BLANK) else event._replace(raw=event.raw + b"\n\n")
                for event in self._decoder.finish()
                if is_end_mark(event.data) or event.data and parsed_event(event.data) is not None
            ]
        )

    def _take(self, events: list[Event]) -> bytes:
        out: list[bytes] = []
        for event in events:
            if self.error is not None:
                break
            self._event(event, out)
        return b"".join(out)
