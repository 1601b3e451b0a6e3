"""Paths that `paths.py` does not parse itself: jsonpath-ng parses them, and its tree is converted to steps.

No shipped file has one, because each takes a millisecond. A tree with an unknown node is kept as a whole and evaluated
with `.find()` at run time (`Find`).
"""

from __future__ import annotations

import re
import warnings
from typing import Any

from jsonpath_ng.exceptions import JSONPathError
from jsonpath_ng.ext.parser import parse

from tollgate.mapping.paths import Condition, Descend, Every, Find, ParseError, Slice, Step, Where, index


def steps_of(text: str, tail: str) -> tuple[Step, ...]:
    """The steps of the path `text`; `tail` is the part after its name. `ParseError` if it is invalid."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            tree = parse("$" + tail)
    except (JSONPathError, ValueError, AttributeError, TypeError) as error:
        message = str(error).split("\n")[0]
        where = re.search(r"\b1:(\d+)", message)
        offset = len(text) - len(tail) - 1 + int(where[1]) if where else 0
        if where:
            found = re.search(r"near token (.+) \(.+\)$", message)
            message = f"column {offset + 1}" + (f", at `{found[1]}`" if found else f": {message}")
        raise ParseError(f"path `{text}` does not parse ({message})", min(offset, len(text) - 1), _hint(tail)) from None
    steps = _steps_of_tree(tree)
    return steps if steps is not None else (Find(tree),)


def _hint(tail: str) -> str:
    """A hint for a path that cannot be parsed."""
    if re.search(r"[^=!<>~]=[^=~]", tail):
        return "a comparison is written =="
    if re.search(r"\[\?[^\]]*\$", tail):
        lookup = "{{ ($.l | lookup('id', 'name'))[$x] }}"
        return f"inside [?( )] stand fixed values; what a name holds is looked up, {lookup}, or asked by $each, $when"
    if re.search(r"\[\?[^\]]*(\||\bor\b|\band\b|\bin\b|\bnot\b)", tail):
        return "inside [?( )] conditions are joined by & alone; any other is asked by $each, $when"
    return ""


def _steps_of_tree(tree: Any) -> tuple[Step, ...] | None:
    """A jsonpath-ng tree as steps, or None if it has an unknown node."""
    kind = type(tree).__name__
    if kind in ("Root", "This"):
        return ()
    if kind == "Child":
        left, right = _steps_of_tree(tree.left), _steps_of_tree(tree.right)
        return None if left is None or right is None else left + right
    if kind == "Fields":
        if len(tree.fields) != 1:
            return None
        return (Every(),) if tree.fields[0] == "*" else (tree.fields[0],)
    if kind == "Wildcard":
        return (Every(),)
    if kind == "Index":
        places = getattr(tree, "indices", None) or (getattr(tree, "index", None),)
        return (index(places[0]),) if len(places) == 1 and isinstance(places[0], int) else None
    if kind == "Slice":
        if tree.step is not None:
            return None
        return (Every(),) if tree.start is None and tree.end is None else (Slice(tree.start, tree.end),)
    if kind == "Descendants":
        left, right = _steps_of_tree(tree.left), _steps_of_tree(tree.right)
        if left is None or right is None or len(right) != 1 or not isinstance(right[0], str):
            return None
        return (*left, Descend(right[0]))
    if kind == "Filter":
        conditions = tuple(condition for entry in tree.expressions for condition in _conditions(entry))
        return None if None in conditions else (Where(conditions),)  # type: ignore[arg-type]
    return None


def _conditions(entry: Any) -> list[Condition | None]:
    """The conditions of an entry of a filter. In `@.a & @.b == 1` the library takes all before `==` for one path, which
    it cannot evaluate; each of its parts but the last is a field that has to be present."""
    if type(entry).__name__ != "Expression":
        return [None]
    *present, compared = _joined_paths(entry.target)
    return [*(_condition(path, None, None) for path in present), _condition(compared, entry.op, entry.value)]


def _joined_paths(tree: Any) -> list[tuple[Step, ...] | None]:
    """The paths that `&` joins in a tree such as `@.(a & @).b`, as the library reads `@.a & @.b`."""
    kind = type(tree).__name__
    if kind in ("Intersect", "_Intersect"):
        return [*_joined_paths(tree.left), *_joined_paths(tree.right)]
    if kind != "Child":
        return [_steps_of_tree(tree)]
    *before, left = _joined_paths(tree.left)
    right, *after = _joined_paths(tree.right)
    return [*before, None if left is None or right is None else left + right, *after]


def _condition(path: tuple[Step, ...] | None, operator: str | None, value: Any) -> Condition | None:
    if path is None or not all(isinstance(step, str) for step in path):
        return None
    if operator is None:
        return Condition(path, None)  # type: ignore[arg-type]
    if operator not in ("==", "=", "!=", "<", "<=", ">", ">=") or not isinstance(value, str | int | float | None):
        return None
    return Condition(path, "==" if operator == "=" else operator, value)  # type: ignore[arg-type]
