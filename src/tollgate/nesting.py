"""How deep JSON may be nested so that we can write what we read."""

from __future__ import annotations

from typing import Any

MOST_WRITTEN = 240
"""Levels that can always be written again: orjson stops at 254, and what a request holds is put into other objects."""


def too_deep(body: Any, limit: int) -> bool:
    """Whether there are objects and lists inside each other for more than `limit` levels; `body` itself is the first."""
    level = [body]
    for _ in range(limit):
        level = [child for node in level for child in (node.values() if isinstance(node, dict) else node) if isinstance(child, (dict, list))]
        if not level:
            return False
    return True
