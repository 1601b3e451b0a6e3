"""Successful answers of the three client formats, as bytes, and a provider for a URL that speaks one of them."""

from __future__ import annotations

import json
from typing import Any

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
ASKS: dict[str, dict[str, Any]] = {
    "chat": {"model": "acme/one", "messages": [{"role": "user", "content": "hello"}]},
    "responses": {"model": "acme/one", "input": "hello"},
    "messages": {"model": "acme/one", "max_tokens": 50, "messages": [{"role": "user", "content": "hello"}]},
}
CELLS = [
    ("chat", "chat"),
    ("responses", "responses"),
    ("messages", "messages"),
    ("chat", "messages"),
    ("responses", "chat"),
    ("messages", "responses"),
]
IDS = [f"{client}-client-{upstream}-upstream" for client, upstream in CELLS]
FAILURES = {
    "chat": b'data: {"error": {"message": "no", "code": 500}}\n\n',
    "messages": b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "no"}}\n\n',
    "responses": b'event: error\ndata: {"type": "error", "code": "server_error", "message": "no", '
    b'"sequence_number": 0}\n\n',
}
"""Events that report a failure."""


def provider(
    url: str,
    protocol: str,
    *,
    name: str = "acme",
    more: str = "",
    price: str = '{prompt: "1", completion: "2", unit: 1000000, currency: USD}',
    model: str = "acme/one",
    lines: str = "",
) -> str:
    return f"""
provider: {name}
speaks: {protocol}
url: {url}
{more}
models:
  {model}:
    upstream: up-1
    context: 200000
    max_output: 32000
    encoding: o200k_base
    modalities: {{input: [text, image, file], output: [text]}}
    price: {price}
{lines}
"""


def whole(protocol: str, text: str = "hello there", **usage: Any) -> dict[str, Any]:
    """A successful whole answer; `usage` replaces the default."""
    if protocol == "chat":
        return {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": "up-1",
            "system_fingerprint": "fp",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text},
                    "finish_reason": "stop",
                    "logprobs": None,
                }
            ],
            "usage": usage or {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        }
    if protocol == "messages":
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "up-1",
            "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": usage or {"input_tokens": 10, "output_tokens": 5},
        }
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "up-1",
        "error": None,
        "incomplete_details": None,
        "output": [{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage
        or {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 15,
        },
    }


def events(protocol: str, *texts: str) -> list[bytes]:
    """The events of a successful stream, one block each; the texts are its deltas."""
    texts = texts or ("hello", " there")
    if protocol == "chat":
        frame = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "up-1"}
        chunks: list[Any] = [
            {**frame, "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}]}
            for text in texts
        ]
        chunks.append({**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        chunks.append({**frame, "choices": [], "usage": whole("chat")["usage"]})
        return [*(b"data: " + json.dumps(c).encode() + b"\n\n" for c in chunks), b"data: [DONE]\n\n"]
    if protocol == "messages":
        start = {
            **whole("messages"),
            "content": [],
            "stop_reason": None,
            "usage": {"input_tokens": 10, "output_tokens": 1},
        }
        found = [
            {"type": "message_start", "message": start},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            *(
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
                for text in texts
            ),
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {"output_tokens": 5},
            },
            {"type": "message_stop"},
        ]
    else:
        done = whole("responses", "".join(texts))
        item = done["output"][0]
        part = item["content"][0]
        place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        opened = {**done, "status": "in_progress", "output": [], "usage": None}
        found = [
            {"type": "response.created", "response": opened},
            {"type": "response.in_progress", "response": opened},
            {
                "type": "response.output_item.added",
                "output_index": 0,
                "item": {**item, "status": "in_progress", "content": []},
            },
            {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
            *({"type": "response.output_text.delta", **place, "delta": text, "logprobs": []} for text in texts),
            {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []},
            {"type": "response.content_part.done", **place, "part": part},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": done},
        ]
        found = [{**event, "sequence_number": n} for n, event in enumerate(found)]
    return [b"event: " + event["type"].encode() + b"\ndata: " + json.dumps(event).encode() + b"\n\n" for event in found]


def opening(protocol: str) -> list[bytes]:
    """The events of a stream up to its first two texts: there is content, but nothing is finished."""
    return events(protocol)[: {"chat": 2, "messages": 4, "responses": 6}[protocol]]


def error_events(client: str, text: str) -> dict[str, Any]:
    """The error at the end of a stream, by client format; fails if the stream does not end with one as CLIENTS 3b
    requires."""
    blocks = [block for block in text.strip().split("\n\n") if block and not block.startswith(":")]
    last = json.loads(blocks[-1].rpartition("data: ")[2])
    if client == "chat":
        assert set(last) == {"error"} and isinstance(last["error"]["message"], str) and "[DONE]" not in text
        return last["error"]
    if client == "messages":
        assert (
            blocks[-1].startswith("event: error\n")
            and last["type"] == "error"
            and set(last["error"]) == {"type", "message"}
        )
        return last["error"]
    error = json.loads(blocks[-2].rpartition("data: ")[2])
    assert blocks[-2].startswith("event: error\n") and {"code", "message", "param", "sequence_number"} <= set(error)
    assert (
        last["type"] == "response.failed"
        and last["response"]["status"] == "failed"
        and last["response"]["error"]["code"] == error["code"]
    )
    numbers = [json.loads(block.rpartition("data: ")[2])["sequence_number"] for block in blocks]
    assert numbers == list(range(len(numbers))), numbers
    return error
