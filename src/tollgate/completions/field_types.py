"""The types that fields of a client's body may have, and the words of the error if one has another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tollgate.errors import BadRequest
from tollgate.mapping.harmless import NO_LOSS

Check = Callable[[Any], bool]
Rule = tuple[Check, str]
"""Whether a value has the type, and what is wanted."""


def unfit(where: str, found: str, wanted: str) -> BadRequest:
    """The error for a field, with what was found in it and what is wanted."""
    return BadRequest(f"{where} is {found}; {wanted} is wanted", param=where)


def found_in(value: object, wanted: str) -> str:
    """Describe `value` in words that differ from those for what is wanted."""
    if value == "":
        return "empty"
    return str(value) if wanted.endswith("integer") and type(value) is int else kind_of(value)


def kind_of(value: object) -> str:
    """The type of a value in words: `a list`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    for types, word in ((str, "text"), (int, "an integer"), (float, "a number"), (list, "a list"), (dict, "an object")):
        if isinstance(value, types):
            return word
    return type(value).__name__


def _is(*types: type) -> Check:
    return lambda value: isinstance(value, types) and not isinstance(value, bool)


TEXT = (lambda value: isinstance(value, str) and value != "", "text")
NUMBER = (_is(int, float), "a number")
COUNT = (lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 1, "a positive integer")
BOOLEAN = (lambda value: isinstance(value, bool), "a boolean")
INTEGER = (_is(int), "an integer")
COUNT_OR_0 = (lambda value: type(value) is int and value >= 0, "a non-negative integer")
LIST = (lambda value: isinstance(value, list), "a list")
TEXT_OR_LIST = (lambda value: isinstance(value, (str, list)), "text or a list")
OBJECT = (lambda value: isinstance(value, dict), "an object")
TEXT_OR_OBJECT = (lambda value: isinstance(value, (str, dict)), "text or an object")
LOGPROBS = (lambda value: isinstance(value, int) and value >= 0, "a boolean or a non-negative integer")
"""Some providers of this format take the number of alternatives here, instead of true and `top_logprobs`."""
OBJECTS = (lambda value: isinstance(value, list) and all(map(_is(dict), value)), "a list of objects")
ANY_TEXT = (lambda value: isinstance(value, str), "text")
TEXT_OR_NUMBER = (lambda value: isinstance(value, (str, int, float)), "text")
"""For ids: a number is sent as text."""


@dataclass(frozen=True, slots=True)
class Fields:
    """An object, and the types of some of its fields. `only`: any other value is refused."""

    fields: Mapping[str, Rule | Fields]
    only: bool = True


Wrong = tuple[str, Any, str]
"""The path of a field with a wrong type, its value, and what is wanted."""


def wrong_field(values: dict[str, Any], rules: Mapping[str, Rule | Fields]) -> Wrong | None:
    """The first field of an object with a wrong type. An empty value has none: some languages write an empty object as
    a list."""
    for name, value in values.items():
        rule = rules.get(name)
        if rule is None:
            continue
        if isinstance(rule, tuple):
            if not rule[0](value) and value not in NO_LOSS:
                return name, value, rule[1]
        elif type(value) is dict:
            if below := wrong_field(value, rule.fields):
                return f"{name}.{below[0]}", *below[1:]
        elif rule.only and value not in NO_LOSS:
            return name, value, "an object"
    return None
