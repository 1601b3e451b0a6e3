"""Finds what of a document is not read: the computed loss list, at every depth (`logit_bias`, `messages[].name`).

`reads.py` has the places that a section reads. Several places can stand for one value: the parameters of the functions
that it is passed to, the cases that its labels choose. So a document is walked with a set of places for each value in
it; such a set is a `State`. What no place of the set stands for is lost, unless `harmless.py` excludes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tollgate.mapping.harmless import IGNORED, HarmlessValues, is_empty_value, says_nothing
from tollgate.mapping.reads import Reads, Switch, names_read, standing_for

_MOST = 100
_DEPTH = 150
_MOST_SHAPES = 200
"""Shapes of objects that are cached for one set of places: clients usually send a few, and may send anything."""
_OTHER = "\x00other"
"""Stands for every label without a case of its own."""

Path = tuple["Path", str | None] | None
"""The way to a value: that of its container, and the name of its field, or None for the items of a list."""
Inside = tuple[tuple[str, "State | None"], ...]
"""Fields to walk into, with the state for their value; None if the field is not read."""


class Walker:
    """Walks documents with the places that one section reads."""

    def __init__(self, root: Reads, ignored: frozenset[str] = IGNORED, harmless: HarmlessValues | None = None) -> None:
        self._root = root
        self._ignored = ignored
        self._harmless = harmless or {}
        self._states: dict[tuple[frozenset[Reads], frozenset[Switch], frozenset[str]], State] = {}
        self._start: State | None = None

    def reads_field(self, name: str) -> bool:
        """Whether any line of the section reads this field of the document, or all of the document."""
        return self._root.taken() or name in names_read((self._root,))

    def lost(self, document: object) -> list[str]:
        """The paths of `document` that are not read, in document order, each once."""
        start = self._start
        if start is None:  # made late, because places are added until the whole file is compiled
            start = self._start = self.state((self._root,), ignored=self._ignored)
        found: dict[str, None] = {}
        if type(document) is dict:
            _walk(document, start, None, found, 0)
        elif type(document) is list:
            _walk_items(document, start, None, found, 0)
        if not found:
            return []
        return [path for path in found if not says_nothing(self._harmless, path, document)]

    def state(
        self, places: Iterable[Reads], followed: frozenset[Switch] = frozenset(), ignored: frozenset[str] = frozenset()
    ) -> State:
        """The state for a set of places; equal sets share one state."""
        key = (standing_for(places), followed, ignored)
        return self._states.get(key) or self._states.setdefault(key, State(self, *key))


def unread(value: object, state: State, name: str) -> list[str]:
    """The paths of what is not read of a value, which is called `name` as a whole. They do not tell lists from objects,
    as the names of what edits remove."""
    found: dict[str, None] = {}
    if type(value) is dict:
        _walk(value, state, (None, name), found, 0)
    elif type(value) is list:
        _walk_items(value, state, (None, name), found, 0)
    return list(dict.fromkeys(path.replace("[]", "") for path in found))


def _walk(value: dict[str, Any], state: State, path: Path, found: dict[str, None], depth: int) -> None:
    """Note what is not read in an object."""
    names = tuple(value)
    shape = state.shapes.get(names) or state.shape(names)
    while (name := shape.name) is not None:
        label: Any = value.get(name)
        for step in shape.further:
            label = label.get(step) if type(label) is dict else None
        if label is not None and (type(label) is not str or label not in shape.labels):
            label = _OTHER
        shape = shape.cases.get(label) or shape.case(label)
    if shape.unread:
        _note(found, path, value)
    for name, child in shape.inside:
        below = value[name]
        kind = type(below)
        if child is None:
            if not is_empty_value(name, below):
                _note(found, (path, name))
        elif kind is dict:
            if depth < _DEPTH:
                _walk(below, child, (path, name), found, depth + 1)
        elif kind is list and below:
            _walk_items(below, child, (path, name), found, depth + 1)


def _walk_items(value: list[Any], state: State, path: Path, found: dict[str, None], depth: int) -> None:
    """Note what is not read in a list."""
    items = state.items()
    if state.whole or depth > _DEPTH:
        return
    if items is None:
        _note(found, path, value)
    elif not items.whole:
        inner = (path, None)
        for item in value:
            kind = type(item)
            if kind is dict:
                _walk(item, items, inner, found, depth + 1)
            elif kind is list and item:
                _walk_items(item, items, inner, found, depth + 1)


def _note(found: dict[str, None], path: Path, value: object = True) -> None:
    if value and len(found) < _MOST:
        steps = []
        while path is not None:
            path, name = path
            steps.append("[]" if name is None else f".{name}")
        found["".join(reversed(steps)).removeprefix(".") or "the body"] = None


@dataclass(eq=False, slots=True)
class State:
    """A set of places that all stand for one value. The states below it are made when a document first needs them,
    and kept."""

    _walker: Walker
    _places: frozenset[Reads]
    _followed: frozenset[Switch]
    _ignored: frozenset[str]
    """Fields that are never reported."""
    whole: bool = field(init=False)
    has_fields: bool = field(init=False)
    path: tuple[str, ...] = field(init=False)
    """The path to a label that decides which further places stand for an object; if there are several, the next one to
    test."""
    labels: frozenset[str] = field(init=False)
    shapes: dict[tuple[str, ...], _Shape] = field(default_factory=dict)
    """By the names of an object's fields."""
    _switches: frozenset[Switch] = field(init=False)
    _cases: dict[str | None, State] = field(default_factory=dict)
    _fields: dict[str, State] = field(default_factory=dict)
    _items: State | None = None
    _known: frozenset[str] | None = None

    def __post_init__(self) -> None:
        self.whole = any(place.taken() for place in self._places)
        self.has_fields = any(place.fields for place in self._places)
        waiting = [switch for place in self._places for switch in place.switches if switch not in self._followed]
        self.path = () if self.whole else min((switch.path for switch in waiting), default=())
        self._switches = frozenset(switch for switch in waiting if switch.path == self.path)
        self.labels = frozenset(label for switch in self._switches for label in switch.cases)

    def shape(self, names: tuple[str, ...]) -> _Shape:
        """The shape of objects with these fields; cached if all fields are known, because there are few of those."""
        state = self if self.has_fields else self.items() or self  # a single value counts as a list of one
        made = _Shape(state, names)
        if state._known is None:
            state._known = names_read(state._places) | state._ignored
        if len(self.shapes) < _MOST_SHAPES and state._known.issuperset(names):
            self.shapes[names] = made
        return made

    def inside(self, names: tuple[str, ...]) -> Inside:
        """What to walk into in an object with these fields: all fields except those that are read whole."""
        fields = ((name, self._field(name)) for name in names if name not in self._ignored)
        return tuple((name, child) for name, child in fields if child is None or not child.whole)

    def _field(self, name: str) -> State | None:
        found = self._fields.get(name)
        if found is None and (places := [place.fields[name] for place in self._places if name in place.fields]):
            found = self._fields[name] = self._walker.state(places)
        return found

    def items(self) -> State | None:
        """The state of a list's items; None if no item is read."""
        if self._items is None and (places := [place.items for place in self._places if place.items is not None]):
            self._items = self._walker.state(places)
        return self._items

    def case(self, label: str | None) -> State:
        """The state of an object with this label, with none, or with `_OTHER`."""
        found = self._cases.get(label)
        if found is None:
            places = [case for switch in self._switches if (case := switch.case_of(label)) is not None]
            followed = self._followed | self._switches
            found = self._cases[label] = self._walker.state((*self._places, *places), followed, self._ignored)
        return found


class _Shape:
    """Objects with the same fields and, as far as tested, the same labels: what to walk into in them."""

    __slots__ = ("_names", "_state", "cases", "further", "inside", "labels", "name", "unread")

    def __init__(self, state: State, names: tuple[str, ...]) -> None:
        while state.path and state.path[0] not in names:
            state = state.case(None)
        self._state = state
        self._names = names
        self.labels = state.labels
        self.name = state.path[0] if state.path else None
        """The field with the label to test; None if all labels are known."""
        self.further = state.path[1:]
        """The path to the label inside that field."""
        self.cases: dict[str | None, _Shape] = {}
        self.unread = not state.has_fields and not state.whole
        self.inside: Inside = () if state.path or state.whole or self.unread else state.inside(names)

    def case(self, label: str | None) -> _Shape:
        """The shape of those among them that have this label, none, or `_OTHER`."""
        found = self.cases.get(label)
        if found is None:
            found = self.cases[label] = _Shape(self._state.case(label), self._names)
        return found
