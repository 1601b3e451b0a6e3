"""A whole answer and the same answer streamed have the same content and report the same losses."""

from __future__ import annotations

from typing import Any

import pytest

from mappings.support import context, converted, mapping
from tollgate.mapping import StreamConverter, convert_request, convert_response, response_from_hub, stream_from_hub

SUMMARY, CONTENT = (
    [{"type": "summary_text", "text": "so"}, {"type": "summary_text", "text": "thus"}],
    [{"type": "reasoning_text", "text": "hm"}],
)
REASONING = {
    "summary": (SUMMARY, [], "so\n\nthus"),
    "full": ([], CONTENT, "hm"),
    "both": (SUMMARY, CONTENT, "so\n\nthus\n\nhm"),
}


@pytest.mark.parametrize("name", REASONING)
def test_a_summary_and_the_full_reasoning_are_both_sent(name: str) -> None:
    summary, content, text = REASONING[name]
    item = {"type": "reasoning", "id": "rs_1", "summary": summary, "content": content}
    answer = {"id": "r", "status": "completed", "created_at": 5, "model": "m", "output": [item]}
    assert (
        convert_response(mapping("responses"), mapping("chat"), answer, context()).body["choices"][0]["message"][
            "reasoning"
        ]
        == text
    )
    at = {"item_id": "rs_1", "output_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**answer, "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "summary": []}},
    ]
    for n, part in enumerate(summary):
        events += [
            {
                "type": "response.reasoning_summary_part.added",
                **at,
                "summary_index": n,
                "part": {"type": "summary_text", "text": ""},
            },
            {"type": "response.reasoning_summary_text.delta", **at, "summary_index": n, "delta": part["text"]},
        ]
    for n, part in enumerate(content):
        events += [
            {
                "type": "response.content_part.added",
                **at,
                "content_index": n,
                "part": {"type": "reasoning_text", "text": ""},
            },
            {"type": "response.reasoning_text.delta", **at, "content_index": n, "delta": part["text"]},
        ]
    events += [
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": answer},
    ]
    sent = [data for _, data in converted("responses", "chat", events) if isinstance(data, dict)]
    assert "".join(data["choices"][0]["delta"].get("reasoning") or "" for data in sent if data.get("choices")) == text


ARGUMENTS = {
    "an object": ('{"a":1}', []),
    "a list": ("[1]", ["arguments that are not an object"]),
    "broken off": ('{"a":', ["arguments that are not JSON"]),
    "none": ("", []),
}


@pytest.mark.parametrize("client", ["chat", "responses"])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_that_are_not_an_object_are_reported(name: str, client: str) -> None:
    arguments, named = ARGUMENTS[name]
    run = context()
    converted(
        "messages",
        client,
        [
            {"type": "message_start", "message": {"id": "m", "model": "m"}},
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}},
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": arguments},
            },
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}},
            {"type": "message_stop"},
        ],
        run,
    )
    assert run.lost == named
    call = {"id": "t", "type": "function", "function": {"name": "f", "arguments": arguments}}
    answer = {
        "id": "c",
        "created": 5,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": None, "tool_calls": [call]},
                "finish_reason": "tool_calls",
            }
        ],
    }
    assert convert_response(mapping("chat"), mapping("messages"), answer, context()).lost == named


def test_the_last_item_of_an_answer_refused_without_text_is_incomplete() -> None:
    answer = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "stop_reason": "refusal",
        "usage": {"input_tokens": 1, "output_tokens": 1},
        "content": [
            {"type": "text", "text": "Well"},
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            {"type": "text", "text": "it is"},
        ],
    }
    made = convert_response(mapping("messages"), mapping("responses"), answer, context()).body
    assert made["status"] == "incomplete" and [item["status"] for item in made["output"]] == ["completed", "incomplete"]


NOTE = {
    "type": "web_search_result_location",
    "url": "https://a.example",
    "title": "A",
    "encrypted_index": "E",
    "cited_text": "hi",
}
NAMED = {
    "chat": ["encrypted_index of a citation"],
    "responses": ["cited text of a citation", "encrypted_index of a citation"],
}


@pytest.mark.parametrize("client", NAMED)
def test_the_losses_of_a_citation_are_reported_the_same_way(client: str) -> None:
    answer = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "hi", "citations": [NOTE]}],
    }
    whole, streamed = context(), context()
    convert_response(mapping("messages"), mapping(client), answer, whole)
    converted(
        "messages",
        client,
        [
            {"type": "message_start", "message": {**answer, "content": []}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "", "citations": []}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": NOTE}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
            {"type": "message_stop"},
        ],
        streamed,
    )
    assert whole.lost == streamed.lost == NAMED[client]


