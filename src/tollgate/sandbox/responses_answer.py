"""Writes an answer as responses: the complete object, or every event of a stream with its sequence number."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from secrets import token_hex
from typing import Any

from tollgate.sandbox import counting, signing
from tollgate.sandbox.answer import Answer, ToolCall, check_logprobs, logprobs, tier_given
from tollgate.sandbox.prompt import Prompt
from tollgate.sandbox.writing import Event

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_ECHOED: dict[str, object] = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "prompt_cache_retention": None,
    "safety_identifier": None,
    "store": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""Request fields that are returned in the object, with their values if the request does not set them."""


class ResponsesWriter:
    """One responses answer; call `whole` or `events`, once. `items` is its output, for a stored conversation.

    Raises `Fault` 400 for too many log probabilities.
    """

    def __init__(self, prompt: Prompt, found: Answer, body: Mapping[str, object]) -> None:
        self.prompt = prompt
        self.answer = found
        self.body = body
        self.id = f"resp_{token_hex(24)}"
        self.created = int(time.time())
        self.sequence = 0
        include, top = body.get("include"), body.get("top_logprobs")
        self.include = include if isinstance(include, list) else []
        wanted = "message.output_text.logprobs" in self.include
        self.top = (max(0, top) if isinstance(top, int) else 0) if wanted else None
        reasoning = body.get("reasoning")
        self.reasoning = reasoning if isinstance(reasoning, Mapping) else {}
        self.status = "incomplete" if found.finish in _INCOMPLETE else "completed"
        self.items = list(self._items())

    def usage(self) -> dict[str, object]:
        """The usage object with both details."""
        counts = self.answer.counts
        return {
            "input_tokens": counts.prompt,
            "input_tokens_details": {"cached_tokens": counts.read, "cache_write_tokens": counts.written},
            "output_tokens": counts.completion,
            "output_tokens_details": {"reasoning_tokens": counts.reasoning},
            "total_tokens": counts.prompt + counts.completion,
        }

    def whole(self) -> dict[str, object]:
        """The `response` object."""
        return self._response(self.status, self.items)

    def events(self) -> Iterator[Event]:
        """created, in_progress, every item with its parts and deltas, and the last event."""
        yield self._event("response.created", response=self._response("in_progress", []))
        yield self._event("response.in_progress", response=self._response("in_progress", []))
        filling = {"reasoning": self._reasoning_events, "message": self._message_events}
        for index, item in enumerate(self.items):
            yield self._event("response.output_item.added", output_index=index, item=_begun(item))
            where = {"item_id": item["id"], "output_index": index}
            yield from filling.get(str(item["type"]), self._call_events)(item, where)
            yield self._event("response.output_item.done", output_index=index, item=item)
        yield self._event(f"response.{self.status}", response=self.whole())

    def failure(self) -> Iterator[Event]:
        """The events of a stream that fails in the middle; `nested` is the form in which some servers send the
        error."""
        error = {"code": "server_error", "message": "The server had an error while processing your request."}
        if self.prompt.controls.nested:
            yield self._event("error", error={"type": "server_error", **error, "param": None})
        else:
            yield self._event("error", **error, param=None)
        yield self._event("response.failed", response={**self._response("failed", []), "error": error})

    def _event(self, name: str, /, **rest: object) -> Event:
        number = self.sequence
        self.sequence += 1
        return name, {"type": name, "sequence_number": number, **rest}

    def _response(self, status: str, output: list[dict[str, object]]) -> dict[str, object]:
        echoed = {
            name: default if self.body.get(name) is None else self.body[name] for name, default in _ECHOED.items()
        }
        text = self.body.get("text")
        text = text if isinstance(text, Mapping) else {}
        done = status in ("completed", "incomplete")
        found: dict[str, object] = {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "completed_at": self.created if status == "completed" else None,
            "error": None,
            "incomplete_details": None,
            "model": self.prompt.model,
            "output": output,
            **echoed,
            "reasoning": {
                "effort": self.reasoning.get("effort") or ("medium" if self.prompt.thinks else None),
                "summary": self.reasoning.get("summary"),
            },
            "service_tier": tier_given(self.body) if done else self.body.get("service_tier") or "auto",
            "text": {"format": text.get("format") or {"type": "text"}, "verbosity": text.get("verbosity") or "medium"},
            "tools": [_tool(tool) for tool in self.body.get("tools") or []],  # type: ignore[attr-defined]
            "usage": self.usage() if done and not self.prompt.controls.no_usage else None,
        }
        if status == "incomplete":
            found["incomplete_details"] = {"reason": _INCOMPLETE[self.answer.finish]}
        return found

    def _items(self) -> Iterator[dict[str, object]]:
        found = self.answer
        if found.reasoning:
            summary = [{"type": "summary_text", "text": found.reasoning}] if self.reasoning.get("summary") else []
            item: dict[str, object] = {"id": f"rs_{token_hex(24)}", "type": "reasoning", "summary": summary}
            if "reasoning.encrypted_content" in self.include:
                item["encrypted_content"] = signing.seal(found.reasoning)
            yield item
        if found.text or found.refusal or (not found.calls and not self.prompt.controls.empty):
            yield {
                "id": f"msg_{token_hex(24)}",
                "type": "message",
                "status": self.status,
                "role": "assistant",
                "content": [self._part()],
            }
        for call in found.calls:
            yield _call_item(call)

    def _part(self) -> dict[str, object]:
        if self.answer.refusal:
            return {"type": "refusal", "refusal": self.answer.refusal}
        if self.top is not None:
            check_logprobs([self.answer.text], self.top)
        return {
            "type": "output_text",
            "text": self.answer.text,
            "annotations": [],
            "logprobs": self._logprobs(self.answer.text),
        }

    def _logprobs(self, text: str) -> list[dict[str, object]]:
        return [] if self.top is None else logprobs(text, self.top)

    def _reasoning_events(self, item: dict[str, object], where: dict[str, object]) -> Iterator[Event]:
        summary: list[dict[str, Any]] = item["summary"]  # type: ignore[assignment]
        for number, part in enumerate(summary):
            where = {**where, "summary_index": number}
            yield self._event(
                "response.reasoning_summary_part.added", **where, part={"type": "summary_text", "text": ""}
            )
            for piece in counting.pieces(part["text"]):
                yield self._event("response.reasoning_summary_text.delta", **where, delta=piece)
            yield self._event("response.reasoning_summary_text.done", **where, text=part["text"])
            yield self._event("response.reasoning_summary_part.done", **where, part=part)

    def _message_events(self, item: dict[str, object], where: dict[str, object]) -> Iterator[Event]:
        part = item["content"][0]  # type: ignore[index]
        where = {**where, "content_index": 0}
        if part["type"] == "refusal":
            yield self._event("response.content_part.added", **where, part={"type": "refusal", "refusal": ""})
            for piece in counting.pieces(part["refusal"]):
                yield self._event("response.refusal.delta", **where, delta=piece)
            yield self._event("response.refusal.done", **where, refusal=part["refusal"])
        else:
            yield self._event("response.content_part.added", **where, part={**part, "text": "", "logprobs": []})
            for piece in counting.pieces(part["text"]):
                yield self._event("response.output_text.delta", **where, delta=piece, logprobs=self._logprobs(piece))
            yield self._event("response.output_text.done", **where, text=part["text"], logprobs=part["logprobs"])
        yield self._event("response.content_part.done", **where, part=part)

    def _call_events(self, item: dict[str, object], where: dict[str, object]) -> Iterator[Event]:
        custom = item["type"] == "custom_tool_call"
        argument = "input" if custom else "arguments"
        event = "response.custom_tool_call_input" if custom else "response.function_call_arguments"
        for piece in counting.pieces(str(item[argument])):
            yield self._event(f"{event}.delta", **where, delta=piece)
        named = {} if custom else {"name": item["name"]}
        yield self._event(f"{event}.done", **where, **named, **{argument: item[argument]})


