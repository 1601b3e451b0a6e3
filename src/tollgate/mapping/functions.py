"""The filters and tests of the language: one table for the compiler, the editor schema and the reference.

What the filters do is in `filters.py`. Absent in gives absent out, unless the table says that a filter takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tollgate.mapping.digests import (
    ALGORITHMS,
    ALPHABETS,
    LEAST_SHORT,
    NOTATIONS,
    RSA_ALGORITHMS,
    date,
    digest,
    is_date_format,
    keyed,
    percent,
    rsa_signature,
    seconds,
    short,
    to_base64,
    uuid,
)
from tollgate.mapping.filters import (
    beyond,
    char_offset,
    chunks,
    clip,
    data_url,
    default,
    distinct,
    entries,
    from_base64,
    inline,
    join,
    keep,
    lookup,
    number,
    parse_json,
    replace,
    rounded,
    scalar_text,
    sort,
    split,
    strip,
    total,
    unlike,
    without,
)
from tollgate.mapping.json_schemas import closed, spoken
from tollgate.mapping.seal import seal, unseal
from tollgate.mapping.values import json_text


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter: what it is called with, and what the reference says about it."""

    name: str
    run: Callable[..., Any]
    arguments: str = ""
    """As the reference shows them; `?` marks one that may be left out."""
    least: int = 0
    most: int = 0
    about: str = ""
    example: str = ""
    kind: str = "any"
    """What comes out when something does: text, number, bool, list, object or any."""
    takes_absent: bool = False
    takes_context: bool = False
    uses: str = "value"
    """What the filter reads of its value, for the loss list. `value`: all of it. `outline`: only how many items or
    which names there are. `fields`: of its items those fields that the arguments name. `items`: the same, and the items
    themselves are handed on unread. `item`: one item is handed on unread."""
    keeps: type | None = None
    """Values of this very type come out as they are, so that the filter need not be called for them."""
    fits: Mapping[int, tuple[Callable[[object], bool], str]] = field(default_factory=dict)
    """By the place of an argument: whether a written one can be right, and what is wanted there."""


def _one_of(words: tuple[str, ...]) -> tuple[Callable[[object], bool], str]:
    return (lambda written: written in words), f"one of {', '.join(words)}"


