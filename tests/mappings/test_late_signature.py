"""Gemini's signature of a text follows the text, where clients look for the answer: the text remains their last
part."""

from __future__ import annotations

import pytest

from mappings.support import mapping
from tollgate.mapping import Context, StreamConverter, convert_response

SIGNED = [{"text": "word"}, {"text": "", "thoughtSignature": "END"}]
CALL = {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "SIG"}


def answer(parts):
    return {"responseId": "r", "candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}


def kinds(items):
    return [item["type"] for item in items]


@pytest.mark.parametrize(
    ("client", "place", "text", "call"),
    [
        ("messages", "content", ["text"], ["text", "thinking", "tool_use"]),
        ("responses", "output", ["message"], ["message", "reasoning", "function_call"]),
    ],
)
def test_the_text_is_the_last_part_of_a_whole_answer(client, place, text, call):
    for parts, expected in ((SIGNED, text), ([*SIGNED, CALL], call)):
        done = convert_response(mapping("gemini"), mapping(client), answer(parts), Context())
        assert kinds(done.body[place]) == expected and done.lost == ["signature of the text"]


@pytest.mark.parametrize(
    ("client", "event", "text", "call"),
    [
        ("messages", "content_block_start", ["text"], ["text", "thinking", "tool_use"]),
        ("responses", "response.output_item.added", ["message"], ["message", "reasoning", "function_call"]),
    ],
)
def test_the_text_is_the_last_part_of_a_stream(client, event, text, call):
    for parts, expected in ((SIGNED, text), ([*SIGNED, CALL], call)):
        converter = StreamConverter(mapping("gemini"), mapping(client), Context())
        sent = [out for part in parts for out in converter.feed(answer([part]))]
        added = [data for name, data in sent + converter.finish() if name == event]
        assert kinds([each.get("content_block") or each["item"] for each in added]) == expected
        assert [each.get("index", each.get("output_index")) for each in added] == list(range(len(expected)))
        assert converter.lost == ["signature of the text"]


PICTURE = {"inlineData": {"mimeType": "image/png", "data": "AA=="}}
BLOCKS = [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, {"type": "text", "text": "word"}]
SKIPPED = {
    "a signature before other parts": (
        "gemini",
        [answer([part]) for part in (*SIGNED, {"text": "more"}, PICTURE, CALL)],
    ),
    "a signature before the text": (
        "gemini",
        [answer([part]) for part in ({**PICTURE, "thoughtSignature": "P"}, *SIGNED)],
    ),
    "a block of a tool that the provider ran": (
        "messages",
        [
            {
                "type": "message_start",
                "message": {"id": "r", "model": "m", "content": [], "usage": {"input_tokens": 1}},
            },
            *({"type": "content_block_start", "index": i, "content_block": block} for i, block in enumerate(BLOCKS)),
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ],
    ),
}


@pytest.mark.parametrize("case", SKIPPED)
def test_items_after_a_skipped_part_keep_their_ids_to_the_end(case):
    upstream, events = SKIPPED[case]
    converter = StreamConverter(mapping(upstream), mapping("responses"), Context())
    sent = [out for event in events for out in converter.feed(event)] + converter.finish()
    done = [data["item"] for name, data in sent if name == "response.output_item.done"]
    assert done and done == sent[-1][1]["response"]["output"]