def _begun(item: dict[str, object]) -> dict[str, object]:
    """An item as it is at its start, without content."""
    if item["type"] == "reasoning":
        # As in real streams, the opaque content differs from that of the finished item.
        sealed = {"encrypted_content": signing.seal("")} if "encrypted_content" in item else {}
        return {**item, "summary": [], **sealed}
    if item["type"] == "message":
        return {**item, "content": [], "status": "in_progress"}
    argument = "input" if item["type"] == "custom_tool_call" else "arguments"
    return {**item, argument: "", "status": "in_progress"}


def _call_item(call: ToolCall) -> dict[str, object]:
    if call.kind == "custom":
        return {
            "id": f"ctc_{token_hex(24)}",
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": f"call_{token_hex(12)}",
            "name": call.name,
            "input": call.arguments,
        }
    return {
        "id": f"fc_{token_hex(24)}",
        "type": "function_call",
        "status": "completed",
        "arguments": call.arguments,
        "call_id": f"call_{token_hex(12)}",
        "name": call.name,
    }


def _tool(tool: Mapping[str, object]) -> dict[str, object]:
    """A tool as it is returned: a function is strict by default."""
    if tool.get("type") != "function":
        return dict(tool)
    strict = tool.get("strict")
    return {"description": None, "parameters": None, **tool, "strict": True if strict is None else strict}
