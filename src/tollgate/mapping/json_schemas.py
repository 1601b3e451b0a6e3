"""Converts JSON schemas to the narrower dialects that upstreams accept for structured output.

Only the walk through a schema is here; the mapping file says which keywords an upstream accepts. A schema is never
changed in place, and values that are no schemas (a property called `minimum`, a list of examples) are left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tollgate.mapping.values import Object, json_text

_ONE = ("items", "contains", "not", "additionalProperties")
"""Keywords that hold one schema (or true or false)."""
_SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems")
"""Keywords that hold a list of schemas."""
_NAMED = ("properties", "patternProperties", "$defs", "definitions")
"""Keywords that hold schemas by name."""


def closed(schema: Object) -> dict[str, Any] | None:
    """A JSON schema in which every object that leaves other properties open says `additionalProperties: false`."""
    return _everywhere(schema, _close) if type(schema) is dict else None


def spoken(schema: Object, table: Object) -> dict[str, Any] | None:
    """A JSON schema in which a keyword of the table stands only with a value listed for it; with another one it is said
    in the description.

    {"type": "integer", "minimum": 1}, {"minimum": []} -> {"type": "integer", "description": "minimum: 1"}
    """
    if type(schema) is not dict or type(table) is not dict:
        return None
    return _everywhere(schema, lambda one: _speak(one, table))


def _everywhere(schema: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    made = schema.copy()
    for key in _ONE:
        if type(held := made.get(key)) is dict:
            made[key] = _everywhere(held, change)
    for key in _SEVERAL:
        if type(held := made.get(key)) is list:
            made[key] = [_everywhere(one, change) if type(one) is dict else one for one in held]
    for key in _NAMED:
        if type(held := made.get(key)) is dict:
            made[key] = {name: _everywhere(one, change) if type(one) is dict else one for name, one in held.items()}
    return change(made)


def _close(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema.get("type")
    holds_fields = kind == "object" or type(kind) is list and "object" in kind or "properties" in schema
    if holds_fields and schema.get("additionalProperties", True) is True:
        schema["additionalProperties"] = False
    return schema


def _speak(schema: dict[str, Any], taken: dict[str, Any]) -> dict[str, Any]:
    described = [
        key for key, values in taken.items() if key in schema and not (type(values) is list and schema[key] in values)
    ]
    if described:
        words = ", ".join(f"{key}: {json_text(schema.pop(key))}" for key in described)
        before = schema.get("description")
        schema["description"] = f"{before}\n\n{words}" if type(before) is str and before else words
    return schema
