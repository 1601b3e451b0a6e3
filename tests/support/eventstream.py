"""Messages of an AWS event stream, for fake upstreams."""

from __future__ import annotations

import struct
import zlib


def message(payload: bytes, **headers: str) -> bytes:
    """A binary message; `event_type='x'` becomes `:event-type`."""
    heading = b""
    for name, value in headers.items():
        name = ":" + name.replace("_", "-")
        heading += bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
    prelude = struct.pack(">II", len(heading) + len(payload) + 16, len(heading))
    body = prelude + struct.pack(">I", zlib.crc32(prelude)) + heading + payload
    return body + struct.pack(">I", zlib.crc32(body))
