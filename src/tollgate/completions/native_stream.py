"""A native stream passing through: bytes in, bytes out, with an eye on usage, the end and errors.

Most bytes pass untouched and unparsed; an event is parsed only when it holds a mark of usage, a finish or an error. The
end of the answer is held back until the caller has recorded it (DESIGN invariant 1): `feed` gives what may leave now,
`tail` what may leave once the row is durable. What an event means is `native_chat.py`'s and `native_plain.py`'s.
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
"""Words without which no event is an error (`ErrorRules.event_marks`); None: every event must be asked."""

_KEEP_BYTES = 64 * 1024
"""How much of an answer is kept for counting its tokens when the upstream reports none; beyond it the ratio seen in
what was kept is applied to the rest."""


class KeptBlocks:
    """The first part of a stream, kept for a token estimate: references to blocks that were sent anyway."""

    __slots__ = ("blocks", "held", "total")

    def __init__(self) -> None:
        self.blocks: list[bytes] = []
        self.held = 0
        self.total = 0

    def add(self, block: bytes) -> None:
        """Note a block that was received."""
        size = len(block)
        self.total += size
        if self.held < _KEEP_BYTES:
            self.blocks.append(block)
            self.held += size

    def events(self) -> list[Any]:
        """The parsed events of the kept part."""
        decoder = Decoder()
        found = [event for block in self.blocks for event in decoder.feed(block)]
        found += decoder.finish()  # where lines end with CR alone, another byte shows that an event is over
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
        """What a count over the kept part must be multiplied with."""
        return self.total / self.held if self.held else 1.0


class NativeStream:
    """What both kinds of stream share: cutting blocks at marks, decoding what must be looked at.

    `error` is set when the upstream reported one, or ended before its answer did; `ended` once it has said the end.
    """

    finish: dict[str, Any] | None = None
    """The chunk that finishes the answer, in a format where more may come after it."""

    def __init__(self, judge: Judge, marks: Marks) -> None:
        self.kept = KeptBlocks()
        self.error: UpstreamError | None = None
        self.ended = False
        self._decoder = Decoder()
        self._judge = judge
        self._marks = marks

    def feed(self, block: bytes) -> bytes:
        """The bytes that may leave after this block of the upstream's."""
        out = self._feed(block)
        if out:
            self.kept.add(out)
        return out

    def received(self) -> list[Any]:
        """The parsed events of what was kept, for a token count."""
        return self.kept.events()

    def close(self) -> bytes:
        """The upstream has ended: what may still leave. Afterwards `error` says whether the answer is whole."""
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
            # a line feed of the separator came with the block before; a finish was told
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
        return b"".join(filter(None, out))  # what is alone is not copied

    def _rest(self) -> bytes:
        """What an upstream that has ended left unfinished: an event without its blank line counts when its data is
        whole. It gets one: clients read no event without, and this may be the one that ends the answer. One whose data
        had not begun (`event: response.created`, `data:`) says nothing: with a blank line it would be an event of an
        empty text, on which clients' JSON readers fail."""
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
