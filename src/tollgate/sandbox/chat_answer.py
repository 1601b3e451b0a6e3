"""Writes an answer as chat completions: one object, or the chunks of a stream in the order of real servers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from secrets import token_hex

from tollgate.sandbox import counting
from tollgate.sandbox.answer import Answer, ToolCall, check_logprobs, logprobs, tier_given, total
from tollgate.sandbox.faults import Fault
from tollgate.sandbox.prompt import Prompt
from tollgate.sandbox.writing import Event


class ChatWriter:
    """One chat answer with one or more choices; call `whole` or `events`, once."""

    def __init__(self, prompt: Prompt, answers: Sequence[Answer], body: Mapping[str, object]) -> None:
        self.prompt = prompt
        self.answers = answers
        self.body = body
        self.id = f"chatcmpl-{token_hex(12)}"
        self.created = int(time.time())
        top = body.get("top_logprobs")
        self.top = (max(0, top) if isinstance(top, int) else 0) if body.get("logprobs") is True else None
        self.ids = [[f"call_{token_hex(12)}" for _ in a.calls] for a in answers]

    def usage(self) -> dict[str, object]:
        """The usage object of all choices together."""
        counts = total(self.answers)
        return {
            "prompt_tokens": counts.prompt,
            "completion_tokens": counts.completion,
            "total_tokens": counts.prompt + counts.completion,
            "prompt_tokens_details": {
                "cached_tokens": counts.read,
                "cache_write_tokens": counts.written,
                "audio_tokens": 0,
            },
            "completion_tokens_details": {
                "reasoning_tokens": counts.reasoning,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }

    def whole(self) -> dict[str, object]:
        """The `chat.completion` object. Raises `Fault` 400 for too many log probabilities."""
        if self.top is not None:
            check_logprobs([each.text for each in self.answers], self.top)
        found = self._frame("chat.completion", [self._choice(i, a) for i, a in enumerate(self.answers)])
        if not self.prompt.controls.no_usage:
            found["usage"] = self.usage()
        return found

    def events(self) -> Iterator[Event]:
        """The chunks, the usage chunk if requested, and `[DONE]`."""
        controls = self.prompt.controls
        options = self.body.get("stream_options")
        include_usage = isinstance(options, Mapping) and options.get("include_usage") is True and not controls.no_usage
        include_usage = include_usage and not controls.late_usage
        last = len(self.answers) - 1
        for row in zip_longest(*(self._choice_chunks(i, a) for i, a in enumerate(self.answers))):
            for index, choice in enumerate(row):
                if choice is None:
                    continue
                chunk = self._frame("chat.completion.chunk", [choice])
                if include_usage:
                    chunk["usage"] = None
                if controls.late_usage and index == last and choice["finish_reason"]:
                    chunk["usage"] = self.usage()
                yield None, chunk
        if include_usage:
            yield None, {**self._frame("chat.completion.chunk", []), "usage": self.usage()}
        yield None, "[DONE]"

    def failure(self) -> Iterator[Event]:
        """The events of a stream that fails in the middle."""
        yield None, {"error": Fault(500).detail("chat")}

    def _frame(self, kind: str, choices: list[dict[str, object]]) -> dict[str, object]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.prompt.model,
            "service_tier": tier_given(self.body),
            "system_fingerprint": "fp_sandbox",
            "choices": choices,
        }

    def _choice(self, index: int, found: Answer) -> dict[str, object]:
        message: dict[str, object] = {
            "role": "assistant",
            "content": found.text,
            "refusal": found.refusal,
            "annotations": [],
        }
        if found.refusal or (found.calls and not found.text):
            message["content"] = None
        if found.reasoning:
            message["reasoning"] = found.reasoning
        if found.calls:
            message["tool_calls"] = [_call(call, self.ids[index][i]) for i, call in enumerate(found.calls)]
        chances = self._logprobs(found.text)
        return {"index": index, "message": message, "logprobs": chances, "finish_reason": found.finish}

    def _logprobs(self, text: str) -> dict[str, object] | None:
        return None if self.top is None else {"content": logprobs(text, self.top), "refusal": None}

    def _choice_chunks(self, index: int, found: Answer) -> Iterator[dict[str, object]]:
        """The choices of one index, chunk by chunk: role, reasoning, text, calls, finish."""
        content = None if found.calls and not found.text else ""
        yield self._delta(index, {"role": "assistant", "content": content, "refusal": None})
        for piece in counting.pieces(found.reasoning):
            yield self._delta(index, {"reasoning": piece})
        for piece in counting.pieces(found.text):
            yield self._delta(index, {"content": piece}, piece)
        for piece in counting.pieces(found.refusal or ""):
            yield self._delta(index, {"refusal": piece})
        for number, call in enumerate(found.calls):
            opened = _call(call, self.ids[index][number])
            inner, argument = ("custom", "input") if call.kind == "custom" else ("function", "arguments")
            opened[inner] = {"name": call.name, argument: ""}
            yield self._delta(index, {"tool_calls": [{"index": number, **opened}]})
            for piece in counting.pieces(call.arguments):
                yield self._delta(index, {"tool_calls": [{"index": number, inner: {argument: piece}}]})
        yield {"index": index, "delta": {}, "logprobs": None, "finish_reason": found.finish}

    def _delta(self, index: int, delta: dict[str, object], piece: str | None = None) -> dict[str, object]:
        chances = None if piece is None else self._logprobs(piece)
        return {"index": index, "delta": delta, "logprobs": chances, "finish_reason": None}


def _call(call: ToolCall, call_id: str) -> dict[str, object]:
    if call.kind == "custom":
        return {"id": call_id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    return {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
