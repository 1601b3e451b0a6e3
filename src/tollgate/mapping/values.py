"""The functions that generated code calls at run time: rules of values that are too long to write inline.

One rule each: how a value becomes text, how two values compare, what arithmetic accepts. Every function is total: it
returns a value, or raises `Fault` with a message for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from types import NoneType
from typing import Any, TypeAlias

import orjson

from tollgate.mapping.failures import Fault
from tollgate.wording import clipped

EMPTY: dict[str, Any] = {}
"""Used in place of a container that is absent. Never written to."""

NUMBERS = (int, float)
KINDS = {str: "text", bool: "bool", int: "number", float: "number", list: "list", dict: "object", NoneType: "null"}
"""The kinds of values that the compiler distinguishes (`Lowered.kind`)."""
KIND_WORDS = {"text": "a text", "list": "a list", "object": "an object", "bool": "true/false", "number": "a number"}
"""The kinds in messages."""
_MAX_TEXT = 64 * 1024 * 1024
Text: TypeAlias = Any
Number: TypeAlias = Any
Bool: TypeAlias = Any
List: TypeAlias = Any
Object: TypeAlias = Any
"""Annotations of a filter's parameters: what it works on. It may be called with anything; `check` reports a value of a
kind that is known to be another."""


def text_of(value: object) -> str:
    """A value inside text: text as it is, true/false, numbers as in JSON, containers as JSON."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[return-value]
    if kind is int:
        return str(value)
    return json_text(value)


def texts_of(values: object) -> dict[str, str]:
    """The fields of an object as texts, without absent ones: headers, query parameters, fields of a form. {} for
    anything else."""
    if not isinstance(values, Mapping):
        return {}
    return {name: text_of(value) for name, value in values.items() if value is not None}


