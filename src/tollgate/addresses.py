"""Adds query parameters to URLs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote


def with_query(address: str, query: str | Mapping[str, Any]) -> str:
    """`address` with further query parameters: a raw query string, or names and values without those that are None.

    with_query("https://x/?a=1", {"b": "c d", "e": None}) -> "https://x/?a=1&b=c%20d"
    """
    pairs = (
        query
        if isinstance(query, str)
        else "&".join(
            f"{quote(name, safe='')}={quote(str(value), safe='')}" for name, value in query.items() if value is not None
        )
    )
    if not pairs:
        return address
    return f"{address}{'&' if '?' in address else '?'}{pairs}"
