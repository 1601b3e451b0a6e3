"""What of a document nobody reads: the computed loss list, at every depth.

The compiler knows which places a mapping reads (`reads.py`). This walks a document along those places and names what
lies beside them: `logit_bias`, `messages[].name`. Places inside a `$match` case count only for documents of that case.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from copy import copy
from typing import Any

from tollgate.mapping.harmless import Idle, is_idle
from tollgate.mapping.reads import Reads, Switch

IGNORED = frozenset({"model", "stream"})
"""Top-level fields every target replaces on purpose; naming them would be noise."""
ENVELOPE = frozenset({"id", "model", "created", "stop", "usage", "service_tier", "system_fingerprint"})
"""What every answer carries about itself: replaced, or counted elsewhere, never content that a caller would miss."""
MARKERS = frozenset({"type", "kind", "object"})
"""Fields whose text only says what the object is; the fields beside them say what it holds."""
_MOST = 100
_DEPTH = 150
NO_LOSS: tuple[object, ...] = (None, [], {}, "")
"""Values that say nothing: nobody misses them."""
_MOST_SHAPES = 200
"""Shapes of objects remembered for one set of places: clients send a few, and may send anything."""

_ABSENT = "\x00absent"
_OTHER = "\x00other"


class Walker:
    """Walks documents along the places one section reads."""

    def __init__(self, root: Reads, ignored: frozenset[str] = IGNORED, idle: Idle | None = None) -> None:
        self._root = root
        self._ignored = ignored
        self._idle = idle or {}
        self._states: dict[tuple[frozenset[Reads], frozenset[int]], _State] = {}
        self._start: _State | None = None
        self._quick: _State | None = None
        """The start again, for the quick look, which passes over the ignored fields."""
        self._building = threading.RLock()
        """States are made on first use, by any thread; a half-made one must not be seen by another."""

    def lost(self, document: object) -> list[str]:
        """The paths of `document` that nothing reads, in document order, each once."""
        start = self._start
        quick = self._quick
        if start is None or quick is None:
            start = self._start = self.state((self._root,))
            quick = self._quick = start.passing(self._ignored)
        if type(document) is dict and _all_read(document, quick, 0):
            return []
        found: dict[str, None] = {}
        self._walk(document, start, "", found, 0)
        return [path for path in found if not (path in self._idle and is_idle(self._idle, path, document))]

    def state(self, places: Any, done: frozenset[int] = frozenset()) -> _State:
        """The state for a set of places, shared."""
        with self._building:
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
            if child is None or not path and key in self._ignored:
                continue
            if child is _MISSING:
                if below in NO_LOSS:
                    continue
                if key in MARKERS and type(below) is str:
                    continue
                found[f"{path}.{key}" if path else str(key)] = None
            elif type(below) in (dict, list):
                self._walk(below, child, f"{path}.{key}" if path else str(key), found, depth + 1)


def _all_read(value: dict[str, Any], state: _State, depth: int) -> bool:
    """The quick look that most documents need only: True when nothing of an object is left unread. What there is to
    look into is remembered for objects of one shape."""
    if state.single is not None:
        state = state.single
    roots = state._roots
    if not roots or roots.isdisjoint(value):
        shape: Shape = tuple(value)
    elif state._label is not None:
        key, labels = state._label
        label = value.get(key)
        shape = (label if label is None or label.__class__ is str and label in labels else _OTHER, *value)
    else:
        shape = (*[_label((key,), labels, value) for key, labels in state._labels], *value) if state._labels else ()
    deep = state.seen.get(shape)
    if deep is None:
        deep, known = _inside(value, state)
        if deep is None:
            return False
        if known and shape and len(state.seen) < _MOST_SHAPES:
            state.seen[shape] = deep
    for key, child in deep:
        below = value[key]
        kind = type(below)
        if kind is dict:
            if depth < _DEPTH and not _all_read(below, child, depth + 1):
                return False
        elif kind is list and below and not _items_read(below, child, depth + 1):
            return False
    return True


def _inside(value: dict[str, Any], state: _State) -> tuple[Deep | None, bool]:
    """The fields of an object that must be looked into, None when another one is left unread; and whether this is so
    for every object with the same fields and label."""
    found, known = state, True
    while found._pending:
        found = found._following(value)
        known = known and found._roots.isdisjoint(value)  # else a choice inside a choice, with labels of its own
    if found.whole:
        return (), known
    if not found.fields:
        return None if value else (), False
    unknown = value.keys() - found.known - state.passed
    for key in unknown:
        below = value[key]
        if not (below in NO_LOSS or key in MARKERS and type(below) is str):
            return None, False
    deep = [(key, child) for key, child in found.deep if key in value and key not in state.passed]
    return tuple(deep), known and not unknown


def _items_read(value: list[Any], state: _State, depth: int) -> bool:
    items = state.items
    if state.whole:
        return True
    if items is None:
        return False
    if items.whole or depth > _DEPTH:
        return True
    for item in value:
        kind = type(item)
        if kind is dict:
            if not _all_read(item, items, depth + 1):
                return False
        elif kind is list and item and not _items_read(item, items, depth + 1):
            return False
    return True


class _State:
    """A set of places that all stand for one value; `fields` maps a key to what stands for it (None: taken whole)."""

    __slots__ = (
        "_done",
        "_label",
        "_labels",
        "_next",
        "_pending",
        "_places",
        "_roots",
        "_walker",
        "deep",
        "fields",
        "items",
        "known",
        "passed",
        "seen",
        "single",
        "whole",
    )

    def __init__(self, walker: Walker, places: frozenset[Reads], done: frozenset[int]) -> None:
        self._walker = walker
        self._places = places
        self._done = done
        self.whole = any(place.taken() for place in places)
        self._pending: list[Switch] = (
            [] if self.whole else [switch for place in places for switch in place.switches if id(switch) not in done]
        )
        self._next: dict[tuple[str, ...], _State] = {}
        paths = {switch.path for switch in self._pending}
        self._labels: tuple[tuple[str, frozenset[str]], ...] = (
            tuple(
                (path[0], frozenset().union(*(switch.labels for switch in self._pending if switch.path == path)))
                for path in paths
            )
            if all(len(path) == 1 for path in paths)
            else ()
        )
        """The fields by which the places read differ, with their values for which they do."""
        self._label = self._labels[0] if len(self._labels) == 1 else None
        self.passed: frozenset[str] = frozenset()
        """Fields that nobody is told of, read or not."""
        self.single: _State | None = None
        """Of the items, where one value stands for a list of one."""
        self.known: frozenset[str] = frozenset()
        self.deep: Deep = ()
        """Fields whose value is not taken whole, so that it must be looked into."""
        self.seen: dict[Shape, Deep] = {}
        """For the shapes of objects met before, what of `deep` they have."""
        self._roots = frozenset(switch.path[0] for switch in self._pending if switch.path)
        self.fields: dict[str, _State | None] = {}
        self.items: _State | None = None
        if self.whole:
            return
        keys: dict[str, list[Reads]] = {}
        items = []
        for place in places:
            for key, field in place.fields.items():
                keys.setdefault(key, []).append(field)
            if place.items is not None:
                items.append(place.items)
        walker._states[(places, done)] = self  # data may contain itself: known before its children are made
        for key, fields in keys.items():
            child = walker.state(fields)
            self.fields[key] = None if child.whole else child
        if items:
            self.items = walker.state(items)
        self.known = frozenset(self.fields)
        self.deep = tuple((key, child) for key, child in self.fields.items() if child is not None)
        self.single = None if self.fields else self.items

    def passing(self, fields: frozenset[str]) -> _State:
        """This state, to be asked about everything but these fields."""
        other = copy(self)
        other.passed, other.seen = fields, {}
        return other

    def resolved(self, value: dict[str, Any]) -> _State:
        """This state for a document whose labels are known."""
        state = self
        while state._pending:
            state = state._following(value)
        return state

    def _following(self, value: dict[str, Any]) -> _State:
        labels = tuple(_label(switch.path, switch.labels, value) for switch in self._pending)
        following = self._next.get(labels)
        if following is None:
            places = set(self._places)
            for switch, label in zip(self._pending, labels, strict=True):
                chosen = (
                    switch.absent if label == _ABSENT else switch.other if label == _OTHER else switch.cases.get(label)
                )
                if chosen is not None:
                    places.add(chosen)
            done = self._done | {id(switch) for switch in self._pending}
            following = self._next[labels] = self._walker.state(places, done)
        return following


Deep = tuple[tuple[str, _State], ...]
"""Fields with the state of their value."""
Shape = tuple[str | None, ...]
"""The names of an object's fields, behind the label where the places read depend on one."""

_MISSING: Any = object()


def _label(path: tuple[str, ...], labels: Collection[str], value: Any) -> str:
    for key in path:
        value = value.get(key) if type(value) is dict else None
    if value is None:
        return _ABSENT
    return value if type(value) is str and value in labels else _OTHER


def _closure(places: Any) -> frozenset[Reads]:
    closed: set[Reads] = set()
    waiting = list(places)
    while waiting:
        place = waiting.pop()
        if place not in closed:
            closed.add(place)
            waiting.extend(place.links)
            waiting.extend(look.outline() for look in place.looks)
            waiting.extend(parameter for made, parameter in place.made if parameter is not None and made.carried())
    return frozenset(closed)
