"""Reads JSON texts from models. Escapes of half a surrogate pair, which JSON's grammar allows and orjson refuses, are
U+FFFD. Whole numbers beyond 64 bits (amounts of tokens on a chain) keep their digits, of which orjson makes floats."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import orjson


def json_value(text: str) -> Any:
    """The value of a JSON text; `ValueError` for any other text."""
    try:
        return with_digits(orjson.loads(text), text)
    except ValueError:
        if "\\u" not in text:
            raise
    try:
        written = json.dumps(json.loads(text, parse_constant=_refuse), ensure_ascii=False)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return json_value(written.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def with_digits(value: Any, text: str | bytes) -> Any:
    """What orjson reads in a JSON text, with the digits of whole numbers beyond 64 bits, which can only be passed on. A
    value that is nested too deeply for Python's parser stays as it is, as one with half a surrogate pair in the text.

    >>> orjson.dumps(with_digits([1e20], "[100000000000000000001]"))
    b'[100000000000000000001]'
    """
    if not _has_beyond(value):
        return value
    try:
        exact = json.loads(text, parse_int=_whole)
        orjson.dumps(exact)
    except (RecursionError, TypeError):
        return value
    return exact


def _has_beyond(value: Any) -> bool:
    """Whether a value is, or contains, a float beyond 64 bits. Looking at the values costs a tenth of looking for the
    digits in the text."""
    waiting = [[value]]
    for several in waiting:
        for each in several:
            kind = type(each)
            if kind is dict:
                waiting.append(each.values())
            elif kind is list:
                waiting.append(each)
            elif kind is float and not -_BEYOND < each < _BEYOND:
                return True
    return False


_BEYOND = float(2**63)


def _whole(digits: str) -> Any:
    if len(digits) <= _DIGITS and -_BEYOND <= (number := int(digits)) < 2**64:
        return number
    return orjson.Fragment(digits)


_DIGITS = 20
"""The digits of 2**64."""


def _refuse(word: str) -> NoReturn:
    """`NaN` and `Infinity` are Python's, not JSON's."""
    raise ValueError(word)
