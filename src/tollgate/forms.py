"""Encodes fields as application/x-www-form-urlencoded, for providers that do not accept JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from urllib.parse import urlencode

FORM = "application/x-www-form-urlencoded"


def encode_fields(fields: Mapping[str, object]) -> bytes:
    """Encode an object as a form. A list repeats its field, an object becomes JSON text, null is left out.

    {"q": "a b", "n": 2, "on": true, "stop": ["x", "y"]} -> q=a+b&n=2&on=true&stop=x&stop=y
    """
    return urlencode([(name, field_text(item)) for name, item in form_fields(fields)]).encode()


def form_fields(fields: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """The fields of a form in any encoding. A list repeats its field, null is left out."""
    for name, value in fields.items():
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if item is not None:
                yield str(name), item


def field_text(value: object) -> str:
    """The text of one field's value: JSON for booleans, objects and lists."""
    if isinstance(value, (bool, dict, list)):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
