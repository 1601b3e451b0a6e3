"""The life of a stream: what upstream events mean becomes what the client is told, part by part.

The state machine is fixed and lives here: new -> started -> (a part open <-> none open)* -> finished | error. One part is
open at a time. A delta for another part closes the open one when that one is certainly over; otherwise the other part is
held back until it is. No mapping can say a delta outside a part, forget a closing event or misnumber one.

Rules and handlers are generated code (`stream_in.py`, `stream_out.py`); they call the methods of `Run`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from tollgate.mapping import hub
from tollgate.mapping.context import Context
from tollgate.mapping.values import text_of

ENDED_EARLY = "upstream ended before the answer was finished"


@dataclass(frozen=True, slots=True)
class Handlers:
    """What a client's protocol says in the life of a part of one kind. All are generated functions, or None."""

    name: Callable[..., Any] | None = None
    open: Callable[..., Any] | None = None
    delta: Callable[..., Any] | None = None
    close: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True)
class Speaker:
    """What a client's protocol says at all: the compiled `from_hub` of a stream."""

    start: Callable[..., Any] | None
    finish: Callable[..., Any] | None
    error: Callable[..., Any] | None
    stamp: Callable[..., Any] | None
    end: object
    kinds: Mapping[str, Handlers]
    event: str | None
    """The field that is also the SSE event name."""


class AnyKind(dict[str, Handlers]):
    """Handlers of a listener that has no words but takes every kind."""

    def get(self, kind: object, default: Any = None) -> Handlers:  # type: ignore[override]
        """No words, whatever the kind."""
        return _NO_WORDS

    def __getitem__(self, kind: object) -> Handlers:
        return _NO_WORDS


_NO_WORDS = Handlers()


class Part:
    """One part of the answer while it grows."""

    __slots__ = ("_pieces", "closed", "ended", "fresh", "id", "index", "item", "key", "kind", "more", "mute", "name", "nth", "origin", "said", "token", "waiting")

    def __init__(self, kind: str, key: object) -> None:
        self.kind = kind
        self.key = key
        self.id: str | None = None
        self.name: str | None = None
        self.origin: str | None = None
        self.token: str | None = None
        self.more: dict[str, Any] = _NO_MORE
        self.fresh: dict[str, Any] = _NO_MORE
        """What came beside its text and was not said yet."""
        self._pieces: list[str] = []
        self.waiting: list[str] = []
        """Text that arrived and was not said yet."""
        self.index = 0
        self.nth = 0
        self.item: str | None = None
        self.said = False
        """Its opening was said."""
        self.mute = False
        """The client's protocol has no words for this kind."""
        self.ended = False
        """The upstream is done with it."""
        self.closed = False

    def grow(self, text: str) -> None:
        """More text."""
        self._pieces.append(text)

    @property
    def text(self) -> str | None:
        """All of its text so far, or None when there is none."""
        pieces = self._pieces
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


_NO_MORE: dict[str, Any] = {}


