"""Undoing a `content-encoding`, of requests and of answers: gzip (of several members too) and deflate,
with and without zlib's frame."""

from __future__ import annotations

import zlib

_STEP = 1024 * 1024
"""Most bytes one call gives, so that a small bomb cannot become a large allocation."""

_PIECE = 64 * 1024
"""Decoded at a time: what a step leaves over is copied, and of a whole body that would be most of it each time."""

MOST_SHRUNK = 1032
"""Bytes that one byte of deflate may stand for: the longest match, 258 bytes, takes two bits at least."""

_MOST_MEMBERS = 4096
"""Of one gzip body: a tool that writes members of 64 kB makes 512 of the largest body. Each costs a decoder."""


class UnknownCoding(ValueError):
    """A coding that is not undone here."""


class Damaged(ValueError):
    """Bytes that are not of the promised coding. Its text continues a sentence that begins with "the body"."""


class Unpacker:
    """Incremental gzip or deflate. `more` is true while decoded bytes wait for the next `unpack(b'')`."""

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
        """Decode up to 1 MiB; raises `Damaged` on bytes that are not the promised coding."""
        if data:
            self._held = self._held[self._at :] + data
            self._at = 0
            self._fed = True
        if self._inflate is None:
            if len(self._held) < 2:
                return b""
            # "deflate" means zlib by the standard and raw deflate by some servers: the first two bytes tell.
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
        """Up to `room` bytes of `_rest`, and of what the decoder has kept back."""
        assert self._inflate is not None
        if self._inflate.eof:
            if not self._gzip:  # what follows is no one's
                self._rest = b""
                return b""
            self._members += 1
            if self._members > _MOST_MEMBERS:
                raise Damaged(f"has more than {_MOST_MEMBERS} members")
            self._inflate = zlib.decompressobj(31)
        try:
            decoded = self._inflate.decompress(self._rest, room)
        except zlib.error as error:
            raise Damaged(f"is broken: {error}") from None
        self._rest = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
        self._full = len(decoded) == room and not self._inflate.eof
        return decoded

    def ended(self) -> None:
        """Note that the body has ended. Raises `Damaged` when a compressed stream was begun and is not at its end."""
        if self._fed and (self._inflate is None or not self._inflate.eof):
            raise Damaged("ended early")
