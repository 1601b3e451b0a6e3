"""Converts JSON schemas to the narrower dialects that upstreams accept for structured output and for tools.

The mapping file says which keywords an upstream accepts. A schema is never changed in place, and values that are no
schemas (a property called `minimum`, a list of examples) are left alone.
"""

from __future__ import annotations

import re
from typing import Any

from tollgate.mapping.schema_walk import NAMED, ONE, SEVERAL, everywhere, inside, target_of
from tollgate.mapping.values import Object, json_text

_LIMITS = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
"""Keywords that were true or false in draft 4, each with the limit that it excluded."""
_BESIDE_REFERENCES = {"$ref", "$defs", "definitions", "$schema"}
"""What may stand beside a reference in every dialect: a document's own words."""
_ELSEWHERE = {"$ref", "anyOf", "oneOf", "allOf", "enum", "const"}
"""Keywords that say elsewhere what an object consists of."""
_VALUES = ("default", "const")
"""Keywords whose value may be null."""
_ONLY_JAVASCRIPT = re.compile(
    r"(?<!\\)(?:\\\\)*(?:\(\?<?[=!]|\(\?<[^\W\d]|\\(?:[CE-RTVXYce-ehijklmopqyz]|u(?![0-9A-Fa-f]{4})|x(?![0-9A-Fa-f]{2})))"
)
"""Where a pattern looks ahead or behind, names a group as JavaScript does, or has a letter behind a backslash that
Python's `re` does not know. No pattern is compiled to find out: that takes milliseconds for some of ten letters."""


def closed(schema: Object) -> dict[str, Any] | None:
    """A JSON schema in which every object that leaves other properties open says `additionalProperties: false`."""
    return everywhere(schema, _close) if type(schema) is dict else None


def spoken(schema: Object, table: Object) -> dict[str, Any] | None:
    """A JSON schema in which a keyword of the table stands only with a value listed for it; with another one it is said
    in the description.

    {"type": "integer", "minimum": 1}, {"minimum": []} -> {"type": "integer", "description": "minimum: 1"}
    """
    if type(schema) is not dict or type(table) is not dict:
        return None
    return everywhere(schema, lambda one: _speak(one, table))


def modern(schema: Object) -> dict[str, Any] | None:
    """A JSON schema in the words of draft 2020-12, without what validators of tools reject: positions are in
    `prefixItems`, exclusive limits are numbers, every array has `items`, and no keyword is null. One that is so already
    is returned unchanged.

    {"type": "array", "items": [{"type": "string"}]}
    -> {"type": "array", "prefixItems": [{"type": "string"}], "items": {}}
    """
    if type(schema) is not dict:
        return None
    return everywhere(schema, _complete_array, before=_modernize) if _is_outdated(schema) else schema


def unbounded(schema: Object) -> bool | None:
    """Whether values of a JSON schema may have fields that it does not name, or any depth: it has an object without
    named fields, one whose further fields have a schema, or a reference that leads back to itself or out of it.

    {"type": "object", "additionalProperties": {"type": "number"}} -> True
    """
    if type(schema) is not dict:
        return None
    try:
        return _Bounds(schema).lacking(schema, ("#",))
    except RecursionError:
        return True


def enumerated(schema: Object) -> dict[str, Any] | None:
    """A JSON schema in which a text that `const` gives is the only value of an `enum`, and an `enum` has no empty text:
    one that has is in the description. One without either is returned unchanged.

    {"const": "a"} -> {"type": "string", "enum": ["a"]}
    """
    if type(schema) is not dict:
        return None
    return everywhere(schema, _enumerate) if _is_unlisted(schema) else schema


def plainly_patterned(schema: Object) -> dict[str, Any] | None:
    """A JSON schema whose patterns have nothing that only JavaScript has (`\\p{L}`), and look neither ahead nor behind:
    other ones are in the description. One without such is returned unchanged.

    {"type": "string", "pattern": "^(?!a)"} -> {"type": "string", "description": "pattern: \\"^(?!a)\\""}
    """
    if type(schema) is not dict:
        return None
    return everywhere(schema, _say_pattern) if _is_hard_to_match(schema) else schema


def alternated(schema: Object) -> dict[str, Any] | None:
    """A JSON schema whose alternatives are all in `anyOf`: those of a `oneOf`, the only one of an `allOf`, and, below
    the root, a reference beside which something stands.

    {"$ref": "#/$defs/a", "description": "An a."} -> {"anyOf": [{"$ref": "#/$defs/a"}], "description": "An a."}
    """
    if type(schema) is not dict:
        return None
    rest = {key: value for key, value in schema.items() if key != "$ref"}
    return {**everywhere(rest, _alternate), **({"$ref": schema["$ref"]} if "$ref" in schema else {})}


def _close(schema: dict[str, Any]) -> dict[str, Any]:
    holds_fields = _may_be(schema, "object") or "properties" in schema
    if holds_fields and _is_anything(schema.get("additionalProperties", True)):
        schema["additionalProperties"] = False
    return schema


def _is_anything(schema: Object) -> bool:
    return schema is True or schema == {}


def _is_open(schema: dict[str, Any]) -> bool:
    """Whether an object may have fields that only this schema could name, and does not. With `properties: {}` alone it
    is meant to have none."""
    others = schema.get("additionalProperties")
    if type(others) is dict and others or schema.get("patternProperties"):
        return True
    if schema.get("properties") or _ELSEWHERE & schema.keys():
        return False
    return _may_be(schema, "object") and ("properties" not in schema if others is None else _is_anything(others))