class Run:
    """One answer being streamed. Generated code calls `start open delta close part stop usage error`."""

    __slots__ = (
        "_ahead", "_by_id", "_by_key", "_closes", "_current", "_done", "_held", "_last_call", "_said_error", "_speaker", "_started_by_upstream", "begun", "context",
        "count", "created", "error", "event", "id", "known", "model", "more", "nth", "out", "received_chars", "seen", "seq", "stamp", "state",
        "stop", "stop_text", "unmatched", "usage",
    )

    def __init__(self, speaker: Speaker, context: Context, *, closes: bool) -> None:
        self._speaker = speaker
        self._closes = closes
        """The upstream says where its parts end."""
        self.context = context
        self.id = context.answer_id()
        upstream = context.model.get("upstream")
        self.model = upstream if type(upstream) is str else None
        self.created = context.now
        self.more: dict[str, Any] = {}
        self.known = False
        """id and model are settled; `start` has nothing to add."""
        self.begun = False
        """The client was told that the answer starts."""
        self._started_by_upstream = False
        self.stop: str | None = None
        self.stop_text: str | None = None
        self.usage: dict[str, Any] = {}
        self.error: dict[str, Any] | None = None
        self.event: str | None = None
        self.seen: dict[str, int] = {}
        self.nth: dict[str, int] = {}
        self.count = 0
        self.seq = 0
        self.stamp: dict[str, Any] = _NO_MORE
        self.out: list[tuple[str | None, Any]] = []
        self.received_chars = 0
        self.unmatched: dict[str, int] = {}
        self.state = "open"
        self._current: Part | None = None
        self._held: list[Part] = []
        self._ahead: dict[str, dict[str, Any]] = {}
        """Further fields of a kind of part that came before one began."""
        self._done: list[dict[str, Any]] = []
        self._by_key: dict[object, Part] = {}
        self._by_id: dict[str, Part] = {}
        self._last_call: Part | None = None
        self._said_error = False

    # -- what rules call

    def start(self, id: object = None, model: object = None, created: object = None, more: dict[str, Any] | None = None) -> None:
        """The upstream names its answer. Empty values name nothing: a first event may be hollow."""
        if more:
            self.more.update({key: value for key, value in more.items() if value is not None})
        if self.begun:
            self.known = True
            return
        if type(id) is str and id:
            self.id = id
            self._started_by_upstream = True
        if type(model) is str and model:
            self.model = model
        if type(created) is int and created > 0:
            self.created = created

    def open(
        self, kind: str, key: object = None, id: object = None, name: object = None, origin: object = None, token: object = None,
        more: dict[str, Any] | None = None,
    ) -> None:
        """The upstream begins a part."""
        if self.state != "open":
            return
        part = self._new(kind, key, id)
        _describe(part, id, name, origin, token, more)
        self._admit(part)

    def delta(
        self, kind: str, key: object = None, text: object = None, token: object = None, id: object = None, name: object = None,
        origin: object = None, more: dict[str, Any] | None = None,
    ) -> None:
        """More of a part; one that is not open is opened. A delta with nothing in it does nothing."""
        if text is not None and type(text) is not str:
            text = text_of(text)
        current = self._current
        if (
            current is not None and current.said and current.kind == kind and not self._held and (key is None or key == current.key)
            and (id is None or id == current.id or not id) and not (current.ended or token or more)
            and (kind != "tool_call" or key is not None or current is self._last_call)
        ):
            if text:
                self.received_chars += len(text)  # type: ignore[arg-type]
                current.grow(text)  # type: ignore[arg-type]
                self._grow(current, text)  # type: ignore[arg-type]
            return
        if more:
            more = {field: value for field, value in more.items() if value is not None}
        if not (text or token or id or name or more) or self.state != "open":
            return
        if key is not None and (owner := self._by_key.get(_hashable(key))) is not None and owner.kind != kind and not owner.closed:
            return  # the part at this place is another thing: so grow the calls of tools that the provider runs itself
        part = self._find(kind, key, id)
        fresh = part is None
        if part is None and more and not (text or token or id or name):
            self._ahead[kind] = _merged(self._ahead.get(kind, _NO_MORE), more)  # told before its part begins
            return
        if part is None:
            if kind == "tool_call" and not (name or id) and (not text or text.isspace()):  # type: ignore[union-attr]
                return
            part = self._new(kind, key, id)
        elif part.closed:
            if kind == "tool_call" and text and not text.isspace():  # type: ignore[union-attr]
                self.context.lose("text after the end of a tool call")
            return
        _describe(part, id, name, origin, token, more)
        if more:
            part.fresh = _merged(part.fresh, more)
        if type(part.id) is str and kind == "tool_call":
            self._by_id.setdefault(part.id, part)
        if text:
            self.received_chars += len(text)  # type: ignore[arg-type]
            part.grow(text)  # type: ignore[arg-type]
            part.waiting.append(text)  # type: ignore[arg-type]
        if fresh:
            self._admit(part)
        elif part is self._current:
            self._speak(part)
            if self._held and not self._closes and _complete(part):
                self._close(part)
                self._advance()

    def close(
        self, key: object = None, kind: str | None = None, text: object = None, token: object = None, id: object = None, name: object = None,
        origin: object = None, more: dict[str, Any] | None = None,
    ) -> None:
        """The upstream is done with a part. What it says of it again counts only where nothing was said before."""
        if self.state != "open":
            return
        part = self._current if key is None else self._by_key.get(_hashable(key))
        if part is None or kind is not None and part.kind != kind:
            if kind is None or not (text or token or name):
                return
            part = self._new(kind, key, id)
            part.ended = True
            _describe(part, id, name, origin, token, more)
            self._hear(part, text)
            self._admit(part)
            return
        if part.closed:
            return
        if kind is not None:
            _describe(part, id, name, origin, token, more)
            if part.text is None:
                self._hear(part, text)
        part.ended = True
        if part is self._current:
            self._close(part)
            self._advance()

    def _hear(self, part: Part, text: object) -> None:
        if text is not None and type(text) is not str:
            text = text_of(text)
        if text:
            self.received_chars += len(text)  # type: ignore[arg-type]
            part.grow(text)  # type: ignore[arg-type]
            part.waiting.append(text)  # type: ignore[arg-type]

    def part(self, kind: str, **given: Any) -> None:
        """A part that arrives whole."""
        if self.state != "open":
            return
        text = given.pop("text", None)
        arguments = given.pop("args", None)
        part = self._new(kind, given.pop("key", None), given.get("id"))
        more = {name: value for name, value in given.items() if name not in _OWN_FIELDS and value is not None}
        _describe(part, given.get("id"), given.get("name"), given.get("origin"), given.get("token"), more)
        self._hear(part, arguments if text is None else text)
        part.ended = True
        self._admit(part)

    def finished(self, reason: object = None, text: object = None) -> None:
        """The upstream says why it stopped."""
        if type(reason) is str and reason:
            self.stop = reason
        if type(text) is str:
            self.stop_text = text

    def count_usage(self, usage: object) -> None:
        """Counts: per member the last value seen wins, never a sum."""
        if type(usage) is dict:
            for name, value in usage.items():
                if value is not None:
                    self.usage[name] = value

    def fail(self, error: object) -> None:
        """The upstream says it failed. What follows is not told any more; usage still counts."""
        if self.state != "open":
            return
        given = error if type(error) is dict else {"message": text_of(error)} if error is not None else {}
        message = given.get("message")
        self.error = {key: value for key, value in given.items() if value is not None}
        self.error["message"] = message if type(message) is str and message else text_of(message) if message is not None else "upstream error"
        self.tell_error()

    def ignored(self, what: str, label: object) -> None:
        """An event no rule is for: counted, and named in the loss report."""
        if label is None or type(label) is not str:
            return
        name = label if len(label) <= 80 else label[:77] + "..."
        if name in self.unmatched or len(self.unmatched) < 50:
            if name not in self.unmatched:
                self.context.lose(f"stream event {name}")
            self.unmatched[name] = self.unmatched.get(name, 0) + 1

    def whole(self) -> dict[str, Any]:
        """The answer so far, as a hub response; its stop is `open` until the upstream stopped."""
        parts = list(self._done)
        if self._current is not None and self._current.said:
            parts.append(self._current.hub())
        made: dict[str, Any] = {"id": self.id, "model": self.model, "created": self.created, "parts": parts, "stop": self.stop or "open", "stop_text": self.stop_text, **self.more}
        if self.usage:
            made["usage"] = dict(self.usage)
        if self.error is not None:
            made["error"] = self.error
            made["stop"] = "error"
        return {key: value for key, value in made.items() if value is not None}

    def received(self) -> list[dict[str, Any]]:
        """All parts so far, whether they were said or not."""
        waiting = [part for part in (self._current, *self._held) if part is not None]
        return [*self._done, *(part.hub() for part in waiting)]

    # -- the ends

    def settle(self) -> None:
        """After every event: the start is told as soon as the upstream named its answer."""
        if not self.begun and self._started_by_upstream and self.state == "open":
            self._begin()

    def finish(self, *, marked: bool) -> None:
        """The upstream ended; `marked` when it said so itself. Everything open is closed, then finish or error is told."""
        if self.state != "open":
            return
        self._close_all()
        if self.stop is None and not (marked and (self.begun or self.usage)):
            self.error = {"message": ENDED_EARLY, "type": "upstream_error"}
            self.tell_error()
            return
        self.stop = settled_stop(self.stop, calls=bool(self.seen.get("tool_call")))
        self._begin()
        self.state = "finished"
        if self._speaker.finish is not None:
            self._speaker.finish(self, self.context)
        if self._speaker.end is not None:
            self.out.append((None, self._speaker.end))

    def tell_error(self) -> None:
        if self.begun and self._current is not None:
            self._held.clear()
            self._close(self._current)
        self.state = "error"
        if not self.begun and self._speaker.stamp is not None:
            self.stamp = self._speaker.stamp(self, self.context)
        if self._speaker.error is not None and not self._said_error:
            self._said_error = True
            self._speaker.error(self, self.context)

    # -- parts

    def _new(self, kind: str, key: object, id: object) -> Part:
        key = _hashable(key)
        part = Part(kind, key)
        if kind in self._ahead:
            part.more = part.fresh = self._ahead.pop(kind)
        self.seen[kind] = self.seen.get(kind, 0) + 1
        if key is not None:
            self._by_key[key] = part
        if kind == "tool_call":
            self._last_call = part
            if id is not None and id != "":
                self._by_id[str(id)] = part
        return part

    def _find(self, kind: str, key: object, id: object) -> Part | None:
        """The part a delta belongs to. Tool calls go by place *and* id: a new id under a used place is a new call."""
        if kind == "tool_call":
            if key is None and not id:
                return self._last_call
            if key is None:
                return self._by_id.get(str(id))
            part = self._by_key.get(_hashable(key))
            if part is None or part.kind != kind or (id and part.id and part.id != str(id)):
                return None
            self._last_call = part
            return part
        if key is not None:
            part = self._by_key.get(_hashable(key))
        else:
            part = self._held[-1] if self._held else self._current
        return part if part is not None and part.kind == kind and not (part.closed or part.ended) else None

    def _admit(self, part: Part) -> None:
        """A new part: it becomes the open one, or waits for its turn."""
        current = self._current
        if self._held or (current is not None and not self._over(current)):
            self._held.append(part)
            return
        if current is not None:
            self._close(current)
        self._take_up(part)
        self._advance()

    def _over(self, part: Part) -> bool:
        """Whether the open part can be closed because another one begins."""
        if part.ended:
            return True
        if self._closes and part.key is not None:
            return False
        return part.kind != "tool_call" or _complete(part)

    def _take_up(self, part: Part) -> None:
        self._current = part
        self._speak(part)
        if part.ended or (self._held and not self._closes and self._over(part)):
            self._close(part)

    def _advance(self) -> None:
        while self._held and self._current is None:
            self._take_up(self._held.pop(0))

    def _speak(self, part: Part) -> None:
        """Say what can be said: the opening once there is something to open, then the text that waits."""
        if not part.said:
            if part.kind == "tool_call":
                if not part.name:
                    return
            elif not part.waiting and (not part.more or part.kind in _GROWING):
                return
            self._open(part)
        if part.waiting:
            text = "".join(part.waiting)
            part.waiting.clear()
            self._grow(part, text)

    def _open(self, part: Part) -> None:
        handlers = self._speaker.kinds.get(part.kind)
        part.said = True
        if handlers is None:
            part.mute = True
            self.context.lose(f"{part.kind} part")
            return
        self._begin()
        part.index = self.count
        self.count += 1
        part.nth = self.nth.get(part.kind, 0)
        self.nth[part.kind] = part.nth + 1
        if part.kind == "tool_call" and not part.id:
            part.id = f"call_{self.id}_{part.index}"
        if handlers.name is not None:
            part.item = handlers.name(self, part, self.context)
        if handlers.open is not None:
            handlers.open(self, part, self.context)

    def _grow(self, part: Part, text: str) -> None:
        if not part.mute:
            handlers = self._speaker.kinds[part.kind]
            if handlers.delta is not None:
                handlers.delta(self, part, text, self.context)
        part.fresh = _NO_MORE

    def _close(self, part: Part) -> None:
        part.closed = part.ended = True
        if part is self._current:
            self._current = None
        if part.kind == "tool_call":
            if not part.name:
                self.context.lose("a tool call without a name")
                return
            if not (text := part.text) or text.isspace() and not part.more.get("custom"):  # a call without arguments still has an empty object
                part.grow("{}")
                part.waiting.append("{}")
        elif not part.said and part.text is None and part.token is None and (not part.more or part.kind in _GROWING):
            return  # an empty part says nothing
        if not part.said:
            self._open(part)
        if part.waiting:
            text = "".join(part.waiting)
            part.waiting.clear()
            self._grow(part, text)
        if not part.mute:
            handlers = self._speaker.kinds[part.kind]
            if handlers.close is not None:
                handlers.close(self, part, self.context)
        self._done.append(part.hub())

    def _close_all(self) -> None:
        if self._current is not None:
            self._close(self._current)
        for part in self._held:
            part.ended = True
        self._advance()

    def _begin(self) -> None:
        if self.begun:
            return
        self.begun = True
        if self._speaker.stamp is not None:
            self.stamp = self._speaker.stamp(self, self.context)
        if self._speaker.start is not None:
            self._speaker.start(self, self.context)


