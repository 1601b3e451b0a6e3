"""Reads typed values from a map whose shape has been checked: all fields of a dataclass, `fields_of(Retry, node)`, or
one key, `Fields(node).text("name", "")`.

The default is used for a key that is absent, null, or was removed because its value was wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from functools import cache
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from tollgate.config.load import List, Map, Node, Scalar, entries_of, items_of, one_or_many, plain

T = TypeVar("T")
_NOTHING: MappingProxyType[Any, Any] = MappingProxyType({})


def read_only(entries: dict[str, T]) -> MappingProxyType[str, T]:
    """A read-only view of a map. All empty maps are one object, because each of a thousand models has several."""
    return MappingProxyType(entries) if entries else _NOTHING


def fields_of(kind: type, node: Node | None) -> dict[str, Any]:
    """The fields of a dataclass that a map sets, by name; for others the dataclass has its default. Only fields of a
    type in `_READERS` are read: the caller reads the others.

    Endpoint, {batch: 8, headers: {a: b}, poll: null} -> {"batch": 8, "headers": {"a": <b>}}
    """
    if not isinstance(node, Map):
        return {}
    readers = _readers(kind)
    return {
        name: readers[name](child)
        for name, child in node.entries.items()
        if name in readers and not (isinstance(child, Scalar) and child.value is None)
    }


@cache
def _readers(kind: type) -> dict[str, Callable[[Any], object]]:
    found = {}
    for name, hint in get_type_hints(kind).items():
        is_word = Literal in (get_origin(hint), *map(get_origin, get_args(hint)))
        if read := _READERS.get(str if is_word else hint):
            found[name] = read
    return found


class Fields:
    """The typed values of one map; `Fields(None)` is an empty map."""

    __slots__ = ("node",)

    def __init__(self, node: Node | None) -> None:
        self.node = node if isinstance(node, Map) else None

    def get(self, key: str) -> Node | None:
        """The node under `key`, None when absent or null."""
        node = self.node.entries.get(key) if self.node else None
        return None if isinstance(node, Scalar) and node.value is None else node

    def text(self, key: str, default: T = "") -> str | T:  # type: ignore[assignment]
        """A text. Here and below: `default` if the key is absent or has another type."""
        value = self._value(key)
        return value if isinstance(value, str) else default

    def integer(self, key: str, default: T = 0) -> int | T:  # type: ignore[assignment]
        """A whole number."""
        value = self._value(key)
        return value if type(value) is int else default

    def number(self, key: str, default: float) -> float:
        """A number, as a float: for seconds and the like, never for money."""
        value = self._value(key)
        return float(value) if type(value) is int or isinstance(value, Decimal) else default

    def boolean(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self._value(key)
        return value if isinstance(value, bool) else default

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """A list of texts, or one text."""
        node = self.get(key)
        return default if node is None else _texts(node)

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        return _integers(self.get(key))

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

    def kept(self, key: str) -> List | None:
        """A list without the items that were removed as wrong; for lists whose positions do not matter."""
        node = self.list(key)
        return _kept(node) if node else None

    def nodes(self, key: str) -> MappingProxyType[str, Node]:
        """The entries of a map, unread (templates by name)."""
        return _nodes(self.get(key))

    def _value(self, key: str) -> object:
        node = self.node.entries.get(key) if self.node else None
        return node.value if type(node) is Scalar else None


def _texts(node: Node) -> tuple[str, ...]:
    return tuple(str(item.value) for item in one_or_many(node) if isinstance(item, Scalar) and item.value is not None)


def _integers(node: Node | None) -> tuple[int, ...]:
    return tuple(item.value for item in items_of(node) if isinstance(item, Scalar) and isinstance(item.value, int))


def _kept(node: List) -> List:
    kept = tuple(item for item in node.items if not (isinstance(item, Scalar) and item.value is None))
    return node if len(kept) == len(node.items) else replace(node, items=kept)


def _nodes(node: Node | None) -> MappingProxyType[str, Node]:
    return read_only(dict(entries_of(node)))


_READERS: dict[Any, Callable[[Any], object]] = {
    **dict.fromkeys((str, int, bool, str | None, int | None, bool | None), attrgetter("value")),
    **dict.fromkeys((Node | None, Map | None), lambda node: node),
    List | None: _kept,
    float: lambda node: float(node.value),
    Path: lambda node: Path(node.value),
    tuple[str, ...]: _texts,
    tuple[int, ...]: _integers,
    frozenset[int]: lambda node: frozenset(_integers(node)),
    Mapping[str, Node]: _nodes,
    Mapping[str, float]: lambda node: read_only({name: float(each.value) for name, each in node.entries.items()}),
    Mapping[str, object]: lambda node: read_only(
        {name: plain(value, floats=True) for name, value in node.entries.items()}
    ),
}
"""How a field is read, by its type in the dataclass; the schema has checked the shape."""
