"""Typed reading of a map whose shape has been checked: `Fields(node).text("name", "")`.

A key that is absent, null, or was cut out because it was wrong gives the default.
"""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar, cast

from tollgate.config.load import List, Map, Mark, Node, Scalar, items_of, plain

T = TypeVar("T")
_NOTHING: MappingProxyType[Any, Any] = MappingProxyType({})


def read_only(entries: dict[str, T]) -> MappingProxyType[str, T]:
    """A read-only view of a map. Empty maps share one object, because each of a thousand models has several."""
    return MappingProxyType(entries) if entries else _NOTHING


@cache
def default_of(kind: type, name: str) -> Any:
    """The default a dataclass of `model.py` gives a field: each is written there and nowhere else."""
    [item] = [each for each in dataclasses.fields(kind) if each.name == name]
    return item.default_factory() if item.default_factory is not dataclasses.MISSING else item.default


class Fields:
    """One map's values by kind; `Fields(None)` is an empty map."""

    __slots__ = ("node",)

    def __init__(self, node: Node | None) -> None:
        self.node = node if isinstance(node, Map) else None

    def get(self, key: str) -> Node | None:
        """The node under `key`, None when absent or null."""
        node = self.node.entries.get(key) if self.node else None
        return None if isinstance(node, Scalar) and node.value is None else node

    def text(self, key: str, default: T = "") -> str | T:  # type: ignore[assignment]
        """A text; `default` when the key is absent or holds something else, here and below."""
        value = self._value(key)
        return value if isinstance(value, str) else default

    def word(self, key: str, default: T) -> T:
        """One of a few fixed words; the schema has checked that it is among those of the type of `default`."""
        return cast("T", self.text(key, default))

    def integer(self, key: str, default: T = 0) -> int | T:  # type: ignore[assignment]
        """A whole number."""
        value = self._value(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def number(self, key: str, default: float) -> float:
        """A number, as a float: for seconds and the like, never for money."""
        value = self._value(key)
        return float(value) if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else default

    def boolean(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self._value(key)
        return value if isinstance(value, bool) else default

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """A list of texts, or one text."""
        node = self.get(key)
        if isinstance(node, List):
            return tuple(str(item.value) for item in node.items if isinstance(item, Scalar) and item.value is not None)
        return (str(node.value),) if isinstance(node, Scalar) else default

    def integers(self, key: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """A list of whole numbers."""
        node = self.get(key)
        if not isinstance(node, List):
            return default
        return tuple(item.value for item in node.items if isinstance(item, Scalar) and isinstance(item.value, int))

    def numbers(self, key: str, default: tuple[float, ...] = ()) -> tuple[float, ...]:
        """A list of numbers, as floats."""
        node = self.get(key)
        values = [item.value for item in items_of(node) if isinstance(item, Scalar)]
        return tuple(float(value) for value in values if isinstance(value, (int, Decimal))) or default

    def map(self, key: str) -> Map | None:
        """The map under `key`; None when there is none."""
        node = self.get(key)
        return node if isinstance(node, Map) else None

    def list(self, key: str) -> List | None:
        """The list under `key`; None when there is none."""
        node = self.get(key)
        return node if isinstance(node, List) else None

    def nodes(self, key: str) -> MappingProxyType[str, Node]:
        """A map's entries as they are (templates by name)."""
        node = self.map(key)
        return read_only(dict(node.entries) if node else {})

    def plain(self, key: str) -> MappingProxyType[str, object]:
        """A map as plain values."""
        node = self.map(key)
        return read_only({name: plain(value, floats=True) for name, value in node.entries.items()} if node else {})

    def mark(self, key: str) -> Mark | None:
        """Where the key stands."""
        return self.node.keys.get(key) if self.node else None

    def _value(self, key: str) -> object:
        node = self.node.entries.get(key) if self.node else None
        return node.value if type(node) is Scalar else None
