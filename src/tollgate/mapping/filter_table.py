"""The filters and tests of the language: one table for the compiler, the editor schema and the reference.

A filter's arguments, the type of its result and its text in the reference come from its function: the parameters after
the value, the annotations, and the first paragraph of the docstring. If the value is absent the result is absent,
unless the table says otherwise.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tollgate.mapping import (
    digests,
    filters,
    inlined_schemas,
    join_parts,
    json_schemas,
    packed_bytes,
    seal,
    typed_schemas,
)
from tollgate.mapping.values import KINDS, json_text

_MOST = 9
"""The limit of arguments of a filter that takes any number."""
Fits = tuple[Callable[[object], bool], str]
"""Whether a literal argument can be right, and what is wanted there."""


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter: its arguments, and its text in the reference."""

    name: str
    run: Callable[..., Any]
    arguments: str = ""
    """As in the reference; `?` marks an optional one."""
    least: int = 0
    most: int = 0
    about: str = ""
    example: str = ""
    kind: str = "any"
    """The type of its result if it has one: text, number, bool, list, object or any."""
    total: bool = False
    """The result is never absent for a present value."""
    takes_absent: bool = False
    takes_context: bool = False
    uses: str = "value"
    """What the filter reads of its value, for the loss list. `value`: all of it. `outline`: only how many items or
    which names there are. `fields`: of its items, the fields that the arguments name. `items`: as `fields`, and the
    items themselves are in the result, unread. `item`: one item is in the result, unread. `same`: all items are."""
    keeps: type | None = None
    """Values of exactly this type stay as they are, so that the filter need not be called for them."""
    fits: Mapping[int, Fits] = field(default_factory=dict)
    """By the position of the argument."""
    ascends: bool = False
    """Of its two arguments, the first is not above the second."""
    takes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The value's name and kinds, then those of each argument; no kinds where it takes any."""
    items: tuple[str, ...] = ()
    """Of the items of a list it uses those of these kinds, and skips others; no kinds where it uses all."""


_KINDS = {each.__name__: kind for each, kind in KINDS.items()}
"""The kind of a filter's result, by the first word of its function's return annotation."""
_TAKEN = {"Text": "text", "Number": "number", "Bool": "bool", "List": "list", "Object": "object"}
"""The kinds that a filter takes, by the words of its function's annotations (`values.py`)."""


def _filter(run: Callable[..., Any], example: str = "", *, name: str = "", **more: Any) -> Filter:
    """The filter of a function, under the function's name unless another is given; if its last parameter is `context`,
    it gets that of the conversion."""
    signature = inspect.signature(run)
    value, *parameters = signature.parameters.values()
    takes_context = bool(parameters) and parameters[-1].name == "context"
    if takes_context:
        parameters.pop()
    kind = _KINDS.get(re.split(r"\W", signature.return_annotation)[0], "any")
    more.setdefault("total", kind == "bool")
    about = " ".join((run.__doc__ or "").partition("\n\n")[0].split()).removesuffix(".")
    return Filter(
        name or run.__name__,
        run,
        *arguments_of(parameters),
        about[:1].lower() + about[1:],
        example,
        kind,
        takes_context=takes_context,
        takes=tuple((each.name, _kinds(each)) for each in (value, *parameters)),
        **more,
    )


def arguments_of(parameters: Sequence[inspect.Parameter]) -> tuple[str, int, int]:
    """The arguments of a filter as in the reference, and how many it takes at least and at most; `parameters` are those
    of its function after the value."""
    needed = [each for each in parameters if each.default is each.empty and each.kind is not each.VAR_POSITIONAL]
    endless = bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_POSITIONAL
    most = _MOST if endless else len(parameters)
    return ", ".join(_shown(each) for each in parameters), max(len(needed), endless), most


def _kinds(parameter: inspect.Parameter) -> tuple[str, ...]:
    return tuple(_TAKEN[word] for word in parameter.annotation.split(" | ") if word in _TAKEN)


def _shown(parameter: inspect.Parameter) -> str:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"{parameter.name}, ..."
    return parameter.name if parameter.default is parameter.empty else f"{parameter.name}?"


def _one_of(words: tuple[str, ...]) -> Fits:
    return (lambda written: written in words), f"one of {', '.join(words)}"


_NOTATION = _one_of(digests.NOTATIONS)
_ALGORITHM = _one_of(digests.ALGORITHMS)

