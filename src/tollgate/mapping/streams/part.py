"""One part of a streamed answer while it grows, and what an upstream's events say about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tollgate.mapping.join_parts import as_one
from tollgate.mapping.json_value import json_value
from tollgate.mapping.streams.frames import Frame
from tollgate.mapping.streams.json_end import JsonEnd
from tollgate.mapping.values import text_of

NO_MORE: dict[str, Any] = {}
"""No further fields. Never written to."""
GROWING = frozenset({"text", "reasoning", "refusal"})
"""Kinds of part that do not exist without text (or a token)."""


class Details:
    """The fields that an upstream's event gives a part beside its text. An empty value is no value. False when there is
    no value, or only an origin."""

    __slots__ = ("id", "more", "name", "origin", "token")

    def __init__(
        self, /, id: object = None, name: object = None, origin: object = None, token: object = None, **more: object
    ) -> None:
        self.id = id if type(id) is str else "" if id is None else text_of(id)
        self.name = name if type(name) is str else ""
        self.origin = origin if type(origin) is str else ""
        self.token = token if type(token) is str else ""
        self.more: dict[str, Any] = {key: value for key, value in more.items() if value is not None}
        """Further fields of the part."""

    def __bool__(self) -> bool:
        return bool(self.id or self.name or self.token or self.more)

    def beside(self, more: dict[str, Any]) -> Details:
        """The same without those further fields that `more` has already."""
        if not (self.more and more):
            return self
        new = {key: value for key, value in self.more.items() if key not in more}
        return Details(self.id, self.name, self.origin, self.token, **new)

    def unnamed(self) -> Details:
        """The same without id and name, so that it belongs to no particular part."""
        return Details(None, None, self.origin, self.token, **self.more)

    def repeats(self, part: Part) -> bool:
        """Whether it has nothing but the id of this part, or nothing at all."""
        return not (self.name or self.token or self.more) and self.id in ("", part.id)


NO_DETAILS = Details()


def part_arguments(part: dict[str, Any]) -> tuple[str, object, object, Details]:
    """The arguments of `Run.part` and `Run.delta` for a part as hub responses and examples write it: kind, key, text,
    details."""
    text = part.get("text")
    rest = Details(**{name: value for name, value in part.items() if name not in _APART})
    return part["kind"], part.get("key"), part.get("args") if text is None else text, rest


_OWN = frozenset({"kind", "text", "id", "token", "origin"})
"""Fields of a hub part that are not further fields of a `Part`."""
_APART = frozenset({"kind", "key", "text", "args"})


class Part:
    """One part of the answer while it grows."""

    __slots__ = (
        "_end",
        "_later",
        "_more",
        "before",
        "closed",
        "emit_text",
        "ended",
        "frame",
        "fresh",
        "id",
        "index",
        "item",
        "key",
        "kind",
        "late",
        "mute",
        "name",
        "nth",
        "opened",
        "origin",
        "pieces",
        "token",
        "told",
        "told_name",
        "waiting",
    )

    def __init__(self, kind: str, key: object) -> None:
        self.kind = kind
        self.key = key
        self.id: str | None = None
        self.name: str | None = None
        self.told_name: str | None = None
        """The upstream's name of the tool, where `name` is the client's own (`tool_names.py`)."""
        self.origin: str | None = None
        self.token: str | None = None
        self._more: dict[str, Any] = NO_MORE
        self._later: list[dict[str, Any]] = []
        """What came for `more` and is not merged into it yet: many citations come one by one."""
        self._end: JsonEnd | None = None
        self.fresh: dict[str, Any] = NO_MORE
        """Further fields that were not sent to the client yet. Its lists are used nowhere else until then."""
        self.pieces: list[str] = []
        """Its text so far."""
        self.waiting: list[str] = []
        """Text that arrived and was not sent to the client yet."""
        self.index = 0
        self.nth = 0
        self.item: str | None = None
        self.opened = False
        """Its beginning was sent to the client."""
        self.told = False
        """Some of its text was sent to the client."""
        self.emit_text: Callable[..., None] | None = None
        """Makes the client's event for more text; set when the part is opened. None where the client's protocol has no
        such event."""
        self.frame: Frame | None = None
        """The JSON around the text in its delta events, once it was worked out."""
        self.mute = False
        """The client's protocol has no events for this kind."""
        self.ended = False
        """The upstream has ended it."""
        self.late = False
        """It has ended, but stays open for citations that follow (`Run.close_late`)."""
        self.closed = False
        self.before: list[dict[str, Any]] = []
        """The parts that are one with it for the client, before it."""

    def grow(self, text: str) -> None:
        """Add text to send to the client."""
        self.pieces.append(text)
        self.waiting.append(text)

    def describe(self, details: Details) -> None:
        """Take over what an event says about it."""
        self.frame = None
        self.id = self.id or details.id or None
        self.name = self.name or details.name or None
        self.origin = details.origin or self.origin
        self.token = details.token or self.token  # of several only the last is valid for replay
        if details.more:
            self._later.append(details.more)

    def continues(self, part: Part, own: dict[str, Any]) -> None:
        """For the client it is more of that part, whose hub part is `own`: what was opened for that stays open."""
        self.before = part.before
        self.before.append(own)
        self.opened, self.told, self.emit_text = True, part.told, part.emit_text
        self.index, self.nth, self.item = part.index, part.nth, part.item

    def join(self) -> None:
        """Take over the texts and citations of the parts before it, for its closing events."""
        if self.before:
            one = as_one([*self.before, self.hub()])
            self.pieces = [one["text"]]
            self.more = {key: value for key, value in one.items() if key not in _OWN}

    def is_called(self, name: str) -> bool:
        """Whether an event with this name, or without one, may be about this call."""
        return name in ("", self.name, self.told_name)

    def is_empty(self) -> bool:
        """Whether there is nothing to send yet: no text, and no field that counts without text."""
        return not self.pieces and (self.kind in GROWING or not self.more)

    def complete(self) -> bool:
        """Whether the arguments of a call are a whole JSON value: then nothing can follow."""
        if self._end is None:
            self._end = JsonEnd()
        return self._end.whole(self.pieces)

    @property
    def more(self) -> dict[str, Any]:
        """Further fields: lists grow, of everything else the last value counts."""
        if self._later:
            self._more = merged(self._more, self._later)
            self._later = []
        return self._more

    @more.setter
    def more(self, fields: dict[str, Any]) -> None:
        self._more = fields
        self._later = []

    @property
    def text(self) -> str | None:
        """All of its text so far, or None when there is none."""
        pieces = self.pieces
        if len(pieces) > 1:
            if self._end is not None:
                self._end.joined(pieces)
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


def merged(before: dict[str, Any], later: list[dict[str, Any]]) -> dict[str, Any]:
    """Further fields of a part together with later ones: lists grow, of everything else the last value counts."""
    made = {key: [*value] if type(value) is list else value for key, value in before.items()}
    for more in later:
        grow(made, more)
    return made


def grow(fields: dict[str, Any], more: dict[str, Any]) -> None:
    """The same in place, for fields whose lists are used nowhere else."""
    for key, value in more.items():
        if type(value) is not list:
            if value is not None:
                fields[key] = value
        elif type(fields.get(key)) is list:
            fields[key] += value
        else:
            fields[key] = [*value]


def hashable(key: object) -> object:
    """A key in a form that a dict accepts."""
    return text_of(key) if type(key) in (list, dict) else key


def unfit(arguments: str) -> str | None:
    """What is wrong with the arguments of a call, in the words of the loss report; None for a JSON object and for an
    empty text."""
    if not arguments or arguments.isspace():
        return None
    try:
        return None if type(json_value(arguments)) is dict else "arguments that are not an object"
    except ValueError:
        return "arguments that are not JSON"
