"""A provider of the messages format whose answer is signed reasoning, a text and a call, whole or streamed."""

import json

from support.inprocess import SSE, replying

PROVIDER = """
provider: acme
speaks: {messages: /messages}
url: app://acme
models:
  acme/one: {upstream: one, context: 9000, max_output: 4000, price: {prompt: "1", completion: "1", unit: 1000000, currency: USD}}
  acme/two: {upstream: two, context: 9000, max_output: 4000, price: {prompt: "1", completion: "1", unit: 1000000, currency: USD}}
"""  # noqa: E501
CONTENT = [
    {"type": "thinking", "thinking": "I need the weather.", "signature": "SIG"},
    {"type": "text", "text": "Let me look."},
    {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo", "days": 2}},
]
MESSAGE = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "one",
    "content": CONTENT,
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
EVENTS = [
    {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "I need the weather."}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "SIG"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Let me look."}},
    {"type": "content_block_stop", "index": 1},
    {"type": "content_block_start", "index": 2, "content_block": {**CONTENT[2], "input": {}}},
    {
        "type": "content_block_delta",
        "index": 2,
        "delta": {"type": "input_json_delta", "partial_json": '{"city": "Oslo", "days": 2}'},
    },
    {"type": "content_block_stop", "index": 2},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
]


def upstream(stream, seen):
    """Gives the answer, whole or as a stream; its requests are appended to `seen`."""
    if not stream:
        return replying(body=json.dumps(MESSAGE).encode(), seen=seen)
    blocks = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in EVENTS]
    return replying(headers=SSE, blocks=blocks, seen=seen)
