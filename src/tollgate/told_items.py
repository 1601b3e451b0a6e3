"""Items of converted answers, remembered a while for responses clients that refer to them by their ids.

Where nobody asks for `store: false`, clients take what they were told for stored: the AI SDK sends `item_reference`
for each thought and text of an earlier answer. A provider of another format stores nothing that could be referred to,
so the items stay here. They are in this process's memory, up to a limit, the longest unused go first; one that is not
found is "not found".
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import orjson

MOST = 16 * 1024 * 1024
"""Bytes of all remembered items together."""
_EACH = 500
"""What an item takes beside its bytes, counted as such."""


class ToldItems:
    """The memory. Safe to use from several threads."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._size = 0
        self._items: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, owner: str, items: Iterable[Any]) -> None:
        """Remember the output items of an answer for this account, as JSON."""
        found = {
            (owner, item["id"]): orjson.dumps(item)
            for item in items
            if isinstance(item, dict) and isinstance(item.get("id"), str)
        }
        with self._lock:
            for key, item in found.items():
                if before := self._items.pop(key, None):
                    self._size -= len(before) + _EACH
                self._items[key] = item
                self._size += len(item) + _EACH
            while self._size > self._most:
                self._size -= len(self._items.popitem(last=False)[1]) + _EACH

    def find(self, owner: str, item_id: str) -> bytes | None:
        """The item that this account was told under this id, as JSON."""
        with self._lock:
            known = self._items.get((owner, item_id))
            if known is not None:
                self._items.move_to_end((owner, item_id))
        return known
