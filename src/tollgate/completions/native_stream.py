"""A native stream: bytes in, bytes out, while watching for usage, the end and errors.

Most bytes pass unparsed; an event is parsed only if it contains a mark of usage, a finish or an error. The end of the
answer is held back until it is recorded (DESIGN invariant 1): `feed` returns what may be sent now, `tail` what may be
sent once the row is durable. `native_chat.py` and `native_plain.py` interpret the events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from tollgate.completions.marked_events import split_at_marks
from tollgate.completions.native import parsed_event, valid_utf8
from tollgate.errors import AnswerLost, UpstreamError
from tollgate.mapping.streams.run import ENDED_EARLY
from tollgate.sse import BLANK, Decoder, Event

Judge = Callable[[dict[str, Any]], UpstreamError | None]
Marks = tuple[bytes, ...] | None
"""Substrings of which every error event contains one (`ErrorRules.event_marks`); None: every event must be judged."""

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

    def events(self) -> list[Any]:
        """The parsed events of the kept part."""
        decoder = Decoder()
        found = [event for block in self.blocks for event in decoder.feed(block)]
        found += decoder.finish()  # where lines end with CR alone, only the next byte shows that an event is complete
        parsed = []
        for event in found:
            if event.data and event.data != b"[DONE]":
                try:
                    parsed.append(orjson.loads(event.data))
                except orjson.JSONDecodeError:
                    continue
        return parsed

    @property
    def scale(self) -> float:
        """The factor from a count over the kept part to the whole stream."""
        return self.total / self.held if self.held else 1.0


class NativeStream:
    """What both kinds of stream share: cutting blocks at marks, and decoding the events that must be parsed.

    `error` is set when the upstream reports one, or breaks off; `ended` once it has sent the end of the answer.
    """

    finish: dict[str, Any] | None = None
    """The chunk that finishes the answer, in a format where more chunks may follow it."""

    def __init__(self, judge: Judge, marks: Marks) -> None:
        self.kept = KeptBlocks()
        self.error: UpstreamError | None = None
        self.ended = False
        self._decoder = Decoder()
        self._judge = judge
        self._marks = marks

    def feed(self, block: bytes) -> bytes:
        """The bytes that may be sent after this block of upstream bytes."""
        out = self._feed(block)
        if out:
            self.kept.add(out)
        return out

    def received(self) -> list[Any]:
        """The parsed events of the kept part, for a token estimate."""
        return self.kept.events()

    def close(self) -> bytes:
        """The upstream's body ended: what may still be sent. Afterwards `error` is set if the answer is incomplete."""
        out = self._rest()
        if self.finish is None and not self.ended and self.error is None:
            self.error = AnswerLost(ENDED_EARLY)
        return out

    def _feed(self, block: bytes) -> bytes:
        if self._marks is None or block.find(b"\r") >= 0 or self.ended:
            return self._take(self._decoder.feed(block))
        before = b""
        if self._decoder.pending:
            end = block.find(b"\n\n") + 2
            if end < 2:
                end = len(block)
            before = self._take(self._decoder.feed(block[:end]))
            block = block[end:]
            # a part of the separator came with the block before, or the finish was seen
            if self._decoder.pending or self._marks is None:
                return before + self._take(self._decoder.feed(block))
            if not block or self.ended or self.error is not None:
                return before
        cut, rest = split_at_marks(block, self._marks)
        if len(cut) == 1 and not cut[0][0] and not rest and not before:
            return valid_utf8(cut[0][1])
        out = [before]
        for marked, piece in cut:
            if self.error is not None:
                break
            out.append(
                self._take(self._decoder.feed(piece))
                if marked or self.ended or self._marks is None
                else valid_utf8(piece)
            )
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
                if event.data == b"[DONE]" or event.data and parsed_event(event.data) is not None
            ]
        )

    def _take(self, events: list[Event]) -> bytes:
        out: list[bytes] = []
        for event in events:
            if self.error is not None:
                break
            self._event(event, out)
        return b"".join(out)

    def _event(self, event: Event, out: list[bytes]) -> None:
        raise NotImplementedError
