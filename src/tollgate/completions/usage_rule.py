"""What a provider's own template (`usage: read`) reads of the events of one stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class UsageRule:
    """`usage` is what the events noted so far come to; of each member the last value wins."""

    __slots__ = ("_read", "usage")

    def __init__(self, read: Callable[..., Any]) -> None:
        self._read = read
        self.usage: dict[str, Any] = {}

    def note(self, event: object) -> None:
        """Take one event."""
        read = self._read(event)
        if isinstance(read, dict):
            self.usage = {**self.usage, **read}
