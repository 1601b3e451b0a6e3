"""Schemas of answers and strict tools reach Claude in the language that its structured output knows. Anthropic's client
library brings schemas into it, too: nothing is left for it to do."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest

from mappings.support import context, mapping
from tollgate.mapping import convert_request

TEXT = {"type": "string"}
CAT = {"type": "object", "properties": {"kind": {"const": "cat"}}, "required": ["kind"]}
DOG = {"type": "object", "properties": {"kind": {"const": "dog"}}, "required": ["kind"]}
FIELDS = {
    "one of several": {"oneOf": [TEXT, {"type": "null"}]},
    "a union with a discriminator": {
        "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/$defs/cat", "dog": "#/$defs/dog"}},
        "oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}],
    },
    "a described reference": {"$ref": "#/$defs/cat", "description": "The cat."},
    "a described reference as old libraries write it": {"allOf": [{"$ref": "#/$defs/cat"}], "description": "The cat."},
    "an exclusion": {"type": "string", "not": {"const": "a"}},
    "a condition": {**CAT, "if": {"required": ["kind"]}, "then": {}, "else": {}},
    "a tuple": {"type": "array", "prefixItems": [TEXT, TEXT], "minItems": 2, "maxItems": 2},
    "a list with a value": {"type": "array", "items": TEXT, "contains": {"const": "a"}, "minContains": 1},
    "names and numbers of fields": {**CAT, "propertyNames": {"maxLength": 9}, "minProperties": 1, "maxProperties": 2},
    "fields that need others": {**CAT, "dependentRequired": {"kind": []}},
    "limits": {"type": "number", "minimum": 1, "multipleOf": 2},
}


@pytest.mark.parametrize("target", ["messages", "bedrock"])
@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS.keys())
def test_the_vendors_library_changes_nothing_in_a_schema(field: dict[str, Any], target: str) -> None:
    schema = {"type": "object", "properties": {"a": field}, "$defs": {"cat": CAT, "dog": DOG}}
    body = {
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": schema, "strict": True}}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}},
    }
    made = convert_request(mapping("chat"), mapping(target), body, context(can={"strict_tools": True})).body
    if target == "messages":
        sent = [made["tools"][0]["input_schema"], made["output_config"]["format"]["schema"]]
    else:
        form = made["outputConfig"]["textFormat"]["structure"]["jsonSchema"]["schema"]
        sent = [made["toolConfig"]["tools"][0]["toolSpec"]["inputSchema"]["json"], json.loads(form)]
    for one in sent:
        assert one == anthropic.transform_schema(one)
