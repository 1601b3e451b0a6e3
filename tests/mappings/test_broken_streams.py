"""What a client receives of a truncated or refused answer, or from an upstream that numbers nothing."""

from __future__ import annotations

from typing import Any

import pytest

from mappings.support import mapping
from tollgate.mapping import Context, StreamConverter, convert_response


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"id": "a", "created": 1, "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(name: str | None, arguments: str, **more: Any) -> dict[str, Any]:
    return chunk(tool_calls=[{"function": {**({"name": name} if name else {}), "arguments": arguments}, **more}])


def client_events(client: str, events: list[Any], source: str = "chat", *, fail: bool = False) -> list[dict[str, Any]]:
    converter = StreamConverter(mapping(source), mapping(client), Context(run_id="r1", now=5))
    out = [data for event in events for _, data in converter.feed(event)]
    out += [data for _, data in (converter.fail("broke") if fail else converter.finish())]
    return [data for data in out if isinstance(data, dict)]


@pytest.mark.parametrize("fail", [True, False], ids=["the connection broke", "the upstream just ended"])
def test_a_truncated_call_is_never_marked_done(fail: bool):
    events = client_events("responses", [call("w", '{"city"', index=0, id="c1")], fail=fail)
    kinds = [event["type"] for event in events]
    assert kinds[-2:] == ["error", "response.failed"]
    assert not any(kind.endswith(".done") for kind in kinds)
    assert [(item["type"], item["arguments"]) for item in events[-1]["response"]["output"]] == [
        ("function_call", '{"city"')
    ]


@pytest.mark.parametrize("fail", [True, False], ids=["the connection broke", "the upstream just ended"])
@pytest.mark.parametrize(
    ("open_kind", "events"),
    [
        ("tool_use", [call("w", '{"city"', index=0, id="c1")]),
        ("text", [chunk(content="half a")]),
        ("thinking", [chunk(reasoning="half a")]),
    ],
)
def test_a_truncated_block_is_never_marked_done(open_kind: str, events: list[Any], fail: bool):
    """Claude Code used a truncated call, and did not retry after a truncated text."""
    sent = client_events("messages", events, fail=fail)
    assert [event["type"] for event in sent] == ["message_start", "content_block_start", "content_block_delta", "error"]
    assert sent[1]["content_block"]["type"] == open_kind


def test_a_block_that_was_complete_before_the_truncation_is_marked_done():
    sent = client_events("messages", [chunk(content="So"), call("w", '{"city"', index=0, id="c1")], fail=True)
    assert [event["type"] for event in sent] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "error",
    ]


@pytest.mark.parametrize(
    ("kind", "half"),
    [("message", {"content": "half a"}), ("reasoning", {"reasoning": "half a"}), ("message", {"refusal": "half a"})],
    ids=["text", "reasoning", "refusal"],
)
def test_a_truncated_item_is_never_marked_done(kind: str, half: dict[str, str]):
    """Codex keeps every item that is marked done, even a truncated text, and retries: the model would continue after
    it."""
    events = client_events("responses", [chunk(**half)], fail=True)
    assert not any(event["type"].endswith(".done") for event in events)
    assert [event["item"]["type"] for event in events if event["type"] == "response.output_item.added"] == [kind]
    assert events[-1]["response"]["output"][0]["type"] == kind


def test_a_truncated_text_is_incomplete():
    events = client_events("responses", [chunk(content="half a")], fail=True)
    assert events[-1]["response"]["output"][0]["status"] == "incomplete"


def test_a_text_cut_by_its_limit_is_incomplete_in_its_item_too():
    events = client_events("responses", [chunk(content="half a"), chunk("length")])
    assert [event["item"]["status"] for event in events if event["type"] == "response.output_item.done"] == [
        "incomplete"
    ]
    assert events[-1]["type"] == "response.incomplete"


def block(stop: str | None, *pieces: str, **content: Any) -> list[dict[str, Any]]:
    """The events of an upstream that reports the end of a block, and only then the stop reason."""
    field, kind = ("partial_json", "input_json_delta") if content["type"] == "tool_use" else ("text", "text_delta")
    return [
        {
            "type": "message_start",
            "message": {"id": "m", "model": "c", "usage": {"input_tokens": 1, "output_tokens": 1}},
        },
        {"type": "content_block_start", "index": 0, "content_block": content},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": kind, field: piece}} for piece in pieces),
        {"type": "content_block_stop", "index": 0},
        *(
            [
                {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 2}},
                {"type": "message_stop"},
            ]
            if stop
            else []
        ),
    ]


TEXT, CALL = {"type": "text", "text": ""}, {"type": "tool_use", "id": "t", "name": "f", "input": {}}
ENDS = {
    "a text cut by its limit": (block("max_tokens", "half", **TEXT), "incomplete"),
    "a text": (block("end_turn", "whole", **TEXT), "completed"),
    "a call cut by its limit": (block("max_tokens", '{"city"', **CALL), "incomplete"),
    "a call": (block("tool_use", "{}", **CALL), "completed"),
    "a call before the stream was truncated": (block(None, "{}", **CALL), "completed"),
    "a call before the upstream failed": (
        [*block(None, "{}", **CALL), {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}],
        "completed",
    ),
}


