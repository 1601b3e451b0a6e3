"""A provider, and what upstreams of several formats send before an answer fails, without usage."""

from __future__ import annotations

import json

from support.eventstream import message

PROVIDER = """
provider: acme
url: app://acme
speaks: {%s}
timeouts: {idle: 0.2}
models: {acme/one: {upstream: up-1, price: {prompt: "0.001", completion: "0.002", request: "0.5"}}}
"""
RESPONSE = {"id": "resp_1", "object": "response", "created_at": 1, "model": "up-1", "output": [], "usage": None}
SAID = {
    "id": "msg_1",
    "type": "message",
    "status": "incomplete",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Hello there", "annotations": []}],
}
FAILED = {**RESPONSE, "status": "failed", "error": {"code": "server_error", "message": "no"}}


def sse(*events: dict) -> list[bytes]:
    return [
        (f"event: {event['type']}\n" if "type" in event else "").encode() + b"data: " + json.dumps(event).encode()
        + b"\n\n"
        for event in events
    ]  # fmt: skip


CREATED = {
    "type": "response.created",
    "sequence_number": 0,
    "response": {**RESPONSE, "status": "in_progress", "error": None},
}
ITEM = {
    "type": "response.output_item.added",
    "sequence_number": 1,
    "output_index": 0,
    "item": {**SAID, "status": "in_progress", "content": []},
}
DELTA = {
    "type": "response.output_text.delta",
    "sequence_number": 2,
    "item_id": "msg_1",
    "output_index": 0,
    "content_index": 0,
    "delta": "Hello there",
}
CHUNK = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "up-1"}
ROLE = {**CHUNK, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
TEXT = {**CHUNK, "choices": [{"index": 0, "delta": {"content": "Hello there"}, "finish_reason": None}]}
OPENINGS = {
    "chat: /x": sse(ROLE),
    "responses: /x": sse(CREATED),
    "cohere: /x": sse({"type": "message-start", "id": "co1", "delta": {"message": {"role": "assistant"}}}),
    "bedrock: {path: /x, framing: aws-eventstream}": [
        message(b'{"role":"assistant"}', event_type="messageStart", message_type="event")
    ],
}
"""What upstreams send before the first output, without usage."""
SENT = {"chat: /x": sse(ROLE, TEXT), "responses: /x": sse(CREATED, ITEM, DELTA)}