def json_text(value: object) -> str:
    """The value as compact JSON text."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return _slow_json(value)


def _slow_json(value: object) -> str:
    """JSON of values that orjson does not accept: integers over 64 bits, lone surrogates."""
    import json

    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    except (TypeError, ValueError) as error:
        raise Fault(f"this value cannot be written as JSON: {error}") from None


def shown(value: object, most: int) -> str:
    """A value in a message: its JSON, shortened."""
    try:
        return clipped(json_text(value), most)
    except Fault:
        return clipped(repr(value), most)


def same(left: object, right: object) -> bool:
    """Equal, and of the same type where true/false and numbers are concerned (true is not 1). Absent equals nothing."""
    return left == right and (type(left) is bool) is (type(right) is bool) and left is not None


def less(left: Any, right: Any) -> bool:
    """left < right for two numbers or two texts; false for anything else."""
    one, two = type(left), type(right)
    if one in NUMBERS and two in NUMBERS or one is str and two is str:
        return bool(left < right)
    return False


def less_or_same(left: Any, right: Any) -> bool:
    """left <= right, as `less`."""
    one, two = type(left), type(right)
    if one in NUMBERS and two in NUMBERS or one is str and two is str:
        return bool(left <= right)
    return False


def within(needle: object, hay: Any) -> bool:
    """`in`: an item of a list, a key of an object, a part of a text; false for anything else."""
    if type(hay) is list:
        if type(needle) is str:  # a text equals only texts, so the faster `in` of the list can be used
            return needle in hay
        return any(same(needle, item) for item in hay)
    if type(needle) is str and type(hay) in (str, dict):
        return needle in hay
    return False


def in_json(number: float) -> float:
    """The number (also an integer) as JSON writers accept it: an integer of more than 64 bits becomes a float. `Fault`
    for infinity, which they write as null."""
    if type(number) is float:
        if abs(number) == inf:
            raise Fault("the result is larger than numbers can be")
        return number
    return number if -(2**63) <= number < 2**64 else float(number)


def add(left: Any, right: Any) -> Any:
    """Numbers are added, texts and lists are joined; absent gives absent."""
    if left is None or right is None:
        return None
    one, two = type(left), type(right)
    if one in NUMBERS and two in NUMBERS:
        return in_json(left + right)
    if one is two is list:
        return left + right
    if one is two is str:
        return joined(left, right)
    raise Fault(f"cannot add {kind_of(left)} and {kind_of(right)}")


def subtract(left: Any, right: Any) -> Any:
    """left - right for numbers; absent gives absent."""
    return in_json(left - right) if _numbers(left, right, "subtract") else None


def multiply(left: Any, right: Any) -> Any:
    """left * right for numbers; absent gives absent."""
    return in_json(left * right) if _numbers(left, right, "multiply") else None


def divide(left: Any, right: Any) -> Any:
    """left / right for numbers; absent, or a division by 0, gives absent."""
    return in_json(left / right) if _numbers(left, right, "divide") and right != 0 else None


def divide_whole(left: Any, right: Any) -> Any:
    """left // right for numbers; absent, or a division by 0, gives absent."""
    return in_json(left // right) if _numbers(left, right, "divide") and right != 0 else None


def remainder(left: Any, right: Any) -> Any:
    """left % right for numbers; absent, or a division by 0, gives absent."""
    return left % right if _numbers(left, right, "divide") and right != 0 else None


def negative(value: Any) -> Any:
    """-value for a number; absent gives absent."""
    return subtract(0, value)


def _numbers(left: Any, right: Any, verb: str) -> bool:
    if left is None or right is None:
        return False
    if type(left) in NUMBERS and type(right) in NUMBERS:
        if abs(left) > 1e300 or abs(right) > 1e300:
            raise Fault(f"cannot {verb} numbers this large")
        return True
    raise Fault(f"cannot {verb} {kind_of(left)} and {kind_of(right)}")


def joined(*pieces: str) -> str:
    """Texts joined, with a limit, so that no expression can grow without end."""
    whole = "".join(pieces)
    if len(whole) > _MAX_TEXT:
        raise Fault("the text grows too long")
    return whole


def at(value: Any, index: object) -> Any:
    """`value[index]` with a computed index: a key of an object or an index of a list; absent if it is not there."""
    if type(value) is dict:
        return value.get(index) if type(index) is str else None
    if type(value) is list and type(index) is int and -len(value) <= index < len(value):
        return value[index]
    return None


def part_of(value: Any, start: object, stop: object) -> Any:
    """`value[start:stop]` of a list or a text; absent for anything else, or if nothing of a list is left."""
    if type(value) not in (list, str):
        return None
    part = value[start if type(start) is int else None : stop if type(stop) is int else None]
    return part or None if type(value) is list else part


def join_by(items: list[Any], key: str) -> list[Any]:
    """Neighbours with an equal `key` become one: their lists are joined, other fields are those of the first."""
    out: list[Any] = []
    last: Any = None
    fresh = False
    for item in items:
        if (
            type(item) is not dict
            or type(last) is not dict
            or (wanted := item.get(key)) is None
            or not same(last.get(key), wanted)
        ):
            out.append(item)
            last, fresh = item, False
            continue
        if not fresh:
            last = out[-1] = {name: list(value) if type(value) is list else value for name, value in last.items()}
            fresh = True
        for name, value in item.items():
            if type(value) is not list:
                continue
            before = last.get(name)
            if before is None:
                last[name] = list(value)
            elif type(before) is list:
                before.extend(value)
    return out


def below(value: Any, key: str) -> list[Any]:
    """Every value of a field named `key` in `value`, at any depth, outermost first."""
    out: list[Any] = []
    waiting = [value]
    while waiting:
        here = waiting.pop()
        if type(here) is dict:
            if (wanted := here.get(key)) is not None:
                out.append(wanted)
            waiting.extend(reversed(here.values()))
        elif type(here) is list:
            waiting.extend(reversed(here))
    return out


def found(expression: Any, value: Any) -> list[Any]:
    """What a jsonpath-ng expression finds; nothing for a value that it cannot be used on."""
    try:
        return [match.value for match in expression.find(value)]
    except (TypeError, ValueError, AttributeError, KeyError, IndexError):
        return []


def fields_of(value: Any) -> dict[str, Any]:
    """An object as it is; anything else has no fields."""
    return value if type(value) is dict else EMPTY


def kind_of(value: object) -> str:
    """A value's type in messages."""
    return "nothing" if value is None else KIND_WORDS.get(KINDS.get(type(value), "any"), "a value")


_CALLED = (
    text_of,
    same,
    less,
    less_or_same,
    within,
    add,
    subtract,
    multiply,
    divide,
    divide_whole,
    remainder,
    negative,
    joined,
    at,
    part_of,
    join_by,
    below,
    found,
    fields_of,
)
RUNTIME: dict[str, object] = {"EMPTY": EMPTY, "NUMBERS": NUMBERS, **{each.__name__: each for each in _CALLED}}
"""The names that all generated code may use. What only some may use is added by its compiler (`Unit.build`)."""
