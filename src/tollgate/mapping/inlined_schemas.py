"""Puts what the references of a JSON schema lead to in their places: the filter `inlined`."""

from __future__ import annotations

from typing import Any

from tollgate.mapping.schema_walk import MOST_COPIES, TooManyCopies, everywhere, size, target_of
from tollgate.mapping.values import Object


def inlined(schema: Object) -> dict[str, Any] | None:
    """A JSON schema in which what a reference leads to stands in its place, with what stood beside it. A reference that
    leads back to itself stays, beside the type of its target. One without references, or that would become too large
    or too deep, is returned unchanged.

    {"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": "string"}}} -> {"items": {"type": "string"}}
    """
    if type(schema) is not dict:
        return None
    try:
        return _Inlining(schema).made() if _refers(schema) else schema
    except (TooManyCopies, RecursionError):
        return schema


def _refers(value: Object) -> bool:
    """Whether there is a reference in a value, also where none is replaced (`propertyNames`)."""
    if type(value) is dict:
        return "$ref" in value or any(map(_refers, value.values()))
    return type(value) is list and any(map(_refers, value))


class _Inlining:
    """Puts the targets of the references in `root` in their places."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._left = MOST_COPIES
        """How many values may still be copied."""

    def made(self) -> dict[str, Any]:
        """The schema. Its definitions are left out unless a reference stayed."""
        defined = {key: value for key, value in self._root.items() if key in ("$defs", "definitions")}
        rest = {key: value for key, value in self._root.items() if key not in defined}
        made = everywhere(rest, self._referred)
        return {**made, **defined} if _refers(made) else made

    def _referred(self, schema: dict[str, Any], within: tuple[str, ...] = ()) -> dict[str, Any]:
        """A schema, or what its reference leads to; `within` are the references that led here."""
        reference = schema.get("$ref")
        if type(reference) is not str or (target := target_of(self._root, reference)) is None:
            return schema
        if reference in within or reference == "#":
            return {**({"type": target["type"]} if "type" in target else {}), **schema}
        self._left -= size(target)
        if self._left < 0:
            raise TooManyCopies
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return {**everywhere(target, lambda one: self._referred(one, (*within, reference))), **beside}
