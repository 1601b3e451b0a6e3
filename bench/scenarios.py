"""What is measured: the requests, how they are driven and what one unit of the table is."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Literal

DONE = b"data: [DONE]"


@dataclass(frozen=True)
class Scenario:
    """One row. `how`: drive (closed loop), crowd (many paced streams at once), rate (fixed rate, for latency).
    `plain`: whether something that only forwards bytes can serve it. `per`: the unit CPU is divided by."""

    name: str
    path: str
    body: bytes
    end: bytes = b""
    how: Literal["drive", "crowd", "rate"] = "drive"
    per: Literal["request", "event"] = "request"
    plain: bool = True
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict)


def _chat(model: str, text: str, *, stream: bool = False) -> bytes:
    body: dict = {
        "model": model,
        "max_tokens": 200,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}],
    }
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return json.dumps(body, separators=(",", ":")).encode()


def _responses(model: str, text: str) -> bytes:
    return json.dumps({"model": model, "input": text, "stream": True}, separators=(",", ":")).encode()


def _forty_kilobytes() -> bytes:
    turns = [
        {
            "role": ("user", "assistant")[i % 2],
            "content": f"Turn {i}: " + 'some words of a long conversation, "quoted" and not. ' * 18,
        }
        for i in range(41)
    ]
    return json.dumps({"model": "bench/chat", "max_tokens": 200, "messages": turns}, separators=(",", ":")).encode()


def _agents_turn() -> bytes:
    """60 calls with results of 5 KB, and 20 tools: 370 KB."""
    turns: list[dict] = [{"role": "user", "content": "Find the bug."}]
    for i in range(60):
        call = {"id": f"call_{i}", "type": "function", "function": {"name": "tool_1", "arguments": f'{{"lines": {i}}}'}}
        result = 'def of_a_file(value):\n    return "quoted" and not value\n' * 90
        turns += [
            {"role": "assistant", "content": "I look at the next file.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{i}", "content": result},
        ]
    fields = {f"field_{i}": {"type": "string", "description": "What it is for. " * 4} for i in range(6)}
    tools = [
        {
            "type": "function",
            "function": {
                "name": f"tool_{i}",
                "description": "What it does, and when to use it. " * 25,
                "parameters": {"type": "object", "properties": fields, "required": ["field_0"]},
            },
        }
        for i in range(20)
    ]
    body = {"model": "bench/chat", "max_tokens": 200, "messages": turns, "tools": tools}
    return json.dumps(body, separators=(",", ":")).encode()


CHAT = "/v1/chat/completions"
SCENARIOS = [
    Scenario("chat, 1 KB answer", CHAT, _chat("bench/chat", "hello")),
    Scenario("chat, stream of 100 at once", CHAT, _chat("bench/chat", "hello", stream=True), DONE),
    Scenario("paced stream, per event", CHAT, _chat("bench/paced", "hello", stream=True), DONE, per="event"),
    Scenario("chat -> messages, whole", CHAT, _chat("bench/messages", "hello"), plain=False),
    Scenario("chat -> messages, stream", CHAT, _chat("bench/messages", "hello", stream=True), DONE, plain=False),
    Scenario(
        "responses <- chat, stream",
        "/v1/responses",
        _responses("bench/chat", "hello"),
        b"response.completed",
        plain=False,
    ),
    Scenario(
        "embeddings, 1536 floats",
        "/v1/embeddings",
        json.dumps({"model": "bench/embed", "input": "the quick brown fox jumps"}).encode(),
    ),
    Scenario(
        "/v1/models, 1,000 models",
        "/v1/models",
        b"",
        plain=False,
        method="GET",
        headers={"accept-encoding": "gzip, deflate"},
    ),
    Scenario("chat, 40 KB request", CHAT, _forty_kilobytes()),
    Scenario("chat, 370 KB request of an agent", CHAT, _agents_turn()),
    # plain proxies hand the model's name on: it must tell the upstream what it tells us
    Scenario(
        "500 paced streams, per event", CHAT, _chat("bench/paced-slowly", "hello", stream=True), DONE, "crowd", "event"
    ),
    Scenario("chat at 40 a second", CHAT, _chat("bench/chat", "hello"), how="rate"),
]
