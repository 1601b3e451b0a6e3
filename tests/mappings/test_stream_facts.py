"""Facts from recorded streams that a converter must respect, with one small stream each."""

from __future__ import annotations

from typing import Any

import pytest

from mappings.support import context, converted, mapping
from tollgate.mapping import StreamConverter, Tap
from tollgate.mapping.digests import short

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
def test_the_arguments_of_a_hosted_tool_never_become_a_call(client: str) -> None:
    sent = repr([data for name, data in converted("messages", client, HOSTED)])
    assert "found" in sent
    assert (
        '"q"' not in sent and "'tool_calls'" not in sent and "'function_call'" not in sent and "'tool_use'" not in sent
    )


def test_blocks_are_numbered_without_gaps_after_a_hosted_tool_is_removed() -> None:
    sent = [data for _, data in converted("messages", "messages", HOSTED)]
    assert [e["index"] for e in sent if e["type"] == "content_block_start"] == [0]


def test_a_hosted_tool_does_not_count_as_a_call_for_accounting() -> None:
    tap = Tap(mapping("messages"))
    for event in HOSTED:
        tap.feed(event)
    assert tap.stop == "end"


def test_an_end_mark_alone_ends_a_stream() -> None:
    tap = Tap(mapping("chat"))
    for event in (chunk(content="a"), "[DONE]"):
        tap.feed(event)
    assert tap.stop == "end"
    assert converted("chat", "messages", [chunk(content="a"), "[DONE]"])[-2][1]["delta"]["stop_reason"] == "end_turn"


def test_citations_before_the_text_are_added_to_it() -> None:
    note = {
        "type": "url_citation",
        "url_citation": {"url": "https://x", "title": "X", "start_index": 0, "end_index": 0},
    }
    sent = converted(
        "chat", "responses", [chunk(annotations=[note]), chunk(reasoning="hm"), chunk(content="a"), chunk("stop")]
    )
    items = sent[-1][1]["response"]["output"]
    assert [i["type"] for i in items] == ["reasoning", "message"]
    assert items[1]["content"][0]["annotations"][0]["url"] == "https://x"


def test_a_count_in_message_delta_never_lowers_the_cache_counts() -> None:
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


def test_an_output_count_alone_keeps_the_reported_input() -> None:
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


def test_a_call_without_arguments_has_an_empty_object() -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": None}}
    sent = converted("chat", "responses", [chunk(tool_calls=[call]), chunk("tool_calls")])
    assert sent[-1][1]["response"]["output"][0]["arguments"] == "{}"


LONG = "get_" + "weather_" * 9
SENT = str(short(LONG, 64))
"""The name under which a tool with such a long one is sent."""


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
        (
            [piece(id="a", name=SENT, arguments="{}"), piece(id="a", name=SENT, arguments="")],
            [(LONG, "{}")],
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
        "repeated, of a tool sent under another name",
    ],
)
@pytest.mark.parametrize("client", ["chat", "responses"])
def test_names_and_arguments_in_pieces_are_joined(
    client: str, pieces: list[dict[str, Any]], calls: list[tuple[str, str]]
) -> None:
    run = context(request={"tools": [{"name": "get"}, {"name": "get_weather"}, {"name": LONG}]})
    converter = StreamConverter(mapping("chat"), mapping(client), run)
    for event in (*pieces, chunk("tool_calls"), "[DONE]"):
        converter.feed(event)
    converter.finish()
    assert [(part["name"], part["args"]) for part in converter.parts()] == calls and not run.lost


def test_the_error_event_of_a_chat_stream_contains_only_the_message() -> None:
    sent = converted("chat", "chat", [chunk(content="a"), {"error": {"message": "boom", "type": "server_error"}}])
    assert sent[-1][1] == {"error": {"message": "boom"}}


def test_a_failed_responses_stream_sends_error_then_failed() -> None:
    sent = converted(
        "messages", "responses", [START, {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}]
    )
    assert [name for name, _ in sent][-2:] == ["error", "response.failed"]
    assert sent[-1][1]["response"]["error"] == {"code": "server_error", "message": "busy"}
    assert sent[-1][1]["response"]["status"] == "failed"


