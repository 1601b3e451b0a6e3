"""An endpoint whose answer is not there at once: the first one says where it will be, and it is asked for until it is
done.

Owns what the file says (`speaks.<protocol>.poll`); the waiting is `completions/polling.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tollgate.config.load import List, Map, Node, Scalar
from tollgate.mapping.images.hosts import Host, is_admitted, origin
from tollgate.mapping.images.offer import EVERY
from tollgate.mapping.images.pieces import Compiler
from tollgate.mapping.images.price import Read
from tollgate.mapping.provider.pieces import Pieces
from tollgate.mapping.provider.pieces import Read as Condition

_METHODS = ("GET", "POST", "PUT", "DELETE")
_NAMES = ("$", "http", "model", "vars")


class NoAddress(Exception):
    """An answer gives no address to ask at, or one under no host that the file declares."""


@dataclass(frozen=True, slots=True)
class Told:
    """An answer as its file reads it: its body as `$`, its `status` and `headers` as `$http`."""

    body: Any
    http: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where one of the calls goes; its address reads the first answer."""

    method: str
    url: Read
    hosts: tuple[Host, ...] | None

    def address(self, first: Told, model: Mapping[str, Any], variables: Mapping[str, Any]) -> str:
        """The address after the first answer. Raises `NoAddress`."""
        url = self.url({"$": first.body, "$http": first.http, "$model": model, "$vars": variables})
        if not isinstance(url, str) or not url:
            raise NoAddress("the provider's answer does not say where to ask for the rest")
        if self.hosts is not None and not is_admitted(url, self.hosts):
            raise NoAddress(f"the provider's answer leads to {origin(url)}, which is under no host of its file")
        return url


@dataclass(frozen=True, slots=True)
class Polling:
    """How an endpoint's answer is waited for. `unfinished` is what `while` says of an answer."""

    unfinished: Condition
    again: Place
    fetch: Place | None
    cancel: Place | None
    every: tuple[float, ...]
    variables: Mapping[str, Any]

    def waits(self, latest: Told) -> bool:
        """Whether the latest answer is unfinished."""
        return bool(self.unfinished(latest.body, http=latest.http))

    def describe(
        self, first: Told, model: Mapping[str, Any], variables: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """What becomes of a first answer, for examples: whether it `waits`, and the calls that could follow. An
        example brings `variables` of its own where those of the file are secrets that are not set."""
        known = {**self.variables, **(variables or {})}
        unset = [f"`$vars.{name}` has no value" for name, value in known.items() if value is None]
        description: dict[str, Any] = {"waits": self.waits(first)}
        for name, place in (("call", self.again), ("fetch", self.fetch), ("cancel", self.cancel)):
            if place is not None and description["waits"]:
                try:
                    description[name] = f"{place.method} {place.address(first, model, known)}"
                except NoAddress as error:
                    description[name] = "; ".join([str(error), *unset])
        return description


def compile_polling(pieces: Pieces, node: Map | None, path: str) -> Polling | None:
    """The `poll:` of an endpoint; None without one, or with its mistakes noted in `pieces`."""
    if node is None:
        return None
    compiler = Compiler(pieces.document, pieces.functions, {}, names=_NAMES, methods=_METHODS)
    hosts, condition = node.get("hosts"), node.get("while")

    def place(key: str) -> Place | None:
        step = node.get(key)
        called = compiler.call(step, hosts, f"{path}.{key}") if step is not None else None
        return Place(*called) if called is not None else None

    again, fetch, cancel = place("call"), place("fetch"), place("cancel")
    pieces.problems += compiler.problems
    waits = pieces.condition(condition, "http") if condition is not None else None
    if again is None or waits is None:
        return None
    return Polling(waits, again, fetch, cancel, _pauses(node.get("every")) or EVERY, pieces.variables)


def _pauses(node: Node | None) -> tuple[float, ...]:
    """Those that are numbers: what else stands there is refused where the file's shape is checked."""
    values = [item.value for item in node.items if isinstance(item, Scalar)] if isinstance(node, List) else []
    return tuple(float(value) for value in values if isinstance(value, (int, Decimal)))
