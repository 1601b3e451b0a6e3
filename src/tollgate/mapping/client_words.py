"""Finds the client's name for a value of the hub, so that losses are reported by the names of the client's format.

Mappings pass values on without copying, so the same object that a hub field holds can be found in the client's request.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any

_MOST_LOOKED_FOR = 10
"""Most values that are searched for at one place, and most parts of a value that the mapping built."""
_DEPTH = 150
_NUMBER = re.compile(r"\[\d+\]")
_STEP = re.compile(r"\[\]|\.?[^.\[]+")
_MOST_SHARED = 256
"""Python has one shared object for each integer up to this."""


def places_of(wanted: Collection[object], document: object) -> list[str]:
    """The paths inside `document` of these objects (the same objects, not equal ones), in one walk; of each the
    first path. Objects that are not in it are left out."""
    missing = {id(each) for each in wanted}
    found: list[str] = []
    waiting: list[tuple[str, object]] = [("", document)]
    while waiting and missing:
        path, here = waiting.pop()
        if type(here) is dict:
            inside = [(f"{path}.{key}" if path else str(key), value) for key, value in here.items()]
        elif type(here) is list:
            inside = [(f"{path}[{number}]", value) for number, value in enumerate(here)]
        else:
            continue
        for place, value in inside:
            if id(value) in missing:
                found.append(place)
                missing.discard(id(value))
        waiting.extend(reversed(inside))
    return found


def in_client_words(path: str, hub: object, asked: object) -> str:
    """A lost hub field by the client's name for it: `turns[].parts[].cache` -> `messages[].content[].cache_control`

    If the mapping built a new value, the place of what it was built from is used (`turns[].parts[].annotations` ->
    `messages[].content[].citations`), of the first part that is in the client's request: others may come from elsewhere
    (a remembered thought). If there is no such place (short texts and small numbers are shared objects, and constants
    come from the mapping), the hub's name is kept, or a longer one of the client (`logprobs` -> `top_logprobs`).
    """
    for value in islice(_at(hub, path.replace("[]", ".[]").split(".")), _MOST_LOOKED_FOR):
        places = places_of([value], asked) if _is_own(value) else []
        if places:
            return _NUMBER.sub("[]", places[0])
        if type(value) in (dict, list):
            places = places_of(list(islice(filter(_is_own, _inner(value, _DEPTH)), _MOST_LOOKED_FOR)), asked)
            if name := _common(places):
                return name
    longer = [] if type(asked) is not dict or path in asked else [key for key in asked if key.endswith(f"_{path}")]
    return longer[0] if longer else path


def _is_own(value: object) -> bool:
    """Whether a value is an object of its own, and not a text or number that Python shares."""
    if type(value) is int:
        return abs(value) > _MOST_SHARED
    if type(value) is str:
        return len(value) > 1
    return type(value) is float or type(value) in (dict, list) and bool(value)


def _inner(value: object, depth: int) -> Iterator[object]:
    """The parts of a value that the mapping built, the outermost first; a list is represented by its first item."""
    inside = value.values() if type(value) is dict else value[:1] if type(value) is list else ()
    for each in inside:
        yield each
    for each in inside if depth else ():
        yield from _inner(each, depth - 1)


def _common(places: list[str]) -> str | None:
    """The path that all these places have in common, without indexes: `a[0].b[1].c`, `a[0].b[1].d` -> `a[].b`."""
    same: list[str] = []
    for steps in zip(*(_STEP.findall(_NUMBER.sub("[]", place))[:-1] for place in places), strict=False):
        if len(set(steps)) > 1:
            break
        same.append(steps[0])
    return "".join(same).removesuffix("[]").removeprefix(".") or None


def _at(value: Any, steps: list[str]) -> Iterator[Any]:
    """The values at a place, in order."""
    for number, step in enumerate(steps):
        if step == "[]":
            for item in value if type(value) is list else ():
                yield from _at(item, steps[number + 1 :])
            return
        value = value.get(step) if type(value) is dict else None
    if value is not None:
        yield value
