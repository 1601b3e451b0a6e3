"""The end user and the metadata of a request, shortened for its usage row.

Callers may send megabytes in either; in a row they serve for grouping and looking up.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import orjson

from tollgate.wire import CLIENT_FORMATS

_MOST_USER = 1000
"""Most characters of the end user in a row."""
_PAIRS, _NAME, _TEXT = 16, 64, 512
"""Most pairs, characters of a name and of a value: the limits of the APIs that have metadata. More is cut off."""
_EXACT = 2**53
"""Integers below this are read exactly by every JSON parser."""
_USERS = {
    dialect: frozenset(name for holder, name in form.user_fields if holder == "metadata")
    for dialect, form in CLIENT_FORMATS.items()
}
"""The fields of metadata that name the end user, by format."""
_HOLDERS = {
    dialect: frozenset(holder or name for holder, name in form.user_fields) for dialect, form in CLIENT_FORMATS.items()
}
"""The top-level fields of a body with the end user, by format."""


def end_user(body: Mapping[str, Any], dialect: str) -> str | None:
    """The end user that a request names, shortened; None if it names none."""
    if body.keys().isdisjoint(_HOLDERS[dialect]):  # nearly all requests
        return None
    for holder, name in CLIENT_FORMATS[dialect].user_fields:
        about = body if holder is None else body.get(holder)
        user = about.get(name) if isinstance(about, dict) else None
        if isinstance(user, str):
            return user[:_MOST_USER]
    return None


def metadata_text(body: Mapping[str, Any], dialect: str) -> str | None:
    """The metadata of a request as compact JSON without the end user; None if there is none."""
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
