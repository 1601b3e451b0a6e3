"""The editor's JSON Schema of mapping files (schemas/mapping.schema.json),
made from the tables the compiler itself uses."""

from __future__ import annotations

from typing import Any

from tollgate.mapping import examples, harmless, hub, in_text, reply_headers
from tollgate.mapping.directive_table import DIRECTIVES
from tollgate.mapping.directives import each, refuse
from tollgate.mapping.error_words import ERROR_WORDS
from tollgate.mapping.in_text_scan import PLACES, STREAMED_KINDS
from tollgate.mapping.streams.from_hub import MOMENTS, STEPS
from tollgate.mapping.streams.operations import BESIDE, OPERATIONS

Schema = dict[str, Any]

_EXPRESSION: Schema = {"type": ["string", "boolean"], "description": "an expression, without braces"}
_TEMPLATE: Schema = {"$ref": "#/definitions/template"}
_BOTH: Schema = dict.fromkeys(harmless.DIRECTIONS, _TEMPLATE)
_RULES: Schema = {"$ref": "#/definitions/rules"}
_EVENTS: Schema = {"type": "array", "items": {"$ref": "#/definitions/node"}}
_TEXTS: Schema = {"type": "array", "items": {"type": "string"}}


def editor_schema() -> Schema:
    """JSON Schema (draft 7) for completion and hover texts in editors. The compiler itself checks more, and has
    better messages."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Tollgate mapping",
        "type": "object",
        "required": ["mapping"],
        "additionalProperties": False,
        "properties": {
            "mapping": _text("the protocol's name, and the file's"),
            "about": _text("one line"),
            "hub": {"enum": ["embeddings"], "description": "left out for conversations"},
            "define": {
                "type": "object",
                "description": "functions: name($a, $b): value",
                "patternProperties": {r"^[a-z_]\w*\((\s*\$\w+(\s*,\s*\$\w+)*)?\s*\)$": _TEMPLATE},
                "additionalProperties": False,
            },
            "request": _request(),
            "response": _record(_BOTH),
            "error": _error(),
            "stream": _stream(),
            "in_text": _in_text(),
            "reply_headers": _reply_headers(),
            "examples": _examples(),
        },
        "definitions": _definitions(),
    }


def _record(properties: Schema, **more: Any) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": properties, **more}


def _text(about: str) -> Schema:
    return {"type": "string", "description": about}


def _condition(about: str) -> Schema:
    return {**_EXPRESSION, "description": about}


def _request() -> Schema:
    places = {"type": "array", "items": {"type": ["string", "object"], "minProperties": 1}}
    keys = {
        "harmless": _record(
            dict.fromkeys(harmless.DIRECTIONS, places),
            description="places that may go unread without being named as lost; as {place: value}, with that value",
        ),
        "service_tier": _text(
            "where a request of this format says its service tier, which decides the price where the answer does not "
            "have"
        ),
        "tool_name": _text(
            "the name under which a tool is sent, of its own name ($): a call of it in an answer comes back under its "
            "own"
        ),
        "base64_vectors": _condition(
            "hub: embeddings: a condition over $ and $headers under which this client's vectors are base64"
        ),
        "asked_model": _condition(
            "messages: a condition over $ and $headers under which answers name the model as it was asked for, instead "
            "of as the provider calls it"
        ),
    }
    return _record(_BOTH | keys)


def _error() -> Schema:
    return _record(_BOTH | {key: {**_TEXTS, "description": kind.about} for key, kind in ERROR_WORDS.items()})


def _stream() -> Schema:
    made = {
        "joined": {"const": True, "description": "such parts that follow each other are one part for the client"},
        "lost": {**_TEMPLATE, "description": "a text that says why such a part is not sent; nothing if it is"},
        "name": _text("becomes $part.item"),
    }
    handlers = _record({step: made.get(step, _EVENTS) for step in STEPS})
    opening = _condition(
        "a condition over an event: it comes before anything of the answer, so that what fails behind it may go to "
        "another route"
    )
    events = {
        "event": _text("the field that is also the SSE event name"),
        "stamp": {"type": "object", "description": "goes onto every event"},
        **dict.fromkeys(MOMENTS, _EVENTS),
        "end": {"type": ["string", "number"], "description": "the literal last event"},
        **dict.fromkeys(hub.KINDS, handlers),
    }
    written = {"type": "object", "properties": events, "additionalProperties": handlers}
    return _record({"to_hub": _RULES, "opening": opening, "from_hub": written})


def _in_text() -> Schema:
    properties = {
        "from": _text("the text that begins it"),
        "to": _text("the text that ends it; without it, it goes to the end"),
        "kind": {"enum": list(STREAMED_KINDS), "description": "what stands between, sent as it comes"},
        "parts": _TEMPLATE,
        "at": {"enum": list(PLACES)},
        "unclosed": {"enum": list(in_text.ENDS), "description": "beside parts: what it is where `to` never comes"},
        "native": {"enum": list(in_text.NATIVE), "description": "answers to clients of the upstream's own format"},
    }
    return {
        "type": "array",
        "items": _record({key: properties[key] for key in in_text.KEYS}, required=["from"]),
        "description": "marks in the text of answers, and what stands between them",
    }


def _reply_headers() -> Schema:
    names: Schema = dict.fromkeys(reply_headers.FACTS, {"type": ["string", "array"], "items": {"type": "string"}})
    return _record(
        {
            "elapsed": _text("whole milliseconds until the answer began"),
            "limits": _record(dict.fromkeys(reply_headers.KINDS, _record(names))),
            "resets": {"enum": list(reply_headers.RESETS)},
        },
        description="names of the headers for time and rate limits",
    )


def _examples() -> Schema:
    keys: Schema = {
        **{key: {} for key in examples.KEYS},
        **dict.fromkeys(("name", "other", "refused"), {"type": "string"}),
        "of": {"enum": list(examples.SECTIONS)},
        "lost": _TEXTS,
        "with": _record({name: {} for name in examples.WITH}),
    }
    return {"type": "array", "items": _record(keys, required=["of", "given"])}


def _definitions() -> Schema:
    directives = _directives()
    return {
        "template": {
            "description": "A value: plain YAML is literal; `$...` reads a path; `{{ ... }}` computes.",
            "anyOf": [
                {"type": ["string", "number", "boolean", "null"]},
                {"type": "array", "items": _TEMPLATE},
                {"$ref": "#/definitions/node"},
            ],
        },
        "node": _record(
            directives,
            description="An object to build; keys that start with $ are directives.",
            patternProperties={r"^[^$]|^\$\$|\|": _TEMPLATE},
        ),
        "operation": _record(
            {
                **{key: value for key, value in directives.items() if key in BESIDE},
                **{name: _operation(name) for name in OPERATIONS},
            }
        ),
        "rules": {
            "anyOf": [
                {"type": "array", "items": {"$ref": "#/definitions/operation"}},
                {
                    "type": "object",
                    "properties": {"$match": _EXPRESSION, "$let": {"type": "object"}},
                    "additionalProperties": _RULES,
                },
            ]
        },
    }


def _directives() -> Schema:
    forms: dict[str, Schema] = {
        "$each": {"type": "string", "pattern": "^" + each.FORM.pattern},
        "$let": {"type": "object", "additionalProperties": _TEMPLATE},
        "$when": _EXPRESSION,
        "$match": _EXPRESSION,
        "$first": {"type": "array", "items": _TEMPLATE},
        "$copy": {"anyOf": [_TEXTS, {"type": "string"}, {"type": "object", "additionalProperties": _TEXTS}]},
        "$join_by": {"type": "string"},
        "$lost": {"type": "string"},
        "$refuse": {
            "type": "array",
            "items": _record(
                {key: _EXPRESSION if key == "when" else {"type": "string"} for key in refuse.KEYS},
                required=["when", "say"],
            ),
        },
    }
    return {
        entry.name: {**forms.get(entry.name, _TEMPLATE), "description": f"{entry.about}\n\n{entry.example}"}
        for entry in DIRECTIVES.values()
    }


def _operation(name: str) -> Schema:
    entry = OPERATIONS[name]
    if name == "do":
        return {"type": "array", "items": {"$ref": "#/definitions/operation"}, "description": entry.about}
    if name == "lost":
        return {"type": "string", "description": entry.about}
    if not entry.fields or name == "error":
        return {**_TEMPLATE, "description": entry.about}
    return _record(dict.fromkeys(entry.fields, _TEMPLATE), description=entry.about, required=list(entry.needs))
