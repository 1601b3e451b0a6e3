"""What the table of expressions in `test_operators.py` does not say about `typed`: sizes and odd references."""

from __future__ import annotations

from typing import Any

import pytest

from tollgate.mapping.typed_schemas import typed


def nested(levels: int, alternatives: int) -> dict[str, Any]:
    """A schema that lists alternatives beside a property with such a schema, `levels` deep."""
    found: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        found = {"type": "object", "properties": {"a": found}, "anyOf": [{"required": ["a"]}] * alternatives}
    return found


def references(count: int) -> dict[str, Any]:
    """A schema whose properties each hold two references to the next one."""
    twice = {f"p{i}": {"properties": dict.fromkeys("ab", {"$ref": f"#/properties/p{i + 1}"})} for i in range(count)}
    return {"type": "object", "properties": twice}


def test_alternatives_are_written_out_at_every_level() -> None:
    level = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    outer = {"type": "object", "properties": {"a": {"anyOf": [level, level]}}, "required": ["a"]}
    assert typed(nested(2, 2)) == {"anyOf": [outer, outer]}


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(nested(30, 4), id="alternatives multiply"),
        pytest.param(references(40), id="references multiply"),
        pytest.param(
            {
                "properties": {f"p{i}": {"type": "string"} for i in range(300)},
                "anyOf": [{"properties": {"x": {"type": "string"}}}] * 300,
            },
            id="a wide schema with many alternatives",
        ),
        pytest.param(
            {"properties": {f"p{i}": {"items": {"$ref": f"#/properties/p{i + 1}"}} for i in range(900)}},
            id="references chain deeply",
        ),
    ],
)
def test_a_schema_that_would_become_too_large_is_unchanged(schema: dict[str, Any]) -> None:
    assert typed(schema) is schema


def test_a_schema_that_refers_to_itself_ends_after_one_turn() -> None:
    schema = {"type": "object", "properties": {"child": {"$ref": "#"}}}
    inner = {"type": "object", "properties": {"child": {"type": "object"}}}
    assert typed(schema) == {"type": "object", "properties": {"child": inner}}


def test_a_definition_moves_beside_what_is_no_map_of_definitions() -> None:
    schema = {"$ref": "#/definitions/a", "$defs": [], "definitions": {"a": {"type": "string"}}}
    assert typed(schema) == {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}
