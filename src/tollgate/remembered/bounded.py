"""A memory of limited size: the least recently used values are dropped first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedMemory(Generic[K, V]):
    """The memory. Safe to use from several threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._kept)

    def keep(self, key: K, value: V, size: int) -> None:
        """Remember a value for a key; one that is larger than the whole memory is dropped."""
        with self._lock:
            if before := self._kept.pop(key, None):
                self._size -= before[1]
            if size <= self._most:
                self._kept[key] = value, size
                self._size += size
            while self._size > self._most:
                self._size -= self._kept.popitem(last=False)[1][1]

    def find(self, key: K) -> V | None:
        """The value of a key; this counts as a use."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
        return found[0]