def test_log_probabilities_are_reported_as_lost_to_messages_clients() -> None:
    logprobs = {"content": [{"token": "hi", "logprob": -0.1, "bytes": [104, 105], "top_logprobs": []}]}
    frame, whole, streamed = {"id": "c", "created": 5, "model": "m"}, context(), context()
    convert_response(
        mapping("chat"),
        mapping("messages"),
        {**frame, "choices": [{"message": {"content": "hi"}, "logprobs": logprobs, "finish_reason": "stop"}]},
        whole,
    )
    converted(
        "chat",
        "messages",
        [
            {
                **frame,
                "choices": [{"index": 0, "delta": {"content": "hi"}, "logprobs": logprobs, "finish_reason": "stop"}],
            },
            "[DONE]",
        ],
        streamed,
    )
    assert whole.lost == streamed.lost == ["logprobs of the answer"]


@pytest.mark.parametrize("upstream", ["messages", "chat", "bedrock"])
def test_a_late_result_is_sent_directly_after_its_call(upstream: str) -> None:
    body = {
        "model": "m",
        "input": [
            {"role": "user", "content": "Hi"},
            {"type": "function_call", "call_id": "t", "name": "f", "arguments": "{}"},
            {"role": "user", "content": "hm"},
            {"role": "developer", "content": "Be brief."},
            {"type": "function_call_output", "call_id": "t", "output": "42"},
        ],
    }
    sent = convert_request(mapping("responses"), mapping(upstream), body, context()).body["messages"]
    at = next(number for number, message in enumerate(sent) if message["role"] == "assistant")
    assert "42" in str(sent[at + 1]["content"] if upstream == "chat" else sent[at + 1]["content"][0])


def test_the_applied_tier_is_sent_at_the_end_of_a_stream() -> None:
    answer = {"id": "r", "created_at": 5, "model": "m", "output": []}
    converter = StreamConverter(mapping("responses"), mapping("chat"), context())
    sent: list[Any] = []
    for event in (
        {"type": "response.created", "response": {**answer, "service_tier": "auto"}},
        {"type": "response.in_progress", "response": {**answer, "service_tier": "auto"}},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Hi"},
        {"type": "response.completed", "response": {**answer, "status": "completed", "service_tier": "priority"}},
    ):
        sent += converter.feed(event)
    sent += converter.finish()
    assert converter.response_field("service_tier") == "priority"
    assert sent[-2][1]["choices"][0]["finish_reason"] == "stop" and sent[-2][1]["service_tier"] == "priority"


NOTES = [
    {"type": "url", "url": "https://x", "title": "X", "text": "cited", "token": "enc"},
    {"type": "file", "filename": "f", "file_id": "i", "index": 3, "text": "cited"},
    {"type": "other", "of": "chat", "raw": {"type": "novel", "b": 2}},
]
TOKENS = [{"token": "hi", "logprob": -1.0, "bytes": [104, 105], "top_logprobs": []}]
PARTS: dict[str, dict[str, Any]] = {
    "a note": {"kind": "text", "text": "hi", "annotations": NOTES},
    "logprobs": {"kind": "text", "text": "hi", "logprobs": TOKENS},
    "logprobs of a refusal": {"kind": "refusal", "text": "no", "logprobs": TOKENS},
    "a thought": {"kind": "reasoning", "text": "hm", "token": "T", "id": "r", "origin": "openai"},
    "a picture": {"kind": "image", "mime": "image/jpeg", "data": "AAAA"},
    "a picture by address": {"kind": "image", "mime": "image/png", "url": "https://x"},
    "audio": {"kind": "audio", "id": "a", "mime": "audio/wav", "data": "AAAA", "expires": 5},
    "video": {"kind": "video", "mime": "video/mp4", "data": "AAAA"},
    "a file": {"kind": "file", "mime": "text/csv", "url": "https://x"},
    "something opaque": {"kind": "opaque", "of": "nobody", "raw": {"type": "novel", "a": 1}},
    "a signed call": {"kind": "tool_call", "id": "c", "name": "f", "args": "{}", "token": "T", "origin": "gemini"},
    "a call in a namespace": {"kind": "tool_call", "id": "c", "name": "f", "args": "{}", "namespace": "n"},
}


