"""Assembles the whole answer of a recorded stream. Written from the formats, not from our mappings.

None for a stream without a whole answer: an error, no end, or pieces that have no single place in a whole answer.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from typing import Any

Events = Iterable[tuple[str | None, Any]]


def messages(events: Events) -> dict[str, Any] | None:
    """A messages stream: blocks grow by their index."""
    made: dict[str, Any] = {}
    inputs: dict[int, str] = {}
    leading = 0
    for _, event in events:
        kind = event.get("type") if isinstance(event, dict) else None
        if kind == "error":
            return None
        if kind == "message_start":
            made = copy.deepcopy(event["message"])
            leading = len(made["content"])  # whole blocks in the start event come before those with an index
        elif kind == "content_block_start":
            made["content"].append(copy.deepcopy(event["content_block"]))
        elif kind == "content_block_delta":
            block, delta = made["content"][leading + event["index"]], event["delta"]
            match delta["type"]:
                case "text_delta":
                    block["text"] += delta["text"]
                case "thinking_delta":
                    block["thinking"] += delta["thinking"]
                case "signature_delta":
                    block["signature"] = delta["signature"]
                case "citations_delta":
                    block["citations"] = [*(block.get("citations") or []), delta["citation"]]
                case "input_json_delta":
                    inputs[event["index"]] = inputs.get(event["index"], "") + delta["partial_json"]
                case _:
                    block["content"] = delta.get("content")
        elif kind == "content_block_stop" and inputs.get(event["index"]):
            made["content"][leading + event["index"]]["input"] = json.loads(inputs[event["index"]])
        elif kind == "message_delta":
            made.update(
                event["delta"],
                **{name: value for name, value in event.items() if name not in ("type", "delta", "usage")},
            )
            made["usage"] = {
                **made["usage"],
                **{name: count for name, count in (event.get("usage") or {}).items() if count is not None},
            }
        elif kind == "message_stop":
            made.update({name: value for name, value in event.items() if name.endswith("guardrailAction")})
    return made or None


def responses(events: Events) -> dict[str, Any] | None:
    """A responses stream: its last event contains everything."""
    found = (
        event["response"]
        for _, event in events
        if isinstance(event, dict) and event.get("type") in ("response.completed", "response.incomplete")
    )
    return next(found, None)


def gemini(events: Events) -> dict[str, Any] | None:
    """A Gemini stream: parts follow each other, adjacent texts are one text."""
    made: dict[str, Any] = {}
    parts: list[dict[str, Any]] = []
    for _, event in events:
        if not isinstance(event, dict) or "error" in event:
            return None
        made.update({name: value for name, value in event.items() if name != "candidates"})
        for candidate in (event.get("candidates") or [])[:1]:
            kept = made.setdefault("candidates", [{}])[0]
            kept.update(
                {name: value for name, value in candidate.items() if name != "content"},
                content={"role": "model", "parts": parts},
            )
            for part in (candidate.get("content") or {}).get("parts") or []:
                last = parts[-1] if parts else {}
                if (
                    "text" in part
                    and "text" in last
                    and {*part, *last} <= {"text", "thought"}
                    and bool(part.get("thought")) == bool(last.get("thought"))
                ):
                    last["text"] += part["text"]
                else:
                    parts.append(copy.deepcopy(part))
    return made or None


_CHAT_TEXTS = ("content", "reasoning", "reasoning_content", "refusal")
_CHAT_LISTS = ("annotations", "executed_tools", "images", "reasoning_details")


def chat(events: Events) -> dict[str, Any] | None:
    """A chat stream: texts grow, calls by their index and id."""
    made: dict[str, Any] = {}
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls: list[tuple[Any, dict[str, Any]]] = []
    tokens: dict[str, list[Any]] = {}
    choice: dict[str, Any] = {"index": 0, "message": message}
    for _, event in events:
        if not isinstance(event, dict):
            continue
        if event.get("error"):
            return None
        made.update({name: value for name, value in event.items() if name not in ("choices", "object") and value})
        for received in event.get("choices") or []:
            delta = received.get("delta") or {}
            if received.get("index") or delta.get("audio") or delta.get("function_call"):
                return None
            for name in _CHAT_TEXTS:
                text = delta.get(name)
                if text and not isinstance(text, str):
                    return None
                if text:
                    message[name] = (message.get(name) or "") + text
            for name in _CHAT_LISTS:
                if delta.get(name):
                    message[name] = [*(message.get(name) or []), *delta[name]]
            several = len(delta.get("tool_calls") or []) > 1  # without an index they grow by position
            for place, call in enumerate(delta.get("tool_calls") or []):
                _grow(calls, {"index": place, **call} if several else call)
            for name, list_ in (received.get("logprobs") or {}).items():
                tokens[name] = [*tokens.get(name, []), *(list_ or [])]
            if received.get("finish_reason"):
                choice["finish_reason"] = received["finish_reason"]
    if "finish_reason" not in choice:
        return None
    message["tool_calls"] = [call for _, call in calls]
    return {**made, "choices": [{**choice, "logprobs": tokens}]}


def _grow(calls: list[tuple[Any, dict[str, Any]]], fragment: dict[str, Any]) -> None:
    form, text = ("custom", "input") if "custom" in fragment else ("function", "arguments")
    place = fragment.get("index")
    here = [
        call for at, call in calls if at is not None and at == place and fragment.get("id") in (None, "", call["id"])
    ]
    if not here:
        here = [{**fragment, form: {**fragment[form], text: ""}}]
        calls.append((place, here[0]))
    piece = fragment[form].get(text)
    here[-1][form][text] += piece if isinstance(piece, str) else json.dumps(piece) if piece else ""


ASSEMBLE: dict[str, Callable[[Events], dict[str, Any] | None]] = {
    "chat": chat,
    "responses": responses,
    "messages": messages,
    "gemini": gemini,
}
"""By mapping name."""
