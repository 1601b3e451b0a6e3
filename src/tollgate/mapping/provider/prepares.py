"""Calls before a request, such as an upload whose id the request refers to, or a new session (`prepare:` of an
endpoint).

`completions/preparing.py` makes the calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tollgate.config.fields import Fields
from tollgate.config.load import List, Map, Node, text_in
from tollgate.config.model import BodyEncoding
from tollgate.mapping.context import Context
from tollgate.mapping.failures import MappingFailure, UnfitRequest
from tollgate.mapping.http_calls import CallPieces, CallRead
from tollgate.mapping.paths import Descend, Every, ParseError, Step, parse_path
from tollgate.mapping.pieces import Template
from tollgate.mapping.provider.pieces import Pieces

_NAMES = ("$", "model", "vars")
_OLD = {"old": None}
"""The additional name in the call and its body: the value at the place."""
Place = tuple[dict[str, Any] | list[Any], Any]
"""An object or list, and the key or index of a value in it."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """One kind of call, made for the value at each place that `steps` lead to. The value read from its answer replaces
    it."""

    steps: tuple[Step, ...]
    method: str
    url: CallRead
    encoding: BodyEncoding
    body: Template | None
    value: Template
    variables: Mapping[str, Any]

    def places(self, document: Any) -> list[Place]:
        """The places in a request that have a value."""
        found: list[tuple[Any, Any]] = [([document], 0)]
        for step in self.steps:
            found = [place for holder, key in found for place in _below(holder[key], step)]
        return [(holder, key) for holder, key in found if holder[key] is not None]

    def call(self, document: Any, old: Any, facts: Mapping[str, Any]) -> tuple[str, str, Any]:
        """The method, URL and body (None: no body) of the call for the value `old`. Raises `UnfitRequest` if one
        cannot be computed."""
        try:
            url = self.url({"$": document, "$old": old, "$model": facts, "$vars": self.variables})
            body = None
            if self.body is not None:
                body = self.body(document, Context(model=facts), old=old, model=facts, vars=self.variables)
        except MappingFailure as failure:
            raise UnfitRequest(failure.message, failure.place) from None
        if not isinstance(url, str):
            raise UnfitRequest("the request lacks a value for the URL of a call before it")
        return self.method, url, body


def _below(value: Any, step: Step) -> Iterator[tuple[Any, Any]]:
    if isinstance(step, Descend):
        for holder, key in _items(value):
            if key == step.key and isinstance(holder, dict):
                yield holder, key
            else:
                yield from _below(holder[key], step)
    elif isinstance(step, Every):
        yield from _items(value)
    elif isinstance(value, dict) and step in value:
        yield value, step


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return ((value, key) for key in keys)


def compile_prepares(pieces: Pieces, node: List | None, path: str) -> tuple[Prepare, ...]:
    """The compiled `prepare:` of an endpoint. Mistakes are noted in `pieces`."""
    items = node.items if node is not None else ()
    made = (_prepare(pieces, item, f"{path}[{at}]") for at, item in enumerate(items) if isinstance(item, Map))
    return tuple(prepare for prepare in made if prepare is not None)


def _prepare(pieces: Pieces, node: Map, path: str) -> Prepare | None:
    names = {**pieces.names(*_NAMES), **_OLD}
    at = node.get("at")
    steps = _steps(pieces, at, f"{path}.at") if at is not None else None
    called = CallPieces(pieces, names, ("POST", "PUT", "GET")).call(
        node.get("call"), None, f"{path}.call", source="the request"
    )
    read = pieces.template(node.get("value"), pieces.names("$", "http"))
    content = pieces.template(node.get("body"), names, answer=False)
    if steps is None or called is None or read is None:
        return None
    encoding: BodyEncoding = Fields(node).text("encoding", "json")  # type: ignore[assignment]
    return Prepare(steps, called[0], called[1], encoding, content, read, pieces.variables)


def _steps(pieces: Pieces, node: Node, path: str) -> tuple[Step, ...] | None:
    text = text_in(node) or ""
    try:
        parsed = parse_path(text) if text.startswith("$") else None
    except ParseError:
        parsed = None
    known = parsed is not None and not parsed.base and parsed.steps
    if parsed is None or not known or not all(isinstance(step, str | Every | Descend) for step in parsed.steps):
        pieces.mistake(
            node, f'found "{text}", wanted a path of fields, [*] and ..', path, "$.messages[*].picture, or $..upload"
        )
        return None
    return parsed.steps