@pytest.mark.parametrize("client", ["chat", "responses", "messages"])
@pytest.mark.parametrize("name", PARTS)
def test_a_stream_reports_the_losses_of_the_whole_answer(name: str, client: str) -> None:
    hub = {
        "id": "x",
        "model": "m",
        "created": 5,
        "parts": [PARTS[name]],
        "stop": "tool" if PARTS[name]["kind"] == "tool_call" else "end",
    }
    whole, streamed = context(), context()
    response_from_hub(mapping(client), hub, whole)
    stream_from_hub(mapping(client), hub, streamed)
    assert sorted(streamed.lost) == sorted(whole.lost)


CITED = {"type": "web_search_result_location", "url": "https://a.example", "title": "A"}
SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}


def test_a_cited_answer_is_one_message_of_one_text_for_responses_clients() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "I look. "},
        SEARCH,
        {"type": "text", "text": "It is "},
        {"type": "text", "text": "noon", "citations": [CITED, {**CITED, "title": "B"}]},
        {"type": "text", "text": " at sea."},
    ]
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m"}
    whole = {**head, "stop_reason": "end_turn", "usage": {"output_tokens": 5}, "content": blocks}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**head, "content": []}}]
    for n, block in enumerate(blocks):
        empty = {**block, "text": ""} if block["type"] == "text" else block
        empty.pop("citations", None)
        events.append({"type": "content_block_start", "index": n, "content_block": empty})
        told = [{"type": "citations_delta", "citation": cited} for cited in block.get("citations", ())]
        if block["type"] == "text":
            told += [{"type": "text_delta", "text": piece} for piece in (block["text"][:2], block["text"][2:])]
        events += [{"type": "content_block_delta", "index": n, "delta": delta} for delta in told]
        events.append({"type": "content_block_stop", "index": n})
    events += [
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
    made = convert_response(mapping("messages"), mapping("responses"), whole, context()).body
    sent = [data for _, data in converted("messages", "responses", events)]

    messages = [[part["text"] for part in item["content"]] for item in made["output"]]
    notes = [
        [(a["title"], a["start_index"], a["end_index"]) for a in item["content"][0]["annotations"]]
        for item in made["output"]
    ]
    assert messages == [["I look. "], ["It is noon at sea."]]
    assert notes == [[], [("A", 6, 10), ("B", 6, 10)]]
    assert [item["content"] for item in sent[-1]["response"]["output"]] == [item["content"] for item in made["output"]]

    names = [event["type"] for event in sent if event.get("output_index") == 1]
    assert names == [
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * 6,
        *["response.output_text.annotation.added"] * 2,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
    ]
    second = [event for event in sent if event.get("output_index") == 1]
    assert "".join(event["delta"] for event in second if "delta" in event) == second[-3]["text"] == "It is noon at sea."
    assert second[-1]["item"] == sent[-1]["response"]["output"][1]
    assert [event["annotation"] for event in second if "annotation" in event] == second[-2]["part"]["annotations"]


def test_texts_of_a_whole_gemini_answer_are_one_message_for_responses_clients() -> None:
    parts = [{"text": "It is "}, {"text": "noon."}, {"functionCall": {"name": "f", "args": {}}}, {"text": "So."}]
    answer = {"responseId": "r", "candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}
    made = convert_response(mapping("gemini"), mapping("responses"), answer, context()).body
    assert [item["content"][0]["text"] if "content" in item else item["name"] for item in made["output"]] == [
        "It is noon.",
        "f",
        "So.",
    ]


@pytest.mark.parametrize("upstream", ["responses", "messages"])
def test_an_answer_read_and_written_in_its_own_format_keeps_its_texts_apart(upstream: str) -> None:
    text = [
        {"type": "output_text", "text": "a", "annotations": []},
        {"type": "output_text", "text": "b", "annotations": []},
    ]
    answers: dict[str, dict[str, Any]] = {
        "responses": {"id": "r", "status": "completed", "output": [{"type": "message", "content": text}]},
        "messages": {"id": "m", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    }
    made = convert_response(mapping(upstream), mapping(upstream), answers[upstream], context()).body
    texts = [item["content"][0]["text"] for item in made["output"]] if upstream == "responses" else made["content"]
    assert texts in (["a", "b"], answers["messages"]["content"])
