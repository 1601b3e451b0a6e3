"""Unencrypted reasoning for responses clients: some only send back reasoning that has `encrypted_content`."""

from __future__ import annotations

from typing import Any

import pytest

from mappings.support import mapping
from tollgate.mapping import Context, StreamConverter, convert_request, convert_response

REQUEST = {"include": ["reasoning.encrypted_content"]}
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


def whole(request: dict[str, Any]) -> dict[str, Any]:
    context = Context()
    context.asked = request
    body = convert_response(mapping("chat"), mapping("responses"), ANSWER, context).body
    item: dict[str, Any] = body["output"][0]
    return item


def streamed(request: dict[str, Any]) -> dict[str, Any]:
    context = Context(run_id="r1", now=5)
    context.asked = request
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


@pytest.mark.parametrize("answer", [whole, streamed])
def test_plain_reasoning_gets_encrypted_content_and_is_restored_from_it(answer: Any):
    item = answer(REQUEST)
    assert item["type"] == "reasoning" and item["encrypted_content"]
    sent = {"model": "m", "input": [item, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "On"}]}
    back = convert_request(
        mapping("responses"), mapping("chat"), sent, Context({"upstream": "m"}, {"reasoning_content": True})
    )
    assert back.body["messages"][0] == {"role": "assistant", "content": "Hi", "reasoning_content": "hm"}
    away = convert_request(mapping("responses"), mapping("messages"), sent, Context({"upstream": "m"}))
    assert [block["type"] for block in away.body["messages"][0]["content"]] == ["text"]
    assert away.lost == ["reasoning without an Anthropic signature"]


@pytest.mark.parametrize("answer", [whole, streamed])
def test_encrypted_content_is_only_sent_if_requested(answer: Any):
    assert answer({}).get("encrypted_content") is None


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", ["messages", "responses"])
def test_unsigned_reasoning_of_gemini_is_sent_back_to_it(client: str, stream: bool):
    answer = {
        "responseId": "r",
        "candidates": [
            {"content": {"parts": [{"text": "hm", "thought": True}, {"text": "Hi"}]}, "finishReason": "STOP"}
        ],
    }
    context = Context(run_id="r1", now=5)
    context.asked = REQUEST
    place = {"messages": "content", "responses": "output"}[client]
    if not stream:
        items = convert_response(mapping("gemini"), mapping(client), answer, context).body[place]
    else:
        converter = StreamConverter(mapping("gemini"), mapping(client), context)
        events = [data for _, data in converter.feed(answer) + converter.finish()]
        if client == "responses":
            items = events[-1]["response"]["output"]
        else:
            signed = [event["delta"].get("signature") for event in events if event["type"] == "content_block_delta"]
            items = [
                {"type": "thinking", "thinking": "hm", "signature": next(filter(None, signed))},
                {"type": "text", "text": "Hi"},
            ]
    first, then = {"role": "user", "content": "a"}, {"role": "user", "content": "b"}
    if client == "messages":
        turn = {"role": "assistant", "content": items}
        body: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [first, turn, then]}
    else:
        body = {"model": "m", "input": [first, *items, then]}
    done = convert_request(mapping(client), mapping("gemini"), body, Context())
    assert done.body["contents"][1]["parts"] == [{"text": "hm", "thought": True}, {"text": "Hi"}]
    assert done.lost == []
