"""The reference page and the editor's JSON Schema, made from the tables the compiler itself uses.

`page()` is docs/mapping-reference.md, `editor_schema()` is schemas/mapping.schema.json; a test holds both to what is
written there, so neither can say something the compiler does not do.
"""

from __future__ import annotations

from typing import Any

from tollgate.mapping import hub
from tollgate.mapping.directives import DIRECTIVES
from tollgate.mapping.directives.each import FORM as EACH
from tollgate.mapping.directives.refuse import KEYS as REFUSE_KEYS
from tollgate.mapping.examples import KEYS as EXAMPLE_KEYS
from tollgate.mapping.examples import SECTIONS as EXAMPLE_SECTIONS
from tollgate.mapping.examples import WITH
from tollgate.mapping.functions import FILTERS, TESTS
from tollgate.mapping.names import ABOUT, PART, RUN
from tollgate.mapping.reply_headers import FACTS, RESETS
from tollgate.mapping.reply_headers import KINDS as LIMIT_KINDS
from tollgate.mapping.stream_in import OPERATIONS
from tollgate.mapping.stream_out import MOMENTS, STEPS

_INTRO = """\
# The mapping language: reference

Generated from the compiler's own tables (`tollgate.mapping.reference`); a test keeps this page true. What crosses between formats is
in `conversion.md`.

Four sentences explain it:

1. A mapping is the output document, written out. Plain YAML is literal.
2. A string that starts with `$` is a path into the data: `$` is the document, `$name` something named by `$each`, `$let`, a function
   or the engine. A literal that starts with a dollar is written `$$`.
3. `{{ ... }}` computes over the same names; alone it keeps the type of its result, beside text it makes text. Places that take an
   expression (`$when`, `$match`, after `in`) are written without the braces.
4. A key that starts with `$` tells the engine what to do with the node it stands in. They act in this order: `$each`, `$let`, `$when`,
   `$refuse`, then the rest.

**Absent.** A path that leads nowhere, or to null, gives *absent*: a field is left out, a list item too, a text with an absent hole as a
whole, arithmetic with it is absent. `==` and `<` with absent are false, `!=` is the opposite of `==`. An object or list that ends up empty is
left out, unless it is written empty (`{}`, `[]`); a written `null` is sent as null; `$nothing` leaves out. Nulls inside something that is
copied whole are not looked at.

**Lists.** A written list inside a list contributes its items. A null in a list that `$each` walks over is no item.

**Functions.** `define: {name($a, $b): value}`; called in an expression, `{{ name($x) }}`. A function sees its parameters and the engine's
values. It may call itself on parts of its data.
"""


