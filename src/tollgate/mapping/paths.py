"""Paths: `$.a.b[0]`, `$x['a-b']`, `$.l[*].k`, `$.l[?(@.k == 'v')].k`, `$..k`; text -> steps.

What most paths consist of (fields, indexes, `[*]`, one comparison with a word or number) is parsed here, all else in
`jsonpath.py`. Lowering to Python is `path_code.py`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_NAME = re.compile(r"\w*")
_WORD = re.compile(r"\w+")
_STATIC = re.compile(r"""\s*(?:-?\d+|\*|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|-?\d*\s*:\s*-?\d*|\?.*)\s*\Z""", re.DOTALL)
_STEP = re.compile(
    r"""\.(?P<field>\w+)"""
    r"""|\[\s*(?P<place>-?\d+)\s*\]"""
    r"""|\[\s*(?:'(?P<single>[^'\\]*)'|"(?P<double>[^"\\]*)")\s*\]"""
    r"""|(?P<every>\[\*\])"""
    r"""|\[\?\(@\.(?P<of>[A-Za-z_]\w*)\s*(?P<operator>==|!=)\s*"""
    r"""(?:'(?P<word>[\w-]+)'|(?P<literal>0|[1-9]\d{0,8}|true|false))\)\]"""
)
QUOTED = r"""'(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?"""
"""A text in quotes, or the rest of the text after a quote that is not closed."""
_BRACKETS = {both: re.compile(f"{QUOTED}|[{re.escape(both)}]", re.DOTALL) for both in ("[]", "{}")}
_MAX_INDEX = 100_000


class ParseError(Exception):
    """Text that cannot be parsed as a path or expression; `offset` is the position in the text."""

    def __init__(self, message: str, offset: int = 0, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Every:
    """`[*]`: all items of a list, all values of an object."""


@dataclass(frozen=True, slots=True)
class Slice:
    """`[a:b]` of a list."""

    start: int | None
    stop: int | None


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison inside `[?(...)]`: the field at `path` of the item; `operator` None means that it is present."""

    path: tuple[str, ...]
    operator: str | None
    value: str | float | None = None


@dataclass(frozen=True, slots=True)
class Where:
    """`[?(...)]`: the items for which all conditions are true."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Descend:
    """`..key`: the field at any depth."""

    key: str


@dataclass(frozen=True, slots=True, eq=False)
class Find:
    """A jsonpath-ng expression that is evaluated as a whole."""

    expression: Any


Step = str | int | Every | Slice | Where | Descend | Find


def has_item(value: str, index: int) -> str:
    """Code: whether the list `value` has an item at that index; a negative index counts from the end."""
    return f"len({value}) > {index}" if index >= 0 else f"len({value}) >= {-index}"


@dataclass(frozen=True, slots=True)
class Path:
    """`base` is the name after `$` (empty for the document), followed by steps."""

    base: str
    steps: tuple[Step, ...]
    text: str


def extent(text: str, start: int) -> int:
    """The end of the path that begins at `text[start] == '$'`; a computed index (`$x[$i]`) is not part of it."""
    position = _NAME.match(text, start + 1).end()  # type: ignore[union-attr]
    while position < len(text):
        char = text[position]
        if char == ".":
            dots = 2 if text.startswith("..", position) else 1
            after = position + dots
            word = _WORD.match(text, after)
            if word:
                position = word.end()
            elif text.startswith("*", after):
                position = after + 1
            elif dots == 2 and text.startswith("[", after):
                position = after
            else:
                return position
        elif char == "[":
            end = closing(text, position + 1, "[]")
            if end < 0 or not _STATIC.match(text[position + 1 : end]):
                return position
            position = end + 1
        else:
            return position
    return position


def closing(text: str, start: int, brackets: str) -> int:
    """The position of the bracket that closes the one before `text[start]`, or -1; `brackets` are the two, as "[]".
    Brackets in quotes do not count."""
    depth = 0
    for found in _BRACKETS[brackets].finditer(text, start):
        if found[0] == brackets[0]:
            depth += 1
        elif found[0] == brackets[1]:
            if depth == 0:
                return found.start()
            depth -= 1
    return -1


@lru_cache(maxsize=4096)
def parse_path(text: str) -> Path:
    """`$name.a[0]` -> Path. `ParseError` if it cannot be parsed."""
    base = _NAME.match(text, 1)[0]  # type: ignore[index]
    tail = text[1 + len(base) :]
    steps: list[Step] = []
    position = 0
    while position < len(tail):
        found = _STEP.match(tail, position)
        if not found:
            from tollgate.mapping.jsonpath import steps_of  # imports a package that hardly any file needs

            return Path(base, steps_of(text, tail), text)
        steps.append(_step(found))
        position = found.end()
    return Path(base, tuple(steps), text)


def _step(found: re.Match[str]) -> Step:
    if found["every"]:
        return Every()
    if found["place"]:
        return index(int(found["place"]))
    if found["of"]:
        return Where((Condition((found["of"],), found["operator"], found["word"] or json.loads(found["literal"])),))
    return next(name for name in found.group("field", "single", "double") if name is not None)


def index(place: int) -> int:
    """The index itself if it is small enough; else `ParseError`."""
    if abs(place) > _MAX_INDEX:
        raise ParseError(f"index {place} is out of reach")
    return place
