"""Thoughts of a stream in `reasoning_details`: told in pieces as they come, as OpenRouter streams them, so that clients
that read these (its own library for the AI SDK, pydantic-ai) have each thought once, and can send it back."""

from __future__ import annotations

from typing import Any

import pytest

from mappings.support import mapping
from tollgate.mapping import Context, StreamConverter, convert_request, convert_response

CLAUDE = [
    {"type": "message_start", "message": {"id": "m", "model": "x", "usage": {"input_tokens": 1, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    *(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": text}}
        for text in ("Let me", " see.")
    ),
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "SIG"}},
    {"type": "content_block_stop", "index": 0},
]
BEDROCK = [
    {"contentBlockIndex": 0, "delta": {"reasoningContent": each}}
    for each in ({"text": "Let me"}, {"text": " see."}, {"signature": "SIG"})
] + [{"contentBlockIndex": 0}]
OPENAI = [
    {"type": "response.created", "response": {"id": "r", "model": "x", "created_at": 5}},
    *(
        {
            "type": "response.reasoning_summary_text.delta",
            "output_index": 0,
            "item_id": "rs_1",
            "summary_index": 0,
            "delta": text,
        }
        for text in ("Let me", " see.")
    ),
    {
        "type": "response.output_item.done",
        "output_index": 0,
        "item": {
            "type": "reasoning",
            "id": "rs_1",
            "encrypted_content": "ENC",
            "summary": [{"type": "summary_text", "text": "Let me see."}],
        },
    },
]
GEMINI = [
    {"responseId": "r", "candidates": [{"content": {"role": "model", "parts": [part]}}]}
    for part in ({"text": "Let me", "thought": True}, {"text": " see.", "thought": True}, {"text": "Yes."})
]
STREAMS = {"messages": CLAUDE, "bedrock": BEDROCK, "responses": OPENAI, "gemini": GEMINI}


def deltas(upstream: str) -> list[dict[str, Any]]:
    """What a chat client is told of the stream of a thought."""
    converter = StreamConverter(mapping(upstream), mapping("chat"), Context(now=5, can={"thinking": True}))
    told = [data for event in STREAMS[upstream] for _, data in converter.feed(event)]
    return [chunk["choices"][0]["delta"] for chunk in told]


@pytest.mark.parametrize("upstream", STREAMS)
def test_who_reads_the_details_where_there_are_some_has_each_thought_once(upstream):
    read = ""
    for delta in deltas(upstream):
        if details := delta.get("reasoning_details"):
            read += "".join(each.get("text") or each.get("summary") or "" for each in details)
        else:
            read += delta.get("reasoning") or ""
    assert read == "Let me see."


@pytest.mark.parametrize(
    ("upstream", "expected"),
    [
        ("messages", {"type": "thinking", "thinking": "Let me see.", "signature": "SIG"}),
        ("bedrock", {"reasoningContent": {"reasoningText": {"text": "Let me see.", "signature": "SIG"}}}),
        (
            "responses",
            {
                "type": "reasoning",
                "id": "rs_1",
                "encrypted_content": "ENC",
                "summary": [{"type": "summary_text", "text": "Let me see."}],
            },
        ),
        ("gemini", {"text": "Let me see.", "thought": True}),  # nobody signed it, and it is taken back all the same
    ],
)
def test_details_that_a_client_collected_come_back_whole(upstream, expected):
    told = deltas(upstream)
    turn = {
        "role": "assistant",
        "content": "Yes.",
        "reasoning": "".join(delta.get("reasoning") or "" for delta in told),
        "reasoning_details": [each for delta in told for each in delta.get("reasoning_details") or []],
    }
    asked = {"model": "m", "messages": [{"role": "user", "content": "a"}, turn, {"role": "user", "content": "b"}]}
    done = convert_request(mapping("chat"), mapping(upstream), asked, Context(now=5, can={"thinking": True}))
    if upstream == "gemini":
        turns = done.body["contents"][1]["parts"]
    else:
        turns = done.body["input"] if upstream == "responses" else done.body["messages"][1]["content"]
    assert expected in turns and done.lost == []


def test_who_reads_the_details_of_a_whole_answer_has_the_thoughts_that_nobody_signed_too():
    parts = [{"text": "Let me see.", "thought": True}, {"functionCall": {"name": "f"}, "thoughtSignature": "SIG"}]
    answer = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}
    message = convert_response(mapping("gemini"), mapping("chat"), answer, Context()).body["choices"][0]["message"]
    assert [each.get("text") for each in message["reasoning_details"]] == ["Let me see.", None]
