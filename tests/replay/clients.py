"""Reads converted answers as clients do: through the official SDKs' own types and accumulators.

Whole bodies are validated by the SDK's pydantic models, responses also by the published OpenAPI schema. Streams go
through the accumulators of the SDKs' stream helpers; every event is validated first.
"""

from __future__ import annotations

import functools
import json
import re
from typing import Any

import anthropic.types as anthropic_types
import openai.types.chat as chat_types
import openai.types.responses as responses_types
import pytest
from anthropic.lib.streaming._messages import accumulate_event
from openai import omit
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.lib.streaming.responses._responses import ResponseStreamState

from replay import read_chat, read_messages, read_responses
from replay.facts import Answer
from support.places import SHARED
from support.sdks import message_events, response_events

OPENAPI = SHARED / "schemas" / "openai-openapi.json"


def whole(client: str, body: dict[str, Any]) -> Answer:
    """A whole converted answer, parsed and read back."""
    body = json.loads(json.dumps(body))
    if client == "chat":
        parsed = chat_types.ChatCompletion.model_validate(body)
        published("CreateChatCompletionResponse", body)
        placed(body["choices"][0]["message"].get("annotations"), body["choices"][0]["message"]["content"])
        return read_chat.answer(parsed.to_dict())
    if client == "responses":
        parsed_response = responses_types.Response.model_validate(body)
        published("Response", body)
        complete_response(body)
        for item in body["output"]:
            for part in item.get("content") or []:
                placed(part.get("annotations"), part.get("text"))
        return read_responses.answer(parsed_response.to_dict())
    message = anthropic_types.Message.model_validate(body)
    for block in body["content"]:
        if block["type"] == "thinking" and not isinstance(block["signature"], str):
            raise ValueError("a thinking block without a signature text")
    return read_messages.answer(message.to_dict())


def streamed(client: str, events: list[tuple[str | None, Any]]) -> Answer:
    """A converted stream, rebuilt by the SDK's accumulator."""
    return {"chat": chat_stream, "responses": responses_stream, "messages": messages_stream}[client](events)


def chat_stream(events: list[tuple[str | None, Any]]) -> Answer:
    state = ChatCompletionStreamState()
    error, usage, logs, images, notes = None, None, [], [], []
    last = None
    for position, (_, chunk) in enumerate(events):
        if chunk == "[DONE]":
            continue
        if "error" in chunk:
            error = chunk["error"]["message"]
            continue
        if position == 0 and chunk["choices"][0]["delta"].get("role") != "assistant":
            raise ValueError("the first chunk has no role")
        parsed = chat_types.ChatCompletionChunk.model_validate(without_custom_type(chunk))
        published("CreateChatCompletionStreamResponse", without_custom_type(chunk))
        list(state.handle_chunk(parsed))
        last = chunk
        choice = chunk["choices"][0]
        logs += (choice.get("logprobs") or {}).get("content") or []
        images += choice["delta"].get("images") or []
        notes += choice["delta"].get("annotations") or []
        if chunk.get("usage"):
            usage = chunk["usage"]
            if choice.get("finish_reason") is None:
                raise ValueError("usage is not on the chunk with the finishing delta")
    if error is not None and last is None:
        return Answer(error=error, stops=frozenset({"none"}))
    final = state.current_completion_snapshot.to_dict()
    finish = final["choices"][0].get("finish_reason")
    if error is None and events[-1][1] != "[DONE]":
        raise ValueError("the stream does not end with [DONE]")
    message = {**final["choices"][0]["message"], "images": images, "annotations": notes}
    placed(notes, message.get("content"))
    for call in message.get("tool_calls") or []:
        if call.get("custom"):
            call["type"] = "custom"
    body = {"choices": [{"message": message, "finish_reason": finish, "logprobs": {"content": logs}}], "usage": usage}
    a = read_chat.answer(body)
    # the pieces of reasoning_details repeat the reasoning
    a.reasoning = message.get("reasoning") or ""
    a.error = error
    return a


def without_custom_type(chunk: dict[str, Any]) -> dict[str, Any]:
    """Free-form calls have the type `custom`, as in whole answers; the SDK's chunk type does not list it yet."""
    chunk = json.loads(json.dumps(chunk))
    for choice in chunk["choices"]:
        for call in choice["delta"].get("tool_calls") or []:
            if call.get("type") == "custom":
                del call["type"]
    return chunk


