"""What a condition tells about one field, so that what is read under it counts only there (for the loss list)."""

from __future__ import annotations

from dataclasses import dataclass

from tollgate.mapping.paths import Path
from tollgate.mapping.reading import reads_of
from tollgate.mapping.reads import Places
from tollgate.mapping.scope import Scope


@dataclass(frozen=True, slots=True)
class Tested:
    """A condition as Python, with what it tells of a field and the places it looks at."""

    py: str
    narrowing: Narrowing | Plain | None = None
    looked: Places = ()

    def inside(self, scope: Scope) -> Scope:
        """The scope where it holds: it speaks of the field's object, or of what was looked at."""
        if self.narrowing:
            return self.narrowing.inside(scope)
        return scope.speaking_of(self.looked) if self.looked else scope

    def outside(self, scope: Scope) -> Scope:
        """The scope where it does not hold, which says nothing of what was looked at."""
        if self.narrowing:
            return self.narrowing.outside(scope)
        return scope.speaking_of(()) if self.looked else scope


class Narrowing:
    """"this expression is true only where the field at `path` below `$name` has one of these labels"."""

    __slots__ = ("labels", "name", "path")

    def __init__(self, name: str, path: tuple[str, ...], labels: tuple[str, ...]) -> None:
        self.name = name
        self.path = path
        self.labels = labels

    def inside(self, scope: Scope) -> Scope:
        """The scope where it holds."""
        places = scope.names[self.name].places
        return chosen(scope, self.name, self.path, tuple(place.case(self.path, self.labels) for place in places))

    def outside(self, scope: Scope) -> Scope:
        """The scope where it does not (any other label, or none)."""
        places = scope.names[self.name].places
        return chosen(scope, self.name, self.path, tuple(place.otherwise(self.path, absent=True, present=True) for place in places))


class Plain:
    """"this expression is true only where `$name` is a text, a number or a boolean", which has nothing below it to read."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def inside(self, scope: Scope) -> Scope:
        """The scope where it holds: using the value takes nothing with it."""
        return scope.narrowed(self.name, ())

    def outside(self, scope: Scope) -> Scope:
        """The scope where it does not: nothing more is known."""
        return scope


def chosen(scope: Scope, name: str, path: tuple[str, ...], places: Places) -> Scope:
    """The scope inside a choice by the field at `path` below `$name`: it speaks of the object that has the field, unless that is the document."""
    about = reads_of(places, path[:-1]) if name or path[1:] else ()
    return scope.narrowed(name, places).speaking_of(about)


def field_of(scope: Scope, path: Path) -> tuple[str, tuple[str, ...]] | None:
    """(name, fields) when a path is plain fields below a name whose reads are tracked."""
    var = scope.names.get(path.base)
    if var is None or not var.places or not path.steps or not all(isinstance(step, str) for step in path.steps):
        return None
    return path.base, path.steps  # type: ignore[return-value]
