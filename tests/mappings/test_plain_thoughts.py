"""Thoughts in plain words towards responses clients: some send none back that has no `encrypted_content`."""

from __future__ import annotations

from typing import Any

import pytest

from mappings.support import mapping
from tollgate.mapping import Context, StreamConverter, convert_request, convert_response

ASKED = {"include": ["reasoning.encrypted_content"]}
ANSWER = {
    "id": "c",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "Hi", "reasoning_content": "hm"},
        }
    ],
}


def whole(asked: dict[str, Any]) -> dict[str, Any]:
    context = Context()
    context.asked = asked
    body = convert_response(mapping("chat"), mapping("responses"), ANSWER, context).body
    item: dict[str, Any] = body["output"][0]
    return item


def streamed(asked: dict[str, Any]) -> dict[str, Any]:
    context = Context(run_id="r1", now=5)
    context.asked = asked
    converter = StreamConverter(mapping("chat"), mapping("responses"), context)
    message = ANSWER["choices"][0]["message"]
    chunks = [{"reasoning_content": "hm"}, {"content": message["content"]}, {}]
    events = [
        data
        for number, delta in enumerate(chunks)
        for _, data in converter.feed(
            {
                "id": "c",
                "created": 1,
                "model": "m",
                "choices": [{"index": 0, "delta": delta, "finish_reason": "stop" if number == 2 else None}],
            }
        )
    ]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    item: dict[str, Any] = done[0]
    return item


@pytest.mark.parametrize("told", [whole, streamed])
def test_a_plain_thought_has_something_to_be_sent_back_for_and_comes_back_as_it_was(told: Any):
    item = told(ASKED)
    assert item["type"] == "reasoning" and item["encrypted_content"]
    sent = {"model": "m", "input": [item, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "On"}]}
    back = convert_request(
        mapping("responses"), mapping("chat"), sent, Context({"upstream": "m"}, {"reasoning_content": True})
    )
    assert back.body["messages"][0] == {"role": "assistant", "content": "Hi", "reasoning_content": "hm"}
    away = convert_request(mapping("responses"), mapping("messages"), sent, Context({"upstream": "m"}))
    assert [block["type"] for block in away.body["messages"][0]["content"]] == ["text"]
    assert away.lost == ["reasoning without an Anthropic signature"]


@pytest.mark.parametrize("told", [whole, streamed])
def test_a_client_that_did_not_ask_gets_none(told: Any):
    assert told({}).get("encrypted_content") is None


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", ["messages", "responses"])
def test_an_unsigned_thought_of_gemini_goes_back_to_it(client: str, stream: bool):
    answer = {
        "responseId": "r",
        "candidates": [
            {"content": {"parts": [{"text": "hm", "thought": True}, {"text": "Hi"}]}, "finishReason": "STOP"}
        ],
    }
    context = Context(run_id="r1", now=5)
    context.asked = ASKED
    place = {"messages": "content", "responses": "output"}[client]
    if not stream:
        said = convert_response(mapping("gemini"), mapping(client), answer, context).body[place]
    else:
        converter = StreamConverter(mapping("gemini"), mapping(client), context)
        events = [data for _, data in converter.feed(answer) + converter.finish()]
        if client == "responses":
            said = events[-1]["response"]["output"]
        else:
            signed = [event["delta"].get("signature") for event in events if event["type"] == "content_block_delta"]
            said = [
                {"type": "thinking", "thinking": "hm", "signature": next(filter(None, signed))},
                {"type": "text", "text": "Hi"},
            ]
    first, then = {"role": "user", "content": "a"}, {"role": "user", "content": "b"}
    if client == "messages":
        turn = {"role": "assistant", "content": said}
        asked: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [first, turn, then]}
    else:
        asked = {"model": "m", "input": [first, *said, then]}
    done = convert_request(mapping(client), mapping("gemini"), asked, Context())
    assert done.body["contents"][1]["parts"] == [{"text": "hm", "thought": True}, {"text": "Hi"}]
    assert done.lost == []
