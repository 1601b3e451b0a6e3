"""What a request says of itself for those who read usage: its end user and its metadata, bounded for a row.

Callers may send megabytes in either; what a row keeps is for sums and look-ups.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import orjson

from tollgate.wire import CLIENT_FORMATS

_MOST_USER = 1000
"""Characters of an end user's name in a row."""
_PAIRS, _NAME, _TEXT = 16, 64, 512
"""What the APIs that have metadata take: more is cut."""
_EXACT = 2**53
"""Whole numbers below it are the same number for every reader of JSON."""
_USERS = {
    dialect: frozenset(name for holder, name in form.user_places if holder == "metadata")
    for dialect, form in CLIENT_FORMATS.items()
}
"""The members of metadata that name the end user."""


def end_user(body: Mapping[str, Any], dialect: str) -> str | None:
    """The application-defined user of a request of this client format, where it has one; cut at a length that no name
    has."""
    for holder, name in CLIENT_FORMATS[dialect].user_places:
        about = body if holder is None else body.get(holder)
        user = about.get(name) if isinstance(about, dict) else None
        if isinstance(user, str):
            return user[:_MOST_USER]
    return None


def metadata_text(body: Mapping[str, Any], dialect: str) -> str | None:
    """The metadata of a request as compact JSON, without the end user: `{"feature": "search"}` → the same as text."""
    metadata = body.get("metadata")
    if not metadata or not isinstance(metadata, dict):
        return None
    named = _USERS[dialect]
    kept = {}
    for name, value in islice(metadata.items(), _PAIRS):
        if name in named:
            continue
        if type(value) is str:
            kept[name[:_NAME]] = value[:_TEXT]
        elif _is_plain(value):
            kept[name[:_NAME]] = value
    return orjson.dumps(kept).decode() if kept else None


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < _EXACT)
