"""A native chat stream: its usage may come in any chunk, and its finishing chunk is held back for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from tollgate.completions.chat_chunks import are_of_others, finishes, is_empty, is_without_content, merged_usage
from tollgate.completions.judging import judge_chunk, reported_failure, without_secrets
from tollgate.completions.missing_usage import written_usage
from tollgate.completions.native import parsed_event, valid_utf8
from tollgate.completions.native_stream import NativeStream
from tollgate.completions.state_ids import may_mint, minted_ids
from tollgate.completions.usage_rule import UsageRule
from tollgate.mapping import Tap, tap_usage
from tollgate.sse import BLANK, Decoder, Event, is_end_mark
from tollgate.wire import may_have_failed

if TYPE_CHECKING:
    from tollgate.completions.exchange import Exchange
    from tollgate.errors import UpstreamError
    from tollgate.routing import Offer

_CHAT_MARKS = {
    b":": (b'"finish_reason":"', b'"usage":{', b"[DONE]"),
    b": ": (b'"finish_reason": "', b'"usage": {', b"[DONE]"),
}
"""Marks of the chunks that end an answer or hold usage, by the way in which the upstream writes JSON."""
_FINISHES = tuple(marks[0] for marks in _CHAT_MARKS.values())
_AT_TOP = b'"message"'
"""The mark of an event that reports an error at its top level: chunks have no message, but a delta."""
_TIERS = (b'"service_tier":"', b'"service_tier": "')
"""How chunks begin the name of a service tier."""


class NativeChat(NativeStream):
    """The stage for a chat stream. The finishing chunk is held back for the usage, which is merged into it; `[DONE]`
    always follows."""

    def __init__(self, exchange: Exchange, offer: Offer) -> None:
        super().__init__(exchange, offer, None)
        self._rule = UsageRule(offer.usage.read) if offer.usage.apart and offer.usage.read is not None else None
        self._styled = self._rule is not None or offer.errors.event_marks is None
        """Whether the marks are final; else they depend on how the first chunk is written."""
        self._usage: dict[str, Any] | None = None
        """The usage objects of all chunks, merged: the last value of each member wins (FACTS 1 and 2)."""
        self._elsewhere: dict[str, Any] | None = None
        """The last chunk with usage in a vendor's own member, which the mapping can read."""
        self._finish: dict[str, Any] | None = None
        """The chunk that finishes the answer; more chunks may follow it."""
        self._finish_raw = b""
        self._usage_chunk: dict[str, Any] | None = None
        """The last chunk with usage and without content, which is held back too."""
        self._usage_raw = b""
        self._beside: dict[str, Any] = {}
        """The lists in usage chunks (citations), to be added to the finishing chunk."""
        self._tier: str | None = None

    @property
    def counted(self) -> bool:
        return self.ended or self._finish is not None

    def usage(self) -> dict[str, Any] | None:
        if self._rule is not None:
            return self._rule.usage or None
        self._find_overlooked()
        reported = self._usage
        if reported is not None:
            if self._offer.usage.read is not None:
                read: dict[str, Any] | None = self._offer.usage.read({"usage": reported})
                return read
            counted = {"choices": [{}], "usage": reported}  # mappings read usage only beside a choice
            return tap_usage(self._offer.mapping, counted) or None
        if self._elsewhere is None:
            return None
        tap = Tap(self._offer.mapping)
        choices = self._elsewhere.get("choices")
        without_deltas = [
            {name: value for name, value in choice.items() if name != "delta"}  # usage may be beside the delta
            for choice in (choices if isinstance(choices, list) else ())
            if isinstance(choice, dict)
        ]
        tap.feed({**self._elsewhere, "choices": without_deltas})
        return tap.usage or None

    def tier(self) -> str | None:
        if self._tier is None and self._kept.holds(_TIERS):  # only in chunks that were not parsed
            tiers = [each.get("service_tier") for each in self.received() if isinstance(each, dict)]
            self._tier = next((tier for tier in reversed(tiers) if isinstance(tier, str)), None)
        return self._tier

    @property
    def answered(self) -> bool:
        # with several choices this may be the end of one of them
        return self._finish is not None and self._exchange.body.get("n") in (None, 1)

    def minted(self) -> list[str]:
        if not may_mint("chat", self._exchange.body):
            return []
        return [each for event in self.received() if isinstance(event, dict) for each in minted_ids(event)]

    def tail(self) -> bytes:
        usage, hub_usage = self._usage, self._exchange.client_usage()
        if usage is None and hub_usage:
            usage = written_usage(self._exchange, hub_usage)
        out = self._last_chunk(usage) + b"data: [DONE]\n\n"
        return out if self._exchange.attempt.failure is None else without_secrets(out, self._offer)

    def _last_chunk(self, usage: dict[str, Any] | None) -> bytes:
        """The finishing chunk with `usage`, or a chunk for the usage alone."""
        finish = self._finish
        if finish is not None:
            beside = {name: value for name, value in self._beside.items() if name not in finish}
            if not beside and (usage is None or finish.get("usage") == usage):
                return self._finish_raw
            last = {**finish, **beside, **({} if usage is None else {"usage": usage})}
        elif usage is None:
            return b""
        elif self._usage_chunk is not None:  # a vendor without finish reasons: its usage chunk passes unchanged
            return self._usage_raw
        else:
            frame = next((each for each in self.received() if isinstance(each, dict) and each.get("id")), {})
            last = {
                "id": frame.get("id", ""),
                "object": "chat.completion.chunk",
                "created": frame.get("created", 0),
                "model": frame.get("model", ""),
                "choices": [],
                "usage": usage,
            }
        return b"data: " + orjson.dumps(last) + b"\n\n"

    def _is_complete(self) -> bool:
        if self._finish is None and not self.ended and any(mark in self._unread for mark in _FINISHES):
            self.ended = any(map(finishes, self._unread_chunks()))  # written in another style, see `_find_overlooked`
        return self._finish is not None or self.ended and not all(map(is_without_content, self.received()))

    def _ending(self) -> Tap | None:
        if self._finish is None or not may_have_failed(self._finish):
            return None
        tap = Tap(self._offer.mapping)
        tap.feed(self._finish)
        return tap

    def received(self) -> list[Any]:
        """The parsed events, with the finishing chunk, which is held back and may hold text."""
        return [*super().received(), *([self._finish] if self._finish is not None else ())]

    def _find_overlooked(self) -> None:
        """Read the usage in the last bytes in which no mark matched, if they came after the last usage seen: a proxy
        between us and the model may write its own chunks in another JSON style. A chunk that was held back for the
        earlier usage is obsolete then."""
        if self.ended and (self._usage is None or self._finish is None) and b'"usage"' in self._unread:
            for chunk in self._unread_chunks():
                if chunk.get("usage"):
                    self._usage, self._usage_chunk = merged_usage(self._usage, chunk["usage"]), None

    def _unread_chunks(self) -> list[dict[str, Any]]:
        """The chunks in the last bytes that passed unparsed."""
        chunks = [parsed_event(event.data) for event in Decoder().feed(self._unread) if event.data]
        return [chunk for chunk in chunks if isinstance(chunk, dict)]

    def _pass(self, block: bytes) -> bytes:
        if not self._styled:
            self._choose_marks(block)
        return super()._pass(block)

    def _error_at_top(self, chunk: dict[str, Any]) -> UpstreamError | None:
        """The error that an event without choices reports at its top level, as the mapping reads it."""
        if chunk.get("choices") or "message" not in chunk:
            return None
        tap = Tap(self._offer.mapping)
        tap.feed(chunk)
        return reported_failure(self._offer, tap.error) if tap.error is not None else None

    def _choose_marks(self, block: bytes) -> None:
        """Choose the marks by the way in which the first chunk is written; for an unknown way every event is parsed."""
        style, errors = _style(block), self._offer.errors.event_marks
        if style is None:
            return
        self._styled = True
        known = _CHAT_MARKS.get(style)
        if known is not None and errors is not None:
            self._marks = (*known, _AT_TOP, *errors)

    def _event(self, event: Event, out: list[bytes]) -> None:
        data, raw = event.data, event.raw
        if self.ended:
            out = []  # what follows the end mark is only read for its usage: clients would get it before their end mark
        if not data:
            out.append(raw)
            return
        if is_end_mark(data):
            self.ended = True
            return
        raw = valid_utf8(raw)
        if not raw.endswith(BLANK):
            raw += b"\n\n"
        chunk = parsed_event(data)
        if not isinstance(chunk, dict):
            out.append(raw)
            return
        if self._rule is not None:
            self._rule.note(chunk)
        usage = chunk.get("usage")
        if usage:
            self._usage, self._unread = merged_usage(self._usage, usage), b""
        elif data.count(b'usage"') > ("usage" in chunk):
            self._elsewhere = chunk
        self.error = judge_chunk(self._offer, chunk) or self._error_at_top(chunk)
        if self.error is not None:
            return
        if isinstance(tier := chunk.get("service_tier"), str):
            self._tier = tier
        choices = chunk.get("choices")
        if choices is None and usage:
            choices = []  # some leave them out beside usage
        if not isinstance(choices, list):
            out.append(raw)
        elif finishes(chunk):
            if self._finish is not None:
                out.append(self._finish_raw)
            self._finish, self._finish_raw = chunk, raw
            self._marks = None  # few events follow a finish, and they may show that it was that of one choice only
        elif usage and is_empty(choices):
            self._usage_chunk, self._usage_raw = chunk, raw
            self._beside.update((name, value) for name, value in chunk.items() if type(value) is list and value)
        else:
            if self._finish is not None and are_of_others(choices, self._finish):
                out.append(self._finish_raw)
                self._finish = None
            out.append(raw)


def _style(block: bytes) -> bytes | None:
    """What the upstream writes between a JSON name and its value: `:` or `: `, b"" for anything else. Seen at the first
    known name in the block; None if there is none."""
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