def page() -> str:
    """The whole page."""
    out = [_INTRO, "## Directives\n", "| Directive | Takes | Does |", "|---|---|---|"]
    out += [f"| `{entry.name}` | {_cell(entry.takes)} | {_cell(entry.about)} |" for entry in DIRECTIVES.values()]
    for entry in DIRECTIVES.values():
        out += ["", f"### `{entry.name}`", "", "```yaml", entry.example, f"# {entry.given}", f"# -> {entry.makes}", "```"]
    out += [
        "", "## Paths", "", "| Path | Reads |", "|---|---|",
        "| `$.a.b` | a field of a field |", "| `$.a[0]`, `$.a[-1]` | an item from the front or the back |", "| `$x['a-b']` | a field whose name is no word |",
        "| `$.a[*].k` | the field of every item: a list |", "| `$.a[1:3]` | some items: a list |",
        "| `$.a[?(@.k == 'v')].n` | of the items for which it holds: a list |", "| `$.a..k` | the field wherever it stands below: a list |",
        "", "A path that gives a list gives absent when it finds nothing. `{{ $x[$key] }}` reads a computed key or place.",
        "", "## Expressions", "",
        "Paths, numbers, `'text'`, `true`, `false`, `none`, `[a, b]`, `{'k': v}`, `f($x)`, `value | filter`, `value is test`, `== != < <= > >=`, `in`, `not in`,",
        "`and`, `or`, `not`, `+ - * / // %`, `~` (together as text), `a if condition else b`. Truth is the same everywhere: absent, false, `''`, `[]` and `{}` are false, 0 is true.",
        "", "## Filters", "",
        "Absent in gives absent out, and so does a value of a kind the filter does not work on.", "", "| Filter | Gives | Example |", "|---|---|---|",
    ]
    out += [f"| `{entry.name}{f'({entry.arguments})' if entry.arguments else ''}` | {_cell(entry.about)} | {f'`{_cell(entry.example)}`' if entry.example else ''} |" for entry in FILTERS.values()]
    out += ["", "## Tests", "", "| Test | True for |", "|---|---|"]
    out += [f"| `is {entry.name}` | {entry.about} |" for entry in TESTS.values()]
    out += ["", "## The engine's names", "", "| Name | Is |", "|---|---|"]
    out += [f"| `${name}` | {_cell(about)} |" for name, about in ABOUT.items()]
    for record in (RUN, PART):
        out += ["", f"Fields of `${record.name}`: " + ", ".join(f"`{name}`" for name in record.fields or ()) + "."]
    out += _hub()
    out += [
        "", "## Streams in: `stream.to_hub`", "",
        "Rules are `always:` with a list of operations, and/or `$match:` with cases that are lists or further choices. Each operation may stand under `$each`, `$let` and `$when`.",
        "An event no case is for is counted and named in the loss report; `[]` is the case that needs nothing.",
        "An answer is whole when a rule said `stop`, or the stream ended with [DONE]; one that just ends counts as broken off.",
        "A mapping without `stream.to_hub` is that of an upstream that does not stream: it is asked for whole answers, and streaming clients are told these as events.",
        "", "| Operation | Fields | Means |", "|---|---|---|",
    ]
    out += [f"| `{entry.name}` | {', '.join(f'`{field}`' for field in entry.fields)} | {_cell(entry.about)} |" for entry in OPERATIONS.values()]
    out += [
        "", "One part is open at a time. A delta for another part closes the open one when that is certainly over (its upstream said so, or its arguments are whole JSON); otherwise the other part is held back.",
        "Tool calls are told apart by `key` and `id`: a new id under a used key is a new call, neither continues the last one.",
        "", "## Streams out: `stream.from_hub`", "",
        "`event:` names the field that is also the SSE event name; `stamp:` goes onto every event; " + ", ".join(f"`{moment}:`" for moment in MOMENTS)
        + " are lists of events for those moments; `end:` is the literal last event. Every kind of part (`" + "`, `".join(hub.KINDS) + "`, or one of your own) may say "
        + ", ".join(f"`{step}`" for step in STEPS) + ". A kind that is not named is lost, and the loss is said.",
        "", "## The loss list", "",
        "What a request holds and no line reads is named to the caller, at every depth. `request: {harmless: {to_hub: ['input[].id'], from_hub: ['format.name']}}` lists the places",
        "that may go unread without a word, because nothing changes without them: names of the request's own members, and of the hub's.", "",
        "What `$lost` says in words is not named once more by its place. The words speak for what their holes read (a hole that reads `type` or `kind` speaks for the object it is of),",
        "for what the condition they stand under looks at first, for the object a `$match` or `==` chose by, and for the item of an `$each`; under the `$else` of another condition, or as one field of what is made, for no more than the holes.",
        "What stands beside that is named by itself.",
        "", "## What was asked for: `request.service_tier`", "",
        "`request: {service_tier: $.service_tier}` is where a request of this format says its service tier. A tier that is not in what was sent to a provider makes nothing cheaper or dearer.",
        "", "## Vectors as base64: `request.base64_vectors`", "",
        "Clients of `/v1/embeddings` get arrays of numbers, whatever `encoding_format` they name. `request: {base64_vectors: condition}` in their format's file (`hub: embeddings`) says when the vectors of",
        "an answer are base64 of float32 instead, for clients that can read nothing else. The condition sees the request (`$`) and the client's headers by lower-case name (`$headers`):",
        "`base64_vectors: \"$.encoding_format == 'base64' and $headers['user-agent'] == 'old'\"`",
        "", "## Headers of replies: `reply_headers`", "",
        "What a success tells beside its body, under the names this format's clients look for: `elapsed` (whole milliseconds until the answer began) and `limits`, a key's windows:",
        ", ".join(f"`{kind}: {{{', '.join(FACTS)}}}`" for kind in LIMIT_KINDS) + ", each a name or a list of names. `resets` are `durations` (`6m0s`) or `instants` (RFC 3339).",
        "`reply_headers: {elapsed: x-elapsed-ms, limits: {requests: {limit: x-limit, remaining: [x-left, x-remaining]}}}`",
        "", "## Examples", "",
        f"`examples:` is a list of {{{', '.join(EXAMPLE_KEYS)}}}. `of` is one of " + ", ".join(f"`{section}`" for section in EXAMPLE_SECTIONS)
        + "; `with` gives " + ", ".join(f"`{name}`" for name in WITH) + ". They are run by `tollgate check`, which also checks every hub value against the hub's schema,",
        "and by a reload for the files that changed: one that fails leaves the old configuration running. An event with a name is given as `{$event: name, data: event}`.", "",
    ]
    return "\n".join(out)


_HUB = (("request", "A request"), ("turn", "A turn"), ("tool", "A tool"), ("tool_choice", "`tool_choice`"), ("format", "`format`"), ("reasoning", "`reasoning`"),
        ("response", "An answer"), ("usage", "`usage`"), ("error", "An error"))


def _hub() -> list[str]:
    """What `to_hub` makes and `from_hub` reads, from the hub's schema."""
    defined = hub.schema()["$defs"]
    parts = {branch["if"]["properties"]["kind"]["const"]: branch["then"]["$ref"].rpartition("/")[2] for branch in defined["part"]["allOf"]}
    out = [
        "", "## The hub", "", "What `to_hub` makes and `from_hub` reads. Nothing in it is null, lists are lists. `check` warns of names it does not have.", "",
        "| Where | Fields |", "|---|---|",
    ]
    out += [f"| {about} | {_members(defined[name])} |" for name, about in _HUB]
    out += [f"| A part of kind `{kind}` | {_members(defined[name])} |" for kind, name in parts.items()]
    out += ["", "`args` of a call is JSON text. `usage.input` counts all of the prompt, cached tokens too, `output` all of the answer, reasoning too. System text is in `system`, tool results are parts of",
            "a user's turn. A part of an answer with nothing but its kind is no part, and an answer in which the mapping finds neither parts, usage nor `stop` is none: another route is tried."]
    return out


def _members(definition: dict[str, Any]) -> str:
    def shown(name: str, of: dict[str, Any]) -> str:
        words = f" ({', '.join(of['enum'])})" if "enum" in of else ""
        return f"`{name}{'[]' if 'items' in of else ''}`{words}"

    return ", ".join(shown(name, of) for name, of in definition["properties"].items() if name != "kind" or "enum" in of)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


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
    forms: dict[str, dict[str, Any]] = {
        "$each": {"type": "string", "pattern": "^" + EACH.pattern},
        "$let": {"type": "object", "additionalProperties": template},
        "$when": expression, "$match": expression,
        "$first": {"type": "array", "items": template},
        "$copy": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}, {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}}]},
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