FILTERS: dict[str, Filter] = {
    entry.name: entry
    for entry in (
        _filter(json_text, """{'a': 1} | json → "{\\"a\\":1}\"""", name="json", total=True),
        _filter(filters.parse_json, '\'{"a":1}\' | parse_json → {"a":1}'),
        _filter(filters.arguments, '\'{"a":\' | arguments → {"INVALID_JSON":"{\\"a\\":"}'),
        _filter(packed_bytes.from_base64, "'aGk=' | from_base64 → \"hi\""),
        _filter(packed_bytes.base64_to_hex, "'aGk=' | base64_to_hex → \"6869\""),
        _filter(packed_bytes.hex_to_base64, "'6869' | hex_to_base64 → \"aGk=\""),
        _filter(packed_bytes.media_type, "'iVBORw0KGgo=' | media_type → \"image/png\""),
        _filter(digests.to_base64, "'hi' | to_base64 → \"aGk=\"", fits={0: _one_of(digests.ALPHABETS)}),
        _filter(
            digests.digest,
            "'a' | digest('md5') → \"0cc175b9c0f1b6a831c399e269772661\"",
            fits={0: _ALGORITHM, 1: _NOTATION},
        ),
        _filter(
            digests.keyed,
            "'a' | hmac('md5', ['k', '2026']) → \"db190a47cb910d760371501a0e04986f\"",
            name="hmac",
            fits={0: _ALGORITHM, 2: _NOTATION},
        ),
        _filter(digests.rsa_signature, name="rsa", fits={0: _one_of(digests.RSA_ALGORITHMS), 2: _NOTATION}),
        _filter(digests.uuid, "'0123456789abcdef0123456789abcdef' | uuid → \"01234567-89ab-4def-8123-456789abcdef\""),
        _filter(digests.percent, "'a b/c' | percent('/') → \"a%20b/c\""),
        _filter(
            digests.date,
            "1700000000 | date('%Y-%m-%dT%H:%M:%SZ') → \"2023-11-14T22:13:20Z\"",
            fits={0: (digests.is_date_format, "such as '%Y-%m-%dT%H:%M:%SZ'")},
        ),
        _filter(digests.seconds, "'2026-11-21T10:00:00.123Z' | seconds → 1795255200"),
        _filter(filters.join, "['a', 'b'] | join('-') → \"a-b\"", items=("text", "number", "bool")),
        _filter(filters.split, "'1x2' | split('x') → [\"1\",\"2\"]"),
        _filter(filters.strip, "' a ' | strip → \"a\"", fits={0: _one_of(("end",))}),
        _filter(filters.lower, "'A' | lower → \"a\""),
        _filter(filters.upper, "'a' | upper → \"A\""),
        _filter(filters.replace, "'a-b' | replace('-', '_') → \"a_b\""),
        _filter(
            filters.keep,
            "'a|b.c' | keep('a-z0-9', '_') → \"a_b_c\"",
            fits={0: (filters.is_set_of_characters, "characters and ranges, such as 'a-z0-9'")},
        ),
        _filter(
            digests.short,
            "'get_weather_of_tomorrow' | short(20) → \"get_weather_6e6ef271\"",
            fits={0: (lambda written: type(written) is int and written >= digests.LEAST_SHORT, "a number from 16")},
        ),
        _filter(filters.starts, "'data:x' | starts('data:') → true"),
        _filter(filters.scalar_text, '7 | text → "7"', name="text"),
        _filter(filters.number, "'7' | number → 7", keeps=int),
        _filter(filters.rounded, "2.6 | round → 3", name="round"),
        _filter(filters.length, "['a'] | length → 1", uses="outline"),
        _filter(filters.first, "[1, 2] | first → 1", uses="item"),
        _filter(filters.last, "[1, 2] | last → 2", uses="item"),
        _filter(filters.total, "[1, 2] | total → 3", items=("number",)),
        _filter(filters.clip, "3 | clip(0, 2) → 2", ascends=True),
        _filter(
            filters.lookup, "[{'id': 'a', 'n': 1}] | lookup('id', 'n') → {\"a\":1}", uses="fields", items=("object",)
        ),
        _filter(filters.entries, '{\'a\': 1} | entries → [{"key":"a","value":1}]'),
        _filter(
            filters.distinct,
            "[{'id': 'a', 'n': 1}, {'id': 'a', 'n': 2}] | distinct('id') → [{\"id\":\"a\",\"n\":1}]",
            uses="items",
        ),
        _filter(
            join_parts.join_parts,
            "[{'kind': 'text', 'text': 'a'}, {'kind': 'text', 'text': 'b'}] | join_parts('text')"
            ' → [{"kind":"text","text":"ab"}]',
            uses="same",
        ),
        _filter(
            filters.sort,
            "[{'n': 2, 'v': 'b'}, {'n': 1, 'v': 'a'}] | sort('n') → [{\"n\":1,\"v\":\"a\"},{\"n\":2,\"v\":\"b\"}]",
            uses="items",
        ),
        _filter(filters.chunks, "[1, 2, 3] | chunks(2) → [[1,2],[3]]"),
        _filter(
            filters.unlike,
            "[{'d': {'n': 'x'}}, {'d': {'n': 'x'}}] | unlike('d', 'n') → "
            '[{"d":{"n":"x"}},{"d":{"n":"x-2"}}]',
        ),
        _filter(filters.without, "{'a': 1, 'b': 2} | without('a') → {\"b\":2}"),
        _filter(filters.data_url, '\'data:image/png;base64,AA\' | data_url → {"mime":"image/png","data":"AA"}'),
        _filter(filters.inline),
        _filter(filters.char_offset, "'né!' | char_offset(3) → 2"),
        _filter(seal.seal, "{'token': 't', 'origin': 'o'} | seal → \"tg1.WyJvIiwidCIsbnVsbF0\""),
        _filter(seal.unseal, '\'tg1.WyJvIiwidCIsbnVsbF0\' | unseal → {"token":"t","origin":"o"}'),
        _filter(
            filters.has_other_fields,
            "{'role': 'user', 'name': 'Ann'} | has_other_fields('role', 'content') → true",
            uses="outline",
        ),
        _filter(
            json_schemas.closed,
            '{\'type\': \'object\'} | closed_schema → {"type":"object","additionalProperties":false}',
            name="closed_schema",
        ),
        _filter(
            json_schemas.spoken,
            "{'type': 'array', 'minItems': 2} | spoken_schema({'minItems': [0, 1]}) → "
            '{"type":"array","description":"minItems: 2"}',
            name="spoken_schema",
        ),
        _filter(
            json_schemas.alternated,
            "{'oneOf': [{'type': 'string'}, {'type': 'null'}]} | any_of_schema → "
            '{"anyOf":[{"type":"string"},{"type":"null"}]}',
            name="any_of_schema",
        ),
        _filter(
            json_schemas.unbounded,
            "{'type': 'object', 'additionalProperties': {'type': 'number'}} | unbounded_schema → true",
            name="unbounded_schema",
        ),
        _filter(
            json_schemas.modern,
            "{'minimum': 0, 'exclusiveMinimum': true} | modern_schema → {\"exclusiveMinimum\":0}",
            name="modern_schema",
        ),
        _filter(
            json_schemas.enumerated,
            '{\'const\': \'a\'} | enum_schema → {"type":"string","enum":["a"]}',
            name="enum_schema",
        ),
        _filter(
            json_schemas.plainly_patterned,
            '{\'pattern\': \'^(?!a)\'} | plain_patterns_schema → {"description":"pattern: \\"^(?!a)\\""}',
            name="plain_patterns_schema",
        ),
        _filter(
            typed_schemas.typed,
            "{'type': 'object', 'anyOf': [{'required': ['a']}]} | typed_schema → "
            '{"anyOf":[{"type":"object","required":["a"]}]}',
            name="typed_schema",
        ),
        _filter(
            inlined_schemas.inlined,
            "{'items': {'$ref': '#/$defs/a'}, '$defs': {'a': {'type': 'string'}}} | inlined_schema → "
            '{"items":{"type":"string"}}',
            name="inlined_schema",
        ),
        _filter(filters.default, "none | default(5) → 5", takes_absent=True),
    )
}


@dataclass(frozen=True, slots=True)
class Test:
    """One test after `is`: the Python condition over `{0}`."""

    name: str
    condition: str
    about: str


TESTS: dict[str, Test] = {
    entry.name: entry
    for entry in (
        Test("string", "type({0}) is str", "a text"),
        Test("list", "type({0}) is list", "a list"),
        Test("object", "type({0}) is dict", "an object"),
        Test("number", "type({0}) in NUMBERS", "a number (true and false are none)"),
        Test("boolean", "type({0}) is bool", "true or false"),
        Test("absent", "{0} is None", "not there, or null"),
        Test("present", "{0} is not None", "there, and not null"),
    )
}

PLAIN = frozenset({"string", "number", "boolean"})
"""Tests for values that have no content below them."""
