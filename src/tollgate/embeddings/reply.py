"""Writes the embeddings answer for the client: the unchanged bytes of a native answer, or JSON built from vectors.

A large answer is sent in blocks, because joining them would take the memory of a second copy.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from tollgate.embeddings.vectors import write_answer
from tollgate.services import Headers, Reply

if TYPE_CHECKING:
    from tollgate.embeddings.answer import Embedded

_LARGE = 1024 * 1024
_BLOCK = 256 * 1024


def reply_of(found: Embedded, headers: Headers) -> Reply:
    """The reply with the embeddings; its `usage` always has both counts (SPEC embeddings)."""
    usage = {"prompt_tokens": found.tokens, "total_tokens": found.tokens}
    if found.native is not None:
        native, reported = found.native, found.native.usage or {}
        if (
            found.estimated
            or not isinstance(reported.get("prompt_tokens"), int)
            or not isinstance(reported.get("total_tokens"), int)
        ):
            native.with_usage({**reported, **usage})
        blocks = native.blocks()
        found.native = None
        if len(blocks) == 1:
            return Reply(200, headers, blocks[0])
        length = b"%d" % sum(map(len, blocks))
        return Reply(
            200, [(b"content-type", b"application/json"), (b"content-length", length), *headers], stream=_sent(blocks)
        )
    rest = {**found.rest, "model": found.model, "usage": usage}
    if sum(map(len, found.vectors)) < _LARGE:
        return Reply(200, headers, b"".join(write_answer(found.vectors, rest)))
    return Reply(200, [(b"content-type", b"application/json"), *headers], stream=_written(found, rest))


async def _sent(blocks: list[bytes]) -> AsyncIterator[bytes]:
    """The blocks in order; the memory of each is freed after it is sent."""
    blocks.reverse()
    while blocks:
        yield blocks.pop()


async def _written(found: Embedded, rest: dict[str, object]) -> AsyncIterator[bytes]:
    """The answer in blocks; the memory of each vector is freed after it is sent."""
    vectors = found.vectors
    vectors.reverse()
    block = bytearray()
    for piece in write_answer((vectors.pop() for _ in range(len(vectors))), rest):
        block += piece
        if len(block) >= _BLOCK:
            yield bytes(block)
            block.clear()
    yield bytes(block)
