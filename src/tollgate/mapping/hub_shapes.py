"""What each place of the hub can hold, by its schema: for finding misspelt fields (`hub_words.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tollgate.mapping import hub


@dataclass(eq=False, slots=True)
class Shape:
    """What one place of the hub can hold: an object with `fields`, a list of `items`, one of some `words`, or a
    `number`."""

    name: str
    fields: dict[str, Shape] = field(default_factory=dict)
    items: Shape | None = None
    words: tuple[str, ...] = ()
    truth: bool = False
    """True or false."""
    number: bool = False

    @property
    def one(self) -> Shape:
        """The shape of one of its items, if it is a list; else its own."""
        return self.items or self

    @property
    def known(self) -> bool:
        """Whether the schema says anything about this place."""
        return bool(self.fields or self.items or self.words or self.number)


def shape(name: str) -> Shape:
    """The shape of a definition of the hub's schema: request, response, usage, part, ... It may contain itself, so
    it is registered before its fields are made."""
    found = _SHAPES.get(name)
    if found is None:
        found = _SHAPES[name] = Shape(name)
        definition = hub.schema()["$defs"][name]
        closed = definition.get("additionalProperties") is False or "allOf" in definition
        properties = dict(definition["properties"]) if closed else {}
        for branch in definition.get("allOf", ()):  # of a part: the fields of all kinds
            properties |= hub.schema()["$defs"][branch["then"]["$ref"].rpartition("/")[2]]["properties"]
        found.fields.update(
            {key: _of(key, value) for key, value in properties.items() if key != "kind" or "enum" in value}
        )
        if "kind" in properties:
            found.fields.setdefault("kind", Shape("kind", words=hub.KINDS if name == "part" else ()))
    return found


_SHAPES: dict[str, Shape] = {}


def _of(name: str, schema: Mapping[str, Any]) -> Shape:
    if "$ref" in schema:
        return shape(schema["$ref"].rpartition("/")[2])
    if "items" in schema:
        return Shape(name, items=_of(name, schema["items"]))
    if schema.get("additionalProperties") is False:
        return Shape(name, {key: _of(key, value) for key, value in schema["properties"].items()})
    kind = schema.get("type")
    return Shape(
        name, words=tuple(schema.get("enum", ())), truth=kind == "boolean", number=kind in ("integer", "number")
    )


ANYTHING = Shape("")
"""The shape of a place that the hub does not know."""
