"""The names of the client formats, events of chat streams, and random answers, each whole and as the
equivalent stream."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

NAMES = ("chat", "responses", "messages", "gemini")
CLIENTS = ("chat", "responses", "messages")
QUICK = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)

AWKWARD = [
    'say "hi"',
    "100 % {sure} %b %d",
    "line\nbreak\\",
    "\ue000text\ue000",
    "7000000000000007",
    "naïve 日本 \U0001f600",
    " ",
    "one\u2028two\u2029three\x85four",
]
"""Texts that a careless converter would damage."""

ARGUMENTS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9) | st.text("xyé", max_size=5), max_size=3).map(
    json.dumps
)
CALLS = st.lists(st.tuples(st.sampled_from(["f", "g"]), ARGUMENTS), max_size=4)
TEXT = st.text("ab é", max_size=8)


def chunk(finish: str | None = None, logprobs: Any = None, **delta: Any) -> dict[str, Any]:
    """An event of a chat stream."""
    return {
        "id": "a",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}],
    }


def call(arguments: str, **named: Any) -> dict[str, Any]:
    """An event with a piece of a call's arguments. The first one of a call has its id, and so its name."""
    return chunk(
        tool_calls=[{"index": 0, "function": {"arguments": arguments, **({"name": "f"} if named else {})}, **named}]
    )


def cut(draw: Any, text: str) -> list[str]:
    """Splits text into random pieces."""
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


@st.composite
def chat_answers(draw: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A whole chat answer, and the equivalent stream, whose calls may interleave."""
    text, thought, calls = draw(TEXT), draw(TEXT), draw(CALLS)
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = [
            {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": args}}
            for i, (name, args) in enumerate(calls)
        ]
    whole = {
        "id": "a",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
    deltas = [{"reasoning_content": piece} for piece in cut(draw, thought)] + [
        {"content": piece} for piece in cut(draw, text)
    ]
    waiting = [
        [
            {"index": i, "id": f"c{i}", "type": "function", "function": {"name": name, "arguments": ""}},
            *({"index": i, "function": {"arguments": piece}} for piece in cut(draw, args)),
        ]
        for i, (name, args) in enumerate(calls)
    ]
    opened = 0  # calls are announced in order; their arguments may interleave
    while any(waiting):
        ready = [i for i, rest in enumerate(waiting) if rest and i <= opened]
        i = draw(st.sampled_from(ready))
        deltas.append({"tool_calls": [waiting[i].pop(0)]})
        if i == opened:
            opened += 1
    chunks = [
        {"id": "a", "created": 1, "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in deltas
    ]
    chunks.append(
        {
            "id": "a",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        }
    )
    chunks.append({"id": "a", "choices": [], "usage": whole["usage"]})
    return whole, chunks
