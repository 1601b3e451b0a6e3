"""Reads JSON texts from models. Escapes of half a surrogate pair, which JSON's grammar allows and orjson refuses, are
U+FFFD."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import orjson


def json_value(text: str) -> Any:
    """The value of a JSON text; `ValueError` for any other text."""
    try:
        return orjson.loads(text)
    except ValueError:
        if "\\u" not in text:
            raise
    try:
        written = json.dumps(json.loads(text, parse_constant=_refuse), ensure_ascii=False)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return orjson.loads(written.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _refuse(word: str) -> NoReturn:
    """`NaN` and `Infinity` are Python's, not JSON's."""
    raise ValueError(word)
