"""Decompresses request and response bodies: gzip (with any number of members), and deflate with or without a zlib
header."""

from __future__ import annotations

import zlib

_STEP = 1024 * 1024
"""Most bytes that one call returns, so that a decompression bomb cannot cause a large allocation."""

_PIECE = 64 * 1024
"""Compressed bytes given to zlib at a time. It copies the unused rest, which would be slow for a whole body."""

MAX_RATIO = 1032
"""Most bytes that one byte of deflate can expand to: the longest match, 258 bytes, takes at least two bits."""

_MOST_MEMBERS = 4096
"""Limit of gzip members in a body, since each takes a decoder. A tool with members of 64 kB makes 512 of the largest
body."""


class UnknownCoding(ValueError):
    """A content coding that is not supported."""


class CorruptBody(ValueError):
    """The bytes are not valid in their coding. The text continues a sentence that begins with "the body"."""


class Unpacker:
    """Incremental gzip or deflate decoder. While `more` is true, `unpack(b'')` returns further decoded bytes."""

    __slots__ = ("_at", "_fed", "_full", "_gzip", "_held", "_inflate", "_members", "_rest", "more")

    def __init__(self, coding: str) -> None:
        if coding not in ("gzip", "x-gzip", "deflate"):
            raise UnknownCoding(coding)
        self._gzip = coding != "deflate"
        self._inflate = zlib.decompressobj(31) if self._gzip else None
        self._members = 1
        self._held = self._rest = b""
        self._at = 0
        self._fed = self._full = False
        self.more = False

    def unpack(self, data: bytes) -> bytes:
        """Add bytes and return up to 1 MiB of decoded ones. Raises `CorruptBody`."""
        if data:
            self._held = self._held[self._at :] + data
            self._at = 0
            self._fed = True
        if self._inflate is None:
            if len(self._held) < 2:
                return b""
            # "deflate" means zlib in the standard, but some servers send raw deflate: check for a zlib header
            standard = self._held[0] & 15 == 8 and int.from_bytes(self._held[:2]) % 31 == 0
            self._inflate = zlib.decompressobj(15 if standard else -15)
        out: list[bytes] = []
        size = 0
        while size < _STEP:
            if not self._rest:
                self._rest = self._held[self._at : self._at + _PIECE]
                self._at += len(self._rest)
            if not self._rest and not self._full:
                break
            out.append(self._decode(_STEP - size))
            size += len(out[-1])
        self.more = bool(self._rest) or self._full or self._at < len(self._held)
        return b"".join(out)

    def _decode(self, room: int) -> bytes:
        """Decode up to `room` bytes from `_rest` and the decoder's internal state."""
        assert self._inflate is not None
        if self._inflate.eof:
            if not self._gzip:  # ignore trailing bytes
                self._rest = b""
                return b""
            self._members += 1
            if self._members > _MOST_MEMBERS:
                raise CorruptBody(f"has more than {_MOST_MEMBERS} members")
            self._inflate = zlib.decompressobj(31)
        try:
            decoded = self._inflate.decompress(self._rest, room)
        except zlib.error as error:
            raise CorruptBody(f"is broken: {error}") from None
        self._rest = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
        self._full = len(decoded) == room and not self._inflate.eof
        return decoded

    def check_complete(self) -> None:
        """To be called at the end of the body. Raises `CorruptBody` if the compressed stream is incomplete."""
        if self._fed and (self._inflate is None or not self._inflate.eof):
            raise CorruptBody("ended early")
