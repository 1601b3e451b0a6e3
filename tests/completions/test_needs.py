"""What a request is seen to ask of a route."""

from typing import Any

import orjson
import pytest

from tollgate.completions.needs import needs_of

TOOLS: dict[str, Any] = {"tools": [{"type": "function", "function": {"name": "f"}}]}


def part(**of: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [of]}], "input": [{"role": "user", "content": [of]}]}


@pytest.mark.parametrize(
    ("dialect", "body", "asked"),
    [
        pytest.param("chat", {"messages": []}, set(), id="nothing"),
        pytest.param("chat", TOOLS, {"tools"}, id="tools"),
        pytest.param("chat", {"functions": [{"name": "f"}]}, {"tools"}, id="functions, as tools were called"),
        pytest.param("chat", {"tools": []}, set(), id="no tools"),
        pytest.param("chat", part(type="image_url", image_url={"url": "x"}), {"images"}, id="a picture"),
        pytest.param("chat", part(type="input_audio", input_audio={}), {"audio"}, id="sound"),
        pytest.param("chat", part(type="file", file={"file_data": "x"}), {"files"}, id="a file"),
        pytest.param("chat", part(type="file", file={"file_id": "f"}), set(), id="a file that is kept elsewhere"),
        pytest.param("chat", {"response_format": {"type": "json_schema"}}, {"schema"}, id="a schema"),
        pytest.param("chat", {"tools": [{"type": "web"}]}, {"tools", "prefer_native"}, id="a tool the provider runs"),
        pytest.param("responses", part(type="input_image"), {"images"}, id="responses: a picture"),
        pytest.param("responses", part(type="input_file"), {"files"}, id="responses: a file"),
        pytest.param("responses", {"tools": [{"type": "custom", "name": "f"}]}, {"tools"}, id="responses: a tool"),
        pytest.param(
            "responses",
            {"tools": [{"type": "web_search"}]},
            {"tools", "prefer_native"},
            id="responses: a tool the provider runs",
        ),
        pytest.param(
            "responses", {"input": [{"encrypted_content": "x"}]}, {"prefer_native"}, id="responses: encrypted reasoning"
        ),
        pytest.param("messages", {"thread": {"id": "t"}}, {"native", "threads"}, id="messages: a kept thread"),
        pytest.param("messages", part(type="image"), {"images"}, id="messages: a picture"),
        pytest.param("messages", part(type="document"), {"files"}, id="messages: a document"),
        pytest.param("messages", {"tools": [{"name": "f"}]}, {"tools"}, id="messages: a tool"),
        pytest.param("messages", part(type="text", cache_control={}), {"prefer_native"}, id="messages: a cache mark"),
        pytest.param("messages", part(type="thinking", signature="x"), {"prefer_native"}, id="messages: a signature"),
        pytest.param("messages", part(type="redacted_thinking"), {"prefer_native"}, id="messages: redacted thinking"),
        pytest.param(
            "messages",
            {"tools": [{"type": "web_search_20250305"}]},
            {"tools", "prefer_native"},
            id="messages: a tool the provider runs",
        ),
    ],
)
def test_what_a_body_holds_is_asked_of_its_route(dialect, body, asked):
    raw = orjson.dumps(body)
    needs = needs_of(dialect, body, raw.decode(), len(raw))
    abilities = ("tools", "images", "audio", "files", "schema", "native", "threads", "prefer_native")
    assert {name for name in abilities if getattr(needs, name)} == asked
    assert needs.prompt_tokens == -(-len(raw) // 4)


@pytest.mark.parametrize(
    ("dialect", "body", "effort"),
    [
        ("chat", TOOLS, "unset"),
        ("chat", {**TOOLS, "reasoning_effort": None}, "unset"),
        ("chat", {**TOOLS, "reasoning_effort": "none"}, "none"),
        ("chat", {**TOOLS, "reasoning_effort": "high"}, "high"),
        ("chat", {**TOOLS, "reasoning": {"effort": "low"}}, "low"),
        ("chat", {**TOOLS, "reasoning": {"enabled": False}}, "none"),
        ("chat", {**TOOLS, "reasoning": {"max_tokens": 2000}}, "medium"),
        ("chat", {**TOOLS, "reasoning": {"exclude": True}}, "unset"),
        ("responses", {**TOOLS, "reasoning": {"effort": "high"}}, "unset"),
    ],
)
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


@pytest.mark.parametrize(
    "item",
    [
        pytest.param(lambda data: {"type": "image_generation_call", "id": "ig_1", "result": data}, id="drawn"),
        pytest.param(
            lambda data: {
                "type": "computer_call_output",
                "call_id": "c1",
                "output": {"type": "computer_screenshot", "image_url": data},
            },
            id="seen on a screen",
        ),
    ],
)
def test_a_picture_of_an_earlier_turn_is_no_text_and_asks_for_no_eyes(item):
    body = {
        "input": [{"role": "user", "content": "Draw"}, item("A" * 2_000_000), {"role": "user", "content": "in red"}]
    }
    raw = orjson.dumps(body)
    needs = needs_of("responses", body, raw.decode(), len(raw))
    assert 100_000 <= needs.prompt_tokens < 100_100
    assert not needs.images
