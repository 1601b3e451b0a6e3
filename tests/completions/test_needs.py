"""Which abilities a request requires of a route."""

from typing import Any

import orjson
import pytest

from tollgate.completions.needs import needs_of

TOOLS: dict[str, Any] = {"tools": [{"type": "function", "function": {"name": "f"}}]}


def with_part(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [fields]}], "input": [{"role": "user", "content": [fields]}]}


@pytest.mark.parametrize(
    ("dialect", "body", "required"),
    [
        pytest.param("chat", {"messages": []}, set(), id="nothing"),
        pytest.param("chat", TOOLS, {"tools"}, id="tools"),
        pytest.param("chat", {"functions": [{"name": "f"}]}, {"tools"}, id="functions, the former name of tools"),
        pytest.param("chat", {"tools": []}, set(), id="no tools"),
        pytest.param("chat", with_part(type="image_url", image_url={"url": "x"}), {"images"}, id="an image"),
        pytest.param("chat", with_part(type="input_audio", input_audio={}), {"audio"}, id="audio"),
        pytest.param("chat", with_part(type="file", file={"file_data": "x"}), {"files"}, id="a file"),
        pytest.param("chat", with_part(type="file", file={"file_id": "f"}), set(), id="a file by id"),
        pytest.param("chat", {"response_format": {"type": "json_schema"}}, {"schema"}, id="a schema"),
        pytest.param("chat", {"tools": [{"type": "web"}]}, {"tools", "prefer_native"}, id="a tool the provider runs"),
        pytest.param("responses", with_part(type="input_image"), {"images"}, id="responses: an image"),
        pytest.param("responses", with_part(type="input_file"), {"files"}, id="responses: a file"),
        pytest.param("responses", {"tools": [{"type": "function", "name": "f"}]}, {"tools"}, id="responses: a tool"),
        pytest.param(
            "responses",
            {"tools": [{"type": "custom", "name": "f"}]},
            {"tools", "client_tools"},
            id="responses: a free-form tool",
        ),
        pytest.param(
            "responses",
            {"tools": [{"type": "namespace", "name": "n", "tools": []}]},
            {"tools", "client_tools", "prefer_native"},
            id="responses: tools in a namespace",
        ),
        pytest.param(
            "responses",
            {"input": [{"type": "additional_tools", "tools": []}]},
            {"client_tools"},
            id="responses: tools among the input",
        ),
        pytest.param(
            "responses",
            {"input": [{"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"}]},
            {"client_tools"},
            id="responses: a call of a free-form tool",
        ),
        pytest.param("responses", {"input": "custom"}, set(), id="responses: a text that names a type"),
        pytest.param(
            "responses",
            {"input": [{"type": {"custom": 1}}]},
            set(),
            id="responses: a type that is no text",
        ),
        pytest.param(
            "responses",
            {"tools": [{"type": "web_search"}]},
            {"tools", "prefer_native"},
            id="responses: a tool the provider runs",
        ),
        pytest.param(
            "responses", {"input": [{"encrypted_content": "x"}]}, {"prefer_native"}, id="responses: encrypted reasoning"
        ),
        pytest.param("messages", {"thread": {"id": "t"}}, {"native", "threads"}, id="messages: a stored thread"),
        pytest.param("messages", with_part(type="image"), {"images"}, id="messages: an image"),
        pytest.param("messages", with_part(type="document"), {"files"}, id="messages: a document"),
        pytest.param("messages", {"tools": [{"name": "f"}]}, {"tools"}, id="messages: a tool"),
        pytest.param(
            "messages", with_part(type="text", cache_control={}), {"prefer_native"}, id="messages: a cache breakpoint"
        ),
        pytest.param(
            "messages", with_part(type="thinking", signature="x"), {"prefer_native"}, id="messages: a signature"
        ),
        pytest.param(
            "messages", with_part(type="redacted_thinking"), {"prefer_native"}, id="messages: redacted thinking"
        ),
        pytest.param(
            "messages",
            {"tools": [{"type": "web_search_20250305"}]},
            {"tools", "prefer_native"},
            id="messages: a tool the provider runs",
        ),
    ],
)
def test_the_abilities_a_body_requires_are_found(dialect, body, required):
    raw = orjson.dumps(body)
    needs = needs_of(dialect, body, raw.decode(), len(raw))
    abilities = ("tools", "images", "audio", "files", "schema", "native", "threads", "prefer_native", "client_tools")
    assert {name for name in abilities if getattr(needs, name)} == required
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
def test_the_effort_of_a_chat_request_with_tools_is_read(dialect, body, effort):
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
def test_text_counts_in_full_and_an_image_at_its_maximum_cost(dialect, turn):
    body = turn("é" * 500_000, "A" * 2_000_000)
    raw = orjson.dumps(body)
    assert needs_of(dialect, body, raw.decode("latin-1"), len(raw)).prompt_tokens == (1_000_000 + 400_000) // 4
    small = turn("hello", "A" * 1000)
    raw = orjson.dumps(small)
    assert needs_of(dialect, small, raw.decode(), len(raw)).prompt_tokens == -(-len(raw) // 4), (
        "a small body counts in full"
    )


@pytest.mark.parametrize(
    ("dialect", "part"),
    [
        ("chat", {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,DATA"}}),
        ("chat", {"type": "video", "video": ["data:image/jpeg;base64,DATA"]}),
        ("chat", {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,DATA"}}),
        ("chat", {"type": "document_url", "document_url": "data:application/pdf;base64,DATA"}),
        ("chat", {"type": "file_url", "file_url": {"url": "DATA"}}),
        ("chat", {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "DATA"}}),
        ("responses", {"type": "input_video", "video_url": "data:video/mp4;base64,DATA"}),
        ("messages", {"type": "video", "source": {"type": "base64", "media_type": "video/mp4", "data": "DATA"}}),
    ],
)
def test_media_that_only_some_providers_know_are_not_counted_as_text(dialect, part):
    raw = orjson.dumps(with_part(**part)).replace(b"DATA", b"A" * 2_000_000)
    needs = needs_of(dialect, orjson.loads(raw), raw.decode(), len(raw))
    assert 100_000 <= needs.prompt_tokens < 100_100
    assert not (needs.images or needs.files or needs.audio)


@pytest.mark.parametrize(
    "item",
    [
        pytest.param(lambda data: {"type": "image_generation_call", "id": "ig_1", "result": data}, id="generated"),
        pytest.param(
            lambda data: {
                "type": "computer_call_output",
                "call_id": "c1",
                "output": {"type": "computer_screenshot", "image_url": data},
            },
            id="a screenshot",
        ),
    ],
)
def test_a_generated_image_of_an_earlier_turn_counts_as_an_image_without_requiring_vision(item):
    body = {
        "input": [{"role": "user", "content": "Draw"}, item("A" * 2_000_000), {"role": "user", "content": "in red"}]
    }
    raw = orjson.dumps(body)
    needs = needs_of("responses", body, raw.decode(), len(raw))
    assert 100_000 <= needs.prompt_tokens < 100_100
    assert not needs.images
