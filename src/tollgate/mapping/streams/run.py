"""The life of a stream: what upstream events mean becomes what the client is told, part by part.

The state machine is fixed: new -> started -> (a part open <-> none open)* -> finished | error. Here are its operations
and its ends, `parts.py` keeps the parts. No mapping can say a delta outside a part, forget a closing event or
misnumber one. Rules and handlers are generated code (`to_hub.py`, `from_hub.py`); they call the methods of `Run`.
"""

from __future__ import annotations

from typing import Any

from tollgate.mapping import hub
from tollgate.mapping.context import Context
from tollgate.mapping.streams.growth import Growth
from tollgate.mapping.streams.handlers import Speaker
from tollgate.mapping.streams.part import NO_MORE, NOTHING_SAID, Part, Said, grow, hashable
from tollgate.mapping.streams.parts import Parts
from tollgate.mapping.values import text_of
from tollgate.wording import clipped

ENDED_EARLY = "the upstream ended before the answer was finished"


class Run(Parts):
    """One answer being streamed. Generated code calls `start open delta close part stop usage error`."""

    __slots__ = (
        "_growth",
        "_said_error",
        "_started_by_upstream",
        "created",
        "event",
        "hushed",
        "known",
        "marked",
        "model",
        "more",
        "out",
        "seq",
        "state",
        "stop_text",
        "unmatched",
        "usage",
    )

    def __init__(self, speaker: Speaker, context: Context, *, closes: bool, frames: bool = False) -> None:
        super().__init__(speaker, context, closes=closes, frames=frames)
        upstream = context.model.get("upstream")
        self.model = context.asked_model or (upstream if type(upstream) is str else None)
        self.created = context.now
        self.more: dict[str, Any] = {}
        self.known = False
        """id and model are settled; `start` has nothing to add."""
        self._started_by_upstream = False
        self.stop_text: str | None = None
        self.usage: dict[str, Any] = {}
        self.event: str | None = None
        self.seq = 0
        self.out: list[tuple[str | None, Any]] = []
        self.unmatched: dict[str, int] = {}
        self.state = "open"
        self.marked = False
        """The upstream said at its end that the answer is whole ([DONE])."""
        self._said_error = False
        self.hushed = False
        """What the upstream says of its failure is for `error` alone: the client is told in other words, by a later
        `fail`."""
        self._growth = Growth(context)

    # -- what rules call

    def start(
        self, id: object = None, model: object = None, created: object = None, more: dict[str, Any] | None = None
    ) -> None:
        """The upstream names its answer. Empty values name nothing: a first event may be hollow."""
        if more:
            self.more.update({key: value for key, value in more.items() if value is not None})
        if self.begun:
            self.known = True
            return
        if type(id) is str and id:
            self.id = id
            self._started_by_upstream = True
        if type(model) is str and model and not self.context.asked_model:
            self.model = model
        if type(created) is int and created > 0:
            self.created = created

    def open(self, kind: str, key: object = None, said: Said = NOTHING_SAID) -> None:
        """The upstream begins a part. A call that has begun under this place and id is that call: some tell both with
        every piece."""
        if self.state == "open" and not (kind == "tool_call" and self._addressing.begun(key, said)):
            self._admit(self._new(kind, key, said))

    def delta(self, kind: str, key: object = None, text: object = None, said: Said | None = None) -> None:
        """More of a part; one that is not open is opened. A delta with nothing in it does nothing.

        Nearly all are text of the part being told, which is why that is looked at first, and here.
        """
        if text is not None and type(text) is not str:
            text = text_of(text)
        current = self._current
        if (
            current is not None
            and current.opened
            and current.kind == kind
            and not self._held
            and (key is None or key == current.key)
            and not current.ended
            and (said is None or said.repeats(current))
            and (kind != "tool_call" or key is not None or current is self._addressing.last_call)
        ):
            if text:
                current.pieces.append(text)
                if current.say_text is not None:
                    current.say_text(self, current, text, self.context)
                current.told = True
                current.fresh = NO_MORE
        elif (text or said) and self.state == "open":
            self._take_delta(kind, key, text, NOTHING_SAID if said is None else said)

    steady = delta
    """A delta of which nothing else depends on the text: events like it may be taken by `alike.py`."""

    def _take_delta(self, kind: str, key: object, text: str | None, said: Said) -> None:
        """A delta that is more than text of the part being told: it may begin a part, or belong to one that waits."""
        owner = self._addressing.at(key) if key is not None else None
        if owner is not None and owner.kind != kind and not owner.closed:
            return  # the part at this place is another thing: so grow the calls of tools that the provider runs itself
        part = self._find(kind, key, said)
        if part is None:
            self._begin_with(kind, key, text, said)
        elif part.closed or part.ended:
            if kind == "tool_call" and text and not text.isspace():
                self.context.lose("text after the end of a tool call")
        else:
            self._go_on(part, text, said)

    def _begin_with(self, kind: str, key: object, text: str | None, said: Said) -> None:
        """A delta of a part that has not begun: it begins one, unless there is too little in it."""
        named = said.id or said.name
        if said.more and not (text or named or said.token):
            grow(self._ahead.setdefault(kind, {}), said.more)  # told before its part begins
        elif kind != "tool_call" or named or text and not text.isspace():
            part = self._new(kind, key, said)
            self._add(part, text, said)
            self._admit(part)

    def _go_on(self, part: Part, text: str | None, said: Said) -> None:
        """A delta of a part that has begun."""
        if part.name and not part.opened and said.name:  # a name may come in pieces
            longer = part.name + said.name
            part.name = longer if self._tool_names.begins(longer, whole=True) else part.name
        part.describe(said)
        if part.kind == "tool_call":
            self._addressing.add_id(part)
        self._add(part, text, said)
        if part is self._current:
            self._speak(part)
            if self._held and not self._closes and part.complete():
                self._close(part)
                self._advance()

    def _add(self, part: Part, text: str | None, said: Said) -> None:
        if said.more:
            if part.fresh is NO_MORE:
                part.fresh = {}
            grow(part.fresh, said.more)
        if text:
            part.grow(text)

    def grown(self, kind: str, key: object, so_far: object) -> str | None:
        """See `Growth.grown`."""
        return self._growth.grown(kind, hashable(key), so_far)

    def leafwise(self, kind: str, key: object, leaves: object) -> str | None:
        """See `Growth.leafwise`; without a key the leaves are the last call's."""
        return self._growth.leafwise(kind, hashable(key) if key is not None else self._addressing.last_call, leaves)

    def close(
        self, key: object = None, kind: str | None = None, text: object = None, said: Said = NOTHING_SAID
    ) -> None:
        """The upstream is done with a part. What it says of it again counts only where nothing was said before."""
        if self.state != "open":
            return
        part = self._current if key is None else self._addressing.at(key)
        if part is None or kind is not None and part.kind != kind:
            if kind is not None and (text or said.token or said.name):
                self._take_whole(kind, key, text, said)
            return
        if part.closed:
            return
        if kind is not None:
            part.describe(said.beside(part.more))
            if part.text is None:
                self._hear(part, text)
        part.ended = True
        if part is not self._current:
            return
        if self._lasts(part):
            self._speak(part)
            return
        self._close(part)
        self._advance()

    def _hear(self, part: Part, text: object) -> None:
        if text is not None and type(text) is not str:
            text = text_of(text)
        if text:
            part.grow(text)

    def part(self, kind: str, key: object = None, text: object = None, said: Said = NOTHING_SAID) -> None:
        """A part that arrives whole."""
        if self.state == "open":
            self._take_whole(kind, key, text, said)

    def _take_whole(self, kind: str, key: object, text: object, said: Said) -> None:
        part = self._new(kind, key, said)
        self._hear(part, text)
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
        self._close_ended()
        self.error = {key: value for key, value in given.items() if value is not None}
        self.error["message"] = (text_of(message) if message is not None else "") or "upstream error"
        if not self.hushed:
            self.tell_error()

    def ignored(self, label: object) -> None:
        """An event no rule is for: counted, and named in the loss report."""
        if label is None or isinstance(label, (list, dict)):
            return
        name = clipped(text_of(label), 80)
        if name in self.unmatched or len(self.unmatched) < 50:
            if name not in self.unmatched:
                self.context.lose(f"stream event {name}")
            self.unmatched[name] = self.unmatched.get(name, 0) + 1

    def whole(self) -> dict[str, Any]:
        """The answer so far, as a hub response, its parts with the names they were told by (`item`), and those that an
        error broke off as `cut`; its stop is `open` until the upstream stopped."""
        parts = [
            part if name is None else {**part, "item": name} for part, name in zip(self._done, self._names, strict=True)
        ]
        for place in range(len(parts) - self._cut_off, len(parts)):
            parts[place] = {**parts[place], "cut": True}
        if self._current is not None and self._current.opened:
            parts.append(self._current.hub())
        made: dict[str, Any] = {
            "id": self.id,
            "model": self.model,
            "created": self.created,
            "parts": parts,
            "stop": self.stop or "open",
            "stop_text": self.stop_text,
            **self.more,
        }
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

    def finish(self) -> None:
        """The upstream ended. Everything open is closed, then finish or error is told."""
        if self.state != "open":
            return
        broke = self.stop is None and not (self.marked and self.received())
        if broke:
            self._close_ended()
            self.error = {"message": ENDED_EARLY, "type": "upstream_error"}
        self._close_all()
        if broke:
            self.tell_error()
            return
        self.stop = hub.settled_stop(self.stop, calls=bool(self.seen.get("tool_call")))
        self._begin()
        self.state = "finished"
        if self._speaker.finish is not None:
            self._speaker.finish(self, self.context)
        if self._speaker.end is not None:
            self.out.append((None, self._speaker.end))

    def tell_error(self) -> None:
        """Say `self.error` and nothing after it; what is held back is not told any more."""
        if self.begun and self._current is not None:
            self._held.clear()
            self._close(self._current)
        self.state = "error"
        if self._speaker.error is not None and not self._said_error:
            self._said_error = True
            self._speaker.error(self, self.context)
