"""What the filters do: pure functions, value in, value out; `filter_table.py` has the table that names them.

A value of a kind that a filter does not work on gives absent, so no input can make one fail. The exceptions are
`parse_json` and `arguments`: what is not JSON, or too deep to be written again, is an error in a request, and an empty
object with a loss note in an answer.
"""

from __future__ import annotations

import functools
import re
from math import inf
from typing import TYPE_CHECKING, Any

from tollgate.json_bounds import MAX_DEPTH, too_deep, too_many
from tollgate.mapping.failures import Fault
from tollgate.mapping.json_value import json_value
from tollgate.mapping.values import NUMBERS, Bool, List, Number, Object, Text, in_json, joined, text_of
from tollgate.wording import clipped

if TYPE_CHECKING:
    from tollgate.mapping.context import Context

_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,3})?\Z")
_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*?);base64,", re.IGNORECASE)
_MOST_HEAD = 2000
"""Characters of a data address before its data; trying every parameter of a head of megabytes takes seconds,
in which no thread runs."""


def scalar_text(value: Text | Number | Bool) -> str | None:
    """A number, true or false as text; a text as it is."""
    return None if type(value) in (list, dict) else text_of(value)


_MOST_VALUES = 500_000
"""In the JSON of one text: its parser lets nobody else run, and the text may be all of a body."""


def _is_crowded(text: str) -> bool:
    return len(text) > _MOST_VALUES and too_many(text.encode("utf-8", "surrogatepass"), _MOST_VALUES)


def parse_json(value: Any, context: Context) -> Any:
    """A JSON text as a value, an object also where it was written as JSON text twice; blank text is `{}`, what is no
    text stays as it is; text that is not JSON, or nested more than 240 levels deep, is refused in a request, and `{}`
    with a loss note in an answer.

    What it refuses is a `Fault`.
    """
    return _parsed(value, context, broken=None)


def arguments(value: Any, context: Context) -> Any:
    """The arguments of a call, as `parse_json` reads them; but in a request, text that is not JSON is
    `{"INVALID_JSON": the text}`.

    Models write such arguments, or are stopped inside them, and clients send them back with every turn: refused, they
    would end the conversation. The key is the one in Anthropic's documentation.
    """
    return _parsed(value, context, broken="INVALID_JSON")


def _parsed(value: Any, context: Context, broken: str | None) -> Any:
    if type(value) is not str:
        return value
    if not value or value.isspace():
        return {}
    if _is_crowded(value):
        wrong = f"more than {_MOST_VALUES} values"
    else:
        try:
            found = json_value(value)
        except ValueError:
            if broken and not context.lenient:
                return {broken: value}
            wrong = "not JSON"
        else:
            found = _once_more(found) if type(found) is str else found
            if value.count("{") + value.count("[") <= MAX_DEPTH or not too_deep([found], MAX_DEPTH):
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
        found = json_value(text)
    except ValueError:
        return text
    return found if type(found) is dict else text


def lower(value: Text) -> str | None:
    """A text in small letters."""
    return value.lower() if type(value) is str else None


def upper(value: Text) -> str | None:
    """A text in capital letters."""
    return value.upper() if type(value) is str else None


def starts(value: Text, prefix: Text) -> bool:
    """Whether a text begins with `prefix`; false for what is no text."""
    return type(value) is str and type(prefix) is str and value.startswith(prefix)


def length(value: List | Object | Text) -> int | None:
    """How many items, keys or characters."""
    return len(value) if type(value) in (list, dict, str) else None


def first(value: List) -> Any:
    """The first item of a list."""
    return value[0] if type(value) is list and value else None


def last(value: List) -> Any:
    """The last item of a list."""
    return value[-1] if type(value) is list and value else None


def join(value: List | Text, separator: Text | Number = "") -> str | None:
    """The texts, numbers and booleans of a list as one text; a text stays as it is; nothing to join gives absent."""
    if type(value) is str:
        return value
    if type(value) is not list:
        return None
    if type(separator) is str:
        try:
            return joined(separator.join(value)) if value else None
        except TypeError:  # not all of them are texts
            pass
    pieces = [text for item in value if item is not None and (text := scalar_text(item)) is not None]
    return joined((scalar_text(separator) or "").join(pieces)) if pieces else None


def split(value: Text, separator: Text = None) -> list[str] | None:
    """A text cut into a list; at blanks when no separator is given."""
    if type(value) is not str:
        return None
    return value.split(separator) if type(separator) is str and separator else value.split()


def replace(value: Text, old: Text, new: Text) -> str | None:
    """A text with every `old` replaced, unless that would make it enormous."""
    if type(value) is not str:
        return None
    if type(old) is not str or type(new) is not str or not old or value.count(old) * len(new) >= 64 * 1024 * 1024:
        return value
    return joined(value.replace(old, new))


def number(value: Text | Number) -> int | float | None:
    """A text that is a number as that number; anything else is absent."""
    if type(value) in NUMBERS:
        return value
    if type(value) is not str or not _NUMBER.match(text := value.strip()):
        return None
    try:
        return in_json(int(text))
    except ValueError:
        made = float(text)
        return made if abs(made) != inf else None


def rounded(value: Number, places: Number = 0) -> int | float | None:
    """A number rounded half to even, to a whole one or to so many places."""
    if type(value) not in NUMBERS or abs(value) > 1e300 or value != value:
        return None
    result: int | float = round(value, places) if type(places) is int and 0 < places <= 20 else round(value)
    return in_json(result)


def total(value: List) -> int | float | None:
    """The sum of the numbers in a list; absent ones are skipped, no number at all is absent."""
    numbers = [item for item in value if type(item) in NUMBERS] if type(value) is list else []
    made = sum(numbers)
    return in_json(made) if numbers and abs(made) != inf else None


