"""Whether a value is a JSON Schema (2020-12): for the input schemas of image models.

The test here is sure of the usual keywords and says nothing else; `jsonschema`, whose check takes 5 ms a schema and 60
ms to import, is asked only about what is not surely right, and words the mistake.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_TEXTS = frozenset({"title", "description", "format", "$comment", "contentEncoding", "contentMediaType"})
_FLAGS = frozenset({"deprecated", "readOnly", "writeOnly", "uniqueItems"})
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_COUNTS = frozenset(
    {f"{bound}{what}" for bound in ("min", "max") for what in ("Length", "Items", "Contains", "Properties")}
)
SCHEMAS = frozenset({"items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else"})
"""Keywords that hold a schema."""
CHOICES = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
"""Keywords that hold a list of schemas."""
TABLES = frozenset({"properties", "$defs", "dependentSchemas"})
"""Keywords that hold schemas by names of the file's own."""
_VALUES = frozenset({"default", "const"})
_LISTS = frozenset({"enum", "examples"})
_REFERENCES = frozenset({"$ref", "$id", "$schema", "$anchor"})
_LEFT = frozenset({"patternProperties", "definitions", "unevaluatedItems", "unevaluatedProperties", "contentSchema"})
"""Keywords that are left to `jsonschema` to judge, as are references."""
KEYWORDS = frozenset({"type", "required", "dependentRequired", "multipleOf", "pattern", "nullable"}).union(
    _TEXTS, _FLAGS, _BOUNDS, _COUNTS, SCHEMAS, CHOICES, TABLES, _VALUES, _LISTS, _REFERENCES, _LEFT
)
"""Every word that says something in a JSON Schema."""
_LONGEST = 120
"""Characters of a message that says something; longer ones print the whole value."""


def schema_mistake(schema: Any) -> tuple[tuple[str | int, ...], str] | None:
    """Why a document is no JSON Schema: where the mistake is, and what. None when it is one."""
    if _sound(schema):
        return None
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return tuple(error.absolute_path), _words(error.absolute_path, error.message)
    return None


def _words(path: Sequence[str | int], message: str) -> str:
    """The library's message, or a better one for a wrong `type`:
    that it fits none of the meta-schema's alternatives helps nobody."""
    if "type" in [*path][-2:]:
        return f"a type is one of {', '.join(sorted(_TYPES))}"
    return message if len(message) <= _LONGEST else ""


def _sound(schema: Any) -> bool:
    """True only for what is certainly a schema."""
    if isinstance(schema, bool):
        return True
    return isinstance(schema, Mapping) and all(_keyword(word, value) for word, value in schema.items())


def _keyword(word: str, value: Any) -> bool:
    if word in SCHEMAS:
        return _sound(value)
    if word in TABLES:
        return isinstance(value, Mapping) and all(_sound(child) for child in value.values())
    if word in CHOICES:
        return isinstance(value, list) and bool(value) and all(_sound(child) for child in value)
    if word == "type":
        names = value if isinstance(value, list) else [value]
        return (
            bool(names)
            and all(isinstance(name, str) and name in _TYPES for name in names)
            and len(set(names)) == len(names)
        )
    if word == "required":
        return (
            isinstance(value, list) and all(isinstance(name, str) for name in value) and len(set(value)) == len(value)
        )
    if word in _TEXTS:
        return isinstance(value, str)
    if word in _FLAGS:
        return isinstance(value, bool)
    if word in _BOUNDS:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if word == "multipleOf":
        return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
    if word in _COUNTS:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if word == "pattern":
        return isinstance(value, str) and _compiles(value)
    if word in _LISTS:
        return isinstance(value, list)
    return word in _VALUES


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True
