"""Gemini's signature of a text comes behind it, where clients look for the answer: they get the text last."""

from __future__ import annotations

import pytest

from mappings.support import mapping
from tollgate.mapping import Context, StreamConverter, convert_response

SIGNED = [{"text": "said"}, {"text": "", "thoughtSignature": "END"}]
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
def test_the_text_is_the_last_of_a_whole_answer(client, place, text, call):
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
def test_the_text_is_the_last_of_a_stream(client, event, text, call):
    for parts, expected in ((SIGNED, text), ([*SIGNED, CALL], call)):
        converter = StreamConverter(mapping("gemini"), mapping(client), Context())
        told = [out for part in parts for out in converter.feed(answer([part]))]
        begun = [data for name, data in told + converter.finish() if name == event]
        assert kinds([each.get("content_block") or each["item"] for each in begun]) == expected
        assert [each.get("index", each.get("output_index")) for each in begun] == list(range(len(expected)))
        assert converter.lost == ["signature of the text"]
