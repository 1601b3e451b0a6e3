"""A provider of the chat format with a secret, a request for its model, and its answer, whole and streamed."""

from __future__ import annotations

import json

ANSWER = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "up-1",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop", "logprobs": None}
    ],
    "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    "vendor_extra": {"kept": True},
}
ASK = {"model": "acme/one", "messages": [{"role": "user", "content": "hello"}]}
GOOD = json.dumps(ANSWER).encode()


def provider(name: str, *, priority: int = 0, more: str = "") -> str:
    return f"""
provider: {name}
speaks: chat
url: app://{name}/chat
priority: {priority}
headers: {{Authorization: "Bearer {{{{ $secret.CANARY }}}}"}}
{more}
models:
  acme/one:
    upstream: up-1
    aliases: [one]
    context: 1000
    max_output: 100
    encoding: o200k_base
    price: {{prompt: "0.001", completion: "0.002", unit: 1, currency: USD}}
"""


SECRET = {"CANARY": "canary-secret-value"}


def streamed(*events: dict | bytes) -> list[bytes]:
    """Events as an upstream sends them, each one an object or the bytes of its data."""
    return [b"data: " + (e if isinstance(e, bytes) else json.dumps(e).encode()) + b"\n\n" for e in events]


def delta(text: str | None = None, finish: str | None = None, **more: object) -> dict:
    """A chunk of a stream."""
    return {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "up-1",
        "choices": [{"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}],
        **more,
    }


STREAM = streamed(
    delta("he"), delta("llo"), delta(finish="stop"), {**delta(), "choices": [], "usage": ANSWER["usage"]}, b"[DONE]"
)