FILTERS: dict[str, Filter] = {
    entry.name: entry
    for entry in (
        Filter(
            "json",
            json_text,
            about="the value as compact JSON text",
            example="""{'a': 1} | json → "{\\"a\\":1}\"""",
            kind="text",
        ),
        Filter(
            "parse_json",
            parse_json,
            takes_context=True,
            example="""'{"a":1}' | parse_json → {"a":1}""",
            about="JSON text as a value, an object also where it was written as JSON text twice; blank text is `{}`, "
                  "what is no text stays as it is; text that is not JSON, or nested more than 240 levels deep, "
                  "is refused in a request, and `{}` with a loss note in an answer",
        ),
        Filter(
            "from_base64", from_base64, about="the text inside base64 text; absent when it is not that",
            example="'aGk=' | from_base64 → \"hi\"", kind="text",
        ),
        Filter(
            "to_base64", to_base64, "alphabet?", 0, 1,
            "a text in base64; with `'url'` in the alphabet of addresses and without padding, as in a JWT",
            "'hi' | to_base64 → \"aGk=\"", "text", fits={0: _one_of(ALPHABETS)},
        ),
        Filter(
            "digest", digest, "algorithm, notation?", 1, 2,
            f"the digest of a text: {', '.join(ALGORITHMS)}; written as {', '.join(NOTATIONS)}",
            "'a' | digest('md5') → \"0cc175b9c0f1b6a831c399e269772661\"", "text",
            fits={0: _one_of(ALGORITHMS), 1: _one_of(NOTATIONS)},
        ),
        Filter(
            "hmac", keyed, "algorithm, key, notation?", 2, 3,
            "the keyed digest of a text; a key that is a list is derived: its first text is the key for the second, "
            "what comes out the key for the third, and so on",
            "'a' | hmac('md5', ['k', '2026']) → \"db190a47cb910d760371501a0e04986f\"", "text",
            fits={0: _one_of(ALGORITHMS), 2: _one_of(NOTATIONS)},
        ),
        Filter(
            "rsa", rsa_signature, "algorithm, key, notation?", 2, 3,
            "the RSA signature of a text (PKCS #1 v1.5, or PSS for pss-sha256 and the like; in base64 unless said "
            "otherwise) by a private key in PEM; absent where the key is none",
            kind="text", fits={0: _one_of(RSA_ALGORITHMS), 2: _one_of(NOTATIONS)},
        ),
        Filter(
            "uuid", uuid, about="32 hexadecimal digits, such as `$nonce`, as a UUID",
            example="'0123456789abcdef0123456789abcdef' | uuid → \"01234567-89ab-4def-8123-456789abcdef\"",
            kind="text",
        ),
        Filter(
            "percent", percent, "safe?", 0, 1,
            "a text as it stands in an address: every byte but letters, digits, `-._~` and the safe characters is "
            "`%XX`",
            "'a b/c' | percent('/') → \"a%20b/c\"", "text",
        ),
        Filter(
            "date", date, "format", 1, 1,
            "Unix seconds as a time in UTC: `%Y %m %d %H %M %S`, `%y`, `%j` (day of the year), `%p`, `%f`, English "
            "`%a` and `%b`",
            "1700000000 | date('%Y-%m-%dT%H:%M:%SZ') → \"2023-11-14T22:13:20Z\"", "text",
            fits={0: (is_date_format, "such as '%Y-%m-%dT%H:%M:%SZ'")},
        ),
        Filter(
            "seconds", seconds, "", 0, 0,
            "a time as whole Unix seconds: a text in RFC 3339 (in UTC where it names no zone) or as HTTP headers have "
            "it; a number loses what is behind its point. Milliseconds are `$.ms // 1000`",
            "'2026-11-21T10:00:00.123Z' | seconds → 1795255200", "number",
        ),
        Filter(
            "join", join, "separator?", 0, 1, "the texts of a list as one text; nothing to join gives absent",
            "['a', 'b'] | join('-') → \"a-b\"", "text",
        ),
        Filter(
            "split", split, "separator?", 0, 1, "a text cut into a list; at blanks when no separator is given",
            "'1x2' | split('x') → [\"1\",\"2\"]",
            "list",
        ),
        Filter(
            "strip", strip, "end?", 0, 1,
            "a text without blanks at its ends; with `'end'` only behind it",
            "' a ' | strip → \"a\"", "text", fits={0: _one_of(("end",))},
        ),
        Filter(
            "lower", lambda value: value.lower() if type(value) is str else None, about="a text in small letters",
            example="'A' | lower → \"a\"", kind="text",
        ),
        Filter(
            "upper", lambda value: value.upper() if type(value) is str else None, about="a text in capital letters",
            example="'a' | upper → \"A\"", kind="text",
        ),
        Filter(
            "replace", replace, "old, new", 2, 2, "a text with every `old` replaced",
            "'a-b' | replace('-', '_') → \"a_b\"", "text",
        ),
        Filter(
            "keep", keep, "allowed, other", 2, 2,
            "a text in which every character is another one, but those allowed (`a-z` is a range)",
            "'a|b.c' | keep('a-z0-9', '_') → \"a_b_c\"", "text",
        ),
        Filter(
            "short", short, "most", 1, 1,
            "a text of no more than `most` characters (16 or more): a longer one keeps its beginning and ends in a "
            "piece of its digest",
            "'get_weather_of_tomorrow' | short(20) → \"get_weather_6e6ef271\"", "text",
            fits={0: (lambda written: type(written) is int and written >= LEAST_SHORT, "a number from 16")},
        ),
        Filter(
            "starts", lambda value, prefix: type(value) is str and type(prefix) is str and value.startswith(prefix),
            "prefix", 1, 1, "whether a text begins with `prefix`", "'data:x' | starts('data:') → true", "bool",
        ),
        Filter(
            "text", scalar_text, about="a number, true or false as text; a text as it is", example='7 | text → "7"',
            kind="text",
        ),
        Filter(
            "number", number, about="a text that is a number as that number; anything else is absent",
            example="'7' | number → 7", kind="number", keeps=int,
        ),
        Filter("round", rounded, "places?", 0, 1, "a number rounded, half to even", "2.6 | round → 3", "number"),
        Filter(
            "length", lambda value: len(value) if type(value) in (list, dict, str) else None,
            about="how many items, keys or characters", example="['a'] | length → 1", kind="number", uses="outline",
        ),
        Filter(
            "first", lambda value: value[0] if type(value) is list and value else None,
            about="the first item of a list", example="[1, 2] | first → 1", uses="item",
        ),
        Filter(
            "last", lambda value: value[-1] if type(value) is list and value else None, about="the last item of a list",
            example="[1, 2] | last → 2", uses="item",
        ),
        Filter(
            "total", total,
            about="the sum of the numbers in a list; absent ones are skipped, no number at all is absent",
            example="[1, 2] | total → 3", kind="number",
        ),
        Filter("clip", clip, "lowest, highest", 2, 2, "a number moved into the range", "3 | clip(0, 2) → 2", "number"),
        Filter(
            "lookup", lookup, "key, value", 2, 2, "a list of objects as a table from one field to another",
            "[{'id': 'a', 'n': 1}] | lookup('id', 'n') → {\"a\":1}",
            "object",
            uses="fields",
        ),
        Filter(
            "entries", entries, kind="list",
            about="the fields of an object as a list, each as `key` and `value`; `lookup('key', 'value')` undoes it",
            example="{'a': 1} | entries → [{\"key\":\"a\",\"value\":1}]",
        ),
        Filter(
            "distinct", distinct, "key", 1, 1,
            "a list of objects, of those with the same text in that field only the first",
            "[{'id': 'a', 'n': 1}, {'id': 'a', 'n': 2}] | distinct('id') → [{\"id\":\"a\",\"n\":1}]",
            "list",
            uses="items",
        ),
        Filter(
            "sort", sort, "key", 1, 1,
            "a list of objects in the order of that field, numbers before texts; those without it stand last",
            "[{'n': 2, 'v': 'b'}, {'n': 1, 'v': 'a'}] | sort('n') → [{\"n\":1,\"v\":\"a\"},{\"n\":2,\"v\":\"b\"}]",
            "list",
            uses="items",
        ),
        Filter(
            "chunks", chunks, "size", 1, 1,
            "a list cut into lists of so many items, for vectors told one behind the other; absent for a size below 1",
            "[1, 2, 3] | chunks(2) → [[1,2],[3]]",
            "list",
        ),
        Filter(
            "unlike", unlike, "key, field, closed, ...", 2, 9,
            "the value in which no two objects under `key`, at any depth but below fields that are `closed`, have the "
            "same text in `field`: those after the first have `-2`, `-3`, ... behind it",
            "[{'d': {'n': 'x'}}, {'d': {'n': 'x'}}] | unlike('d', 'n') → "
            '[{"d":{"n":"x"}},{"d":{"n":"x-2"}}]',
        ),
        Filter(
            "without", without, "name, ...", 1, 9, "an object without these fields",
            "{'a': 1, 'b': 2} | without('a') → {\"b\":2}", "object",
        ),
        Filter(
            "data_url", data_url,
            about="`data:mime;base64,...` taken apart as `mime` and `data`; absent for any other text",
            example='\'data:image/png;base64,AA\' | data_url → {"mime":"image/png","data":"AA"}', kind="object",
        ),
        Filter(
            "inline", inline, takes_context=True, kind="object",
            about="what is behind a URL, as `mime` and `data`; the gateway fetches it, guarded, before the request is "
                  "sent",
        ),
        Filter(
            "char_offset", char_offset, "bytes", 1, 1,
            "a place counted in UTF-8 bytes as one counted in characters of the text", "'né!' | char_offset(3) → 2",
            "number",
        ),
        Filter(
            "seal", seal, "text?", 0, 1,
            about="a part's token, origin and id as one opaque text for another protocol's slot, with a text that the "
                  "token signs if one is given; absent when it has no token",
            example="{'token': 't', 'origin': 'o'} | seal → \"tg1.WyJvIiwidCIsbnVsbF0\"", kind="text",
        ),
        Filter(
            "unseal", unseal, about="a sealed token as `token`, `origin`, `id` and `text`; absent for any other text",
            example='\'tg1.WyJvIiwidCIsbnVsbF0\' | unseal → {"token":"t","origin":"o"}', kind="object",
        ),
        Filter(
            "beyond", beyond, "name, ...", 1, 9,
            "whether an object has anything but these fields; one look that spares many, where the rest is rare",
            "{'role': 'user', 'name': 'Ann'} | beyond('role', 'content') → true", "bool", uses="outline",
        ),
        Filter(
            "closed_schema",
            closed,
            about="a JSON schema in which every object that leaves other properties open says `additionalProperties: "
                  "false`",
            example='{\'type\': \'object\'} | closed_schema → {"type":"object","additionalProperties":false}',
            kind="object",
        ),
        Filter(
            "spoken_schema", spoken, "table", 1, 1,
            "a JSON schema in which a keyword of the table stands only with a value listed for it; with another one "
            "it is said in the description",
            "{'type': 'array', 'minItems': 2} | spoken_schema({'minItems': [0, 1]}) → "
            "{\"type\":\"array\",\"description\":\"minItems: 2\"}",
            "object",
        ),
        Filter(
            "default", default, "value", 1, 1, "the value, or the given one when it is absent",
            "none | default(5) → 5", takes_absent=True,
        ),
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
"""Tests for values that have nothing below them."""
