"""The hub: our own neutral format between formats, version 1. Its JSON Schema is beside this file.

Owns the field names that the compiler checks engine records against, the validation of hub values in examples, and the
stop reason of an answer with or without calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from tollgate.wording import path_text


@cache
def schema() -> dict[str, Any]:
    """The published JSON Schema of hub documents."""
    text = Path(__file__).with_name("hub.schema.json").read_bytes()
    return orjson.loads(text)  # type: ignore[no-any-return]


def _fields(kind: str) -> frozenset[str]:
    return frozenset(schema()["$defs"][kind]["properties"])


REQUEST_FIELDS = _fields("request")
RESPONSE_FIELDS = _fields("response")
USAGE_FIELDS = _fields("usage")
ERROR_FIELDS = _fields("error")
_STOPS = frozenset(schema()["$defs"]["response"]["properties"]["stop"]["enum"])
PARTS: dict[str, dict[str, Any]] = {
    branch["if"]["properties"]["kind"]["const"]: schema()["$defs"][branch["then"]["$ref"].rpartition("/")[2]]
    for branch in schema()["$defs"]["part"]["allOf"]
}
"""The definition of a part, by its kind."""
KINDS: tuple[str, ...] = tuple(PARTS)
PART_FIELDS: tuple[str, ...] = tuple(
    dict.fromkeys(name for part in PARTS.values() for name in part["properties"] if name not in ("kind", "parts"))
)
"""Every field a part can have, of whatever kind."""


@cache
def _validator(kind: str) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    whole = schema()
    checking = extend(Draft202012Validator, {"allOf": _of_its_kind})
    return checking({"$schema": whole["$schema"], "$defs": whole["$defs"], "$ref": f"#/$defs/{kind}"})


def _of_its_kind(validator: Any, branches: list[Any], part: object, _schema: object) -> Iterator[Any]:
    """`allOf` of a part, which has a branch for each kind: only the branch of its own kind is checked. Checking all
    of them took a sixth of the time of `tollgate check`."""
    kind = part.get("kind") if isinstance(part, dict) else None
    for number, branch in enumerate(branches):
        if kind is None or branch["if"]["properties"]["kind"]["const"] == kind:
            yield from validator.descend(part, branch, schema_path=number)


def faults(kind: str, value: object) -> list[str]:
    """The mistakes in a hub value, as `path: what`; `kind` is a definition of the schema: request, response, usage,
    error, part, ..."""
    errors = sorted(_validator(kind).iter_errors(value), key=lambda error: [str(step) for step in error.absolute_path])
    return [f"{path_text(error.absolute_path) or 'the document'}: {error.message}" for error in map(_nearest, errors)]


def _nearest(error: Any) -> Any:
    """Inside `anyOf`, the error of the branch whose kind or type fits."""
    while error.context:
        branches: dict[int, list[Any]] = {}
        for inner in error.context:
            branches.setdefault(inner.schema_path[0], []).append(inner)
        fitting = [
            errors for errors in branches.values() if not any(inner.validator in ("const", "enum") for inner in errors)
        ]
        if not fitting:
            return error
        typed = [errors for errors in fitting if not any(e.validator == "type" and not e.path for e in errors)]
        error = min(typed or fitting, key=len)[0]
    return error


def settled_stop(stop: str | None, *, calls: bool) -> str:
    """The stop reason of a hub response. Upstreams are not reliable about tool calls, so the content decides."""
    if stop is None or stop not in _STOPS:
        stop = "end"
    if calls and stop == "end":
        return "tool"
    if not calls and stop == "tool":
        return "end"
    return stop
