"""What a request is seen to ask of a route."""

from typing import Any

import orjson
import pytest

from tollgate.completions.needs import needs_of

TOOLS: dict[str, Any] = {"tools": [{"type": "function", "function": {"name": "f"}}]}


@pytest.mark.parametrize(("dialect", "body", "effort"), [
    ("chat", TOOLS, "unset"),
    ("chat", {**TOOLS, "reasoning_effort": None}, "unset"),
    ("chat", {**TOOLS, "reasoning_effort": "none"}, "none"),
    ("chat", {**TOOLS, "reasoning_effort": "high"}, "high"),
    ("chat", {**TOOLS, "reasoning": {"effort": "low"}}, "low"),
    ("chat", {**TOOLS, "reasoning": {"enabled": False}}, "none"),
    ("chat", {**TOOLS, "reasoning": {"max_tokens": 2000}}, "medium"),
    ("chat", {**TOOLS, "reasoning": {"exclude": True}}, "unset"),
    ("responses", {**TOOLS, "reasoning": {"effort": "high"}}, "unset"),
])
def test_the_effort_that_chat_requests_name_beside_tools(dialect, body, effort):
    needs = needs_of(dialect, body, "{}", 2)
    assert needs.tools and needs.effort == effort


@pytest.mark.parametrize(
    ("dialect", "turn"),
    [
        (
            "chat",
            lambda text, data: {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": data}}],
                    }
                ]
            },
        ),
        (
            "messages",
            lambda text, data: {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}},
                            {"type": "image", "source": {"type": "base64", "data": data}},
                        ],
                    }
                ]
            },
        ),
        (
            "responses",
            lambda text, data: {
                "input": [
                    {
                        "role": "user",
                        "content": [{"type": "input_text", "text": text}, {"type": "input_image", "image_url": data}],
                    },
                    {"type": "image_generation_call", "id": "ig_1", "result": data},
                ]
            },
        ),
    ],
)
def test_text_beside_a_picture_counts_whole_and_the_picture_as_much_as_one_may_cost(dialect, turn):
    body = turn("é" * 500_000, "A" * 2_000_000)
    raw = orjson.dumps(body)
    assert needs_of(dialect, body, raw.decode("latin-1"), len(raw)).prompt_tokens == (1_000_000 + 400_000) // 4
    small = turn("hello", "A" * 1000)
    raw = orjson.dumps(small)
    assert needs_of(dialect, small, raw.decode(), len(raw)).prompt_tokens == -(-len(raw) // 4), (
        "what is small counts as it stands"
    )
