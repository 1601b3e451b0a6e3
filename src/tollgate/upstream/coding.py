"""Undoing a `content-encoding`. We ask for identity; some upstreams and the boxes before them compress all the same."""

from __future__ import annotations

import zlib

from tollgate.errors import UpstreamFailed, UpstreamUnreachable

_STEP = 1024 * 1024
"""Most bytes one call gives, so that a small bomb cannot become a large allocation."""


class Unpacker:
    """Incremental gzip or deflate. `more` is true while decoded bytes wait for the next `unpack(b'')`."""

    __slots__ = ("_fed", "_gzip", "_inflate", "_tail", "more")

    def __init__(self, coding: str) -> None:
        if coding not in ("gzip", "x-gzip", "deflate"):
            raise UpstreamFailed(f"the answer has content-encoding {coding!r}, though identity was asked for")
        self._gzip = coding != "deflate"
        self._inflate = zlib.decompressobj(31) if self._gzip else None
        self._tail = b""
        self._fed = False
        self.more = False

    def unpack(self, data: bytes) -> bytes:
        """Decode up to 1 MiB; raises `UpstreamUnreachable` on bytes that are not the promised coding."""
        data = self._tail + data
        self._fed = self._fed or bool(data)
        if self._inflate is None:
            if len(data) < 2:
                self._tail = data
                return b""
            # "deflate" means zlib by the standard and raw deflate by some servers: the first two bytes tell.
            standard = data[0] & 15 == 8 and int.from_bytes(data[:2]) % 31 == 0
            self._inflate = zlib.decompressobj(15 if standard else -15)
        try:
            out = self._inflate.decompress(data, _STEP)
        except zlib.error as error:
            raise UpstreamUnreachable(f"the answer's compressed body is broken: {error}") from None
        self._tail = self._inflate.unconsumed_tail
        if self._inflate.eof and self._gzip and self._inflate.unused_data:
            self._tail = self._inflate.unused_data  # a further member
            self._inflate = zlib.decompressobj(31)
        self.more = bool(self._tail) or len(out) == _STEP
        return out

    def ended(self) -> None:
        """The body has ended; raises when the compressed stream has begun and has not."""
        if self._fed and (self._inflate is None or not self._inflate.eof):
            raise UpstreamUnreachable("the answer's compressed body ended early")


def unpack_all(coding: Unpacker, data: bytes, limit: int) -> bytes | None:
    """A whole body at once, or None when it grows past `limit`."""
    out = bytearray(coding.unpack(data))
    while coding.more and len(out) <= limit:
        out += coding.unpack(b"")
    if len(out) > limit:
        return None
    coding.ended()
    return bytes(out)
