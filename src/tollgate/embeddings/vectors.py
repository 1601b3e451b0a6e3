"""Vectors as bytes: reads an answer without parsing its numbers, decodes base64, and writes float arrays.

A vector is kept as the JSON text of its float array, which is sent to the client: 2,048 vectors of 1,536 floats are
60 MB as text and 100 MB as Python floats. An answer in the client's format with float arrays is passed through; only
its usage is parsed, from the bytes before and after the data.
"""

from __future__ import annotations

import array
import base64
import binascii
import math
import re
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

_FIRST_VECTOR = re.compile(rb'"embedding"\s*:\s*([\["])')
_VECTOR = re.compile(rb'"embedding"\s*:\s*(\[[^\]"]*\])')
_INDEX = re.compile(rb'"index"\s*:\s*([0-9]{1,9})')
_USAGE = re.compile(rb'"usage"\s*:\s*')
_NEAR = 16 * 1024
"""How far from the start or end of an answer its usage and its first vector may be: usually a few hundred bytes."""
_MOST_BRACES = 32
"""How many closing braces are tried as the end of the `usage` object."""
_NUMBERS = {int, float}
_SIGNED = {"int8": "b", "uint8": "B", "binary": "b", "ubinary": "B"}
"""Type codes of quantised vectors, which consist of bytes. A binary vector keeps eight bits in one number, as sent."""
_FLOATS = {"float": "f", "float32": "f", "float16": "e", "float64": "d"}
"""Type codes of `struct` for vectors of little-endian floats."""


@dataclass(slots=True)
class Native:
    """An answer with float arrays in the client's format, kept in blocks as received. Only head and tail were read."""

    head: bytes
    """Empty for a small answer, which is in `tail` completely."""
    middle: list[bytes]
    tail: bytes
    usage: dict[str, Any] | None = None
    """The answer's `usage`."""
    span: tuple[str, int, int] | None = None
    """The position of `usage`, which may be null: "head" or "tail", and its start and end there."""

    def with_usage(self, usage: Mapping[str, Any]) -> None:
        """Replace the usage, or add it before the last brace."""
        written = orjson.dumps(usage)
        if self.span is None:
            end = self.tail.rindex(b"}")
            self.tail = self.tail[:end] + b',"usage":' + written + self.tail[end:]
            return
        where, start, end = self.span
        block = getattr(self, where)
        setattr(self, where, block[:start] + written + block[end:])

    def lists(self) -> int:
        """The number of `[`: at least one for `data` and one per vector, unless vectors are missing."""
        return sum(block.count(b"[") for block in self.blocks())

    def blocks(self) -> list[bytes]:
        """The blocks of the answer, in order."""
        return [block for block in (self.head, *self.middle, self.tail) if block]


def as_native(blocks: list[bytes]) -> Native | None:
    """An answer in the client's format, kept as received. None if it must be parsed, because its vectors are not float
    arrays or its end is missing."""
    size = sum(map(len, blocks))
    if size <= 4 * _NEAR:
        native = Native(b"", [], blocks[0] if len(blocks) == 1 else b"".join(blocks))
    else:
        first = _ends_at(blocks, _NEAR)
        last = len(blocks) - _ends_at(blocks[::-1], _NEAR)
        if first > last:
            native = Native(b"", [], b"".join(blocks))
        else:
            native = Native(b"".join(blocks[:first]), blocks[first:last], b"".join(blocks[last:]))
    lead = native.head or native.tail
    vector = _FIRST_VECTOR.search(lead, 0, _NEAR)
    tail = native.tail
    # if its end is missing, the answer broke off on a connection without content-length
    if vector is None or vector[1] != b"[" or not tail.rstrip().endswith(b"}"):
        return None
    data_ends = tail.rfind(b"]")  # of `data`: usually nothing after it holds a list
    found = next((each for each in _usages(tail, max(data_ends, 0), len(tail)) if each[0] is not None), None) or next(
        # each vector may have its own usage, too, and other fields a null
        (each for each in _usages(tail, max(0, len(tail) - _NEAR), len(tail)) if _open_braces(tail[each[2] :]) == -1),
        None,
    )
    where = "tail"
    if found is None:
        found = next((each for each in _usages(lead, 0, vector.start()) if _open_braces(lead[: each[1]]) == 1), None)
        where = "head" if native.head else "tail"
    if found is not None:
        native.usage, native.span = found[0], (where, *found[1:])
    return native


def split_vectors(native: Native) -> list[bytes] | None:
    """The texts of the vectors in a native answer, by index; None if they cannot be separated without parsing."""
    answer = b"".join(native.blocks())
    found = [match[1] for match in _VECTOR.finditer(answer)]
    places = [int(match[1]) for match in _INDEX.finditer(answer)]
    if not places:
        return found
    if sorted(places) != list(range(len(found))):
        return None
    return [vector for _, vector in sorted(zip(places, found, strict=True))]


