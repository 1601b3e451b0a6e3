"""An answer's `content-encoding`. We ask for identity; some upstreams and the boxes before them compress all the
same."""

from __future__ import annotations

import asyncio

from tollgate.content_encoding import Damaged, UnknownCoding, Unpacker
from tollgate.errors import AnswerLost, UpstreamFailed


class AnswerUnpacker(Unpacker):
    """An `Unpacker` whose errors are the provider's."""

    __slots__ = ()

    def __init__(self, coding: str) -> None:
        try:
            super().__init__(coding)
        except UnknownCoding:
            raise UpstreamFailed(f"the answer has content-encoding {coding!r}, though identity was asked for") from None

    def unpack(self, data: bytes) -> bytes:
        try:
            return super().unpack(data)
        except Damaged as error:
            raise AnswerLost(f"the answer's compressed body {error}") from None

    def ended(self) -> None:
        try:
            super().ended()
        except Damaged as error:
            raise AnswerLost(f"the answer's compressed body {error}") from None


async def unpack_all(coding: AnswerUnpacker, data: bytes, limit: int) -> bytes | None:
    """A whole body, or None when it grows past `limit`; others have their turn between two steps."""
    out = bytearray(coding.unpack(data))
    while coding.more and len(out) <= limit:
        await asyncio.sleep(0)
        out += coding.unpack(b"")
    if len(out) > limit:
        return None
    coding.ended()
    return bytes(out)
