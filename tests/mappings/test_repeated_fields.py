"""The fields of the request that a `responses` answer repeats."""

from __future__ import annotations

from typing import Any

import pytest

from mappings.support import mapping
from tollgate.mapping import Context, convert_request, convert_response

ANSWER = {
    "type": "message",
    "id": "m1",
    "role": "assistant",
    "model": "m",
    "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "1"}],
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


@pytest.mark.parametrize(
    ("requested", "repeated"),
    [
        ({}, {"strict": False}),
        ({"description": None, "strict": None}, {"strict": False}),
        ({"description": "d", "strict": True}, {"description": "d", "strict": True}),
    ],
    ids=["absent", "null", "set"],
)
def test_a_schema_is_repeated_without_a_null_description(requested: dict[str, Any], repeated: dict[str, Any]) -> None:
    # the published schema requires a string or nothing
    named = {"type": "json_schema", "name": "n", "schema": {}}
    context = Context()
    body = {"model": "m", "input": "Hi", "text": {"format": {**named, **requested}}}
    convert_request(mapping("responses"), mapping("messages"), body, context)
    answer: Any = convert_response(mapping("messages"), mapping("responses"), ANSWER, context).body
    assert answer["text"]["format"] == {**named, **repeated}
