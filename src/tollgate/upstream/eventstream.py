"""Decodes the binary messages of an AWS event stream: total length, headers' length, CRC, headers, payload, CRC; all
big-endian.

Checksums are verified before a message is used. Announced lengths are limited before a message is buffered.
"""

from __future__ import annotations

import struct
import zlib

from tollgate.errors import AnswerLost, UpstreamFailed

_PRELUDE = struct.Struct(">III")
_MAX_HEADERS = 128 * 1024
_FIXED = {2: "b", 3: "h", 4: "i", 5: "q", 8: "q"}
"""Header types with a number of fixed size: byte, short, integer, long, timestamp (milliseconds)."""


Message = tuple[dict[str, object], bytes]
"""The headers and the payload of one message."""


class EventStreamDecoder:
    """Incremental decoder. Raises `UpstreamFailed` for a wrong checksum, length or header."""

    def __init__(self, max_message_bytes: int) -> None:
        self._held = bytearray()
        self._limit = max_message_bytes

    def feed(self, data: bytes) -> list[Message]:
        held = self._held
        held += data
        messages: list[Message] = []
        at = 0
        while len(held) - at >= _PRELUDE.size:
            total, heading, checksum = _PRELUDE.unpack_from(held, at)
            if zlib.crc32(held[at : at + 8]) != checksum:
                raise UpstreamFailed("an event stream message begins with a wrong checksum")
            if heading > _MAX_HEADERS or total < heading + 16 or total > self._limit:
                raise UpstreamFailed(f"an event stream message claims {total} bytes, {heading} of them headers")
            if len(held) - at < total:
                break
            messages.append(_message(bytes(held[at : at + total]), heading))
            at += total
        del held[:at]
        return messages

    def finish(self) -> None:
        """To be called at the end of the body. Raises `AnswerLost` if a message is incomplete."""
        if self._held:
            raise AnswerLost("the event stream ended inside a message")


def _message(raw: bytes, heading: int) -> Message:
    if zlib.crc32(raw[:-4]) != int.from_bytes(raw[-4:]):
        raise UpstreamFailed("an event stream message has a wrong checksum")
    end = 12 + heading
    try:
        headers = _headers(raw[12:end])
    except (struct.error, IndexError, UnicodeDecodeError):
        raise UpstreamFailed("an event stream message has malformed headers") from None
    return headers, raw[end:-4]


def _headers(data: bytes) -> dict[str, object]:
    headers: dict[str, object] = {}
    at = 0
    while at < len(data):
        size = data[at]
        name = data[at + 1 : at + 1 + size].decode()
        at += 1 + size
        headers[name], at = _header_value(data[at], data, at + 1)
    return headers


def _header_value(kind: int, data: bytes, at: int) -> tuple[object, int]:
    """The value of type `kind` that begins at `at`, and its end. Raises `IndexError` if it is incomplete, or of an
    unknown type."""
    if kind in (0, 1):
        return kind == 0, at
    if kind in _FIXED:
        form = ">" + _FIXED[kind]
        (value,) = struct.unpack_from(form, data, at)
        return value, at + struct.calcsize(form)
    if kind in (6, 7):
        (size,) = struct.unpack_from(">H", data, at)
        part = data[at + 2 : at + 2 + size]
        if len(part) != size:
            raise IndexError
        return part.decode() if kind == 7 else part, at + 2 + size
    if kind == 9:
        return data[at : at + 16].hex(), at + 16
    raise IndexError
