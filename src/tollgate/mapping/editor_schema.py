"""The editor's JSON Schema of mapping files (schemas/mapping.schema.json), made from the tables the compiler itself uses."""

from __future__ import annotations

from typing import Any

from tollgate.mapping import hub
from tollgate.mapping.directives import DIRECTIVES
from tollgate.mapping.directives.each import FORM as EACH
from tollgate.mapping.directives.refuse import KEYS as REFUSE_KEYS
from tollgate.mapping.examples import KEYS as EXAMPLE_KEYS
from tollgate.mapping.examples import SECTIONS as EXAMPLE_SECTIONS
from tollgate.mapping.examples import WITH
from tollgate.mapping.reply_headers import FACTS, RESETS
from tollgate.mapping.reply_headers import KINDS as LIMIT_KINDS
from tollgate.mapping.stream_in import OPERATIONS
from tollgate.mapping.stream_out import MOMENTS, STEPS


def editor_schema() -> dict[str, Any]:
    """JSON Schema (draft 7) for completion and hover text in editors. The compiler itself checks more, and says it better."""
    expression = {"type": ["string", "boolean"], "description": "an expression, without braces"}
    template = {"$ref": "#/definitions/template"}
    rules = {"$ref": "#/definitions/rules"}
    events = {"type": "array", "items": {"$ref": "#/definitions/node"}}
    both: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": {"to_hub": template, "from_hub": template}}
    handlers = {
        "type": "object", "additionalProperties": False,
        "properties": {step: {"type": "string", "description": "becomes $part.item"} if step == "name" else events for step in STEPS},
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Tollgate mapping",
        "type": "object",
        "required": ["mapping"],
        "additionalProperties": False,
        "properties": {
            "mapping": {"type": "string", "description": "the protocol's name, and the file's"},
            "about": {"type": "string", "description": "one line"},
            "hub": {"enum": ["embeddings"], "description": "left out for conversations"},
            "define": {
                "type": "object", "description": "functions: name($a, $b): value",
                "patternProperties": {r"^[a-z_]\w*\((\s*\$\w+(\s*,\s*\$\w+)*)?\s*\)$": template}, "additionalProperties": False,
            },
            "request": {**both, "properties": {**both["properties"], "harmless": {
                "type": "object", "additionalProperties": False, "description": "places that may go unread without being named as lost",
                "properties": dict.fromkeys(("to_hub", "from_hub"), {"type": "array", "items": {"type": "string"}}),
            }, "service_tier": {"type": "string", "description": "where a request of this format says its service tier, which decides the price where the answer does not tell"},
                "base64_vectors": {**expression, "description": "hub: embeddings: a condition over $ and $headers under which this client's vectors are base64"}}},
            "response": both, "error": both,
            "stream": {
                "type": "object", "additionalProperties": False,
                "properties": {
                    "to_hub": rules,
                    "from_hub": {
                        "type": "object",
                        "properties": {
                            "event": {"type": "string", "description": "the field that is also the SSE event name"},
                            "stamp": {"type": "object", "description": "goes onto every event"},
                            **dict.fromkeys(MOMENTS, events),
                            "end": {"type": ["string", "number"], "description": "the literal last event"},
                            **dict.fromkeys(hub.KINDS, handlers),
                        },
                        "additionalProperties": handlers,
                    },
                },
            },
            "reply_headers": {
                "type": "object", "additionalProperties": False, "description": "names of the headers that tell time and rate limits",
                "properties": {
                    "elapsed": {"type": "string", "description": "whole milliseconds until the answer began"},
                    "limits": {"type": "object", "additionalProperties": False, "properties": dict.fromkeys(LIMIT_KINDS, {
                        "type": "object", "additionalProperties": False,
                        "properties": dict.fromkeys(FACTS, {"type": ["string", "array"], "items": {"type": "string"}}),
                    })},
                    "resets": {"enum": list(RESETS)},
                },
            },
            "examples": {
                "type": "array",
                "items": {
                    "type": "object", "required": ["of", "given"], "additionalProperties": False,
                    "properties": {
                        **{key: {} for key in EXAMPLE_KEYS},
                        "name": {"type": "string"}, "of": {"enum": list(EXAMPLE_SECTIONS)}, "other": {"type": "string"}, "refused": {"type": "string"},
                        "lost": {"type": "array", "items": {"type": "string"}},
                        "with": {"type": "object", "additionalProperties": False, "properties": {name: {} for name in WITH}},
                    },
                },
            },
        },
        "definitions": {
            "template": {
                "description": "A value: plain YAML is literal; `$...` reads a path; `{{ ... }}` computes.",
                "anyOf": [{"type": ["string", "number", "boolean", "null"]}, {"type": "array", "items": template}, {"$ref": "#/definitions/node"}],
            },
            "node": {
                "type": "object",
                "description": "An object to build; keys that start with $ are directives.",
                "properties": {**_directives(template, expression)},
                "patternProperties": {r"^[^$]|^\$\$|\|": template},
                "additionalProperties": False,
            },
            "operation": {
                "type": "object", "additionalProperties": False,
                "properties": {
                    **{key: value for key, value in _directives(template, expression).items() if key in ("$each", "$let", "$when")},
                    **{name: _operation(name, template) for name in OPERATIONS},
                },
            },
            "rules": {
                "anyOf": [
                    {"type": "array", "items": {"$ref": "#/definitions/operation"}},
                    {"type": "object", "properties": {"$match": expression, "$let": {"type": "object"}}, "additionalProperties": rules},
                ],
            },
        },
    }


def _directives(template: dict[str, Any], expression: dict[str, Any]) -> dict[str, Any]:
    names = {"type": "array", "items": {"type": "string"}}
    forms: dict[str, dict[str, Any]] = {
        "$each": {"type": "string", "pattern": "^" + EACH.pattern},
        "$let": {"type": "object", "additionalProperties": template},
        "$when": expression, "$match": expression,
        "$first": {"type": "array", "items": template},
        "$copy": {"anyOf": [names, {"type": "string"}, {"type": "object", "additionalProperties": names}]},
        "$join_by": {"type": "string"}, "$lost": {"type": "string"},
        "$refuse": {
            "type": "array",
            "items": {
                "type": "object", "required": ["when", "say"], "additionalProperties": False,
                "properties": {key: expression if key == "when" else {"type": "string"} for key in REFUSE_KEYS},
            },
        },
    }
    return {entry.name: {**forms.get(entry.name, template), "description": f"{entry.about}\n\n{entry.example}"} for entry in DIRECTIVES.values()}


def _operation(name: str, template: dict[str, Any]) -> dict[str, Any]:
    entry = OPERATIONS[name]
    if name == "do":
        return {"type": "array", "items": {"$ref": "#/definitions/operation"}, "description": entry.about}
    if name == "lost":
        return {"type": "string", "description": entry.about}
    if not entry.fields or name == "error":
        return {**template, "description": entry.about}
    return {
        "type": "object", "description": entry.about, "additionalProperties": False, "required": list(entry.needs),
        "properties": dict.fromkeys(entry.fields, template),
    }
