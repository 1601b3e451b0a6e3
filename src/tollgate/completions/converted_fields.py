"""Refuses a request that is about to be converted if a field has a type that the conversion would not see, so that the
field would be ignored in silence.

A provider of the client's own format gets its bytes and says itself what it cannot read; some take what the published
format does not have (`reasoning: true`). So this is no part of `body.py`. Unknown fields pass, and so do wrong types
that a conversion carries, refuses or names as lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tollgate.completions.field_types import (
    ANY_TEXT,
    BOOLEAN,
    LIST,
    NUMBER,
    OBJECT,
    OBJECTS,
    TEXT_OR_NUMBER,
    TEXT_OR_OBJECT,
    Rule,
    found_in,
    unfit,
)
from tollgate.mapping.harmless import NO_LOSS


@dataclass(frozen=True, slots=True)
class _Object:
    """An object, and the types of some of its fields. `only`: any other value is refused."""

    fields: Mapping[str, Rule | _Object]
    only: bool = True


def check_converted(client_format: str, body: dict[str, Any]) -> None:
    """Check a request in this client format that is to be converted. Raises `BadRequest` naming the field."""
    if wrong := _wrong(body, _TABLES[client_format]):
        where, value, wanted = wrong
        raise unfit(where, found_in(value, wanted), wanted)


def _wrong(values: dict[str, Any], rules: Mapping[str, Rule | _Object]) -> tuple[str, Any, str] | None:
    """The first field with a wrong type: its path, its value, and what is wanted."""
    for name, value in values.items():
        rule = rules.get(name)
        if rule is None or value in NO_LOSS:  # some languages write an empty object as a list
            continue
        if not isinstance(rule, _Object):
            if not rule[0](value):
                return name, value, rule[1]
        elif type(value) is dict:
            if below := _wrong(value, rule.fields):
                return f"{name}.{below[0]}", *below[1:]
        elif rule.only:
            return name, value, "an object"
    return None


_SCHEMA = {"name": ANY_TEXT, "strict": BOOLEAN}
_ALLOWED = {"mode": ANY_TEXT, "tools": OBJECTS}
_TABLES: dict[str, Mapping[str, Rule | _Object]] = {
    "chat": {
        "audio": OBJECT,
        "extra_body": OBJECT,
        "function_call": TEXT_OR_OBJECT,
        "functions": OBJECTS,
        "modalities": LIST,
        "parallel_tool_calls": BOOLEAN,
        "reasoning": OBJECT,
        "response_format": _Object({"json_schema": _Object(_SCHEMA)}),
        "store": BOOLEAN,
        "thinking": _Object({"type": ANY_TEXT}),
        "tool_choice": _Object({"allowed_tools": _Object(_ALLOWED)}, only=False),
        "top_k": NUMBER,
        "top_logprobs": NUMBER,
        "user": TEXT_OR_NUMBER,
    },
    "responses": {
        "include": LIST,
        "parallel_tool_calls": BOOLEAN,
        "reasoning": _Object({"summary": ANY_TEXT}),
        "store": BOOLEAN,
        "text": _Object({"format": _Object(_SCHEMA)}),
        "tool_choice": _Object(_ALLOWED, only=False),
        "top_logprobs": NUMBER,
        "user": TEXT_OR_NUMBER,
    },
    "messages": {
        "metadata": _Object({"user_id": TEXT_OR_NUMBER}),
        "tool_choice": _Object({"name": ANY_TEXT}),
    },
}
