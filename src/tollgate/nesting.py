"""How deep JSON may be nested so that we can write what we read, and how much of it can be looked at one by one."""

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


def holds_more(body: Any, most: int) -> bool:
    """Whether objects and lists have more than `most` members together, at every depth: holds_more({"a": [1, 2]}, 2) -> True"""
    waiting, count = [body], 0
    while waiting:
        node = waiting.pop()
        count += len(node)
        if count > most:
            return True
        waiting += [child for child in (node.values() if isinstance(node, dict) else node) if isinstance(child, (dict, list))]
    return False
