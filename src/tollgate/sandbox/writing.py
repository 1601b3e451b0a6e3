"""The event that all three writers yield, and their common interface."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

Event = tuple[str | None, object]
"""An event's name and body: an object, or text that is sent as it is (`[DONE]`)."""


class Writer(Protocol):
    """One answer in one protocol."""

    def whole(self) -> dict[str, object]:
        """The answer as one object."""

    def events(self) -> Iterator[Event]:
        """The answer as the events of a stream."""

    def failure(self) -> Iterator[Event]:
        """The events that end a stream which fails now."""
