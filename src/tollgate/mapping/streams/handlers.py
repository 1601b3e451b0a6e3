"""The generated functions that make a client's events in a stream, by moment and by kind of part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Handlers:
    """What makes the client's events for parts of one kind. All are generated functions, or None."""

    lost: Callable[..., Any] | None = None
    """What a part that cannot be sent is called in the loss report; nothing if it can be sent."""
    name: Callable[..., Any] | None = None
    open: Callable[..., Any] | None = None
    delta: Callable[..., Any] | None = None
    framed: Callable[..., Any] | None = None
    """`delta` as JSON bytes, where its events differ only in their text (`frames.py`)."""
    close: Callable[..., Any] | None = None
    close_depends_on_stop: bool = False
    """The closing events depend on why the answer stopped."""
    joined: bool = False
    """Parts of this kind that follow each other are one part for the client."""


@dataclass(frozen=True, slots=True)
class EventWriter:
    """What makes all events of a client's protocol: the compiled `stream.from_hub`."""

    start: Callable[..., Any] | None
    finish: Callable[..., Any] | None
    error: Callable[..., Any] | None
    end: object
    kinds: Mapping[str, Handlers]


class _AnyKind(dict[str, Handlers]):
    """Handlers that accept every kind of part and make no events."""

    def get(self, kind: object, default: Any = None) -> Handlers:
        """The handlers without events, whatever the kind."""
        return _NO_EVENTS

    def __getitem__(self, kind: object) -> Handlers:
        return _NO_EVENTS


_NO_EVENTS = Handlers()
NO_WRITER = EventWriter(None, None, None, None, _AnyKind())
"""For reading a stream without a client: only the answer is put together."""