def responses_stream(events: list[tuple[str | None, Any]]) -> Answer:
    adapter = response_events()
    state = ResponseStreamState(input_tools=omit, text_format=omit)
    spoken: dict[tuple[int, str], str] = {}
    open_items: set[int] = set()
    logs: list[Any] = []
    for position, (name, event) in enumerate(events):
        event = json.loads(json.dumps(event))
        if name != event["type"]:
            raise ValueError(f"event named {name}, typed {event['type']}")
        if event["sequence_number"] != position:
            raise ValueError(f"sequence_number {event['sequence_number']} at place {position}")
        parsed = adapter.validate_python(event)
        published_event(event)
        state.handle_event(parsed)
        kind = event["type"]
        if kind == "response.output_item.added":
            open_items.add(event["output_index"])
        elif kind == "response.output_item.done":
            open_items.remove(event["output_index"])
        elif kind.endswith(".delta"):
            key = (event["output_index"], kind.removesuffix(".delta"))
            spoken[key] = spoken.get(key, "") + event["delta"]
            logs += event.get("logprobs") or []
        elif kind.endswith(".done") and kind.removesuffix(".done") + ".delta" != kind:
            key = (event["output_index"], kind.removesuffix(".done"))
            text = event.get("text", event.get("arguments", event.get("input", event.get("refusal"))))
            if text is not None and spoken.get(key, "") != text:
                raise ValueError(f"{kind} says {text!r}, its deltas {spoken.get(key)!r}")
        if kind in ("response.created", "response.in_progress") and event["response"]["usage"] is not None:
            raise ValueError("usage before completion")
    broke_off = events[-1][1]["type"] == "response.failed"
    if len(open_items) > broke_off:  # a truncated item is not done
        raise ValueError(f"items {open_items} were never finished")
    kinds = [e["type"] for _, e in events]
    if kinds[:2] != ["response.created", "response.in_progress"]:
        raise ValueError(f"starts with {kinds[:2]}")
    final = events[-1][1]
    if final["type"] not in ("response.completed", "response.incomplete", "response.failed"):
        raise ValueError(f"ends with {final['type']}")
    complete_response(final["response"])
    done = [event["item"] for _, event in events if event["type"] == "response.output_item.done"]
    if done != final["response"]["output"][: len(done)] or len(done) + broke_off < len(final["response"]["output"]):
        raise ValueError(f"items {done} are another output in the end: {final['response']['output']}")
    a = read_responses.answer(responses_types.Response.model_validate(final["response"]).to_dict())
    joined = "".join(v for k, v in spoken.items() if k[1] == "response.output_text")
    if joined != a.text and not a.transcript:
        raise ValueError("deltas and the final response differ in text")
    return a


def messages_stream(events: list[tuple[str | None, Any]]) -> Answer:
    adapter = message_events()
    snapshot, bufs, error, ended = None, {}, None, False
    open_block: int | None = None
    for name, event in events:
        if name != event["type"]:
            raise ValueError(f"event named {name}, typed {event['type']}")
        if event["type"] == "error":
            error = event["error"]["message"]
            continue
        event = json.loads(json.dumps(event))
        parsed = adapter.validate_python(event)
        kind = event["type"]
        if kind == "message_start":
            usage = event["message"]["usage"]
            if not isinstance(usage.get("input_tokens"), int):
                raise ValueError("message_start without usage")
        elif kind == "content_block_start":
            if open_block is not None or event["index"] != len(snapshot.content):
                raise ValueError(f"block {event['index']} opened out of order")
            open_block = event["index"]
        elif kind == "content_block_delta" and event["index"] != open_block:
            raise ValueError(f"delta for block {event['index']} while {open_block} is open")
        elif kind == "content_block_stop":
            open_block = None
        elif kind == "message_delta" and "input_tokens" not in event["usage"]:
            raise ValueError("message_delta without input_tokens")
        elif kind == "message_stop":
            ended = True
        snapshot = accumulate_event(event=parsed, current_snapshot=snapshot, json_bufs=bufs)
    if error is None and not ended:
        raise ValueError("no message_stop")
    if open_block is not None and error is None:
        raise ValueError("a block was never stopped")
    if snapshot is None:
        return Answer(error=error, stops=frozenset({"none"}))
    body = snapshot.to_dict()
    for block in body["content"]:
        if block["type"] == "tool_use" and isinstance(block["input"], str):
            block["input"] = json.loads(block["input"] or "{}")
    a = read_messages.answer(body)
    a.error = error
    return a


def placed(notes: list[dict[str, Any]] | None, text: str | None) -> None:
    """The range of a citation is inside its text."""
    for note in notes or []:
        place = note.get("url_citation", note)
        if "start_index" in place and not 0 <= place["start_index"] <= place["end_index"] <= len(text or ""):
            raise ValueError(
                f"a citation at {place['start_index']} to {place['end_index']} of {len(text or '')} characters"
            )


# ---- the published schema -------------------------------------------------------------------------------------------
REQUIRED = [
    "id",
    "object",
    "created_at",
    "status",
    "background",
    "completed_at",
    "error",
    "incomplete_details",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "model",
    "output",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "usage",
    "metadata",
    "presence_penalty",
    "frequency_penalty",
]
"""Every field that the live API sends, even if null (CLIENTS 3f)."""


