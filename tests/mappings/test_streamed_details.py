"""Reasoning in `reasoning_details` of a stream: sent in pieces as it arrives, as OpenRouter does, so that clients that
read it (its own library for the AI SDK, pydantic-ai) receive all reasoning once, and can send it back."""

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
    """The deltas that a chat client receives of a stream with reasoning."""
    converter = StreamConverter(mapping(upstream), mapping("chat"), Context(now=5, can={"thinking": True}))
    sent = [data for event in STREAMS[upstream] for _, data in converter.feed(event)]
    return [chunk["choices"][0]["delta"] for chunk in sent]


@pytest.mark.parametrize("upstream", STREAMS)
def test_a_client_that_prefers_the_details_receives_all_reasoning_once(upstream):
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
        ("gemini", {"text": "Let me see.", "thought": True}),  # unsigned, but accepted back
    ],
)
def test_details_collected_by_a_client_are_sent_back_complete(upstream, expected):
    sent = deltas(upstream)
    turn = {
        "role": "assistant",
        "content": "Yes.",
        "reasoning": "".join(delta.get("reasoning") or "" for delta in sent),
        "reasoning_details": [each for delta in sent for each in delta.get("reasoning_details") or []],
    }
    body = {"model": "m", "messages": [{"role": "user", "content": "a"}, turn, {"role": "user", "content": "b"}]}
    done = convert_request(mapping("chat"), mapping(upstream), body, Context(now=5, can={"thinking": True}))
    if upstream == "gemini":
        turns = done.body["contents"][1]["parts"]
    else:
        turns = done.body["input"] if upstream == "responses" else done.body["messages"][1]["content"]
    assert expected in turns and done.lost == []


def test_the_details_of_a_whole_answer_include_unsigned_reasoning():
    parts = [{"text": "Let me see.", "thought": True}, {"functionCall": {"name": "f"}, "thoughtSignature": "SIG"}]
    answer = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}
    message = convert_response(mapping("gemini"), mapping("chat"), answer, Context()).body["choices"][0]["message"]
    assert [each.get("text") for each in message["reasoning_details"]] == ["Let me see.", None]
