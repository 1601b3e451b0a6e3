"""Converts JSON schemas to a dialect in which every schema says its type: the filter `typed`.

Such dialects have nothing beside alternatives and references, so what stands there is copied to where it applies.
"""

from __future__ import annotations

from typing import Any

from tollgate.mapping.schema_walk import MOST_COPIES, TooManyCopies, everywhere, size, target_of
from tollgate.mapping.values import Object

_NOTES = (
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "definitions",
)
"""Keywords that restrict nothing, so that they may stand beside alternatives."""
_OF_TYPE = (
    (
        "object",
        ("properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties"),
    ),
    ("array", ("items", "prefixItems", "contains", "minItems", "maxItems", "uniqueItems")),
    ("string", ("pattern", "format", "minLength", "maxLength")),
    ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
)
"""The keywords that only values of a type can violate."""
_TYPES = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


def typed(schema: Object) -> dict[str, Any] | None:
    """A JSON schema in which every schema says its type, but not beside `anyOf` and `$ref`: what restricts a value is
    in each alternative, and nothing is beside a reference, which leads into `$defs` or is replaced by its target. A
    schema that would become too large or too deep is returned unchanged.

    {"type": "object", "anyOf": [{"required": ["a"]}]} -> {"anyOf": [{"type": "object", "required": ["a"]}]}
    """
    if type(schema) is not dict:
        return None
    made = schema
    if type(named := schema.get("definitions")) is dict:
        known = schema.get("$defs")
        made = {**schema, "$defs": {**named, **known} if type(known) is dict else named}
        del made["definitions"]
    try:
        return everywhere(made, _type, before=_Parting(made).part) if made else made
    except (TooManyCopies, RecursionError):
        return schema


def _type(schema: dict[str, Any]) -> dict[str, Any]:
    if any(key in schema for key in ("type", "$ref", "not", "anyOf", "oneOf", "allOf")):
        return schema
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if type(values) is list and values:
        kinds = list(dict.fromkeys(_TYPES[type(value)] for value in values if type(value) in _TYPES))
    else:
        kinds = [kind for kind, words in _OF_TYPE if any(word in schema for word in words)]
    kinds = kinds or ["string", "number", "boolean", "object", "array", "null"]
    return {"type": kinds[0] if len(kinds) == 1 else kinds, **schema}


class _Parting:
    """Parts the schemas in `root`: references from what is beside them, and alternatives likewise."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._left = MOST_COPIES
        """How many values may still be copied."""

    def part(self, schema: dict[str, Any]) -> dict[str, Any]:
        """A schema with alternatives, or with several types, in which the other keywords are in the alternatives."""
        schema = self._referred(schema)
        notes = {key: value for key, value in schema.items() if key in _NOTES}
        rest = {key: value for key, value in schema.items() if key not in notes and key != "anyOf"}
        alternatives, kinds = schema.get("anyOf"), schema.get("type")
        if type(alternatives) is list and rest:
            self._take(len(alternatives) * size(rest))
            parts = [_joined(rest, self._referred(one)) if type(one) is dict else one for one in alternatives]
            return {**notes, "anyOf": parts}
        if type(kinds) is list and not rest.keys() <= {"type", "enum"}:
            self._take(len(kinds) * size(rest))
            return {**notes, "anyOf": [{**rest, "type": kind} if kind != "null" else {"type": kind} for kind in kinds]}
        return schema

    def _referred(self, schema: dict[str, Any], within: tuple[str, ...] = ()) -> dict[str, Any]:
        """A schema whose reference leads into `$defs`, or the target of a reference that leads elsewhere. Where a
        target contains itself (`within`: the references that led here), only its type is left."""
        reference = schema.get("$ref")
        if type(reference) is not str:
            return schema
        notes = {key: value for key, value in schema.items() if key in _NOTES}
        if reference.startswith(("#/$defs/", "#/definitions/")):
            return {"$ref": reference.replace("#/definitions/", "#/$defs/", 1), **notes}
        target = target_of(self._root, reference)
        if target is None:
            return schema
        if reference in within:
            return {"type": target.get("type", "object"), **notes}
        self._take(size(target))
        return {**everywhere(target, lambda one: self._referred(one, (*within, reference))), **notes}

    def _take(self, number: int) -> None:
        self._left -= number
        if self._left < 0:
            raise TooManyCopies


def _joined(outer: dict[str, Any], alternative: dict[str, Any]) -> dict[str, Any]:
    """An alternative with the keywords that stood beside it."""
    if "$ref" in alternative:
        return alternative
    joined = {**outer, **alternative}
    if type(outer.get("properties")) is type(alternative.get("properties")) is dict:
        joined["properties"] = {**outer["properties"], **alternative["properties"]}
    if type(outer.get("required")) is type(alternative.get("required")) is list:
        joined["required"] = [
            *outer["required"],
            *(each for each in alternative["required"] if each not in outer["required"]),
        ]
    return joined
