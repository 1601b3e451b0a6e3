"""What each place of the hub can hold, by its schema: for finding misspelt fields (`hub_words.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tollgate.mapping import hub


@dataclass(eq=False, slots=True)
class Shape:
    """What one place of the hub can hold: values of these `kinds` (as in `values.KINDS`; of any, if there are none), an
    object with `fields`, a list of `items`, one of some `words`."""

    name: str
    fields: dict[str, Shape] = field(default_factory=dict)
    items: Shape | None = None
    words: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    of_kind: str = ""
    """Of parts of one kind: that kind."""

    @property
    def one(self) -> Shape:
        """The shape of one of its items, if it is a list; else its own."""
        return self.items or (ANYTHING if self.kinds == ("list",) else self)

    @property
    def known(self) -> bool:
        """Whether the schema says anything about this place."""
        return bool(self.fields or self.items or self.words or self.kinds)


def shape(name: str) -> Shape:
    """The shape of a definition of the hub's schema: request, response, usage, part, ... It may contain itself, so
    it is registered before its fields are made."""
    found = _SHAPES.get(name)
    if found is None:
        found = _SHAPES[name] = Shape(name)
        for definition in hub.PARTS.values() if name == "part" else [hub.schema()["$defs"][name]]:
            if definition.get("additionalProperties") is False:
                found.fields |= {key: _of(key, value) for key, value in definition["properties"].items()}
        if name == "part":
            del found.fields["kind"]  # that of one kind
            found.fields["kind"] = Shape("kind", words=hub.KINDS, kinds=("text",))
        found.kinds = ("object",) if found.fields else ()
    return found


def of_kind(kind: str) -> Shape:
    """The shape of a part of this kind; of any part, if the hub has no such kind."""
    part, fields = shape("part"), hub.PARTS.get(kind, {}).get("properties", {})
    if kind not in _OF_KINDS:
        own = {key: part.fields[key] for key in fields}
        _OF_KINDS[kind] = Shape("part", own, kinds=part.kinds, of_kind=kind) if fields else part
    return _OF_KINDS[kind]


_SHAPES: dict[str, Shape] = {}
_OF_KINDS: dict[str, Shape] = {}
_KINDS = {
    "string": "text",
    "boolean": "bool",
    "integer": "number",
    "number": "number",
    "array": "list",
    "object": "object",
}
"""Our words for the types of JSON Schema."""


def _of(name: str, schema: Mapping[str, Any]) -> Shape:
    if "$ref" in schema:
        return shape(schema["$ref"].rpartition("/")[2])
    words = tuple(schema.get("enum", ()))
    types = schema.get("type", "string" if words else [])
    kinds = tuple(dict.fromkeys(_KINDS[each] for each in ([types] if isinstance(types, str) else types)))
    if "items" in schema:
        return Shape(name, items=_of(name, schema["items"]), kinds=kinds)
    if schema.get("additionalProperties") is False:
        return Shape(name, {key: _of(key, value) for key, value in schema["properties"].items()}, kinds=kinds)
    return Shape(name, words=words, kinds=kinds)


ANYTHING = Shape("")
"""The shape of a place that the hub does not know."""
