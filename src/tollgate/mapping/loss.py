"""What of a document nobody reads: the computed loss list, at every depth.

The compiler knows which places a mapping reads (`reads.py`). This walks a document along those places and names what lies
beside them: `logit_bias`, `messages[].name`. Places inside a `$match` case count only for documents of that case.
"""

from __future__ import annotations

from typing import Any

from tollgate.mapping.reads import Reads, Switch

IGNORED = frozenset({"model", "stream"})
"""Top-level fields every target replaces on purpose; naming them would be noise."""
MARKERS = frozenset({"type", "kind", "object"})
"""Fields whose text only says what the object is; the fields beside them say what it holds."""
_MOST = 100
_DEPTH = 150

_ABSENT = "\x00absent"
_OTHER = "\x00other"


class Walker:
    """Walks documents along the places one section reads."""

    def __init__(self, root: Reads, ignored: frozenset[str] = IGNORED) -> None:
        self._root = root
        self._ignored = ignored
        self._states: dict[tuple[frozenset[Reads], frozenset[int]], _State] = {}
        self._start: _State | None = None

    def lost(self, document: object) -> list[str]:
        """The paths of `document` that nothing reads, in document order, each once."""
        if self._start is None:
            self._start = self.state((self._root,))
        found: dict[str, None] = {}
        self._walk(document, self._start, "", found, 0)
        return list(found)

    def state(self, places: Any, done: frozenset[int] = frozenset()) -> _State:
        """The state for a set of places, shared."""
        closed = _closure(places)
        key = (closed, done)
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = _State(self, closed, done)
        return state

    def _walk(self, value: Any, state: _State, path: str, found: dict[str, None], depth: int) -> None:
        if state.whole or len(found) >= _MOST or depth > _DEPTH:
            return
        if type(value) is list:
            items = state.items
            if items is None:
                if value:
                    found[path] = None
                return
            inner = path + "[]"
            for item in value:
                if type(item) in (dict, list):
                    self._walk(item, items, inner, found, depth + 1)
            return
        if state.items is not None and not state.fields:  # one value stands for a list of one
            state = state.items
            if state.whole:
                return
        state = state.resolved(value)
        if state.whole:
            return
        fields = state.fields
        if not fields:
            if value:
                found[path or "the body"] = None
            return
        for key, below in value.items():
            child = fields.get(key, _MISSING)
            if child is None:
                continue
            if child is _MISSING:
                if below is None or below == [] or below == {}:
                    continue
                if (key in MARKERS and type(below) is str) or (not path and key in self._ignored):
                    continue
                found[f"{path}.{key}" if path else str(key)] = None
            elif type(below) in (dict, list):
                self._walk(below, child, f"{path}.{key}" if path else str(key), found, depth + 1)


class _State:
    """A set of places that all stand for one value; `fields` maps a key to what stands for it (None: taken whole)."""

    __slots__ = ("_done", "_next", "_pending", "_places", "_walker", "fields", "items", "whole")

    def __init__(self, walker: Walker, places: frozenset[Reads], done: frozenset[int]) -> None:
        self._walker = walker
        self._places = places
        self._done = done
        self.whole = any(place.whole for place in places)
        self._pending: list[Switch] = [] if self.whole else [
            switch for place in places for switch in place.switches if id(switch) not in done
        ]
        self._next: dict[tuple[str, ...], _State] = {}
        self.fields: dict[str, _State | None] = {}
        self.items: _State | None = None
        if self.whole:
            return
        keys: dict[str, list[Reads]] = {}
        items = []
        for place in places:
            for key, below in place.fields.items():
                keys.setdefault(key, []).append(below)
            if place.items is not None:
                items.append(place.items)
        walker._states[(places, done)] = self  # data may contain itself: known before its children are made
        for key, below in keys.items():
            child = walker.state(below)
            self.fields[key] = None if child.whole else child
        if items:
            self.items = walker.state(items)

    def resolved(self, value: dict[str, Any]) -> _State:
        """This state for a document whose labels are known."""
        state = self
        while state._pending:
            labels = tuple(_label(switch, value) for switch in state._pending)
            following = state._next.get(labels)
            if following is None:
                places = set(state._places)
                for switch, label in zip(state._pending, labels, strict=True):
                    chosen = switch.absent if label == _ABSENT else switch.other if label == _OTHER else switch.cases.get(label)
                    if chosen is not None:
                        places.add(chosen)
                done = state._done | {id(switch) for switch in state._pending}
                following = state._next[labels] = state._walker.state(places, done)
            state = following
        return state


_MISSING: Any = object()


def _label(switch: Switch, value: Any) -> str:
    for key in switch.path:
        value = value.get(key) if type(value) is dict else None
    if value is None:
        return _ABSENT
    return value if type(value) is str and value in switch.labels else _OTHER


def _closure(places: Any) -> frozenset[Reads]:
    closed: set[Reads] = set()
    waiting = list(places)
    while waiting:
        place = waiting.pop()
        if place not in closed:
            closed.add(place)
            waiting.extend(place.links)
    return frozenset(closed)
