"""Writes an answer as messages: one object, or the events of a stream with thinking, signatures,
pings and tool input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from secrets import token_hex

import orjson

from tollgate.sandbox import counting, signing
from tollgate.sandbox.answer import Answer
from tollgate.sandbox.faults import Fault
from tollgate.sandbox.prompt import Prompt
from tollgate.sandbox.writing import Event

_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


class MessagesWriter:
    """One messages answer; call `whole` or `events`, once."""

    def __init__(self, prompt: Prompt, found: Answer, body: Mapping[str, object]) -> None:
        self.prompt = prompt
        self.answer = found
        self.id = f"msg_{token_hex(12)}"
        thinking = body.get("thinking")
        self.omitted = isinstance(thinking, Mapping) and thinking.get("display") == "omitted"

    def usage(self, *, start: bool = False) -> dict[str, object]:
        """The usage object; at the start of a stream it has one output token."""
        counts = self.answer.counts
        found: dict[str, object] = {
            "input_tokens": counts.uncached,
            "cache_creation_input_tokens": counts.written,
            "cache_read_input_tokens": counts.read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": counts.written_5m,
                "ephemeral_1h_input_tokens": counts.written_1h,
            },
            "output_tokens": 1 if start else counts.completion,
        }
        if not start:
            found["output_tokens_details"] = {"thinking_tokens": counts.reasoning}
        return {**found, "service_tier": "standard"}

    def whole(self) -> dict[str, object]:
        """The `message` object."""
        return self._message(self._blocks(), **self._stop(), **self._with_usage())

    def events(self) -> Iterator[Event]:
        """message_start, the blocks (with a ping after the start of the first), message_delta, message_stop."""
        start = self._message(
            [], stop_reason=None, stop_sequence=None, stop_details=None, **self._with_usage(start=True)
        )
        yield "message_start", {"type": "message_start", "message": start}
        for index, block in enumerate(self._blocks()):
            opened, deltas = _opened(block)
            yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": opened}
            if index == 0:
                yield "ping", {"type": "ping"}
            for delta in deltas:
                yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
            yield "content_block_stop", {"type": "content_block_stop", "index": index}
        last = {"type": "message_delta", "delta": self._stop()}
        if not self.prompt.controls.no_usage:
            left_out = ("cache_creation", "service_tier")
            last["usage"] = {k: v for k, v in self.usage().items() if k not in left_out}
        yield "message_delta", last
        yield "message_stop", {"type": "message_stop"}

    def failure(self) -> Iterator[Event]:
        """The events of a stream that fails in the middle."""
        yield "error", {"type": "error", "error": {"details": None, **Fault(529).detail("messages")}}

    def _with_usage(self, *, start: bool = False) -> dict[str, object]:
        return {} if self.prompt.controls.no_usage else {"usage": self.usage(start=start)}

    def _message(self, content: list[dict[str, object]], **rest: object) -> dict[str, object]:
        return {
            "model": self.prompt.model,
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "content": content,
            **rest,
        }

    def _stop(self) -> dict[str, object]:
        found = self.answer
        reason = "refusal" if found.refusal else _STOPS[found.finish]
        details = {"type": "refusal", "category": None, "explanation": found.refusal} if found.refusal else None
        if found.stop_sequence is not None:
            reason = "stop_sequence"
        return {"stop_reason": reason, "stop_sequence": found.stop_sequence, "stop_details": details}

    def _blocks(self) -> list[dict[str, object]]:
        found = self.answer
        blocks: list[dict[str, object]] = []
        if found.reasoning and self.prompt.controls.redacted:
            blocks.append({"type": "redacted_thinking", "data": signing.seal(found.reasoning)})
        elif found.reasoning:
            shown = "" if self.omitted else found.reasoning
            blocks.append({"type": "thinking", "thinking": shown, "signature": signing.sign(found.reasoning)})
        if found.text:
            blocks.append({"type": "text", "text": found.text})
        for call in found.calls:
            blocks.append(
                {
                    "type": "tool_use",
                    "id": f"toolu_{token_hex(12)}",
                    "name": call.name,
                    "input": orjson.loads(call.arguments),
                }
            )
        return blocks


def _opened(block: dict[str, object]) -> tuple[dict[str, object], Iterator[dict[str, object]]]:
    """A block as it starts, empty, and the deltas that fill it."""
    kind = block["type"]
    deltas: Iterator[dict[str, object]] = iter(())
    if kind == "thinking":
        deltas = ({"type": "thinking_delta", "thinking": piece} for piece in counting.pieces(str(block["thinking"])))
        signed: dict[str, object] = {"type": "signature_delta", "signature": block["signature"]}
        return {"type": "thinking", "thinking": "", "signature": ""}, chain(deltas, [signed])
    if kind == "text":
        deltas = ({"type": "text_delta", "text": piece} for piece in counting.pieces(str(block["text"])))
        return {"type": "text", "text": ""}, deltas
    if kind == "tool_use":
        given = orjson.dumps(block["input"]).decode() if block["input"] else ""
        fragments = chain([""], counting.pieces(given))
        return {**block, "input": {}}, ({"type": "input_json_delta", "partial_json": f} for f in fragments)
    return block, deltas
