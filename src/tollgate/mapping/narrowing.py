"""What a condition tells about one field, so that what is read under it counts only there (for the loss list)."""

from __future__ import annotations

from tollgate.mapping.paths import Path
from tollgate.mapping.scope import Scope


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
        return scope.narrowed(self.name, tuple(place.case(self.path, self.labels) for place in places))

    def outside(self, scope: Scope) -> Scope:
        """The scope where it does not (any other label, or none)."""
        places = scope.names[self.name].places
        return scope.narrowed(self.name, tuple(place.otherwise(self.path, absent=True, present=True) for place in places))


def field_of(scope: Scope, path: Path) -> tuple[str, tuple[str, ...]] | None:
    """(name, fields) when a path is plain fields below a name whose reads are tracked."""
    var = scope.names.get(path.base)
    if var is None or not var.places or not path.steps or not all(isinstance(step, str) for step in path.steps):
        return None
    return path.base, path.steps  # type: ignore[return-value]
