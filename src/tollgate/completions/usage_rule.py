"""Usage that a provider's own rule (`usage: read`) finds in the events of one stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class UsageRule:
    """`usage` merges what the rule found in all events so far; for each member the last value wins. The rule gets it as
    `$before`."""

    __slots__ = ("_read", "usage")

    def __init__(self, read: Callable[..., Any]) -> None:
        self._read = read
        self.usage: dict[str, Any] = {}

    def note(self, event: object) -> None:
        """Apply the rule to one event."""
        read = self._read(event, before=self.usage)
        if isinstance(read, dict):
            self.usage = {**self.usage, **read}