def test_usage_is_null_in_a_responses_stream_until_it_ends() -> None:
    sent = converted("messages", "responses", HOSTED)
    assert [e["response"]["usage"] for n, e in sent if n in ("response.created", "response.in_progress")] == [
        None,
        None,
    ]
    assert sent[-1][1]["response"]["usage"]["total_tokens"] == 4


def test_message_start_contains_the_estimate_if_the_upstream_reports_nothing() -> None:
    from mappings.support import context

    run = context()
    run.estimate = {"input": 12}
    sent = converted(
        "chat",
        "messages",
        [
            chunk(content="a"),
            chunk("stop"),
            {"id": "x1", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1}},
        ],
        run,
    )
    assert sent[0][1]["message"]["usage"]["input_tokens"] == 12
    assert sent[-2][1]["usage"]["input_tokens"] == 9


def test_message_start_reports_no_output_though_gemini_counts_its_thinking_with_the_first_text() -> None:
    """LangChain.js adds `message_start` and `message_delta`: thinking of 149 tokens was counted twice."""
    events = [
        {
            "candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": text}]}, **end}],
            "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": count, "thoughtsTokenCount": 149},
            "responseId": "r1",
            "modelVersion": "m",
        }
        for text, count, end in [("a", 1, {}), ("b", 12, {"finishReason": "STOP"})]
    ]
    sent = [data for _, data in converted("gemini", "messages", events)]
    start, end = sent[0]["message"]["usage"], sent[-2]["usage"]
    assert (start["input_tokens"], start["output_tokens"]) == (9, 0)
    assert "output_tokens_details" not in start
    assert (end["input_tokens"], end["output_tokens"]) == (9, 161)
    assert end["output_tokens_details"] == {"thinking_tokens": 149}


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
WITH_REASONING: dict[str, list[Any]] = {
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
"""Streams with reasoning and with every list of their format."""


@pytest.mark.parametrize("upstream", WITH_REASONING)
def test_a_signature_is_never_null(upstream: str) -> None:
    sent = [data for _, data in converted(upstream, "messages", WITH_REASONING[upstream])]
    assert any("thinking_delta" in repr(data) for data in sent)
    assert "'signature': None" not in repr(sent)


@pytest.mark.parametrize("upstream", WITH_REASONING)
def test_every_list_item_in_a_chat_delta_has_its_index(upstream: str) -> None:
    """The official stream helper merges lists by index, and raises if it is missing."""
    deltas = [
        data["choices"][0]["delta"]
        for _, data in converted(upstream, "chat", WITH_REASONING[upstream])
        if data != "[DONE]"
    ]
    lists = [value for delta in deltas for value in delta.values() if isinstance(value, list)]
    assert lists or upstream == "chat"
    assert all(isinstance(item.get("index"), int) for items in lists for item in items), lists


def test_parallel_calls_stay_separate_and_reasoning_counts_as_output() -> None:
    converter = StreamConverter(mapping("gemini"), mapping("chat"), context())
    sent = [data for event in WITH_REASONING["gemini"] for _, data in converter.feed(event)]
    sent += [data for _, data in converter.finish()]
    calls = [part for part in converter.parts() if part["kind"] == "tool_call"]
    assert [(call["name"], call["args"]) for call in calls] == [
        ("weather", '{"city":"Rom"}'),
        ("weather", '{"city":"Bern"}'),
        ("now", "{}"),
    ]
    assert len({call["id"] for call in calls}) == 3
    usage = next(data["usage"] for data in sent if data != "[DONE]" and data.get("usage"))
    assert (usage["completion_tokens"], usage["completion_tokens_details"]["reasoning_tokens"]) == (8, 3)


def test_a_call_after_a_tool_plan_is_sent_as_it_arrives() -> None:
    converter = StreamConverter(mapping("cohere"), mapping("chat"), context())
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}
    sent: list[Any] = []
    for event in (
        {"type": "message-start", "id": "m"},
        {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "I look."}}},
        {"type": "tool-call-start", "index": 0, "delta": {"message": {"tool_calls": call}}},
        {
            "type": "tool-call-delta",
            "index": 0,
            "delta": {"message": {"tool_calls": {"function": {"arguments": "{}"}}}},
        },
    ):
        sent = [data for _, data in converter.feed(event)]
    assert [chunk["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] for chunk in sent] == ["{}"]
