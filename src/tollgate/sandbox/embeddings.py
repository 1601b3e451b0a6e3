"""Embeddings: deterministic unit vectors, as floats or base64, for strings and token arrays."""

from __future__ import annotations

import base64
import hashlib
import math
import struct
from collections.abc import Mapping, Sequence
from typing import TypeGuard

from tollgate.sandbox import counting
from tollgate.sandbox.faults import Fault, missing

DIMENSIONS = (256, 512, 1024, 1536)
DEFAULT_DIMENSIONS = 1536
_MOST_INPUTS = 2048
_MOST_CHARACTERS = 9 * 8192
"""A token has nine characters at most, and the model accepts 8192 tokens according to the catalog. Counting more
would block everything else in this process."""


def texts_of(body: Mapping[str, object]) -> list[str | Sequence[int]]:
    """The inputs one by one: strings, or token arrays; raises `Fault` 400."""
    given = body.get("input")
    if given is None:
        raise missing("input")
    if isinstance(given, str) or _are_tokens(given):
        inputs: list[str | Sequence[int]] = [given]
    elif isinstance(given, list) and given and all(isinstance(item, str) or _are_tokens(item) for item in given):
        inputs = given
    else:
        raise Fault(
            400,
            "Invalid 'input': expected a string, an array of strings or arrays of tokens.",
            param="input",
            code="invalid_type",
        )
    if len(inputs) > _MOST_INPUTS:
        raise Fault(400, f"Invalid 'input': at most {_MOST_INPUTS} inputs in one request.", param="input")
    if any(len(item) == 0 for item in inputs):
        raise Fault(400, "Invalid 'input': an input may not be empty.", param="input")
    if any(isinstance(item, str) and len(item) > _MOST_CHARACTERS for item in inputs):
        raise Fault(
            400,
            "This model's maximum context length is 8192 tokens. An input is longer.",
            param="input",
            code="context_length_exceeded",
        )
    return inputs


def embed(
    body: Mapping[str, object], model: str, *, usage: int | None = None, silent: bool = False
) -> dict[str, object]:
    """The embeddings answer; `usage` replaces the counted tokens, `silent` leaves usage out."""
    inputs = texts_of(body)
    size = body.get("dimensions")
    if size is None:
        size = DEFAULT_DIMENSIONS
    if not isinstance(size, int) or size not in DIMENSIONS:
        listed = ", ".join(map(str, DIMENSIONS))
        raise Fault(
            400,
            f"Invalid value for 'dimensions': {size}. Supported values are: {listed}.",
            param="dimensions",
            code="invalid_value",
        )
    shape = body.get("encoding_format") or "float"
    if shape not in ("float", "base64"):
        raise Fault(
            400,
            f"Invalid value: '{shape}'. Supported values are: 'float' and 'base64'.",
            param="encoding_format",
            code="invalid_value",
        )
    data = []
    for index, item in enumerate(inputs):
        found = vector(item, size)
        packed = base64.b64encode(struct.pack(f"<{len(found)}f", *found)).decode() if shape == "base64" else found
        data.append({"object": "embedding", "index": index, "embedding": packed})
    answer: dict[str, object] = {"object": "list", "data": data, "model": model}
    if not silent:
        tokens = sum(counting.count(i) if isinstance(i, str) else len(i) for i in inputs) if usage is None else usage
        answer["usage"] = {"prompt_tokens": tokens, "total_tokens": tokens}
    return answer


def vector(item: str | Sequence[int], size: int) -> list[float]:
    """A unit vector that depends on the input alone; its numbers are exact as 32-bit floats."""
    seed = item.encode() if isinstance(item, str) else b"tokens:" + b",".join(b"%d" % t for t in item)
    raw = hashlib.shake_256(seed).digest(size * 2)
    numbers = [n / 32768 for n in struct.unpack(f"<{size}h", raw)]
    length = math.sqrt(sum(n * n for n in numbers)) or 1.0
    return list(struct.unpack(f"<{size}f", struct.pack(f"<{size}f", *(n / length for n in numbers))))


def _are_tokens(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and bool(value) and all(type(token) is int and token >= 0 for token in value)
