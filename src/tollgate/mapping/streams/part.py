"""One part of a streamed answer while it grows, and what an upstream's words about it mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from tollgate.mapping.streams.frames import Frame
from tollgate.mapping.values import text_of

NO_MORE: dict[str, Any] = {}
"""No further fields. Never written to."""
GROWING = frozenset({"text", "reasoning", "refusal"})
"""Kinds that are nothing without text (or a token)."""


class Part:
    """One part of the answer while it grows."""

    __slots__ = (
        "closed",
        "ended",
        "frame",
        "fresh",
        "id",
        "index",
        "item",
        "key",
        "kind",
        "more",
        "mute",
        "name",
        "nth",
        "opened",
        "origin",
        "pieces",
        "say_text",
        "token",
        "told",
        "waiting",
    )

    def __init__(self, kind: str, key: object) -> None:
        self.kind = kind
        self.key = key
        self.id: str | None = None
        self.name: str | None = None
        self.origin: str | None = None
        self.token: str | None = None
        self.more: dict[str, Any] = NO_MORE
        self.fresh: dict[str, Any] = NO_MORE
        """What came beside its text and was not said yet."""
        self.pieces: list[str] = []
        """Its text so far."""
        self.waiting: list[str] = []
        """Text that arrived and was not said yet."""
        self.index = 0
        self.nth = 0
        self.item: str | None = None
        self.opened = False
        """The client was told that it begins."""
        self.told = False
        """The client was told some of its text."""
        self.say_text: Callable[..., None] | None = None
        """Tells the client more of its text, in the client's protocol; set once it is opened. None where the protocol
        has no words for that."""
        self.frame: Frame | None = None
        """What stands around its text in the events of its deltas, once that was asked."""
        self.mute = False
        """The client's protocol has no words for this kind."""
        self.ended = False
        """The upstream is done with it."""
        self.closed = False

    def grow(self, text: str) -> None:
        """More text."""
        self.pieces.append(text)

    @property
    def text(self) -> str | None:
        """All of its text so far, or None when there is none."""
        pieces = self.pieces
        if len(pieces) > 1:
            pieces[:] = ["".join(pieces)]
        return pieces[0] if pieces else None

    def hub(self) -> dict[str, Any]:
        """As a part of a hub response."""
        made: dict[str, Any] = {"kind": self.kind}
        if self.kind == "tool_call":
            made.update(id=self.id, name=self.name, args=self.text)
        else:
            made.update(text=self.text, id=self.id)
        made.update(token=self.token, origin=self.origin, **self.more)
        return {key: value for key, value in made.items() if value is not None}

    def whole(self) -> dict[str, Any]:
        """As a function sees `$part`."""
        made = {**self.hub(), "index": self.index, "nth": self.nth}
        if self.item is not None:
            made["item"] = self.item
        if (text := self.text) is not None:
            made["text"] = text
        return made


def describe(part: Part, id: object, name: object, origin: object, token: object, more: dict[str, Any] | None) -> None:
    """Set what is given; empty values say nothing."""
    part.frame = None
    if id is not None and id != "" and part.id is None:
        part.id = id if type(id) is str else text_of(id)
    if type(name) is str and name and part.name is None:
        part.name = name
    if type(origin) is str and origin:
        part.origin = origin
    if type(token) is str and token:
        part.token = token  # of several only the last is valid for replay
    if more:
        part.more = merged(part.more, more)


def merged(before: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Further fields of a part: lists grow, everything else is what was said last."""
    made = dict(before)
    for key, value in more.items():
        if type(value) is list and type(made.get(key)) is list:
            made[key] = [*made[key], *value]
        elif value is not None:
            made[key] = value
    return made


def hashable(key: object) -> object:
    """A key as something a dict takes."""
    return text_of(key) if type(key) in (list, dict) else key


def unfit(arguments: str) -> str | None:
    """What is wrong with the arguments of a call, in the words of the loss list; None for a JSON object, or for nothing
    at all."""
    if not arguments or arguments.isspace():
        return None
    try:
        return None if type(orjson.loads(arguments)) is dict else "arguments that are not an object"
    except ValueError:
        return "arguments that are not JSON"


def complete(part: Part) -> bool:
    """Whether a tool call's arguments are a whole JSON value: then nothing can follow."""
    text = part.text
    if not text or text.rstrip()[-1:] not in ("}", "]"):
        return False
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True
