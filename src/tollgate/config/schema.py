"""The building blocks of the JSON Schemas of configuration files, and the patterns they share.

The schemas themselves are in `gateway_schema.py` and `provider_schema.py`. They are used for validation (`shape.py`),
for completion and hover texts in editors (`# yaml-language-server: $schema=`), and for the tables of the reference.
Pieces of the mapping language (templates, edits, conditions) are only marked as such; the mapping compiler checks them.

Beyond the standard keywords a schema may have `wanted`, our words for the value that belongs there; `hidden`: the value
is not repeated in messages; and `editor`: keywords for editors alone, for what the compiler checks itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tollgate.wire import HEADER_NAME

Schema = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

ENCODINGS = ("o200k_base", "o200k_harmony", "cl100k_base", "p50k_base", "p50k_edit", "r50k_base", "gpt2")

PROVIDER_NAME = r"^[a-z0-9][a-z0-9._-]*$"
CANONICAL_ID = r"^[a-z0-9~][a-z0-9._~-]*/[A-Za-z0-9~][A-Za-z0-9._:~@+-]*$"
PROTOCOL_NAME = r"^[a-z][a-z0-9_-]*$"
INSTANCE = r"^[A-Za-z0-9_-]+$"
"""A gateway's name; it becomes part of file names."""
BIND = r"^(unix:/.+|(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.*_-]*):[0-9]{1,5})$"
ORIGIN = r"^(\*|[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#]+/?)$"
HTTP_BASE = r"^https?://[^\s/?#]+(/[^\s?#]*)?$"
_HEADER_NAME = rf"^{HEADER_NAME.pattern}(?![\s\S])"
"""A whole text; `$` would allow a line break at its end."""


EDIT_VERBS: Mapping[str, str] = {
    "rename": "object",
    "drop": "array",
    "harmless": "array",
    "keep": "array",
    "default": "object",
    "set": "object",
    "clamp": "object",
    "values": "object",
    "refuse": "string",
}
"""For editors: the verbs of edits with the type of their value, and the keys beside them. The language's own table
is in `mapping/edits/reading.py`; a test compares the two."""
EDIT_BESIDE = ("when", "why", "param")


def text(about: str, **more: Any) -> Schema:
    """A text."""
    return {"type": "string", "description": about, **more}


def integer(about: str, **more: Any) -> Schema:
    """A whole number."""
    return {"type": "integer", "description": about, **more}


def seconds(about: str, **more: Any) -> Schema:
    """A time in seconds, above 0 and of a day at most."""
    return {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": 86400,
        "description": f"{about} In seconds.",
        "wanted": "a number of seconds above 0",
        **more,
    }


def boolean(about: str, **more: Any) -> Schema:
    """true or false."""
    return {"type": "boolean", "description": about, **more}


def texts(about: str, **more: Any) -> Schema:
    """A list of texts."""
    return listed(about, {"type": "string", "minLength": 1}, **more)


def listed(about: str, items: Schema, **more: Any) -> Schema:
    """A list."""
    return {"type": "array", "items": items, "description": about, **more}


def record(about: str, properties: Mapping[str, Schema], **more: Any) -> Schema:
    """An object with these keys and no others."""
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": dict(properties),
        "description": about,
        **more,
    }


def whole_file(
    title: str, about: str, properties: Mapping[str, Schema], defs: Mapping[str, Schema] | None = None, **more: Any
) -> Schema:
    """A file: an object with these keys and no others, and the schemas that its parts refer to by name."""
    whole = {"$schema": _DIALECT, "title": title, **record(about, properties, **more)}
    return {**whole, "$defs": dict(defs)} if defs else whole


def structure(about: str, **more: Any) -> Schema:
    """An object that is checked elsewhere."""
    return {"type": "object", "description": about, **more}


def table(about: str, values: Schema, **more: Any) -> Schema:
    """An object whose keys are names that the file chooses."""
    return {"type": "object", "additionalProperties": values, "description": about, **more}


def template(about: str) -> Schema:
    """Any value of the mapping language."""
    return {"description": f"{about} A template: `$` reads data, `{{{{ }}}}` computes, the rest is literal."}


def made(about: str) -> Schema:
    """A template of an object."""
    return {**template(about), "type": ["object", "string"], "wanted": "a map, or a template of one"}


def address(about: str) -> Schema:
    """An address, or a template of one."""
    return {**template(about), "type": ["string", "object"], "wanted": "an address like https://api.example/v1"}


def condition(about: str) -> Schema:
    """An expression that is true or false."""
    return {"type": ["string", "boolean"], "description": about}


def decimal(about: str, **more: Any) -> Schema:
    """A number that keeps its digits, such as a price."""
    return {"type": ["string", "number"], "description": about, "wanted": 'an exact decimal such as "0.30"', **more}


def one_or_many(item: Schema, about: str) -> Schema:
    """One item, or a list of them."""
    return {
        "anyOf": [item, {"type": "array", "items": item, "minItems": 1}],
        "description": about,
        **({"wanted": f"{item['wanted']}, or a list of such"} if "wanted" in item else {}),
    }


def timeouts(about: str) -> Schema:
    """The four budgets of an attempt."""
    return record(
        about,
        {
            "connect": seconds("Until a connection stands."),
            "first_byte": seconds("From the request sent to the first byte of the answer."),
            "idle": seconds("Longest silence between two bytes of an answer."),
            "total": seconds("The whole attempt."),
        },
    )


def parameters(about: str, **more: Any) -> Schema:
    """Names and templates: query parameters, fields of a form."""
    value = {"type": ["string", "integer", "number", "object"], "description": "A template; may hold $secret.NAME."}
    return table(about, value, **more)


def headers(about: str) -> Schema:
    """Headers: names and templates."""
    wanted = "a header's name: letters, digits and hyphens"
    return parameters(about, propertyNames={"pattern": _HEADER_NAME, "wanted": wanted})


def edits(scope: str) -> dict[str, Schema]:
    """The three lists of edits that a scope (a provider, an endpoint, a policy, a model) may have."""
    verbs = {name: {"type": kind, "description": "An edit."} for name, kind in EDIT_VERBS.items()}
    beside = {name: {"type": ["string", "boolean"], "description": "Beside an edit."} for name in EDIT_BESIDE}
    known = {"properties": {**verbs, **beside}, "additionalProperties": False}
    edit = {"type": "object", "minProperties": 1, "editor": known}
    kinds = {"request": "requests", "response": "answers", "stream": "stream events"}
    return {name: listed(f"Edits over {what} of {scope}.", edit) for name, what in kinds.items()}


def in_text() -> Schema:
    """The text marks of a scope."""
    return listed(
        "Marks in the text of answers, such as <think>, and what stands between them; [] for none. Instead of those of "
        "a wider scope.",
        {"type": "object"},
    )


def can() -> Schema:
    """The abilities of a scope."""
    return structure("What this upstream takes beyond its protocol; read as `$can` in mappings.")