def clip(value: Number, lowest: Number, highest: Number) -> int | float | None:
    """A number moved into the range; an end that is no number is open."""
    if type(value) not in NUMBERS:
        return None
    result: int | float = value
    if type(lowest) in NUMBERS and value < lowest:
        result = lowest
    elif type(highest) in NUMBERS and value > highest:
        result = highest
    return result


def strip(value: Text, end: Text = None) -> str | None:
    """A text without blanks at its ends; with `'end'` only behind it."""
    if type(value) is not str:
        return None
    return value.strip() if end is None else value.rstrip() if end == "end" else None


def keep(value: Text, allowed: Text, other: Text) -> str | None:
    """A text in which every character is another one, but those allowed (`a-z` is a range)."""
    if type(value) is not str or type(allowed) is not str or type(other) is not str:
        return None
    outside = _outside(allowed)
    return None if outside is None else outside.sub(other.replace("\\", r"\\"), value)


@functools.lru_cache(256)
def _outside(allowed: str) -> re.Pattern[str] | None:
    try:
        return re.compile("[^" + re.sub(r"[\\\]\[^]", r"\\\g<0>", allowed) + "]")
    except re.error:
        return None


def is_set_of_characters(allowed: object) -> bool:
    """Whether `keep` can use it."""
    return type(allowed) is str and _outside(allowed) is not None


def lookup(value: List, key: Text, wanted: Text) -> dict[str, Any] | None:
    """A list of objects as a table from one field to another; absent when nothing is in it."""
    if type(value) is not list or type(key) is not str or type(wanted) is not str:
        return None
    table = {
        name: found
        for item in value
        if type(item) is dict and type(name := item.get(key)) is str and (found := item.get(wanted)) is not None
    }
    return table or None


def entries(value: Object) -> list[Any] | None:
    """The fields of an object as a list, each as `key` and `value`; `lookup('key', 'value')` undoes it."""
    return [{"key": key, "value": inner} for key, inner in value.items()] if type(value) is dict else None


def distinct(value: List, key: Text) -> list[Any] | None:
    """A list of objects, of those with the same text in that field only the first."""
    if type(value) is not list or type(key) is not str:
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


def sort(value: List, key: Text) -> list[Any] | None:
    """A list of objects in the order of that field, numbers before texts; those without it stand last."""
    if type(value) is not list or type(key) is not str:
        return None

    def place(item: Any) -> tuple[int, Any]:
        found = item.get(key) if type(item) is dict else None
        kind = type(found)
        return (0, found) if kind in NUMBERS and found == found else (1, found) if kind is str else (2, 0)

    return sorted(value, key=place)


def chunks(value: List, size: Number) -> list[Any] | None:
    """A list cut into lists of so many items, for vectors that come one behind the other; absent for a size below 1."""
    if type(value) is not list or type(size) is not int or size < 1:
        return None
    return [value[at : at + size] for at in range(0, len(value), size)]


def unlike(value: Any, key: Text, field: Text, *closed: Text) -> Any:
    """The value in which no two objects under `key`, at any depth but below fields that are `closed`, have the same
    text in `field`: those after the first have `-2`, `-3`, ... behind it.

    What needs no change is the very same object.
    """
    if type(key) is not str or type(field) is not str:
        return value
    taken: set[str] = set()
    numbers: dict[str, int] = {}

    def walked(node: Any) -> Any:
        if type(node) is list:
            items = [walked(item) for item in node]
            return items if any(new is not old for new, old in zip(items, node, strict=True)) else node
        if type(node) is not dict:
            return node
        made = node
        for name, member in node.items():
            new = member if name in closed else walked(member)
            if name == key and type(new) is dict and type(text := new.get(field)) is str:
                number, free = numbers.get(text, 1), text
                while free in taken:
                    number += 1
                    free = f"{text}-{number}"
                numbers[text] = number  # a thousand of one name are not counted from the start each
                taken.add(free)
                if free != text:
                    new = {**new, field: free}
            if new is not member:
                made = {**node} if made is node else made
                made[name] = new
        return made

    return walked(value)


def without(value: Object, *names: Text) -> dict[str, Any] | None:
    """An object without these fields."""
    if type(value) is not dict:
        return None
    return {name: member for name, member in value.items() if name not in names}


def data_url(value: Text) -> dict[str, str] | None:
    """`data:mime;base64,...` taken apart as `mime`, in small letters, and `data`; absent for any other text."""
    if type(value) is not str or value[:5].lower() != "data:":
        return None
    found = _DATA_URL.match(value, 0, _MOST_HEAD)
    if not found:
        return None
    return {"mime": found[1].lower() or "text/plain", "data": value[found.end() :]}


def inline(value: Text, context: Context) -> dict[str, str] | None:
    """What is behind a URL, as `mime` and `data`; the gateway fetches it, guarded, before the request is sent."""
    return context.inline(value)


def char_offset(value: Text, place: Number) -> int | None:
    """A place counted in UTF-8 bytes as one counted in characters of the text."""
    if type(value) is not str or type(place) is not int or place < 0:
        return None
    if value.isascii():  # known at once, where an answer places many citations
        return min(place, len(value))
    return len(value.encode("utf-8", "replace")[:place].decode("utf-8", "ignore"))


def default(value: Any, fallback: Any) -> Any:
    """The value, or the given one when it is absent."""
    return fallback if value is None else value


def has_other_fields(value: Object, *names: Text) -> bool:
    """Whether an object has other fields than these, with a value that is not null; false for any other value. One
    call replaces many conditions where such fields are rare."""
    if type(value) is not dict:
        return False
    for key, member in value.items():
        if member is not None and key not in names:
            return True
    return False
