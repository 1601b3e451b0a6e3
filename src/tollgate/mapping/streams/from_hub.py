"""`stream.from_hub`: the events that a client of this protocol gets in a stream, compiled to small functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tollgate.config.load import List, Map, Node, Scalar, lookup
from tollgate.mapping import hub, templates
from tollgate.mapping.destinations import Destination, ToReturn
from tollgate.mapping.directive_table import VALUES
from tollgate.mapping.emit import Code
from tollgate.mapping.mentions import mentions
from tollgate.mapping.names import DELTA, ENGINE, ERROR, FIELDS, PART, RUN, SEEN, SEQ, WHOLE
from tollgate.mapping.scalars import is_literal, literal
from tollgate.mapping.scope import Scope, Site, Unit, Var, known_words, suggest
from tollgate.mapping.streams.frames import framed, is_steady
from tollgate.mapping.streams.handlers import EventWriter, Handlers
from tollgate.mapping.streams.part import GROWING

MOMENTS = ("start", "finish", "error")
STEPS = ("joined", "lost", "name", "open", "delta", "close")
_MADE = ("lost", "name")
"""Steps that make one value, before the part has its number; the others are lists of events."""
_KEYS = ("event", "stamp", *MOMENTS, "end")
_STOP = re.compile(r"\bR\.stop\b")


@dataclass(slots=True)
class StreamOut:
    """The names of the generated functions, by moment and by (kind, step)."""

    event: str | None = None
    """The field of an event that is also its SSE name."""
    end: object = None
    moments: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, dict[str, str]] = field(default_factory=dict)
    steady: set[str] = field(default_factory=set)
    """Kinds whose delta events differ only in their text."""
    close_depends_on_stop: set[str] = field(default_factory=set)
    """Kinds whose closing events depend on why the answer stopped."""
    joined: set[str] = field(default_factory=set)
    """Kinds of which parts that follow each other are one part for the client."""


@dataclass(frozen=True, slots=True)
class _ToEvent(Destination):
    """Appends one event. `name` is the Python for its SSE name, None if it must be looked up in the event; `stamp` that
    for the fields that every event gets."""

    name: str | None
    stamp: str
    counted: bool
    spreads = True

    def put(self, value: str) -> str:
        if self.stamp and value.startswith("{") and value != "{}":  # a display
            value = f"{{{self.stamp}, {value[1:]}"
        elif self.stamp:
            value = f"{{{self.stamp}, **fields_of({value})}}"
        event = f"named(fields_of({value}))" if self.name is None else f"({self.name}, {value})"
        return f"R.out.append({event}){'; R.seq += 1' if self.counted else ''}"


class _Builder:
    def __init__(self, unit: Unit, node: Map) -> None:
        self.unit = unit
        self.node = node
        self.out = StreamOut()
        self.stamp = ""
        self.stamp_code: list[str] = []
        """The code of the function that makes the stamp, where it needs one."""
        self.counted = mentions(node, "seq")
        self.base = {**ENGINE, "run": RUN, "seq": SEQ, "whole": WHOLE, "seen": SEEN}

    def build(self) -> StreamOut:
        self._event_and_stamp()
        for key, value in self.node.entries.items():
            if key in MOMENTS:
                added = (ERROR,) if key == "error" else ()
                self.out.moments[key] = name = f"say_{key}"
                self._function(f"{name}(R, C)", value, *added)
            elif key == "end":
                if isinstance(value, Scalar) and is_literal(value):
                    self.out.end = literal(value)
                else:
                    self.unit.mistake(value, "`end` is the literal last event", 'such as "[DONE]"')
            elif key not in _KEYS:
                self._kind(key, value)
        return self.out

    def _event_and_stamp(self) -> None:
        event = self.node.get("event")
        if event is not None:
            if isinstance(event, Scalar) and isinstance(event.value, str) and is_literal(event):
                self.out.event = event.value
            else:
                self.unit.mistake(event, "`event` is the name of a field of the events", "event: type")
        stamp = self.node.get("stamp")
        if stamp is None:
            return
        if not isinstance(stamp, Map):
            self.unit.mistake(stamp, "`stamp` takes the fields that go onto every event")
            return
        code = Code(self.unit.module, "def say_stamp(R, C):", stamp.mark.line)
        site = Site(self.unit, code, Scope(self.base), "stamp" if self.unit.trace else "")
        if templates.sure(site, stamp):
            self.stamp = templates.display(site, stamp).py[1:-1]
            return
        templates.emit(site, stamp, ToReturn())
        self.unit.module.add(code)
        self.stamp = "**(say_stamp(R, C) or EMPTY)"
        self.stamp_code = [text for _, text, _ in code.lines]

    def _kind(self, kind: str, node: Node) -> None:
        unit = self.unit
        hint = suggest(kind, (*_KEYS, *hub.KINDS)) if kind not in hub.KINDS else ""
        if hint or kind.startswith("$"):
            unit.mistake(
                self.node.keys[kind], f"unknown key `{kind}`", hint or "a kind of part, or one of " + ", ".join(_KEYS)
            )
            return
        if not isinstance(node, Map):
            unit.mistake(
                node,
                f"`{kind}` has the events to send when such a part opens, grows and closes",
                "{open: [...], delta: [...], close: [...]}",
            )
            return
        steps: dict[str, str] = {}
        for step, value in node.entries.items():
            if step not in STEPS:
                unit.mistake(node.keys[step], f"unknown key `{step}`", known_words(step, STEPS))
                continue
            if step == "joined":
                self._joined(kind, value)
                continue
            steps[step] = name = f"say_{kind}_{step}"
            if step in _MADE:
                scope = Scope({**self.base, "part": PART})
                templates.function(unit, f"{name}(R, P, C)", value, scope, f"{kind}.{step}" if unit.trace else "")
            elif step == "delta":
                code = self._function(f"{name}(R, P, V, C)", value, PART, DELTA, FIELDS)
                if is_steady([*self.stamp_code, *(text for _, text, _ in code.lines)]):
                    self.out.steady.add(kind)
            else:
                code = self._function(f"{name}(R, P, C)", value, PART)
                if step == "close" and any(_STOP.search(text) for _, text, _ in code.lines):
                    self.out.close_depends_on_stop.add(kind)
        self.out.kinds[kind] = steps

    def _joined(self, kind: str, node: Node) -> None:
        if not isinstance(node, Scalar) or node.value is not True:
            self.unit.mistake(node, f"`joined` of `{kind}` is true, or not written", "joined: true")
        elif kind not in GROWING:
            self.unit.mistake(
                node, f"parts of kind `{kind}` cannot be joined", f"those with a text can: {', '.join(sorted(GROWING))}"
            )
        else:
            self.out.joined.add(kind)

    def _function(self, header: str, node: Node, *added: Var) -> Code:
        unit = self.unit
        name = header.partition("(")[0]
        code = unit.module.function(header, node.mark.line)
        scope = Scope({**self.base, **{var.name: var for var in added}})
        site = Site(unit, code, scope, name.removeprefix("say_").replace("_", ".") if unit.trace else "")
        if not isinstance(node, List):
            unit.mistake(node, "events are a list", "put a dash before it")
            return code
        for item in node.items:
            templates.emit_item(site, item, _ToEvent(self._event_name(item), self.stamp, self.counted))
        return code

    def _event_name(self, item: Node) -> str | None:
        """See `_ToEvent.name`."""
        if self.out.event is None:
            return "None"
        field_node = lookup(item, self.out.event)
        stands_alone = isinstance(item, Map) and not any(key in item.entries for key in (*VALUES, "$else"))
        if stands_alone and isinstance(field_node, Scalar) and is_literal(field_node):
            return repr(literal(field_node))
        return None


def compile_stream_out(unit: Unit, node: Node) -> StreamOut | None:
    """Compile; mistakes are noted in the unit."""
    if not isinstance(node, Map):
        unit.mistake(
            node,
            "stream.from_hub takes moments and kinds of part",
            "start, text, reasoning, tool_call, finish, error, ...",
        )
        return None
    return _Builder(unit, node).build()


def linked(out: StreamOut, namespace: Mapping[str, Any]) -> EventWriter:
    """The compiled functions by their names, ready for use."""
    kinds = {
        kind: Handlers(
            **{step: namespace[py] for step, py in steps.items()},
            framed=framed(namespace[steps["delta"]]) if kind in out.steady else None,
            close_depends_on_stop=kind in out.close_depends_on_stop,
            joined=kind in out.joined,
        )
        for kind, steps in out.kinds.items()
    }
    moments = {moment: namespace[out.moments[moment]] if moment in out.moments else None for moment in MOMENTS}
    return EventWriter(**moments, end=out.end, kinds=kinds)
