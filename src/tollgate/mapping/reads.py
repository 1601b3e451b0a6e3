"""Which parts of a document a mapping reads: collected while it compiles, used by `loss.py` while it runs.

A `Reads` stands for one place in a document ("the items of messages"). A place inside a `$match` case has its own node,
which counts only for documents of that case, so that a field read for images does not count as read for text. A
condition only looks at a value: it links an outline of places, in which no object is read whole (`hand_over`,
`Reads.outline`). The whole process is described under "How a loss is found" in docs/building.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class Switch:
    """Reads that depend on a field: `path` leads to the label, from the node that owns the switch."""

    path: tuple[str, ...]
    cases: dict[str, Reads] = field(default_factory=dict)
    absent: Reads | None = None
    other: Reads | None = None
    """For labels without a case."""

    def case_of(self, label: str | None) -> Reads | None:
        """The place that stands for an object with this label (None: without one), if there is one."""
        return self.absent if label is None else self.cases.get(label, self.other)

    def places(self) -> Iterator[Reads]:
        """The places of all its cases."""
        return (case for case in (*self.cases.values(), self.absent, self.other) if case is not None)

    def outline(self) -> Switch:
        """See `Reads.outline`."""
        return Switch(
            self.path,
            {label: case.outline() for label, case in self.cases.items()},
            self.absent and self.absent.outline(),
            self.other and self.other.outline(),
        )


@dataclass(eq=False, slots=True)
class Reads:
    """What is read at one place. `whole`: its value is read with everything in it."""

    fields: dict[str, Reads] = field(default_factory=dict)
    items: Reads | None = None
    walked: bool = False
    """Whether all items are read, and not only one by its index."""
    whole: bool = False
    links: list[Reads] = field(default_factory=list)
    """Places that stand for the same value elsewhere: the parameters of functions that it is passed to."""
    looks: list[Reads] = field(default_factory=list)
    """The same for functions that a condition calls: they only look at the value (`outline`)."""
    switches: list[Switch] = field(default_factory=list)
    made: list[tuple[Reads, Reads | None]] = field(default_factory=list)
    """Named values computed from this one, each with the function parameter it was passed to, if any. If the named
    value is carried into the result, then what the parameter reads is read here; without a parameter, all of it."""
    computed: bool = False
    """Not a place in the document, but a named value that is computed from some, or a part of it."""
    gathered: bool = False
    """Not a place in the document, but a list of what a path with [*] or a filter found, whose items are `items`."""
    _outline: Reads | None = None

    def at(self, key: str) -> Reads:
        """The place of a field."""
        found = self.fields.get(key)
        if found is None:
            found = self.fields[key] = Reads(computed=self.computed)
        return found

    def each(self, *, one: bool = False) -> Reads:
        """The place of every item; `one`: only one of them is read, by its index."""
        self.walked = self.walked or not one
        if self.items is None:
            self.items = Reads(computed=self.computed)
        return self.items

    def switch(self, path: tuple[str, ...]) -> Switch:
        """The switch over `path`, made when first used; its path counts as read."""
        place = self
        for key in path:
            place = place.at(key)
        for found in self.switches:
            if found.path == path:
                return found
        made = Switch(path)
        self.switches.append(made)
        return made

    def case(self, path: tuple[str, ...], labels: tuple[str, ...]) -> Reads:
        """A place that counts where the field at `path` has any of `labels`."""
        switch = self.switch(path)
        place = Reads(computed=self.computed)
        for label in labels:
            switch.cases[label] = _and(switch.cases.get(label), place)
        return place

    def otherwise(self, path: tuple[str, ...], *, absent: bool, present: bool) -> Reads:
        """A place that counts where the field is absent, or where it has none of the labels with a case."""
        switch = self.switch(path)
        place = Reads(computed=self.computed)
        if absent:
            switch.absent = _and(switch.absent, place)
        if present:
            switch.other = _and(switch.other, place)
        return place

    def carried(self) -> bool:
        """Whether any part of this value becomes part of the result, and is not only looked at. Call it after
        compiling."""
        reached = _reached((self,), lambda place: (*place.inner(), *place.links))
        return any(place.whole or any(made.carried() for made, _ in place.made) for place in reached)

    def inner(self) -> Iterator[Reads]:
        """The places inside the value, in any case."""
        yield from self.fields.values()
        yield from self.cases()
        if self.items is not None:
            yield self.items

    def cases(self) -> Iterator[Reads]:
        """The places that stand for the value if it has some label."""
        return (case for switch in self.switches for case in switch.places())

    def taken(self) -> bool:
        """Whether the value here is read with everything in it, itself or in a named value that is carried."""
        return self.whole or any(parameter is None and made.carried() for made, parameter in self.made)

    def outline(self) -> Reads:
        """The reads of code that only looks at the value: the same fields and items, none of them whole. Call it
        after compiling; it is made once."""
        made = self._outline
        if made is None:
            made = self._outline = Reads(walked=self.walked, gathered=self.gathered)  # before its parts: data may recur
            made.fields = {key: below.outline() for key, below in self.fields.items()}
            made.items = self.items and self.items.outline()
            made.links = [link.outline() for link in (*self.links, *self.looks)]
            made.switches = [switch.outline() for switch in self.switches]
        return made


def standing_for(places: Iterable[Reads]) -> frozenset[Reads]:
    """These places, and all others that stand for the same value. Call it after compiling."""

    def others(place: Reads) -> Iterator[Reads]:
        yield from place.links
        yield from (look.outline() for look in place.looks)
        yield from (parameter for made, parameter in place.made if parameter is not None and made.carried())

    return frozenset(_reached(places, others))


def names_read(places: Iterable[Reads]) -> frozenset[str]:
    """The fields that are read here in any case."""
    reached = _reached(places, lambda place: (*standing_for((place,)), *place.cases()))
    return frozenset(name for place in reached for name in place.fields)


def _reached(places: Iterable[Reads], onward: Callable[[Reads], Iterable[Reads]]) -> Iterator[Reads]:
    """These places and all that `onward` leads to, each once."""
    seen: set[Reads] = set()
    waiting = list(places)
    while waiting:
        place = waiting.pop()
        if place not in seen:
            seen.add(place)
            yield place
            waiting += onward(place)


def _and(before: Reads | None, place: Reads) -> Reads:
    """The place of a case, which also stands for `place`."""
    if before is None:
        return place
    before.links.append(place)
    return before


Places = tuple[Reads, ...]
"""Usually one; several if a name may stand for one of several places."""


def gathered(places: Places) -> Places:
    """The places of a list that a path makes of the values at `places`."""
    return tuple(Reads(items=place, gathered=True) for place in places)


def take(places: Places) -> None:
    """Count the values at these places as read, with everything in them."""
    for place in places:
        place.whole = True
        if place.gathered and place.items is not None:
            place.items.whole = True


def hand_over(places: Places, parameter: Reads, *, deciding: bool = False) -> None:
    """Link these places to a function's parameter: what the function reads of it counts as read there. With
    `deciding`, the function's result only decides something, and what it reads whole does not count."""
    for place in places:
        (place.looks if deciding else place.links).append(parameter)
        if place.gathered and place.items is not None:
            inner = place.items.looks if deciding else place.items.links
            inner += [parameter.each(one=True), parameter]


def leave_to(made: Reads, places: Places, parameter: Reads | None) -> None:
    """As `take`, or with a `parameter` as `hand_over`, but only if the named value `made` is carried into the
    result. What it only looks at counts as read anyway."""
    for place in places:
        place.made.append((made, parameter))
        if place.gathered and place.items is not None:
            through = (None,) if parameter is None else (parameter.each(one=True), parameter)
            place.items.made += ((made, each) for each in through)