def complete_response(body: dict[str, Any]) -> None:
    absent = [name for name in REQUIRED if name not in body]
    if absent:
        raise ValueError(f"the response object lacks {absent}")
    usage = body["usage"]
    if usage is not None and not {"cached_tokens", "cache_write_tokens"} <= set(usage["input_tokens_details"]):
        raise ValueError("usage.input_tokens_details is not complete")
    for item in body["output"]:
        if not item.get("id"):
            raise ValueError(f"an item of type {item['type']} has no id")


@functools.cache
def published_document() -> Any:
    """The published document, with `nullable: true` applied. Without it the test is skipped."""
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT202012

    if not OPENAPI.exists():
        pytest.skip("../shared/schemas is not beside this repository")
    document = nulls(json.loads(OPENAPI.read_text()))
    return Registry().with_resource("urn:openai", Resource(document, DRAFT202012)).crawl()


@functools.cache
def schema_of(name: str) -> Any:
    """A validator for one schema of the published document."""
    import jsonschema

    return jsonschema.Draft202012Validator(
        {"$ref": f"urn:openai#/components/schemas/{name}"}, registry=published_document()
    )


def nulls(node: Any) -> Any:
    if isinstance(node, list):
        return [nulls(x) for x in node]
    if not isinstance(node, dict):
        return node
    node = {k: nulls(v) for k, v in node.items()}
    if node.pop("nullable", False) is True:
        return {"anyOf": [node, {"type": "null"}]}
    return node


_WORDS = re.compile(r'("(?:content|reasoning|text|delta|arguments|refusal|id|item_id)": ")(?:[^"\\]|\\.)+')
"""Fields that may contain any text according to the published document, as JSON keys."""
_seen: set[tuple[str, str]] = set()


def published(name: str, body: Any) -> None:
    """Validates by the published OpenAPI document; `usage` and `user` may be null, as in the live API. Of bodies that
    only differ in their text one is validated, because validation is slow."""
    alike = (name, _WORDS.sub(r"\1x", json.dumps(body)))
    if alike not in _seen:
        _walk(name, body)
        _seen.add(alike)


def _walk(name: str, body: Any) -> None:
    validator = schema_of(name)
    if name == "Response" or "response" in body:
        inner = body if name == "Response" else body["response"]
        inner = {k: v for k, v in inner.items() if v is not None or k not in ("usage", "user")}
        body = inner if name == "Response" else {**body, "response": inner}
    for error in validator.iter_errors(body):
        raise ValueError(f"{name} at {'/'.join(map(str, error.absolute_path)) or 'the top'}: {error.message[:200]}")


EVENTS = {
    "response.output_item.added": "ResponseOutputItemAddedEvent",
    "response.output_item.done": "ResponseOutputItemDoneEvent",
    "response.content_part.added": "ResponseContentPartAddedEvent",
    "response.content_part.done": "ResponseContentPartDoneEvent",
    "response.output_text.delta": "ResponseTextDeltaEvent",
    "response.output_text.done": "ResponseTextDoneEvent",
    "response.output_text.annotation.added": "ResponseOutputTextAnnotationAddedEvent",
    "response.function_call_arguments.delta": "ResponseFunctionCallArgumentsDeltaEvent",
    "response.function_call_arguments.done": "ResponseFunctionCallArgumentsDoneEvent",
    "response.reasoning_summary_part.added": "ResponseReasoningSummaryPartAddedEvent",
    "response.reasoning_summary_part.done": "ResponseReasoningSummaryPartDoneEvent",
    "response.reasoning_summary_text.delta": "ResponseReasoningSummaryTextDeltaEvent",
    "response.reasoning_summary_text.done": "ResponseReasoningSummaryTextDoneEvent",
    "response.refusal.delta": "ResponseRefusalDeltaEvent",
    "response.refusal.done": "ResponseRefusalDoneEvent",
    "response.custom_tool_call_input.delta": "ResponseCustomToolCallInputDeltaEvent",
    "response.custom_tool_call_input.done": "ResponseCustomToolCallInputDoneEvent",
    "response.created": "ResponseCreatedEvent",
    "response.in_progress": "ResponseInProgressEvent",
    "response.completed": "ResponseCompletedEvent",
    "response.incomplete": "ResponseIncompleteEvent",
    "response.failed": "ResponseFailedEvent",
    "error": "ResponseErrorEvent",
}

_seen_events: dict[str, int] = {}


def published_event(event: dict[str, Any]) -> None:
    """Validates an event; of many similar deltas only some, because validation is slow."""
    kind = event["type"]
    _seen_events[kind] = _seen_events.get(kind, 0) + 1
    if kind.endswith(".delta") and _seen_events[kind] % 50 != 1:
        return
    published(EVENTS[kind], event)
