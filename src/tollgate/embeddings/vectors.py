"""Vectors as bytes: reading an answer without building its numbers, decoding base64, writing float arrays.

A vector is kept as the JSON text of its float array, because that is what leaves: 2,048 vectors of 1,536 floats are 60 MB
as text and 100 MB as Python floats. An answer in the client's own format with float arrays passes as the bytes that
came; only its usage is read, from the few bytes around the data.
"""

from __future__ import annotations

import array
import base64
import binascii
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

_FIRST_VECTOR = re.compile(rb'"embedding"\s*:\s*([\["])')
_USAGE = re.compile(rb'"usage"\s*:\s*')
_NEAR = 16 * 1024
"""How far from either end of an answer its usage and model may stand; a provider's envelope is a few hundred bytes."""
_SIGNED = {"int8": "b", "uint8": "B", "binary": "b", "ubinary": "B"}
"""Quantised vectors are bytes, signed or not; the bits of a binary one stay packed eight to a number, as the provider sent them."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a look at a native answer found, nothing of its numbers parsed."""

    usage: dict[str, Any] | None
    usage_span: tuple[int, int] | None
    """Where the usage value stands in the bytes."""


def scan(answer: bytes) -> Scanned | None:
    """Look at an answer of the client's format. None when its vectors are not float arrays: it has to be parsed."""
    first = _FIRST_VECTOR.search(answer)
    if first is None or first[1] != b"[":
        return None
    data_ends = answer.rfind(b"]")  # of `data`: nothing after it holds a list that could be taken for usage
    tail = _find_usage(answer, max(data_ends, len(answer) - _NEAR), len(answer)) or _find_usage(answer, max(0, len(answer) - _NEAR), len(answer))
    found = tail or _find_usage(answer, 0, min(first.start(), _NEAR))
    return Scanned(*found) if found else Scanned(None, None)


def _find_usage(answer: bytes, start: int, end: int) -> tuple[dict[str, Any], tuple[int, int]] | None:
    for match in _USAGE.finditer(answer, start, end):
        opens = match.end()
        if answer[opens : opens + 1] != b"{":
            continue
        closes = _closing_brace(answer, opens, min(len(answer), opens + _NEAR))
        if closes is None:
            continue
        try:
            usage = orjson.loads(answer[opens:closes])
        except orjson.JSONDecodeError:
            continue
        return usage, (opens, closes)
    return None


def _closing_brace(answer: bytes, opens: int, end: int) -> int | None:
    """The place after the brace that closes the one at `opens`; text inside quotes does not count."""
    depth, quoted, at = 0, False, opens
    while at < end:
        byte = answer[at]
        if quoted:
            if byte == 0x5C:
                at += 1
            elif byte == 0x22:
                quoted = False
        elif byte == 0x22:
            quoted = True
        elif byte == 0x7B:
            depth += 1
        elif byte == 0x7D:
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return None


def with_usage(answer: bytes, found: Scanned, usage: Mapping[str, Any]) -> bytes:
    """The native answer with its usage replaced, or added before the last brace when it had none."""
    said = orjson.dumps(usage)
    if found.usage_span is not None:
        start, end = found.usage_span
        return b"".join((memoryview(answer)[:start], said, memoryview(answer)[end:]))
    end = answer.rindex(b"}")
    return b"".join((memoryview(answer)[:end], b',"usage":', said, b"}"))


def vector_text(vector: object) -> bytes:
    """One vector as the JSON text of a float array.

    A list of numbers stays; text is base64 of little-endian float32; `{base64, type}` says another type (int8, uint8,
    binary, ubinary). Raises ValueError for anything else: the provider's answer is broken.
    """
    if isinstance(vector, list):
        return orjson.dumps(vector)
    kind = "float"
    if isinstance(vector, Mapping):
        kind = str(vector.get("type") or "float")
        vector = vector.get("base64")
    if not isinstance(vector, str):
        raise ValueError(f"a vector came as {type(vector).__name__}")
    try:
        packed = base64.b64decode(vector, validate=True)
    except binascii.Error as error:
        raise ValueError(f"a vector is not base64: {error}") from None
    if kind in _SIGNED:
        return orjson.dumps(array.array(_SIGNED[kind], packed).tolist())
    if kind not in ("float", "float32"):
        raise ValueError(f"a vector came as {kind}")
    if len(packed) % 4 or not packed:
        raise ValueError(f"a base64 vector of {len(packed)} bytes holds no whole number of float32 values")
    floats = array.array("f", packed)
    if sys.byteorder == "big":
        floats.byteswap()
    return orjson.dumps(floats.tolist())


def write_answer(vectors: Iterable[bytes], rest: Mapping[str, Any]) -> Iterator[bytes]:
    """The pieces of an embeddings answer, one vector at a time; `rest` are its fields beside object and data."""
    lead = b'{"object":"list","data":['
    for index, text in enumerate(vectors):
        yield b'%b{"object":"embedding","index":%d,"embedding":%b}' % (lead, index, text)
        lead = b","
    if lead != b",":
        yield lead
    yield b"]," + orjson.dumps(rest)[1:]
