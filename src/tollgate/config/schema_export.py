"""The JSON Schemas of configuration files in the form that editors understand: with standard keywords only, and with
alternatives that are chosen by the type of the value."""

from __future__ import annotations

from typing import Any

from tollgate.config.provider_schema import own_schema
from tollgate.config.schema import Schema
from tollgate.config.shape import SCHEMAS


def export() -> dict[str, Schema]:
    """The schemas by file name."""
    return {f"{kind}.schema.json": _standard(schema()) for kind, schema in {**SCHEMAS, "provider": own_schema}.items()}


def _standard(node: Any) -> Any:
    if isinstance(node, list):
        return [_standard(item) for item in node]
    if not isinstance(node, dict):
        return node
    made = {
        key: (
            {name: _standard(item) for name, item in value.items()}
            if key in ("properties", "$defs")
            else _standard(value)
        )
        for key, value in node.items()
        if key not in ("wanted", "hidden", "editor")
    }
    own = _standard(node["editor"]) if "editor" in node else {}
    if "properties" in own:
        own["properties"] |= made.get("properties", {})
    return _by_kind({**made, **own})


def _by_kind(schema: Schema) -> Schema:
    """Two alternatives of different types as a choice by type: editors explain a mistake only if they know which
    alternative was meant."""
    forms = schema.get("anyOf", ())
    if len(forms) != 2:
        return schema
    one, other = forms
    kind = "object" if "$ref" in other else other.get("type")
    if kind not in ("object", "array") or one.get("type") == kind:
        return schema
    return {
        **{key: value for key, value in schema.items() if key != "anyOf"},
        "if": {"type": kind},
        "then": other,
        "else": one,
    }
