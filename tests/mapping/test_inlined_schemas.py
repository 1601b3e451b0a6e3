"""The filter `inlined`; what it does to common schemas is in `test_operators`."""

from __future__ import annotations

from tollgate.mapping.inlined_schemas import inlined


def test_a_schema_whose_references_multiply_is_unchanged() -> None:
    twice = {f"p{i}": {"properties": {name: {"$ref": f"#/$defs/p{i + 1}"} for name in "ab"}} for i in range(40)}
    schema = {"properties": {"a": {"$ref": "#/$defs/p0"}}, "$defs": twice}
    assert inlined(schema) is schema
