"""What can stand at each place of the hub, as its schema says: for finding misspelt fields of it (`hub_words.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tollgate.mapping import hub


@dataclass(eq=False, slots=True)
class Shape:
    """What can stand at one place of the hub: an object with `fields`, a list of `items`, one of some `words`, or a
    `number`."""

    name: str
    fields: dict[str, Shape] = field(default_factory=dict)
    items: Shape | None = None
    words: tuple[str, ...] = ()
    truth: bool = False
    """It is true or false."""
    number: bool = False

    @property
    def one(self) -> Shape:
        """What one of it looks like: of a list, each of its items."""
        return self.items or self

    @property
    def known(self) -> bool:
        """Whether anything can be said of what stands there."""
        return bool(self.fields or self.items or self.words or self.number)


def shape(name: str) -> Shape:
    """The shape of a definition of the hub's schema: request, response, usage, part, ... It may hold itself, so it is
    known before its fields are made."""
    found = _SHAPES.get(name)
    if found is None:
        found = _SHAPES[name] = Shape(name)
        definition = hub.schema()["$defs"][name]
        closed = definition.get("additionalProperties") is False or "allOf" in definition
        properties = dict(definition["properties"]) if closed else {}
        for branch in definition.get("allOf", ()):  # a part, by its kind: whatever any kind has
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
"""Of a place that the hub does not know, nothing can be said."""
