"""JSON that a provider sends leaf by leaf, each with its path, as one growing text.

Clients want the arguments of a call as pieces of one JSON text. Text that was sent cannot be changed, so leaves must
come in the order of the text; `add` refuses one that comes too late.
"""

from __future__ import annotations

import re

import orjson

_STEP = re.compile(
    r"""\.([^.\[\]]+) | \[([0-9]{1,9})\] | \['((?:[^'\\]|\\.)*)'\] | \["((?:[^"\\]|\\.)*)"\]""", re.VERBOSE
)
_ESCAPED = re.compile(r"\\(.)")

Step = str | int


def steps_of(path: str) -> list[Step] | None:
    """A path to one leaf (RFC 9535, only names and indexes) as its steps; None where it is not such a path.

    "$.a[0]['b c']" -> ["a", 0, "b c"]
    """
    if not path.startswith("$"):
        return None
    steps: list[Step] = []
    at = 1
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            return None
        name, place, single, double = found.groups()
        quoted = single if single is not None else double
        steps.append(
            name if name is not None else int(place) if place is not None else _ESCAPED.sub(r"\1", quoted or "")
        )
        at = found.end()
    return steps or None


class LeafwiseJson:
    """One JSON object or list while its leaves come in. `add` and `end` return the text to append."""

    __slots__ = ("_at", "_left", "_open_text")

    def __init__(self) -> None:
        self._at: list[Step] = []
        """The path of the last leaf; every object and list on it is open."""
        self._left: set[tuple[Step, ...]] = set()
        """The paths of what is closed before it: no leaf can be added there any more."""
        self._open_text = False
        """The last leaf is a text that is not complete yet."""

    def add(self, path: str, value: object, *, more: bool = False) -> str | None:
        """The text for one leaf, or for more of the last one; None where it cannot be added.

        '$.a', "x", more -> '{"a":"x'; then '$.a', "y" -> 'y"'; then '$.b[0]', 1 -> ',"b":[1'
        """
        steps = steps_of(path)
        if steps is None:
            return None
        goes_on = more and isinstance(value, str)
        if steps == self._at and self._open_text and isinstance(value, str):
            self._open_text = goes_on
            return _inside(value) + ("" if goes_on else '"')
        shared = _shared(steps, self._at)
        if not self._fits(steps, shared):
            return None
        out = self._leave(shared)
        for depth in range(shared, len(steps)):
            step = steps[depth]
            if depth > shared or not self._at:
                out += "{" if isinstance(step, str) else "["
            if isinstance(step, str):
                out += orjson.dumps(step).decode() + ":"
        self._at = steps
        self._open_text = goes_on
        return out + (f'"{_inside(value)}' if goes_on and isinstance(value, str) else orjson.dumps(value).decode())

    def end(self) -> str:
        """The text that completes it."""
        out = '"' if self._open_text else ""
        self._open_text = False
        for step in reversed(self._at):
            out += "}" if isinstance(step, str) else "]"
        return out if self._at else "{}"

    def _fits(self, steps: list[Step], shared: int) -> bool:
        """Whether a leaf can be added: after the last one, inside nothing that is closed, leaving no gap in a list."""
        if self._at and (shared == len(self._at) or shared == len(steps)):
            return False  # the last leaf again, or what contains it
        if self._at and type(steps[shared]) is not type(self._at[shared]):
            return False
        if tuple(steps[: shared + 1]) in self._left:
            return False
        before = self._at[shared] if self._at else -1
        for depth in range(shared, len(steps)):
            step = steps[depth]
            if isinstance(step, int) and step != (before + 1 if depth == shared and isinstance(before, int) else 0):
                return False
        return True

    def _leave(self, shared: int) -> str:
        """Close what does not contain the next leaf."""
        if not self._at:
            return ""
        out = '"' if self._open_text else ""
        for step in reversed(self._at[shared + 1 :]):
            out += "}" if isinstance(step, str) else "]"
        self._left.add(tuple(self._at[: shared + 1]))
        return out + ","


def _shared(one: list[Step], other: list[Step]) -> int:
    """How many first steps two paths have in common."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _inside(text: str) -> str:
    """A text as JSON writes it between the quotes."""
    return orjson.dumps(text).decode()[1:-1]