def _speak(schema: dict[str, Any], taken: dict[str, Any]) -> dict[str, Any]:
    described = [
        key for key, values in taken.items() if key in schema and not (type(values) is list and schema[key] in values)
    ]
    if described:
        _describe(schema, ", ".join(f"{key}: {json_text(schema.pop(key))}" for key in described))
    return schema


def _describe(schema: dict[str, Any], words: str) -> None:
    before = schema.get("description")
    schema["description"] = f"{before}\n\n{words}" if type(before) is str and before else words


def _alternate(schema: dict[str, Any]) -> dict[str, Any]:
    if "anyOf" in schema:
        return schema
    if type(held := schema.get("oneOf")) is list:
        del schema["oneOf"]
        schema.pop("discriminator", None)  # OpenAPI's hint which one it is; their fields say so themselves.
        schema["anyOf"] = held
    elif type(held := schema.get("allOf")) is list and len(held) == 1:
        del schema["allOf"]
        schema["anyOf"] = held
    elif "$ref" in schema and not schema.keys() <= _BESIDE_REFERENCES:
        schema["anyOf"] = [{"$ref": schema.pop("$ref")}]
    return schema


def _is_unlisted(schema: dict[str, Any]) -> bool:
    return type(schema.get("const")) is str or _may_be_empty(schema) or any(map(_is_unlisted, inside(schema, NAMED)))


def _may_be_empty(schema: dict[str, Any]) -> bool:
    return type(values := schema.get("enum")) is list and "" in values


def _enumerate(schema: dict[str, Any]) -> dict[str, Any]:
    if type(schema.get("const")) is str:
        schema.setdefault("type", "string")
        schema["enum"] = [schema.pop("const")]  # It is narrower than a list beside it.
    if _may_be_empty(schema):
        values = schema.pop("enum")
        _describe(schema, f"enum: {json_text(values)}")
        if listed := [value for value in values if value != ""]:
            schema["enum"] = listed
    return schema


def _is_hard_to_match(schema: dict[str, Any]) -> bool:
    return _has_hard_pattern(schema) or any(map(_is_hard_to_match, inside(schema, NAMED)))


def _has_hard_pattern(schema: dict[str, Any]) -> bool:
    return type(pattern := schema.get("pattern")) is str and _ONLY_JAVASCRIPT.search(pattern) is not None


def _say_pattern(schema: dict[str, Any]) -> dict[str, Any]:
    if _has_hard_pattern(schema):
        _describe(schema, f"pattern: {json_text(schema.pop('pattern'))}")
    return schema


def _is_outdated(schema: dict[str, Any]) -> bool:
    """Whether `modern` changes a schema. Most are walked in vain, so nothing is copied here."""
    for key, value in schema.items():
        kind = type(value)
        if kind is str:
            if value == "array" and key == "type" and "items" not in schema:
                return True
        elif kind is dict:
            inner = value.values() if key in NAMED else (value,) if key in ONE else ()
            for one in inner:
                if type(one) is dict and _is_outdated(one):
                    return True
        elif kind is list:
            if key == "items" or key == "type" and "array" in value and "items" not in schema:
                return True
            if key in SEVERAL:
                for one in value:
                    if type(one) is dict and _is_outdated(one):
                        return True
        elif value is None and key not in _VALUES or kind is bool and key in _LIMITS:
            return True
    return False


def _may_be(schema: dict[str, Any], kind: str) -> bool:
    """Whether a schema names this type, alone or with others."""
    kinds = schema.get("type")
    return kinds == kind or type(kinds) is list and kind in kinds


def _modernize(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema, without those inside it, in the words of draft 2020-12."""
    made = {key: value for key, value in schema.items() if value is not None or key in _VALUES}
    if type(positions := made.get("items")) is list:
        del made["items"]
        if positions:  # An empty list of them is invalid.
            made.setdefault("prefixItems", positions)
        others = made.pop("additionalItems", None)
        if type(others) is dict:
            made["items"] = others
        elif others is False:  # As `items` it may count as none.
            most, count = made.get("maxItems"), len(positions)
            made["maxItems"] = min(most, count) if isinstance(most, int | float) else count
    for exclusive, limit in _LIMITS.items():
        if type(excludes := made.get(exclusive)) is bool:
            del made[exclusive]
            if excludes and limit in made:
                made[exclusive] = made.pop(limit)
    return made


def _complete_array(schema: dict[str, Any]) -> dict[str, Any]:
    if _may_be(schema, "array"):
        schema.setdefault("items", {})
    return schema


class _Bounds:
    """Looks for what is unbounded in `root`. What is only defined and never referred to bounds nothing."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._seen: set[str] = set()
        """References whose targets are bounded."""

    def lacking(self, schema: dict[str, Any], within: tuple[str, ...]) -> bool:
        """Whether bounds are lacking in a schema to which the references `within` led."""
        reference = schema.get("$ref")
        if type(reference) is str and reference not in self._seen:
            target = target_of(self._root, reference)
            if target is None or reference in within or self.lacking(target, (*within, reference)):
                return True
            self._seen.add(reference)
        return _is_open(schema) or any(self.lacking(one, within) for one in inside(schema, ("properties",)))
