"""Facts of recorded streams that a converter must respect, one small stream each."""

from __future__ import annotations

from typing import Any

import pytest

from mappings.support import context, converted, mapping
from tollgate.mapping import StreamConverter, Tap

START = {
    "type": "message_start",
    "message": {"id": "m1", "model": "c", "usage": {"input_tokens": 1, "output_tokens": 0}},
}
HOSTED = [
    START,
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "server_tool_use", "id": "s", "name": "search", "input": {}},
    },
    {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"q":"x"}'}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "found"}},
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
]


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"id": "x1", "model": "m", "created": 5, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


@pytest.mark.parametrize("client", ["chat", "responses", "messages"])
def test_a_hosted_tools_arguments_never_become_a_call(client: str) -> None:
    told = repr([data for name, data in converted("messages", client, HOSTED)])
    assert "found" in told
    assert (
        '"q"' not in told and "'tool_calls'" not in told and "'function_call'" not in told and "'tool_use'" not in told
    )


def test_blocks_are_numbered_without_gaps_where_a_hosted_tool_stood() -> None:
    told = [data for _, data in converted("messages", "messages", HOSTED)]
    assert [e["index"] for e in told if e["type"] == "content_block_start"] == [0]


def test_the_tap_of_a_hosted_tool_sees_no_call() -> None:
    tap = Tap(mapping("messages"))
    for event in HOSTED:
        tap.feed(event)
    assert tap.stop == "end"


def test_a_stream_that_only_says_done_has_ended() -> None:
    tap = Tap(mapping("chat"))
    for event in (chunk(content="a"), "[DONE]"):
        tap.feed(event)
    assert tap.stop == "end"
    assert converted("chat", "messages", [chunk(content="a"), "[DONE]"])[-2][1]["delta"]["stop_reason"] == "end_turn"


def test_citations_told_before_the_text_reach_it() -> None:
    note = {
        "type": "url_citation",
        "url_citation": {"url": "https://x", "title": "X", "start_index": 0, "end_index": 0},
    }
    told = converted(
        "chat", "responses", [chunk(annotations=[note]), chunk(reasoning="hm"), chunk(content="a"), chunk("stop")]
    )
    items = told[-1][1]["response"]["output"]
    assert [i["type"] for i in items] == ["reasoning", "message"]
    assert items[1]["content"][0]["annotations"][0]["url"] == "https://x"


def test_a_number_in_message_delta_never_lowers_what_the_cache_told() -> None:
    tap = Tap(mapping("messages"))
    tap.feed(
        {
            "type": "message_start",
            "message": {"id": "m", "usage": {"input_tokens": 4, "cache_read_input_tokens": 100, "output_tokens": 1}},
        }
    )
    tap.feed(
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"input_tokens": 4, "output_tokens": 9},
        }
    )
    assert (tap.usage["input"], tap.usage["cache_read"], tap.usage["output"]) == (104, 100, 9)


def test_an_output_count_alone_leaves_the_input_as_told() -> None:
    tap = Tap(mapping("messages"))
    tap.feed({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 4, "output_tokens": 1}}})
    tap.feed({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}})
    assert (tap.usage["input"], tap.usage["output"]) == (4, 9)


def test_a_signature_without_text_is_kept() -> None:
    events = [
        START,
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""},
        },
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "SIG"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    ]
    details = [
        d
        for _, e in converted("messages", "chat", events)
        if e != "[DONE]"
        for d in e["choices"][0]["delta"].get("reasoning_details", [])
    ]
    assert details == [
        {"type": "reasoning.text", "text": "", "signature": "SIG", "format": "anthropic-claude-v1", "index": 0}
    ]


def test_a_call_without_arguments_says_an_empty_object() -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": None}}
    told = converted("chat", "responses", [chunk(tool_calls=[call]), chunk("tool_calls")])
    assert told[-1][1]["response"]["output"][0]["arguments"] == "{}"


def piece(index: int | None = 0, **more: Any) -> dict[str, Any]:
    """A fragment of a call: its `id`, `name`, `arguments`."""
    call: dict[str, Any] = {"function": {key: more.pop(key) for key in ("name", "arguments") if key in more}, **more}
    return chunk(tool_calls=[call if index is None else {"index": index, **call}])


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        ([piece(id="a", name="get_"), piece(name="weather"), piece(arguments="{}")], [("get_weather", "{}")]),
        (
            [piece(id="a", name="get"), piece(name="_wea"), piece(name="ther"), piece(arguments="{}")],
            [("get_weather", "{}")],
        ),
        ([piece(id="a", name="get_weather"), piece(name="get_weather", arguments="{}")], [("get_weather", "{}")]),
        ([piece(id="a", name="get"), piece(name="get", arguments='{"a":1}')], [("get", '{"a":1}')]),
        ([piece(id="a", name="get")], [("get", "{}")]),
        (
            [
                piece(id="a", name="get_", arguments=""),
                piece(name="weather", arguments=""),
                piece(1, id="b", name="get", arguments="{}"),
                piece(arguments="{}"),
            ],
            [("get_weather", "{}"), ("get", "{}")],
        ),
        ([piece(id="a", name="un"), piece(name="known"), piece(arguments="{}")], [("un", "{}")]),
        ([piece(id="a", name="get"), piece(1, arguments='{"a"'), piece(1, arguments=":1}")], [("get", '{"a":1}')]),
        (
            [piece(id="a", name="get", arguments="{}"), piece(1, arguments='{"a":1}'), piece(1, id="b", name="get")],
            [("get", "{}"), ("get", '{"a":1}')],
        ),
    ],
    ids=[
        "two pieces",
        "three, the first a name too",
        "repeated",
        "repeated, and a beginning",
        "a beginning alone",
        "beside another call",
        "of a tool nobody declared",
        "arguments under another place",
        "arguments first",
    ],
)
@pytest.mark.parametrize("client", ["chat", "responses"])
def test_names_and_arguments_in_pieces(client: str, pieces: list[dict[str, Any]], calls: list[tuple[str, str]]) -> None:
    run = context(request={"tools": [{"name": "get"}, {"name": "get_weather"}]})
    converter = StreamConverter(mapping("chat"), mapping(client), run)
    for event in (*pieces, chunk("tool_calls"), "[DONE]"):
        converter.feed(event)
    converter.finish()
    assert [(part["name"], part["args"]) for part in converter.parts()] == calls and not run.lost


