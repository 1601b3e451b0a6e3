"""What a client's protocol says in a stream: the generated functions, by moment and by kind of part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Handlers:
    """What a client's protocol says in the life of a part of one kind. All are generated functions, or None."""

    lost: Callable[..., Any] | None = None
    """What is lost of a part that is not told, or nothing where it is."""
    name: Callable[..., Any] | None = None
    open: Callable[..., Any] | None = None
    delta: Callable[..., Any] | None = None
    framed: Callable[..., Any] | None = None
    """`delta` as JSON bytes, where its events differ in their text alone (`frames.py`)."""
    close: Callable[..., Any] | None = None
    tells_stop: bool = False
    """What is said at its end depends on why the answer stopped."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """What a client's protocol says at all: the compiled `from_hub` of a stream."""

    start: Callable[..., Any] | None
    finish: Callable[..., Any] | None
    error: Callable[..., Any] | None
    end: object
    kinds: Mapping[str, Handlers]
    event: str | None
    """The field that is also the SSE event name."""


class _AnyKind(dict[str, Handlers]):
    """Handlers of a listener that has no words but takes every kind."""

    def get(self, kind: object, default: Any = None) -> Handlers:
        """No words, whatever the kind."""
        return _NO_WORDS

    def __getitem__(self, kind: object) -> Handlers:
        return _NO_WORDS


_NO_WORDS = Handlers()
SILENT = Speaker(None, None, None, None, _AnyKind(), None)
"""A client that is told nothing: what is left is the answer itself."""
