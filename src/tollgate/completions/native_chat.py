"""A native chat stream: its usage may come in any chunk, and its finishing chunk is held back for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import orjson

from tollgate.completions.chat_chunks import are_of_others, is_empty, is_without_content, merged_usage
from tollgate.completions.exchange import Exchange
from tollgate.completions.judging import judge_chunk, without_secrets
from tollgate.completions.missing_usage import written_usage
from tollgate.completions.native import parsed_event, valid_utf8
from tollgate.completions.native_stage import NativeStage
from tollgate.completions.native_stream import Judge, Marks, NativeStream
from tollgate.completions.state_ids import may_mint, minted_ids
from tollgate.completions.usage_rule import UsageRule
from tollgate.mapping import Tap, tap_usage
from tollgate.routing import Offer
from tollgate.sse import BLANK, Decoder, Event
from tollgate.wire import may_have_failed

_CHAT_MARKS = {
    b":": (b'"finish_reason":"', b'"usage":{', b"[DONE]"),
    b": ": (b'"finish_reason": "', b'"usage": {', b"[DONE]"),
}
"""Marks of the chunks that end an answer or hold usage, by the way in which the upstream writes JSON."""


class ChatStream(NativeStream):
    """A chat stream. The finishing chunk is held back for the usage, which is merged into it; `[DONE]` always follows.

    `usage` merges the usage objects of all chunks, the last value of each member wins (FACTS 1 and 2). `observe` gets
    every chunk, for providers that report usage elsewhere.
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
        self._usage_at = 0
        self._beside: dict[str, Any] = {}  # lists in the usage chunk (citations), to be added to the finishing chunk
        self._last: dict[str, Any] | None = None
        self.tier: str | None = None
        """The service tier that the upstream reports."""
        self.elsewhere: dict[str, Any] | None = None
        """The last chunk with usage in a vendor's own member, which the mapping can read."""

    def feed(self, block: bytes) -> bytes:
        """The bytes that may be sent after this block of upstream bytes."""
        if not self._styled:
            self._choose_marks(block)
        return super().feed(block)

    def _choose_marks(self, block: bytes) -> None:
        """Choose the marks by the way in which the first chunk is written; for an unknown way every event is parsed."""
        style = _style(block)
        if style is None:
            return
        self._styled = True
        known = _CHAT_MARKS.get(style)
        if known is not None and self._errors is not None:
            self._marks = (*known, *self._errors)

    @property
    def finished(self) -> bool:
        """Whether the answer is complete, so that no further usage will follow."""
        return self.ended or self.finish is not None

    def overlooked(self, sent: bytes) -> dict[str, Any] | None:
        """The usage, also from the last bytes sent, in which no mark matched: a proxy between us and the model may
        write its own chunks in another JSON style. If bytes were sent after the last usage seen, theirs is newer, and a
        chunk that was held back for the earlier one is obsolete."""
        unseen = self.usage is None or self.finish is None and self.kept.total > self._usage_at
        if self.ended and unseen and b'"usage"' in sent:
            for event in Decoder().feed(sent):
                chunk = parsed_event(event.data) if event.data else None
                if isinstance(chunk, dict) and chunk.get("usage"):
                    self.usage, self._loose = merged_usage(self.usage, chunk["usage"]), None
        return self.usage

    def received(self) -> list[Any]:
        """The parsed events, with the finishing chunk, which is held back and may hold text."""
        return [*super().received(), *([self.finish] if self.finish is not None else ())]

    def tail(self, usage: dict[str, Any] | None) -> bytes:
        """The finishing chunk with `usage`, and `[DONE]`."""
        finish = self.finish
        if finish is None:
            if usage is None:
                return b"data: [DONE]\n\n"
            if self._loose is not None:  # a vendor without finish reasons: its usage chunk passes unchanged
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
        beside = {name: value for name, value in self._beside.items() if name not in finish}
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
            self.usage, self._usage_at = merged_usage(self.usage, usage), self.kept.total
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
            self._marks = None  # few events follow a finish, and they may show that it was that of one choice only
        elif usage and is_empty(choices):
            self._loose, self._loose_raw = chunk, raw
            self._beside.update((name, value) for name, value in chunk.items() if type(value) is list and value)
        else:
            if self.finish is not None and are_of_others(choices, self.finish):
                out.append(self._finish_raw)
                self.finish = None
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


class NativeChat(NativeStage):
    """The stage for a chat stream."""

    _inner: ChatStream

    def __init__(self, exchange: Exchange, offer: Offer) -> None:
        self._rule = UsageRule(offer.usage.read) if offer.usage.apart and offer.usage.read is not None else None
        observe = self._rule.note if self._rule is not None else None
        super().__init__(exchange, offer, ChatStream(partial(judge_chunk, offer), offer.errors.event_marks, observe))

    @property
    def counted(self) -> bool:
        return self._inner.finished

    def usage(self) -> dict[str, Any] | None:
        if self._rule is not None:
            return self._rule.usage or None
        reported = self._inner.overlooked(self._sent)
        if reported is not None:
            if self._offer.usage.read is not None:
                read: dict[str, Any] | None = self._offer.usage.read({"usage": reported})
                return read
            counted = {"choices": [{}], "usage": reported}  # mappings read usage only beside a choice
            return tap_usage(self._offer.mapping, counted) or None
        if self._inner.elsewhere is None:
            return None
        tap = Tap(self._offer.mapping)
        chunk = self._inner.elsewhere
        choices = [
            {name: value for name, value in choice.items() if name != "delta"}  # usage may be beside the delta
            for choice in chunk.get("choices") or ()
            if isinstance(choice, dict)
        ]
        tap.feed({**chunk, "choices": choices})
        return tap.usage or None

    def tier(self) -> str | None:
        return self._inner.tier

    def minted(self) -> list[str]:
        if not may_mint("chat", self._exchange.body):
            return []
        return [each for event in self._inner.received() if isinstance(event, dict) for each in minted_ids(event)]

    def _has_content(self) -> bool:
        return self._inner.finish is not None or not all(map(is_without_content, self._inner.received()))

    def _ending(self) -> Tap | None:
        finish = self._inner.finish
        if finish is None or not may_have_failed(finish):
            return None
        tap = Tap(self._offer.mapping)
        tap.feed(finish)
        return tap

    def tail(self) -> bytes:
        usage, hub_usage = self._inner.usage, self._exchange.reported_usage()
        out = self._inner.tail(written_usage(self._exchange, hub_usage) if usage is None and hub_usage else usage)
        return out if self._exchange.attempt.failure is None else without_secrets(out, self._offer)
