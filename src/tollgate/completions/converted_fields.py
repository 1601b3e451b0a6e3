"""Refuses a request that is about to be converted if a field has a type that the conversion would not see, so that the
field would be ignored in silence.

A provider of the client's own format gets its bytes and says itself what it cannot read; some take what the published
format does not have (`reasoning: true`). So this is no part of `body.py`. Unknown fields pass, and so do wrong types
that a conversion carries, refuses or names as lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tollgate.completions.converted_turns import wrong_in_turns
from tollgate.completions.field_types import (
    ANY_TEXT,
    BOOLEAN,
    LIST,
    NUMBER,
    OBJECT,
    OBJECTS,
    TEXT_OR_NUMBER,
    TEXT_OR_OBJECT,
    Fields,
    Rule,
    found_in,
    unfit,
    wrong_field,
)


def check_converted(client_format: str, body: dict[str, Any]) -> None:
    """Check a request in this client format that is to be converted. Raises `BadRequest` naming the field."""
    if wrong := wrong_field(body, _TABLES[client_format]) or wrong_in_turns(client_format, body):
        where, value, wanted = wrong
        raise unfit(where, found_in(value, wanted), wanted)


_SCHEMA = {"name": ANY_TEXT, "strict": BOOLEAN}
_ALLOWED = {"mode": ANY_TEXT, "tools": OBJECTS}
_TABLES: dict[str, Mapping[str, Rule | Fields]] = {
    "chat": {
        "audio": OBJECT,
        "extra_body": OBJECT,
        "function_call": TEXT_OR_OBJECT,
        "functions": OBJECTS,
        "image_config": OBJECT,
        "modalities": LIST,
        "parallel_tool_calls": BOOLEAN,
        "reasoning": OBJECT,
        "response_format": Fields({"json_schema": Fields(_SCHEMA)}),
        "store": BOOLEAN,
        "thinking": Fields({"type": ANY_TEXT}),
        "tool_choice": Fields({"allowed_tools": Fields(_ALLOWED)}, only=False),
        "top_k": NUMBER,
        "top_logprobs": NUMBER,
        "user": TEXT_OR_NUMBER,
    },
    "responses": {
        "include": LIST,
        "parallel_tool_calls": BOOLEAN,
        "reasoning": Fields({"summary": ANY_TEXT}),
        "store": BOOLEAN,
        "text": Fields({"format": Fields(_SCHEMA)}),
        "tool_choice": Fields(_ALLOWED, only=False),
        "top_logprobs": NUMBER,
        "user": TEXT_OR_NUMBER,
    },
    "messages": {
        "metadata": Fields({"user_id": TEXT_OR_NUMBER}),
        "tool_choice": Fields({"name": ANY_TEXT}),
    },
}
