"""What the client calls a value of the hub: losses are told in its own words.

Values travel through a mapping as they are, so that the very object a hub field holds can be looked for in the request
it came from.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any

_MOST_LOOKED_FOR = 10
"""Values at a place, and parts of a made value."""
_DEPTH = 150
_NUMBER = re.compile(r"\[\d+\]")
_STEP = re.compile(r"\[\]|\.?[^.\[]+")
_MOST_SHARED = 256
"""Python keeps one object for each number up to this."""


def places_of(wanted: Collection[object], document: object) -> list[str]:
    """The paths of these very objects (not of equal ones) inside `document`, of each the first, found in one walk;
    those that are not in it have none."""
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
    """A lost hub field by the client's own name for it: `turns[].parts[].cache` -> `messages[].content[].cache_control`

    Where the mapping made a new value, what it was made of tells the place (`turns[].parts[].annotations` ->
    `messages[].content[].citations`). The first value there that is the client's tells: one may come from elsewhere (a
    thought that was remembered). The hub's name stays where there is none: short texts and small numbers are shared
    objects, constants come from nowhere.
    """
    for value in islice(_at(hub, path.replace("[]", ".[]").split(".")), _MOST_LOOKED_FOR):
        places = places_of([value], asked) if _is_own(value) else []
        if places:
            return _NUMBER.sub("[]", places[0])
        if type(value) in (dict, list):
            places = places_of(list(islice(filter(_is_own, _inner(value, _DEPTH)), _MOST_LOOKED_FOR)), asked)
            if name := _common(places):
                return name
    return path


def _is_own(value: object) -> bool:
    """Whether a value is an object of its own, and no text or number that many share."""
    if type(value) is int:
        return abs(value) > _MOST_SHARED
    if type(value) is str:
        return len(value) > 1
    return type(value) is float or type(value) in (dict, list) and bool(value)


def _inner(value: object, depth: int) -> Iterator[object]:
    """What a made value holds, the outermost first; of a list its first item stands for all."""
    inside = value.values() if type(value) is dict else value[:1] if type(value) is list else ()
    for each in inside:
        yield each
    for each in inside if depth else ():
        yield from _inner(each, depth - 1)


def _common(places: list[str]) -> str | None:
    """What holds all these places, without their numbers: `a[0].b[1].c`, `a[0].b[1].d` -> `a[].b`."""
    same: list[str] = []
    for steps in zip(*(_STEP.findall(_NUMBER.sub("[]", place))[:-1] for place in places), strict=False):
        if len(set(steps)) > 1:
            break
        same.append(steps[0])
    return "".join(same).removesuffix("[]").removeprefix(".") or None


def _at(value: Any, steps: list[str]) -> Iterator[Any]:
    """The values at a place, in their order."""
    for number, step in enumerate(steps):
        if step == "[]":
            for item in value if type(value) is list else ():
                yield from _at(item, steps[number + 1 :])
            return
        value = value.get(step) if type(value) is dict else None
    if value is not None:
        yield value
