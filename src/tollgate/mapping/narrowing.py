"""What a condition says about one field, so that reads under the condition count only for data where it holds (for
the loss list)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tollgate.mapping.filter_table import PLAIN
from tollgate.mapping.grammar import nodes
from tollgate.mapping.path_code import reads_of
from tollgate.mapping.paths import ParseError, Path, parse_path
from tollgate.mapping.reads import Places
from tollgate.mapping.scope import Scope


@dataclass(frozen=True, slots=True)
class Tested:
    """A condition as Python, what it says about a field, and the places it looks at."""

    py: str
    narrowing: Narrowing | Plain | None = None
    looked: Places = ()

    def inside(self, scope: Scope) -> Scope:
        """The scope where it holds. A `$lost` there is about the object that has the field, or else about what was
        looked at."""
        if self.narrowing:
            return self.narrowing.inside(scope)
        return scope.losing(self.looked) if self.looked else scope

    def outside(self, scope: Scope) -> Scope:
        """The scope where it does not hold. A `$lost` there is not about what was looked at."""
        if self.narrowing:
            return self.narrowing.outside(scope)
        return scope.losing(()) if self.looked else scope


@dataclass(frozen=True, slots=True)
class Narrowing:
    """A condition that is true only where the field at `path` below `$name` has one of these labels."""

    name: str
    path: tuple[str, ...]
    labels: tuple[str, ...]

    def inside(self, scope: Scope) -> Scope:
        """The scope where it holds."""
        places = scope.names[self.name].places
        return chosen(scope, self.name, self.path, tuple(place.case(self.path, self.labels) for place in places))

    def outside(self, scope: Scope) -> Scope:
        """The scope where it does not hold (any other label, or none)."""
        places = scope.names[self.name].places
        return chosen(
            scope,
            self.name,
            self.path,
            tuple(place.otherwise(self.path, absent=True, present=True) for place in places),
        )


@dataclass(frozen=True, slots=True)
class Plain:
    """A condition that is true only where `$name` is a text, number or boolean, which has no content to read."""

    name: str

    def inside(self, scope: Scope) -> Scope:
        """The scope where it holds: using the value reads nothing else."""
        return scope.narrowed(self.name, ())

    def outside(self, scope: Scope) -> Scope:
        """The scope where it does not hold: nothing is known."""
        return scope


def chosen(scope: Scope, name: str, path: tuple[str, ...], places: Places) -> Scope:
    """The scope inside a choice by the field at `path` below `$name`. A `$lost` there is about the object that has
    the field, unless that is the whole document."""
    about = reads_of(places, path[:-1]) if name or path[1:] else ()
    return scope.narrowed(name, places).losing(about)


def field_of(scope: Scope, path: Path) -> tuple[str, tuple[str, ...]] | None:
    """(name, fields) for a path of plain fields below a name whose reads are tracked; else None."""
    var = scope.names.get(path.base)
    if var is None or not var.places or not path.steps or not all(isinstance(step, str) for step in path.steps):
        return None
    return path.base, path.steps  # type: ignore[return-value]


def narrowing_of(node: nodes.Node, paths: Mapping[str, str], scope: Scope) -> Narrowing | Plain | None:
    """What a condition says about one field: it is, or begins with (before `and`), `$x.a == 'b'`, `$x.a in ['b', 'c']`
    or `$x is string`.

    `paths` has the paths of the expression by the names that stand for them in its tree.
    """
    if isinstance(node, nodes.And):
        return narrowing_of(node.left, paths, scope) or narrowing_of(node.right, paths, scope)
    if isinstance(node, nodes.Test):
        return _plain(node, paths, scope)
    if not isinstance(node, nodes.Compare) or len(node.ops) != 1 or node.ops[0].op not in ("eq", "in"):
        return None
    if not isinstance(node.expr, nodes.Name) or node.expr.name not in paths:
        return None
    wanted = node.ops[0].expr
    if node.ops[0].op == "eq":
        labels = (wanted.value,) if isinstance(wanted, nodes.Const) else ()
    else:
        entries = wanted.items if isinstance(wanted, nodes.List | nodes.Tuple) else []
        labels = tuple(entry.value for entry in entries if isinstance(entry, nodes.Const))
        if len(labels) != len(entries):
            return None
    if not labels or not all(isinstance(label, str) for label in labels):
        return None
    try:
        place = field_of(scope, parse_path(paths[node.expr.name]))
    except ParseError:
        return None
    return Narrowing(place[0], place[1], labels) if place else None


def chooses_plain(test: nodes.Node, chosen: nodes.Node, paths: Mapping[str, str]) -> bool:
    """Whether the chosen value is the path that was tested: `$x.a if $x.a is string`."""
    return (
        isinstance(test, nodes.Test)
        and test.name in PLAIN
        and isinstance(test.node, nodes.Name)
        and isinstance(chosen, nodes.Name)
        and test.node.name in paths
        and paths[test.node.name] == paths.get(chosen.name)
    )


def _plain(node: nodes.Test, paths: Mapping[str, str], scope: Scope) -> Plain | None:
    if node.name not in PLAIN or not isinstance(node.node, nodes.Name) or node.node.name not in paths:
        return None
    name = paths[node.node.name][1:]
    var = scope.names.get(name)
    if var is None or not var.places or any(place.computed for place in var.places):
        return None  # a text computed from an object carries the object
    return Plain(name)