def test_the_error_event_of_a_chat_stream_is_the_message_alone() -> None:
    told = converted("chat", "chat", [chunk(content="a"), {"error": {"message": "boom", "type": "server_error"}}])
    assert told[-1][1] == {"error": {"message": "boom"}}


def test_a_failed_responses_stream_says_error_then_failed() -> None:
    told = converted(
        "messages", "responses", [START, {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}]
    )
    assert [name for name, _ in told][-2:] == ["error", "response.failed"]
    assert told[-1][1]["response"]["error"] == {"code": "server_error", "message": "busy"}
    assert told[-1][1]["response"]["status"] == "failed"


def test_usage_is_null_in_a_responses_stream_until_it_ends() -> None:
    told = converted("messages", "responses", HOSTED)
    assert [e["response"]["usage"] for n, e in told if n in ("response.created", "response.in_progress")] == [
        None,
        None,
    ]
    assert told[-1][1]["response"]["usage"]["total_tokens"] == 4


def test_message_start_says_the_estimate_when_the_upstream_told_nothing() -> None:
    from mappings.support import context

    run = context()
    run.estimate = {"input": 12}
    told = converted(
        "chat",
        "messages",
        [
            chunk(content="a"),
            chunk("stop"),
            {"id": "x1", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1}},
        ],
        run,
    )
    assert told[0][1]["message"]["usage"]["input_tokens"] == 12
    assert told[-2][1]["usage"]["input_tokens"] == 9


def messages_block(index: int, block: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    """One block of a messages stream."""
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


CITATION = {
    "type": "web_search_result_location",
    "url": "https://a.example",
    "title": "A",
    "cited_text": "x",
    "encrypted_index": "e",
}
THOUGHTFUL: dict[str, list[Any]] = {
    "chat": [chunk(reasoning="hm"), chunk(content="so"), chunk("stop")],
    "messages": [
        START,
        *messages_block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "hm"},
            {"type": "signature_delta", "signature": "S"},
        ),
        *messages_block(1, {"type": "redacted_thinking", "data": "opaque"}),
        *messages_block(
            2,
            {"type": "text", "text": "", "citations": []},
            {"type": "text_delta", "text": "so"},
            *({"type": "citations_delta", "citation": CITATION} for _ in range(2)),
        ),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    ],
    "gemini": [
        {
            "responseId": "r1",
            "candidates": [
                {
                    "content": {
                        "parts": [
                            {"text": "hm", "thought": True},
                            {"functionCall": {"name": "weather", "args": {"city": "Rom"}}, "thoughtSignature": "S"},
                            {"functionCall": {"name": "weather", "args": {"city": "Bern"}}},
                            {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
                            {"inlineData": {"mimeType": "image/png", "data": "BBBB"}},
                        ]
                    }
                }
            ],
        },
        {
            "responseId": "r1",
            "candidates": [
                {"content": {"parts": [{"functionCall": {"name": "now", "args": {}}}]}, "finishReason": "STOP"}
            ],
            "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 3},
        },
    ],
}
"""Streams with a thought and whatever their format has as a list."""


@pytest.mark.parametrize("upstream", THOUGHTFUL)
def test_a_thought_never_has_a_null_for_a_signature(upstream: str) -> None:
    told = [data for _, data in converted(upstream, "messages", THOUGHTFUL[upstream])]
    assert any("thinking_delta" in repr(data) for data in told)
    assert "'signature': None" not in repr(told)


@pytest.mark.parametrize("upstream", THOUGHTFUL)
def test_every_item_of_a_list_in_a_chat_delta_has_its_index(upstream: str) -> None:
    """The official stream helper adds lists up by it, and raises where it is missing."""
    deltas = [
        data["choices"][0]["delta"] for _, data in converted(upstream, "chat", THOUGHTFUL[upstream]) if data != "[DONE]"
    ]
    lists = [value for delta in deltas for value in delta.values() if isinstance(value, list)]
    assert lists or upstream == "chat"
    assert all(isinstance(item.get("index"), int) for items in lists for item in items), lists


def test_parallel_calls_of_one_stream_stay_apart_and_its_thoughts_are_output() -> None:
    converter = StreamConverter(mapping("gemini"), mapping("chat"), context())
    told = [data for event in THOUGHTFUL["gemini"] for _, data in converter.feed(event)]
    told += [data for _, data in converter.finish()]
    calls = [part for part in converter.parts() if part["kind"] == "tool_call"]
    assert [(call["name"], call["args"]) for call in calls] == [
        ("weather", '{"city":"Rom"}'),
        ("weather", '{"city":"Bern"}'),
        ("now", "{}"),
    ]
    assert len({call["id"] for call in calls}) == 3
    usage = next(data["usage"] for data in told if data != "[DONE]" and data.get("usage"))
    assert (usage["completion_tokens"], usage["completion_tokens_details"]["reasoning_tokens"]) == (8, 3)
