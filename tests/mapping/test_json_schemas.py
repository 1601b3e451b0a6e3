"""What the table of expressions in `test_operators.py` does not say about the filters for schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tollgate.mapping.json_schemas import alternated, closed, enumerated, modern, plainly_patterned, unbounded


def test_a_modern_schema_is_not_copied() -> None:
    schema = {"type": "object", "properties": {"a": {"type": ["array", "null"], "items": {}}, "b": {"default": None}}}
    assert modern(schema) is schema


TREE = {"type": "object", "properties": {"child": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}}}
SHARED = {"a": {"$ref": "#/$defs/text"}, "b": {"$ref": "#/$defs/text"}}


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        pytest.param({"type": "object"}, True, id="an object without named fields"),
        pytest.param({"type": ["object", "null"]}, True, id="likewise, or null"),
        pytest.param({"type": "object", "properties": {}}, False, id="an object without fields"),
        pytest.param({"type": "object", "properties": {}, "additionalProperties": True}, True, id="any fields"),
        pytest.param({"type": "object", "properties": {"a": {}}, "additionalProperties": True}, False, id="more"),
        pytest.param({"properties": {"a": {"additionalProperties": {"type": "number"}}}}, True, id="a map of numbers"),
        pytest.param({"properties": {"a": {"patternProperties": {"^a": {}}}}}, True, id="a map by patterns"),
        pytest.param({"type": "array", "items": {"type": "object"}}, True, id="a list of any objects"),
        pytest.param({"type": "object", "anyOf": [{"properties": {"a": {}}}]}, False, id="fields in alternatives"),
        pytest.param({"properties": {"type": {"type": "string"}, "items": {"type": "string"}}}, False, id="names"),
        pytest.param({"$ref": "#/$defs/tree", "$defs": {"tree": TREE}}, True, id="a tree by definition"),
        pytest.param({"type": "object", "properties": {"child": {"$ref": "#"}}}, True, id="a tree by its root"),
        pytest.param({"type": "string", "$defs": {"tree": TREE}}, False, id="a definition that nothing refers to"),
        pytest.param({"properties": SHARED, "$defs": {"text": {"type": "string"}}}, False, id="one target, twice"),
        pytest.param({"$ref": "https://schemas.example/a"}, True, id="another document"),
        pytest.param({}, False, id="anything"),
        pytest.param([], None, id="no schema"),
    ],
)
def test_a_schema_is_unbounded_if_values_may_have_unnamed_fields_or_any_depth(schema: Any, found: bool | None) -> None:
    assert unbounded(schema) is found


def test_references_that_chain_deeply_count_as_unbounded() -> None:
    chain = {f"p{i}": {"items": {"$ref": f"#/properties/p{i + 1}"}} for i in range(2000)}
    assert unbounded({"properties": {**chain, "p2000": {"type": "string"}}}) is True


def test_an_object_that_takes_anything_beside_its_fields_is_closed() -> None:
    fields = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert closed({**fields, "additionalProperties": {}}) == {**fields, "additionalProperties": False}


def test_fixed_texts_become_lists_of_one_wherever_they_are() -> None:
    kind = {"type": "string", "const": "cat", "title": "Kind"}
    listed = {"type": "string", "enum": ["cat"], "title": "Kind"}
    schema = {"anyOf": [{"$ref": "#/$defs/cat"}, {"const": 1}], "$defs": {"cat": {"properties": {"const": kind}}}}
    assert enumerated(schema) == {**schema, "$defs": {"cat": {"properties": {"const": listed}}}}
    assert enumerated({"enum": ["a", "b"], "const": "a"}) == {"type": "string", "enum": ["a"]}


def test_an_empty_text_in_a_list_is_in_the_description() -> None:
    schema = {"properties": {"a": {"enum": ["", "x", None], "description": "One."}, "b": {"const": ""}}}
    assert enumerated(schema) == {
        "properties": {
            "a": {"enum": ["x", None], "description": 'One.\n\nenum: ["","x",null]'},
            "b": {"type": "string", "description": 'enum: [""]'},
        }
    }


def test_a_schema_without_fixed_texts_is_not_copied() -> None:
    schema = {"properties": {"const": {"type": "string"}, "b": {"const": True}}, "default": {"const": "a"}}
    assert enumerated(schema) is schema


@pytest.mark.parametrize(
    "pattern",
    [
        r"^(?!__.*__$)[a-z]+$",
        r"a(?<=b)",
        r"\\(?=a)",
        r"[^\p{Cc}]",
        "(?<name>a)",
        r"\u{1F600}",
        r"\cA",
        r"\\\e",
    ],
)
def test_a_pattern_that_only_javascript_can_match_is_in_the_description(pattern: str) -> None:
    schema = {"items": {"anyOf": [{"properties": {"pattern": {"description": "One.", "pattern": pattern}}}]}}
    made = {"properties": {"pattern": {"description": f"One.\n\npattern: {json.dumps(pattern)}"}}}
    assert plainly_patterned(schema) == {"items": {"anyOf": [made]}}


@pytest.mark.parametrize(
    "pattern", [r"^(?:a|b)[(?]+\(?=\d{2}$", "(?P<name>a)", r"\u00e9\\p{L}\/", "[[a]&&b]", "", None, 1]
)
def test_a_schema_with_other_patterns_is_not_copied(pattern: object) -> None:
    schema = {"properties": {"pattern": {"pattern": pattern}}, "default": {"pattern": "(?=a)"}}
    assert plainly_patterned(schema) is schema


@pytest.mark.parametrize(
    ("schema", "made"),
    [
        pytest.param({"oneOf": [{}], "discriminator": {"propertyName": "k"}}, {"anyOf": [{}]}, id="exactly one"),
        pytest.param({"allOf": [{}], "title": "T"}, {"anyOf": [{}], "title": "T"}, id="all of one"),
        pytest.param({"allOf": [{}, {}]}, {"allOf": [{}, {}]}, id="all of several"),
        pytest.param({"oneOf": [{}], "anyOf": [{}]}, {"oneOf": [{}], "anyOf": [{}]}, id="both"),
        pytest.param({"$ref": "#/$defs/a", "title": "T"}, {"anyOf": [{"$ref": "#/$defs/a"}], "title": "T"}, id="words"),
        pytest.param({"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}, id="a reference alone"),
    ],
)
def test_alternatives_are_in_any_of(schema: dict[str, Any], made: dict[str, Any]) -> None:
    definitions = {"a": {"type": "string"}}
    root = {"type": "object", "properties": {"oneOf": schema}, "$defs": definitions}
    assert alternated(root) == {**root, "properties": {"oneOf": made}}


def test_a_reference_at_the_root_stays() -> None:
    schema = {"$ref": "#/$defs/a", "title": "T", "$defs": {"a": {"oneOf": [{}]}}}
    assert alternated(schema) == {**schema, "$defs": {"a": {"anyOf": [{}]}}}
