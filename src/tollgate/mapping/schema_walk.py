"""How JSON schemas contain others: the walk through one, where its references lead, and how much of it may be copied.

Values that are no schemas (a property called `minimum`, a list of examples) are not entered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tollgate.mapping.values import Object

ONE = ("items", "contains", "not", "additionalProperties")
"""Keywords that hold one schema (or true or false)."""
SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems")
"""Keywords that hold a list of schemas."""
NAMED = ("properties", "patternProperties", "$defs", "definitions")
"""Keywords that hold schemas by name."""
MOST_COPIES = 50_000
"""How many values a filter may copy to where they apply: nested alternatives and references multiply them, so that a
schema of a kilobyte could become one of gigabytes."""
Change = Callable[[dict[str, Any]], dict[str, Any]]


def everywhere(schema: dict[str, Any], change: Change, before: Change | None = None) -> dict[str, Any]:
    """The schema with a change to each schema in it, those inside another one first, or `before` that one."""
    made = before(schema).copy() if before else schema.copy()
    for key in ONE:
        if type(held := made.get(key)) is dict:
            made[key] = everywhere(held, change, before)
    for key in SEVERAL:
        if type(held := made.get(key)) is list:
            made[key] = [everywhere(one, change, before) if type(one) is dict else one for one in held]
    for key in NAMED:
        if type(held := made.get(key)) is dict:
            made[key] = {
                name: everywhere(one, change, before) if type(one) is dict else one for name, one in held.items()
            }
    return change(made)


def inside(schema: dict[str, Any], by_name: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The schemas directly inside a schema, also those that these keywords hold by name."""
    for key in ONE:
        if type(held := schema.get(key)) is dict:
            yield held
    for key in SEVERAL:
        if type(held := schema.get(key)) is list:
            yield from (one for one in held if type(one) is dict)
    for key in by_name:
        if type(held := schema.get(key)) is dict:
            yield from (one for one in held.values() if type(one) is dict)


def target_of(root: dict[str, Any], reference: str) -> dict[str, Any] | None:
    """The schema that a reference inside the document leads to: `#`, or a JSON pointer such as `#/properties/a`."""
    start, *names = reference.split("/")
    found: Any = root if start == "#" else None
    for name in names:
        found = found.get(name.replace("~1", "/").replace("~0", "~")) if type(found) is dict else None
    return found if type(found) is dict else None


class TooManyCopies(Exception):
    """A schema would become too large."""


def size(value: Object) -> int:
    """How many values there are in a value, with itself."""
    if type(value) is dict:
        return 1 + sum(map(size, value.values()))
    return 1 + sum(map(size, value)) if type(value) is list else 1
