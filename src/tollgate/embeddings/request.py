"""Parses and checks an embeddings request: the four forms of `input`, and the fields with a fixed meaning.

Other fields are passed through to providers of the same format. Error messages follow `failed to bind request: ` (SPEC,
errors of embeddings).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tollgate.errors import BadRequest
from tollgate.mapping.values import json_text
from tollgate.wording import clipped

Item = str | list[int]
"""One input: a text, or the token ids of a text."""

_FORMATS = ("float", "base64")


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """A checked request. `items` are the inputs, `body` is the client's document. With `packed` the client gets its
    vectors as base64."""

    model: str
    items: list[Item]
    body: dict[str, Any]
    packed: bool = False

    @property
    def has_token_ids(self) -> bool:
        """Whether any input is token ids instead of text."""
        return any(not isinstance(item, str) for item in self.items)

    def native(self, items: list[Item]) -> dict[str, Any]:
        """The client's body with these inputs, otherwise unchanged."""
        if items is self.items:
            return self.body
        return {**self.body, "input": items}


def read_request(body: dict[str, Any], *, packed: bool = False) -> EmbeddingRequest:
    """Check a parsed body. Raises `BadRequest` with the name of the field. For `packed` see `EmbeddingRequest`."""
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise BadRequest("model is required and must be text", "model")
    if body.get("input") is None:
        raise BadRequest("input is required", "input")
    wanted = body.get("encoding_format")
    if wanted is not None and wanted not in _FORMATS:
        raise BadRequest(f"encoding_format is {_shown(wanted)}, wanted float or base64", "encoding_format")
    dimensions = body.get("dimensions")
    if dimensions is not None and (not isinstance(dimensions, int) or isinstance(dimensions, bool) or dimensions < 1):
        raise BadRequest(f"dimensions is {_shown(dimensions)}, wanted a positive integer", "dimensions")
    user = body.get("user")
    if user is not None and not isinstance(user, str):
        raise BadRequest(f"user is {_shown(user)}, wanted text", "user")
    return EmbeddingRequest(model, _items(body["input"]), body, packed)


def check_count(items: list[Item], most: int | None) -> None:
    """Raise `BadRequest` for more inputs than the model accepts in one request."""
    if most is not None and len(items) > most:
        raise BadRequest(f"input has {len(items)} entries, the most for this model is {most}", "input")


def _items(given: object) -> list[Item]:
    """The list of inputs: "a" -> ["a"]; [1, 2] -> [[1, 2]]; ["a", "b"] and [[1], [2, 3]] stay. Raises `BadRequest`."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list):
        raise BadRequest(
            f"input is {_shown(given)}, wanted text, a list of texts, token ids or lists of token ids", "input"
        )
    if not given:
        raise BadRequest("input is an empty list", "input")
    first = given[0]
    if isinstance(first, str):
        for place, item in enumerate(given):
            if not isinstance(item, str):
                raise BadRequest(f"input[{place}] is {_shown(item)}, wanted text like the entries before it", "input")
        return given
    if isinstance(first, list):
        for place, ids in enumerate(given):
            if not isinstance(ids, list):
                raise BadRequest(
                    f"input[{place}] is {_shown(ids)}, wanted a list of token ids like the entries before it", "input"
                )
            _check_ids(ids, f"input[{place}]")
        return given
    _check_ids(given, "input")
    return [given]


def _check_ids(ids: list[object], where: str) -> None:
    if not ids:
        raise BadRequest(f"{where} is an empty list", "input")
    for place, token in enumerate(ids):
        if type(token) is not int or token < 0:
            raise BadRequest(f"{where}[{place}] is {_shown(token)}, wanted text or a token id", "input")


def _shown(value: object) -> str:
    """A value as JSON for a message, clipped because it may be very long."""
    return clipped(json_text(value), 60)
