"""The state of a stream: upstream events become calls of its methods, and these make the client's events, part by part.

The state machine is fixed: new -> started -> (a part open <-> none open)* -> finished | error. Here are its operations
and its ends; `parts.py` has the parts. So no mapping can send a delta outside a part, forget a closing event or number
one wrongly. Rules and handlers are generated code (`to_hub.py`, `from_hub.py`); rules call the methods of `Run`.
"""

from __future__ import annotations

from typing import Any

from tollgate.mapping.context import Context
from tollgate.mapping.hub import settled_stop
from tollgate.mapping.streams.addressing import repeats_arguments
from tollgate.mapping.streams.growth import Growth
from tollgate.mapping.streams.handlers import EventWriter
from tollgate.mapping.streams.part import NO_DETAILS, NO_MORE, Details, Part, grow, hashable
from tollgate.mapping.streams.parts import Parts
from tollgate.mapping.values import NUMBERS, text_of
from tollgate.wording import clipped

ENDED_EARLY = "the upstream ended before the answer was finished"


class Run(Parts):
    """One answer being streamed. Generated code calls `start open delta close part stop usage error`."""

    __slots__ = (
        "_error_sent",
        "_growth",
        "_started_by_upstream",
        "created",
        "defer_errors",
        "event",
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

    def __init__(self, writer: EventWriter, context: Context, *, closes: bool, frames: bool = False) -> None:
        super().__init__(writer, context, closes=closes, frames=frames)
        upstream = context.model.get("upstream")
        self.model = context.asked_model or (upstream if type(upstream) is str else None)
        self.created = context.now
        self.more: dict[str, Any] = {}
        self.known = False
        """Id and model were sent to the client, so `start` cannot change them."""
        self._started_by_upstream = False
        self.stop_text: str | None = None
        self.usage: dict[str, Any] = {}
        self.event: str | None = None
        self.seq = 0
        self.out: list[tuple[str | None, Any]] = []
        self.unmatched: dict[str, int] = {}
        self.state = "open"
        self.marked = False
        """The upstream marked the end of a complete answer ([DONE])."""
        self._error_sent = False
        self.defer_errors = False
        """An error of the upstream is only kept in `error`; a later `fail` sends one in other words."""
        self._growth = Growth(context)

    # -- what rules call

    def start(
        self, id: object = None, model: object = None, created: object = None, more: dict[str, Any] | None = None
    ) -> None:
        """The upstream names its answer. Empty values are ignored: a first event may have nothing in it."""
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

    def open(self, kind: str, key: object = None, details: Details = NO_DETAILS) -> None:
        """The upstream begins a part. A tool call that has begun with this key and id is not begun again: some
        upstreams repeat both with every piece. Nor is a text whose key is that of an unfinished one: its first piece
        may come before its beginning."""
        if self.state != "open":
            return
        begun = False
        if kind == "tool_call":
            begun = self._addressing.begun(key, details)
        elif kind == "text" and key is not None and (part := self._addressing.at(key)) is not None:
            begun = part.kind == kind and not (part.ended or part.closed)
        if not begun:
            self._admit(self._new(kind, key, details))

    def delta(self, kind: str, key: object = None, text: object = None, details: Details | None = None) -> None:
        """More of a part, which is opened if it is not open. A delta with nothing in it does nothing.

        Nearly all deltas are text for the current part, so that case is tested first, and without another call.
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
            and (details is None or details.repeats(current))
            and (kind != "tool_call" or key is not None or current is self._addressing.last_call)
        ):
            if text:
                current.pieces.append(text)
                if current.emit_text is not None:
                    current.emit_text(self, current, text, self.context)
                current.told = True
                current.fresh = NO_MORE
        elif (text or details) and self.state == "open":
            self._take_delta(kind, key, text, NO_DETAILS if details is None else details)

    steady = delta
    """A delta where nothing else depends on the text: `alike.py` may handle the events like it."""

    def more_of(self, key: object = None, text: object = None, details: Details | None = None) -> None:
        """A delta that does not name its kind: more of the part with this key, without a key of the part that the last
        delta was about, or that has begun since."""
        if key is not None:
            part = self._addressing.at(key)
        else:
            part = self._addressing.recent if self._held else self._current
        if part is None:
            self.context.lose("text of a part that was not opened")
            return
        self.delta(part.kind, part.key, text, details)

    def _take_delta(self, kind: str, key: object, text: str | None, details: Details) -> None:
        """A delta that is more than text for the current part: it may begin a part, or belong to one that waits."""
        owner = self._addressing.at(key) if key is not None else None
        aside = False
        if owner is not None and owner.kind != kind and not owner.closed:  # this key is a part of another kind
            if kind == "tool_call" or owner.kind == "opaque":
                return  # such as the call of a tool that the provider runs itself
            key, aside = None, True  # some servers send text in the block of a call, and thoughts in that of a text
        part = self._find(kind, key, details)
        if part is not None:
            self._addressing.recent = part
        if part is None:
            if aside and not (text and not text.isspace()):
                return
            self._begin_with(kind, key, text, details)
        elif kind == "tool_call" and repeats_arguments(part, text):
            return  # some servers send the arguments of a call once more at its end
        elif part.closed or part.ended:
            if kind == "tool_call" and text and not text.isspace():
                self.context.lose("text after the end of a tool call")
        else:
            self._go_on(part, text, details)

    def _begin_with(self, kind: str, key: object, text: str | None, details: Details) -> None:
        """A delta that begins a part, if there is enough in it."""
        named = details.id or details.name
        if details.more and not (text or named or details.token):
            current = self._current
            if current is not None and current.late and current.kind == kind and key is None:
                self._go_on(current, None, details)
            else:
                grow(self._ahead.setdefault(kind, {}), details.more)  # it came before its part
        elif kind == "tool_call" and self._addressing.repeats(details, text):
            return
        elif kind != "tool_call" or named or text and not text.isspace():
            part = self._new(kind, key, details)
            self._add(part, text, details)
            self._admit(part)

    def _go_on(self, part: Part, text: str | None, details: Details) -> None:
        """A delta of a part that has begun."""
        if part.name and not part.opened and details.name:  # a name may come in pieces
            longer = part.name + details.name
            part.name = longer if self._tool_names.begins(longer, whole=True) else part.name
        part.describe(details)
        if part.kind == "tool_call":
            self._addressing.add_id(part)
        self._add(part, text, details)
        if part is self._current:
            self._send_pending(part)
            if self._held and not self._closes and part.complete():
                self._close(part, self._next_held)
                self._advance()

    def _add(self, part: Part, text: str | None, details: Details) -> None:
        if details.more:
            if part.fresh is NO_MORE:
                part.fresh = {}
            grow(part.fresh, details.more)
        if text:
            part.grow(text)

    def grown(self, kind: str, key: object, so_far: object) -> str | None:
        """See `Growth.grown`."""
        return self._growth.grown(kind, hashable(key), so_far)

    def leafwise(self, kind: str, key: object, leaves: object) -> str | None:
        """See `Growth.leafwise`; without a key the leaves belong to the last tool call."""
        return self._growth.leafwise(kind, hashable(key) if key is not None else self._addressing.last_call, leaves)

    def close(
        self, key: object = None, kind: str | None = None, text: object = None, details: Details = NO_DETAILS
    ) -> None:
        """The upstream ends a part. Fields that it repeats count only where they had no value before."""
        if self.state != "open":
            return
        part = self._current if key is None else self._addressing.at(key)
        if part is None or kind is not None and part.kind != kind:
            if kind is not None and (text or details.token or details.name):
                self._take_whole(kind, key, text, details)
            return
        if part.closed:
            return
        if kind is not None:
            part.describe(details.beside(part.more))
            if part.text is None:
                self._add_text(part, text)
        part.ended = True
        if part is not self._current:
            return
        if self._stays_open(part):
            self._send_pending(part)
            return
        self._close(part, self._next_held)
        self._advance()

    def close_late(self, key: object = None) -> None:
        """The upstream ends a part, but citations of a text may still follow it: the text stays open for them until
        something else follows, or the answer ends."""
        part = self._current
        if part is None or part.kind != "text" or not part.opened or self._held or key is not None and key != part.key:
            self.close(key)
        elif self.state == "open":
            part.ended = part.late = True

    def _add_text(self, part: Part, text: object) -> None:
        if text is not None and type(text) is not str:
            text = text_of(text)
        if text:
            part.grow(text)

    def part(self, kind: str, key: object = None, text: object = None, details: Details = NO_DETAILS) -> None:
        """A part that arrives whole."""
        if self.state == "open":
            self._take_whole(kind, key, text, details)

    def _take_whole(self, kind: str, key: object, text: object, details: Details) -> None:
        part = self._new(kind, key, details)
        self._add_text(part, text)
        part.ended = True
        self._admit(part)

    def finished(self, reason: object = None, text: object = None) -> None:
        """The upstream says why it stopped; a number or true is a reason that we have no word for, as in a whole
        answer."""
        if type(reason) is str and reason:
            self.stop = reason
        elif reason is True or type(reason) in NUMBERS:
            self.stop = text_of(reason)
        if type(text) is str:
            self.stop_text = text

    def count_usage(self, usage: object) -> None:
        """Token counts: of each the last value counts, never a sum."""
        if type(usage) is dict:
            for name, value in usage.items():
                if value is not None:
                    self.usage[name] = value

    def fail(self, error: object) -> None:
        """The upstream reports an error. Nothing that follows is sent; usage still counts."""
        if self.state != "open":
            return
        given = error if type(error) is dict else {"message": text_of(error)} if error is not None else {}
        message = given.get("message")
        self._close_ended()
        self.error = {key: value for key, value in given.items() if value is not None}
        self.error["message"] = (text_of(message) if message is not None else "") or "upstream error"
        if not self.defer_errors:
            self.send_error()

    def ignored(self, label: object) -> None:
        """An event for which there is no rule: counted, and named in the loss report."""
        if label is None or isinstance(label, (list, dict)):
            return
        name = clipped(text_of(label), 80)
        if name in self.unmatched:
            self.unmatched[name] += 1
        elif len(self.unmatched) < 50:
            self.context.lose(f"stream event {name}")
            self.unmatched[name] = 1

    def whole(self) -> dict[str, Any]:
        """The answer so far, as a hub response. Parts have the names that were sent to the client (`item`), and `cut`
        if an error cut them off. `stop` is `open` until the upstream stopped."""
        parts = [
            part if name is None else {**part, "item": name} for part, name in zip(self._done, self._names, strict=True)
        ]
        for place in range(len(parts) - self._cut_off, len(parts)):
            parts[place] = {**parts[place], "cut": True}
        current = self._current
        if current is not None and current.opened and not (current.before and current.is_empty()):
            parts.append(current.hub())
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
        """All parts so far, whether or not they were sent to the client."""
        waiting = [part for part in (self._current, *self._held) if part is not None]
        return [*self._done, *(part.hub() for part in waiting)]

    # -- the ends

    def settle(self) -> None:
        """After every event: send the start as soon as the upstream has named its answer."""
        if not self.begun and self._started_by_upstream and self.state == "open":
            self._begin()

    def finish(self) -> None:
        """The upstream ended. Close everything, then send the finish or an error."""
        if self.state != "open":
            return
        broke = self.stop is None and not (self.marked and self.received())
        if broke:
            self._close_ended()
            self.error = {"message": ENDED_EARLY, "type": "upstream_error"}
        self._close_all()
        if broke:
            self.send_error()
            return
        self._lose_late()
        self.stop = settled_stop(self.stop, calls="tool_call" in self.seen)
        self._begin()
        self.state = "finished"
        writer = self._writer
        if writer.finish is not None:
            writer.finish(self, self.context)
        if writer.end is not None:
            self.out.append((None, writer.end))

    def _lose_late(self) -> None:
        """Report further fields of parts, such as citations, that came when these had ended."""
        for kind, fields in self._ahead.items():
            for name, value in fields.items() if kind in self.seen else ():
                if value:
                    self.context.lose(f"{name} after the end of a {kind}")

    def send_error(self) -> None:
        """Send `self.error`, and nothing after it; parts that are held back are dropped."""
        if self.begun and self._current is not None:
            self._held.clear()
            self._close(self._current)
        self.state = "error"
        if self._writer.error is not None and not self._error_sent:
            self._error_sent = True
            self._writer.error(self, self.context)
