"""What the edits of a request move: which parts of a value that is removed stand elsewhere in the request.

An edit that writes something moves what its values are built from. A text, number or boolean that only decided what is
written, in its condition or its values, has had its effect; an object or a list has not. `Move` is known while an edit
list compiles, `Rest` says at run time what of a removed value no edit has moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tollgate.mapping.context import Context
from tollgate.mapping.harmless import is_blank
from tollgate.mapping.loss import State, Walker, unread
from tollgate.mapping.paths import Descend, Step
from tollgate.mapping.reads import Places, Reads, standing_for

ALWAYS = "True"
_UNKNOWN: Any = object()
_MOST_FIELDS = 100
"""Most fields at the top that are remembered; clients may send any."""


@dataclass(frozen=True, slots=True)
class Move:
    """What one edit reads, and the paths that it writes to: none for a new document."""

    reads: Reads
    targets: Sequence[tuple[Step, ...]]
    ran: str = ALWAYS
    """The local of the generated code that says whether the edit's condition held."""

    def of(self, steps: tuple[Step, ...]) -> Places:
        """What it moves of the value at `steps`; nothing if it wrote only to there, or to a part of that value or of
        what surrounds it: then the removal takes out what was moved."""
        if self.targets and all(_meet(target, steps) for target in self.targets):
            return ()
        return _places_at(self.reads, steps)


def is_whole(places: Places) -> bool:
    """Whether values at these places are moved with everything in them."""
    return any(place.taken() for place in standing_for(places))


def _meet(one: tuple[Step, ...], other: tuple[Step, ...]) -> bool:
    """Whether one path may lead to or into the value at the other."""
    pairs = zip(one, other, strict=False)
    return all(a == b or not (isinstance(a, str) and isinstance(b, str)) for a, b in pairs)


def _places_at(reads: Reads, steps: tuple[Step, ...]) -> Places:
    """The places that stand for the value at `steps`; one that is whole for all that is below it."""
    places: Places = (reads,)
    for step in steps:
        reached = _in_any_case(places)
        whole = tuple(place for place in reached if place.taken())
        if whole:
            return whole
        if isinstance(step, Descend):
            return ()
        if isinstance(step, str):
            places = tuple(place.fields[step] for place in reached if step in place.fields)
        else:
            places = tuple(place.items for place in reached if place.items is not None)
    return places


def _in_any_case(places: Places) -> frozenset[Reads]:
    """All places that stand for these values, whatever labels they have."""
    reached = standing_for(places)
    cases = tuple(case for place in reached for case in place.cases())
    return reached | _in_any_case(cases) if cases and not reached.issuperset(cases) else reached


@dataclass(eq=False, slots=True)
class Rest:
    """Names what is left of a value that an edit removes. `moved` has what each of some earlier edits moves of it."""

    name: str
    moved: Sequence[Places]
    _states: dict[tuple[bool, ...], State | None] = field(default_factory=dict)

    def __call__(self, value: Any, ran: tuple[bool, ...], context: Context) -> None:
        """Report as lost what those of the edits that `ran` have not moved."""
        state = self._states.get(ran, _UNKNOWN)
        if state is _UNKNOWN:
            places = [place for held, places in zip(ran, self.moved, strict=True) if held for place in places]
            state = self._states[ran] = Walker(Reads()).state(places) if places else None
        if state is None:
            if not is_blank(value):
                context.lose(self.name)
            return
        for name in unread(value, state, self.name):
            context.lose(name)


class RestOfFields:
    """The same for fields at the top, by their names."""

    __slots__ = ("_made", "_moves")

    def __init__(self, moves: Iterable[Move]) -> None:
        self._moves = tuple(moves)
        self._made: dict[str, Rest] = {}

    def __call__(self, name: str, value: Any, ran: tuple[bool, ...], context: Context) -> None:
        """Report as lost what those of the edits that `ran` have not moved of the field."""
        rest = self._made.get(name)
        if rest is None:
            rest = Rest(name, [move.of((name,)) for move in self._moves])
            if any(rest.moved) and len(self._made) < _MOST_FIELDS:
                self._made[name] = rest
        rest(value, ran, context)