def _ends_at(blocks: list[bytes], wanted: int) -> int:
    """The number of blocks that contain the first `wanted` bytes."""
    size = 0
    for count, block in enumerate(blocks, 1):
        size += len(block)
        if size >= wanted:
            return count
    return len(blocks)


def _usages(answer: bytes, start: int, end: int) -> Iterator[tuple[dict[str, Any] | None, int, int]]:
    """The `usage` objects and nulls in a part of an answer, each with the start and end of its value."""
    for match in _USAGE.finditer(answer, start, end):
        opens = closes = match.end()
        if answer.startswith(b"null", opens):
            yield None, opens, opens + 4
            continue
        for _ in range(_MOST_BRACES):
            closes = answer.find(b"}", closes) + 1
            if not closes or closes - opens > _NEAR:
                break
            try:
                usage = orjson.loads(answer[opens:closes])
            except orjson.JSONDecodeError:
                continue  # the brace closes an inner object, or is in a string
            yield usage, opens, closes
            break


def _open_braces(piece: bytes) -> int:
    """Opening minus closing braces in a piece of an answer: 1 in front of a top-level field, -1 behind it."""
    return piece.count(b"{") - piece.count(b"}")


def vector_text(vector: object) -> bytes:
    """One vector as the JSON text of a float array.

    Accepts a list of numbers, a base64 string of little-endian float32, and `{base64, type}` with another type
    (float16, float64, int8, uint8, binary, ubinary). Raises ValueError for anything else, such as the pairs of a sparse
    vector.
    """
    if isinstance(vector, list):
        _numbers(vector)
        return orjson.dumps(vector)
    kind = "float"
    if isinstance(vector, Mapping):
        kind = str(vector.get("type") or "float")
        if "base64" not in vector:
            raise ValueError("a vector is an object without base64")
        vector = vector["base64"]
    if not isinstance(vector, str):
        raise ValueError(f"a vector has the unsupported type {type(vector).__name__}")
    packed = _decoded(vector)
    if kind in _SIGNED:
        return orjson.dumps(array.array(_SIGNED[kind], _whole(packed, 1)).tolist())
    if kind not in _FLOATS:
        raise ValueError(f"a vector has the unsupported type {kind}")
    size = struct.calcsize("<" + _FLOATS[kind])
    return orjson.dumps(_finite(struct.unpack(f"<{len(_whole(packed, size)) // size}{_FLOATS[kind]}", packed)))


def packed_vector(vector: object) -> bytes:
    """One vector as a JSON string with base64 of little-endian float32, for clients that read nothing else. Accepts and
    raises the same as `vector_text`."""
    if isinstance(vector, str):
        packed = _whole(_decoded(vector))
        _finite(struct.unpack(f"<{len(packed) // 4}f", packed))
        return orjson.dumps(vector)
    if isinstance(vector, list):
        _numbers(vector)
    floats = array.array("f", vector if isinstance(vector, list) else orjson.loads(vector_text(vector)))
    if sys.byteorder == "big":
        floats.byteswap()
    return b'"' + base64.b64encode(floats) + b'"'


def _finite(numbers: tuple[float, ...]) -> tuple[float, ...]:
    """The numbers; ValueError for one that JSON does not have (NaN, infinite), which would be written as null."""
    if not math.isfinite(sum(numbers)):
        raise ValueError("a vector holds a number that is not finite")
    return numbers


def _numbers(vector: list[Any]) -> None:
    """Raises ValueError for an empty list, and for one with anything but numbers."""
    if not vector:
        raise ValueError("a vector is empty")
    others = set(map(type, vector)) - _NUMBERS
    if others:
        raise ValueError(f"a vector holds {min(kind.__name__ for kind in others)}, not numbers only")


def _decoded(vector: str) -> bytes:
    try:
        return base64.b64decode(vector, validate=True)
    except binascii.Error as error:
        raise ValueError(f"a vector is not base64: {error}") from None


def _whole(packed: bytes, size: int = 4) -> bytes:
    if len(packed) % size or not packed:
        raise ValueError(f"a base64 vector of {len(packed)} bytes holds no whole number of values of {size} bytes")
    return packed


def write_answer(vectors: Iterable[bytes], rest: Mapping[str, Any]) -> Iterator[bytes]:
    """The pieces of an embeddings answer, one per vector, of which there is at least one. `rest` has the fields other
    than `object` and `data`."""
    lead = b'{"object":"list","data":['
    for index, text in enumerate(vectors):
        yield b'%b{"object":"embedding","index":%d,"embedding":%b}' % (lead, index, text)
        lead = b","
    yield b"]," + orjson.dumps(rest)[1:]
