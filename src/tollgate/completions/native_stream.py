"""A native stream passing through: bytes in, bytes out, with an eye on usage, the end and errors.

Most bytes pass untouched and unparsed; an event is parsed only when it holds a mark of usage, a finish or an error. The
end of the answer is held back until the caller has recorded it (DESIGN invariant 1): `feed` gives what may leave now,
`tail` what may leave once the row is durable.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import orjson

from tollgate.completions.chat_chunks import are_of_others, is_empty, merged_usage
from tollgate.completions.marked_events import split_at_marks
from tollgate.completions.missing_usage import MissingUsage, filled
from tollgate.completions.native import parsed_event, valid_utf8
from tollgate.errors import AnswerLost, UpstreamError
from tollgate.mapping.streams.run import ENDED_EARLY
from tollgate.sse import BLANK, Decoder, Event, encode

Judge = Callable[[dict[str, Any]], UpstreamError | None]
Marks = tuple[bytes, ...] | None
"""Words without which no event is an error (`ErrorRules.event_marks`); None: every event must be asked."""

_SEQUENCE = re.compile(rb'"sequence_number"\s*:\s*([0-9]{1,15})(?![0-9])')
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


def last_sequence(sent: bytes) -> int:
    """The `sequence_number` of the last event in what was sent; -1 when it has none, or one that no stream reaches."""
    at = sent.rfind(b'"sequence_number"')
    found = _SEQUENCE.match(sent, at) if at >= 0 else None
    return int(found.group(1)) if found else -1


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
        whole. It gets one: clients read no event without, and this may be the one that ends the answer."""
        return self._take(
            [
                event if event.raw.endswith(BLANK) else event._replace(raw=event.raw + b"\n\n")
                for event in self._decoder.finish()
                if not event.data or event.data == b"[DONE]" or parsed_event(event.data) is not None
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


class ChatStream(NativeStream):
    """A chat stream. The finishing chunk waits for usage, which is merged into it; `[DONE]` always follows.

    `usage` is the usage object as the upstream reported it (of each member the last value seen, wherever it stood:
    FACTS 1 and 2). `observe` sees every chunk, for a provider that tells its usage beside that.
    """

    def __init__(self, judge: Judge, marks: Marks, observe: Callable[[dict[str, Any]], None] | None = None) -> None:
        super().__init__(judge, None)
        self.usage: dict[str, Any] | None = None
        self._errors = marks
        self._observe = observe
        self._styled = marks is None or observe is not None
        self._finish_raw = b""
        self._loose: dict[str, Any] | None = None
        self._loose_raw = b""
        self._beside: dict[str, Any] = {}  # lists that stood beside usage (citations), for the finishing chunk to tell
        self._last: dict[str, Any] | None = None
        self.tier: str | None = None
        """The service tier the upstream says it used."""
        self.elsewhere: dict[str, Any] | None = None
        """The last chunk that tells usage in a member of the vendor's own; the mapping knows which."""

    def feed(self, block: bytes) -> bytes:
        """The bytes that may leave after this block of the upstream's."""
        if not self._styled:
            self._choose_marks(block)
        return super().feed(block)

    def _choose_marks(self, block: bytes) -> None:
        """The first block with an event shows how this upstream writes; in a way we do not know, every event is looked
        at."""
        style = _style(block)
        if style is None:
            return
        self._styled = True
        known = _CHAT_MARKS.get(style)
        if known is not None and self._errors is not None:
            self._marks = (*known, *self._errors)

    @property
    def finished(self) -> bool:
        """Whether the answer is all there, so that usage told by now is the last."""
        return self.ended or self.finish is not None

    def overlooked(self, sent: bytes) -> dict[str, Any] | None:
        """Usage in the last bytes that left: what stands between us and the model may write its chunks in another way
        than the model's own, and then no mark shows the one that counts."""
        if self.ended and b'"usage"' in sent:
            for event in Decoder().feed(sent):
                chunk = parsed_event(event.data) if event.data else None
                if isinstance(chunk, dict) and chunk.get("usage"):
                    self.usage = merged_usage(self.usage, chunk["usage"])
        return self.usage

    def received(self) -> list[Any]:
        """The finishing chunk is held back, and may hold text."""
        return [*super().received(), *([self.finish] if self.finish is not None else ())]

    def tail(self, usage: dict[str, Any] | None) -> bytes:
        """The finishing chunk with `usage`, and `[DONE]`."""
        finish = self.finish
        if finish is None:
            if usage is None:
                return b"data: [DONE]\n\n"
            if self._loose is not None:  # a vendor that names no finish: its usage chunk goes as it came
                return self._loose_raw + b"data: [DONE]\n\n"
            frame = self._last or {}
            last = {
                "id": frame.get("id", ""),
                "object": "chat.completion.chunk",
                "created": frame.get("created", 0),
                "model": frame.get("model", ""),
                "choices": [],
                "usage": usage,
            }
            return b"data: " + orjson.dumps(last) + b"\n\ndata: [DONE]\n\n"
        beside = {name: told for name, told in self._beside.items() if name not in finish}
        if not beside and (usage is None or finish.get("usage") == usage):
            return self._finish_raw + b"data: [DONE]\n\n"
        last = {**finish, **beside, **({} if usage is None else {"usage": usage})}
        return b"data: " + orjson.dumps(last) + b"\n\ndata: [DONE]\n\n"

    def _event(self, event: Event, out: list[bytes]) -> None:
        data, raw = event.data, event.raw
        if not data:
            out.append(raw)
            return
        if data == b"[DONE]":
            self.ended = True
            return
        raw = valid_utf8(raw)
        if not raw.endswith(BLANK):
            raw += b"\n\n"
        chunk = parsed_event(data)
        if not isinstance(chunk, dict):
            out.append(raw)
            return
        if self._observe is not None:
            self._observe(chunk)
        usage = chunk.get("usage")
        if usage:
            self.usage = merged_usage(self.usage, usage)
        elif b'usage"' in data and "usage" not in chunk:
            self.elsewhere = chunk
        self.error = self._judge(chunk)
        if self.error is not None:
            return
        self._last = chunk
        if isinstance(tier := chunk.get("service_tier"), str):
            self.tier = tier
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            out.append(raw)
        elif any(isinstance(choice, dict) and choice.get("finish_reason") for choice in choices):
            if self.finish is not None:
                out.append(self._finish_raw)
            self.finish, self._finish_raw = chunk, raw
            self._marks = None  # what comes after a finish is little, and may show that it was one choice's only
        elif usage and is_empty(choices):
            self._loose, self._loose_raw = chunk, raw
            self._beside.update((name, told) for name, told in chunk.items() if type(told) is list and told)
        else:
            if self.finish is not None and are_of_others(choices, self.finish):
                out.append(self._finish_raw)
                self.finish = None
            out.append(raw)


class PlainStream(NativeStream):
    """A native stream of any other protocol: every byte passes; the block that ends the answer waits.

    `watched` are the marks of events that `watch` must see; it gets each parsed and says True when it ends the answer.
    `missing_usage` puts usage where the provider left it out, `missing_end` the end where an answer is whole without.
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
        """The first event held back, where it has no usage: its name and what it says."""

    def _rest(self) -> bytes:
        """Where an answer told why it stopped and its last event never came, that is told in its stead."""
        out = super()._rest()
        if not self.ended and self.error is None and (end := self._missing_end()):
            self._held.append(end)
            self.ended = True
        return out

    def tail(self, usage: dict[str, Any] | None) -> bytes:
        """The bytes held back, with `usage` where it is missing."""
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


_CHAT_MARKS = {
    b":": (b'"finish_reason":"', b'"usage":{', b"[DONE]"),
    b": ": (b'"finish_reason": "', b'"usage": {', b"[DONE]"),
}
"""What ends a chat answer or counts it, by the way the upstream writes its JSON."""


def _style(block: bytes) -> bytes | None:
    """What the upstream writes between a JSON name and its value, seen at the first name we know: `:` or `: `; empty
    for any other way, None when the block has no such name."""
    for word in (b'"finish_reason"', b'"choices"'):
        at = block.find(word)
        after = block[at + len(word) : at + len(word) + 3]
        if at >= 0 and len(after) == 3:
            if after[:1] != b":":
                return b""
            if not after[1:2].isspace():
                return b":"
            return b": " if after[1:2] == b" " and not after[2:3].isspace() else b""
    return None
