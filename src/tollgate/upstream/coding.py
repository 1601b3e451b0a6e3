"""Decompresses answers. We request identity, but some upstreams and proxies compress anyway."""

from __future__ import annotations

import asyncio

from tollgate.content_encoding import CorruptBody, UnknownCoding, Unpacker
from tollgate.errors import AnswerLost, UpstreamFailed

_COMPRESSIONS = frozenset({"gzip", "x-gzip", "deflate", "br", "zstd", "compress", "x-compress", "dcb", "dcz"})


def compression(value: str) -> str:
    """The codings to undo according to this `content-encoding`: "identity, GZip" -> "gzip". Only compressions count:
    some servers name a character set here (`UTF-8`), or `none`."""
    return ", ".join(name for each in value.lower().split(",") if (name := each.strip()) in _COMPRESSIONS)


class AnswerUnpacker(Unpacker):
    """An `Unpacker` that raises upstream errors."""

    __slots__ = ()

    def __init__(self, coding: str) -> None:
        try:
            super().__init__(coding)
        except UnknownCoding:
            raise UpstreamFailed(f"the answer has content-encoding {coding!r}, but identity was requested") from None

    def unpack(self, data: bytes) -> bytes:
        try:
            return super().unpack(data)
        except CorruptBody as error:
            raise AnswerLost(f"the answer's compressed body {error}") from None

    def check_complete(self) -> None:
        try:
            super().check_complete()
        except CorruptBody as error:
            raise AnswerLost(f"the answer's compressed body {error}") from None


async def unpack_all(coding: AnswerUnpacker, data: bytes, limit: int) -> bytes | None:
    """Decompress a whole body; None if it exceeds `limit`. Other tasks can run between two steps."""
    out = bytearray(coding.unpack(data))
    while coding.more and len(out) <= limit:
        await asyncio.sleep(0)
        out += coding.unpack(b"")
    if len(out) > limit:
        return None
    coding.check_complete()
    return bytes(out)
