"""Checks whether a value is a JSON Schema (2020-12): for the input schemas of image models.

The test here only recognises schemas with the usual keywords. For any other value `jsonschema` is asked, which takes 5
ms a schema and 60 ms to import, and words the mistake.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tollgate.config.accept import compile_accept
from tollgate.config.load import Node, plain

_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
SCHEMAS = frozenset({"items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else"})
"""Keywords that hold a schema."""
CHOICES = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
"""Keywords that hold a list of schemas."""
TABLES = frozenset({"properties", "$defs", "dependentSchemas"})
"""Keywords that hold schemas by names that the file chooses."""
_HELD: dict[str, Any] = {"$ref": "#/$defs/schema"}
_TYPE = {"enum": list(_TYPES)}
_USUAL: dict[str, Any] = {
    "type": {"anyOf": [_TYPE, {"type": "array", "items": _TYPE, "minItems": 1, "uniqueItems": True}]},
    "required": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    "pattern": {"type": "string", "format": "regex"},
    "multipleOf": {"type": "number", "exclusiveMinimum": 0},
    **dict.fromkeys(SCHEMAS, _HELD),
    **dict.fromkeys(CHOICES, {"type": "array", "items": _HELD, "minItems": 1}),
    **dict.fromkeys(TABLES, {"type": "object", "additionalProperties": _HELD}),
    **dict.fromkeys(
        ("title", "description", "format", "$comment", "contentEncoding", "contentMediaType"), {"type": "string"}
    ),
    **dict.fromkeys(("deprecated", "readOnly", "writeOnly", "uniqueItems"), {"type": "boolean"}),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), {"type": "number"}),
    **{
        f"{bound}{what}": {"type": "integer", "minimum": 0}
        for bound in ("min", "max")
        for what in ("Length", "Items", "Contains", "Properties")
    },
    **dict.fromkeys(("enum", "examples"), {"type": "array"}),
    **dict.fromkeys(("default", "const"), True),
}
"""The usual keywords, each with a schema of its value."""
_LEFT = frozenset({"$ref", "$id", "$schema", "$anchor", "nullable", "definitions", "contentSchema"}).union(
    {"dependentRequired", "patternProperties", "unevaluatedItems", "unevaluatedProperties"}
)
"""Keywords that only `jsonschema` checks."""
KEYWORDS = _LEFT.union(_USUAL)
"""Every keyword that has a meaning in a JSON Schema."""
_SCHEMA = {"type": ["object", "boolean"], "properties": _USUAL, "additionalProperties": False}
_is_usual = compile_accept({**_HELD, "$defs": {"schema": _SCHEMA}})
_LONGEST = 120
"""Characters of a useful message; longer ones print the whole value."""


def schema_mistake(node: Node) -> tuple[tuple[str | int, ...], str] | None:
    """Where and why a value is not a JSON Schema; None if it is one."""
    if _is_usual(node):
        return None
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(plain(node, floats=True))
    except SchemaError as error:
        return tuple(error.absolute_path), _words(error.absolute_path, error.message)
    return None


def _words(path: Sequence[str | int], message: str) -> str:
    """The library's message, or a better one for a wrong `type`: "it matches no alternative of the meta-schema" does
    not help."""
    if "type" in [*path][-2:]:
        return f"a type is one of {', '.join(_TYPES)}"
    return message if len(message) <= _LONGEST else ""