@pytest.mark.parametrize("case", ENDS)
def test_the_status_of_the_last_item_follows_the_stop_reason_after_it(case: str):
    events, status = ENDS[case]
    sent = client_events("responses", events, "messages")
    assert [event["item"]["status"] for event in sent if event["type"] == "response.output_item.done"] == [status]
    assert sent[-1]["response"]["output"] == [
        event["item"] for event in sent if event["type"] == "response.output_item.done"
    ]


def test_only_the_item_truncated_by_the_error_is_incomplete():
    events = [*block(None, "{}", **CALL), {"type": "content_block_start", "index": 1, "content_block": TEXT}]
    events += [{"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "half a"}}]
    events += [{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}]
    output = client_events("responses", events, "messages")[-1]["response"]["output"]
    assert [item["status"] for item in output] == ["completed", "incomplete"]


def test_the_deltas_of_a_block_are_sent_before_its_end():
    events = block(None, "{}", **CALL)
    converter = StreamConverter(mapping("messages"), mapping("responses"), Context(run_id="r1", now=5))
    kinds = [name for event in events for name, _ in converter.feed(event)]
    assert kinds[-1] == "response.function_call_arguments.delta"
    kinds = [
        name
        for name, _ in converter.feed({"type": "content_block_start", "index": 1, "content_block": {**CALL, "id": "u"}})
    ]
    assert kinds == ["response.function_call_arguments.done", "response.output_item.done", "response.output_item.added"]


REFUSED = {
    "id": "m1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": "refusal",
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 1},
}


def test_a_refusal_without_text_is_an_answer_stopped_by_a_filter():
    whole = convert_response(mapping("messages"), mapping("responses"), REFUSED, Context()).body
    assert (whole["status"], whole["incomplete_details"], whole["completed_at"]) == (
        "incomplete",
        {"reason": "content_filter"},
        None,
    )
    events = client_events(
        "responses",
        [
            {"type": "message_start", "message": REFUSED | {"stop_reason": None}},
            {"type": "message_delta", "delta": {"stop_reason": "refusal"}, "usage": {}},
            {"type": "message_stop"},
        ],
        "messages",
    )
    assert (events[-1]["type"], events[-1]["response"]["incomplete_details"]) == (
        "response.incomplete",
        {"reason": "content_filter"},
    )


def test_a_refusal_with_text_is_a_complete_answer():
    words = {
        "id": "c",
        "created": 1,
        "model": "m",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": None, "refusal": "No."}, "finish_reason": "stop"}
        ],
    }
    whole = convert_response(mapping("chat"), mapping("responses"), words, Context()).body
    assert whole["status"] == "completed"
    assert whole["output"][0]["content"] == [{"type": "refusal", "refusal": "No."}]


def test_calls_without_index_and_id_are_distinguished_by_name():
    events = client_events(
        "messages", [call("f", '{"a":1}'), call("g", '{"b"'), call(None, ":2}"), chunk("tool_calls")]
    )
    starts = [event["content_block"]["name"] for event in events if event["type"] == "content_block_start"]
    pieces: dict[int, str] = {}
    for event in events:
        if event["type"] == "content_block_delta":
            pieces[event["index"]] = pieces.get(event["index"], "") + event["delta"]["partial_json"]
    assert (starts, list(pieces.values())) == (["f", "g"], ['{"a":1}', '{"b":2}'])


def test_a_name_repeated_with_more_arguments_is_the_same_call():
    events = client_events("messages", [call("f", '{"a"'), call("f", ":1}"), chunk("tool_calls")])
    assert [event["content_block"]["name"] for event in events if event["type"] == "content_block_start"] == ["f"]


def test_reasoning_beside_an_empty_list_of_details_is_kept():
    events = client_events("chat", [chunk(reasoning="think", reasoning_details=[]), chunk(content="hi"), chunk("stop")])
    assert [event["choices"][0]["delta"].get("reasoning") for event in events if event["choices"]][1] == "think"


@pytest.mark.parametrize(("written", "text"), [("", ""), ({"a": [1]}, '{"a":[1]}'), (5, "5")])
def test_the_input_of_an_emulated_free_form_call_is_a_text(written: Any, text: str):
    answer = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "stop_reason": "tool_use",
        "content": [{"type": "tool_use", "id": "t", "name": "n", "input": {"input": written}}],
    }
    for client, read in (
        ("chat", lambda body: body["choices"][0]["message"]["tool_calls"][0]["custom"]["input"]),
        ("responses", lambda body: body["output"][0]["input"]),
    ):
        context = Context()
        context.request = {"tools": [{"name": "n", "custom": True}]}
        assert read(convert_response(mapping("messages"), mapping(client), answer, context).body) == text
