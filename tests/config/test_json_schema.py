"""The fast schema check accepts only what jsonschema accepts, and leaves error messages to it."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from tollgate.config.json_schema import _is_usual, schema_mistake
from tollgate.config.load import plain, read_text

WORDS = [
    "type",
    "properties",
    "required",
    "items",
    "enum",
    "minimum",
    "minLength",
    "pattern",
    "anyOf",
    "title",
    "default",
    "uniqueItems",
    "additionalProperties",
    "multipleOf",
    "unknown",
    "$ref",
    "$defs",
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.floats(allow_nan=False)
    | st.sampled_from(["object", "string", "(", "x", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=12,
)


def _node(schema):
    return read_text(json.dumps(schema), "providers/acme.yaml").root


def _agrees(schema):
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError:
        return False
    return True


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=5))
def test_the_fast_check_accepts_only_valid_schemas(schema):
    node = _node(schema)
    agreed = _agrees(plain(node, floats=True))
    if _is_usual(node):
        assert agreed
    assert (schema_mistake(node) is None) == agreed


def test_a_common_input_schema_does_not_import_jsonschema(monkeypatch):
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    schema = {
        "type": "object",
        "required": ["prompt"],
        "additionalProperties": False,
        "properties": {
            "prompt": {"type": "string", "minLength": 1, "maxLength": 4000, "pattern": "\\S"},
            "n": {"type": "integer", "minimum": 1, "maximum": 4, "default": 1},
            "size": {"anyOf": [{"enum": ["auto"]}, {"type": "string"}]},
            "step": {"type": ["number", "null"], "multipleOf": 0.5},
        },
    }
    assert schema_mistake(_node(schema)) is None


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"properties": {"a": {"type": "text"}}}, ("properties", "a", "type")),
        ({"required": ["a", "a"]}, ("required",)),
        ({"pattern": "("}, ("pattern",)),
        ({"anyOf": []}, ("anyOf",)),
    ],
    ids=["unknown type", "twice required", "pattern", "no choice"],
)
def test_a_schema_mistake_is_reported_with_its_path(schema, path):
    found = schema_mistake(_node(schema))
    assert found is not None and found[0] == path and found[1]