_GROWING = frozenset({"text", "reasoning", "refusal"})
"""Kinds that are nothing without text (or a token)."""
_OWN_FIELDS = frozenset({"id", "name", "origin", "token"})


def _describe(part: Part, id: object, name: object, origin: object, token: object, more: dict[str, Any] | None) -> None:
    """Set what is given; empty values say nothing."""
    if id is not None and id != "" and part.id is None:
        part.id = id if type(id) is str else text_of(id)
    if type(name) is str and name and part.name is None:
        part.name = name
    if type(origin) is str and origin:
        part.origin = origin
    if type(token) is str and token:
        part.token = token  # of several only the last is valid for replay
    if more:
        part.more = _merged(part.more, more)


def _merged(before: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Further fields of a part: lists grow, everything else is what was said last."""
    made = dict(before)
    for key, value in more.items():
        if type(value) is list and type(made.get(key)) is list:
            made[key] = [*made[key], *value]
        elif value is not None:
            made[key] = value
    return made


def _hashable(key: object) -> object:
    return text_of(key) if type(key) in (list, dict) else key


def _complete(part: Part) -> bool:
    """Whether a tool call's arguments are a whole JSON value: then nothing can follow."""
    text = part.text
    if not text or text.rstrip()[-1:] not in ("}", "]"):
        return False
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True


def settled_stop(stop: str | None, *, calls: bool) -> str:
    """A stop reason of the hub. Upstreams are not reliable about tool calls: the content decides."""
    if stop is None or stop not in hub.STOPS:
        stop = "end"
    if calls and stop == "end":
        return "tool"
    if not calls and stop == "tool":
        return "end"
    return stop
