"""The filter `inlined`; what it does to common schemas is in `test_operators`."""

from __future__ import annotations

from tollgate.mapping.inlined_schemas import inlined


def test_a_schema_whose_references_multiply_is_unchanged() -> None:
    twice = {f"p{i}": {"properties": {name: {"$ref": f"#/$defs/p{i + 1}"} for name in "ab"}} for i in range(40)}
    schema = {"properties": {"a": {"$ref": "#/$defs/p0"}}, "$defs": twice}
    assert inlined(schema) is schema


def test_definitions_stay_where_a_reference_is_not_replaced() -> None:
    """Pydantic writes the keys of a dict so, if they are those of an enum."""
    named = {"$defs": {"A": {"enum": ["a"]}}}
    schema = {"propertyNames": {"$ref": "#/$defs/A"}, "items": {"$ref": "#/$defs/A"}, **named}
    assert inlined(schema) == {"propertyNames": {"$ref": "#/$defs/A"}, "items": {"enum": ["a"]}, **named}
