"""The filters and tests of the language: one table, from which the compiler,
the editor schema and the reference are made.

A filter is a pure function: value in, value out. Absent in gives absent out (unless the table says otherwise), and a
value of a kind the filter does not work on gives absent too, so no input can make one fail. The one exception is
`parse_json`: what is not JSON, or too deep to be written again, is an error in a request, and an empty object with a
loss note in an answer.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from tollgate.mapping.failures import Fault
from tollgate.mapping.json_schemas import closed, spoken
from tollgate.mapping.seal import seal, unseal
from tollgate.mapping.values import NUMBERS, joined, json_text, text_of
from tollgate.nesting import MOST_WRITTEN, too_deep, too_many
from tollgate.wording import clipped

if TYPE_CHECKING:
    from tollgate.mapping.context import Context

_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,3})?\Z")
_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*?);base64,")
_MOST_HEAD = 2000
"""Characters of a data address before its data; trying every parameter of a head of megabytes takes seconds,
in which no thread runs."""


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
    """What counts as read: the `value` with everything in it; only its `outline` (how many, which names); only those
    `fields` of its items that the arguments name; these, and the `items` are handed on unread; or one `item` is."""


def _scalar_text(value: Any) -> str | None:
    return None if type(value) in (list, dict) else text_of(value)


_MOST_VALUES = 500_000
"""In the JSON of one text: its parser lets nobody else run, and the text may be all of a body."""


def _is_crowded(text: str) -> bool:
    return len(text) > _MOST_VALUES and too_many(text.encode("utf-8", "surrogatepass"), _MOST_VALUES)


def _parse_json(value: Any, context: Context) -> Any:
    if type(value) is not str:
        return value
    if not value or value.isspace():
        return {}
    if _is_crowded(value):
        wrong = f"more than {_MOST_VALUES} values"
    else:
        try:
            found = orjson.loads(value)
        except ValueError:
            wrong = "not JSON"
        else:
            found = _once_more(found) if type(found) is str else found
            if value.count("{") + value.count("[") <= MOST_WRITTEN or not too_deep([found], MOST_WRITTEN):
                return found
            wrong = "nested too deeply"
    if context.lenient:
        context.lose(f"arguments that are {wrong}")
        return {}
    raise Fault(f"{wrong}: {clipped(value, 60)!r}", context.where(value))


def _once_more(text: str) -> Any:
    """Some clients write the JSON of a call's arguments as JSON text again:
    an object inside such a text is what was meant."""
    if _is_crowded(text):
        return text
    try:
        found = orjson.loads(text)
    except ValueError:
        return text
    return found if type(found) is dict else text


def _from_base64(value: Any) -> str | None:
    if type(value) is not str:
        return None
    try:
        return base64.b64decode(
            value.replace("-", "+").replace("_", "/") + "=" * (-len(value) % 4), validate=True
        ).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def _join(value: Any, separator: Any = "") -> str | None:
    if type(value) is str:
        return value
    if type(value) is not list:
        return None
    if type(separator) is str:
        try:
            return joined(separator.join(value)) if value else None
        except TypeError:  # not all of them are texts
            pass
    pieces = [text for item in value if item is not None and (text := _scalar_text(item)) is not None]
    return joined((_scalar_text(separator) or "").join(pieces)) if pieces else None


def _split(value: Any, separator: Any = None) -> list[str] | None:
    if type(value) is not str:
        return None
    return value.split(separator) if type(separator) is str and separator else value.split()


def _replace(value: Any, old: Any, new: Any) -> str | None:
    if type(value) is not str or type(old) is not str or type(new) is not str or not old:
        return value if type(value) is str else None
    if old not in value:
        return value
    return joined(value.replace(old, new)) if value.count(old) * len(new) < 64 * 1024 * 1024 else value


def _number(value: Any) -> int | float | None:
    if type(value) in NUMBERS:
        return value  # type: ignore[no-any-return]
    if type(value) is str and _NUMBER.match(value.strip()):
        text = value.strip()
        try:
            return int(text)
        except ValueError:
            return float(text)
    return None


def _round(value: Any, places: Any = 0) -> int | float | None:
    if type(value) not in NUMBERS or abs(value) > 1e300 or value != value:
        return None
    rounded: int | float = round(value, places) if type(places) is int and 0 < places <= 20 else round(value)
    return rounded


def _total(value: Any) -> int | float | None:
    numbers = [item for item in value if type(item) in NUMBERS] if type(value) is list else []
    return sum(numbers) if numbers else None


def _clip(value: Any, low: Any, high: Any) -> Any:
    if type(value) not in NUMBERS:
        return None
    if type(low) in NUMBERS and value < low:
        return low
    if type(high) in NUMBERS and value > high:
        return high
    return value


def _keep(value: Any, allowed: Any, other: Any) -> str | None:
    if type(value) is not str or type(allowed) is not str or type(other) is not str:
        return None
    return _outside(allowed).sub(lambda _: other, value)


@functools.lru_cache(256)
def _outside(allowed: str) -> re.Pattern[str]:
    try:
        return re.compile("[^" + re.sub(r"[\\\]\[^]", r"\\\g<0>", allowed) + "]")
    except re.error:
        raise Fault(f"`{allowed}` is no set of characters") from None


def _lookup(value: Any, key: Any, wanted: Any) -> dict[str, Any] | None:
    if type(value) is not list:
        return None
    table = {
        name: found for item in value
        if type(item) is dict and type(name := item.get(key)) is str and (found := item.get(wanted)) is not None
    }
    return table or None


def _distinct(value: Any, key: Any) -> list[Any] | None:
    if type(value) is not list:
        return None
    seen: set[str] = set()
    kept = []
    for item in value:
        name = item.get(key) if type(item) is dict else None
        if type(name) is str:
            if name in seen:
                continue
            seen.add(name)
        kept.append(item)
    return kept


def _data_url(value: Any) -> dict[str, str] | None:
    if type(value) is not str or not value.startswith("data:"):
        return None
    found = _DATA_URL.match(value, 0, _MOST_HEAD)
    if not found:
        return None
    return {"mime": found[1] or "text/plain", "data": value[found.end():]}


def _inline(value: Any, context: Context) -> dict[str, str] | None:
    return context.inline(value)


def _char_offset(value: Any, place: Any) -> int | None:
    if type(value) is not str or type(place) is not int or place < 0:
        return None
    return len(value.encode("utf-8", "replace")[:place].decode("utf-8", "ignore"))


def _default(value: Any, fallback: Any) -> Any:
    return fallback if value is None else value


def _beyond(value: Any, *names: Any) -> bool | None:
    if type(value) is not dict:
        return None
    for key, member in value.items():
        if member is not None and key not in names:
            return True
    return False


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
            _parse_json,
            takes_context=True,
            example="""'{"a":1}' | parse_json → {"a":1}""",
            about="JSON text as a value, an object also where it was written as JSON text twice; blank text is `{}`, "
                  "what is no text stays as it is; text that is not JSON, or nested more than 240 levels deep, "
                  "is refused in a request, and `{}` with a loss note in an answer",
        ),
        Filter(
            "from_base64", _from_base64, about="the text inside base64 text; absent when it is not that",
            example="'aGk=' | from_base64 → \"hi\"", kind="text",
        ),
        Filter(
            "join", _join, "separator?", 0, 1, "the texts of a list as one text; nothing to join gives absent",
            "['a', 'b'] | join('-') → \"a-b\"", "text",
        ),
        Filter(
            "split", _split, "separator?", 0, 1, "a text cut into a list; at blanks when no separator is given",
            "'1x2' | split('x') → [\"1\",\"2\"]",
            "list",
        ),
        Filter(
            "strip", lambda value: value.strip() if type(value) is str else None,
            about="a text without blanks at its ends", example="' a ' | strip → \"a\"", kind="text",
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
            "replace", _replace, "old, new", 2, 2, "a text with every `old` replaced",
            "'a-b' | replace('-', '_') → \"a_b\"", "text",
        ),
        Filter(
            "keep", _keep, "allowed, other", 2, 2,
            "a text in which every character is another one, but those allowed (`a-z` is a range)",
            "'a|b.c' | keep('a-z0-9', '_') → \"a_b_c\"", "text",
        ),
        Filter(
            "starts", lambda value, prefix: type(value) is str and type(prefix) is str and value.startswith(prefix),
            "prefix", 1, 1, "whether a text begins with `prefix`", "'data:x' | starts('data:') → true", "bool",
        ),
        Filter(
            "text", _scalar_text, about="a number, true or false as text; a text as it is", example='7 | text → "7"',
            kind="text",
        ),
        Filter(
            "number", _number, about="a text that is a number as that number; anything else is absent",
            example="'7' | number → 7", kind="number",
        ),
        Filter("round", _round, "places?", 0, 1, "a number rounded, half to even", "2.6 | round → 3", "number"),
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
            "total", _total,
            about="the sum of the numbers in a list; absent ones are skipped, no number at all is absent",
            example="[1, 2] | total → 3", kind="number",
        ),
        Filter("clip", _clip, "lowest, highest", 2, 2, "a number moved into the range", "3 | clip(0, 2) → 2", "number"),
        Filter(
            "lookup", _lookup, "key, value", 2, 2, "a list of objects as a table from one field to another",
            "[{'id': 'a', 'n': 1}] | lookup('id', 'n') → {\"a\":1}",
            "object",
            uses="fields",
        ),
        Filter(
            "distinct", _distinct, "key", 1, 1,
            "a list of objects, of those with the same text in that field only the first",
            "[{'id': 'a', 'n': 1}, {'id': 'a', 'n': 2}] | distinct('id') → [{\"id\":\"a\",\"n\":1}]",
            "list",
            uses="items",
        ),
        Filter(
            "data_url", _data_url,
            about="`data:mime;base64,...` taken apart as `mime` and `data`; absent for any other text",
            example='\'data:image/png;base64,AA\' | data_url → {"mime":"image/png","data":"AA"}', kind="object",
        ),
        Filter(
            "inline", _inline, takes_context=True, kind="object",
            about="what is behind a URL, as `mime` and `data`; the gateway fetches it, guarded, before the request is "
                  "sent",
        ),
        Filter(
            "char_offset", _char_offset, "bytes", 1, 1,
            "a place counted in UTF-8 bytes as one counted in characters of the text", "'né!' | char_offset(3) → 2",
            "number",
        ),
        Filter(
            "seal", seal,
            about="a part's token, origin and id as one opaque text for another protocol's slot; absent when it has "
                  "no token",
            example="{'token': 't', 'origin': 'o'} | seal → \"tg1.WyJvIiwidCIsbnVsbF0\"", kind="text",
        ),
        Filter(
            "unseal", unseal, about="a sealed token as `token`, `origin` and `id`; absent for any other text",
            example='\'tg1.WyJvIiwidCIsbnVsbF0\' | unseal → {"token":"t","origin":"o"}', kind="object",
        ),
        Filter(
            "beyond", _beyond, "name, ...", 1, 9,
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
            "default", _default, "value", 1, 1, "the value, or the given one when it is absent",
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
