"""Reading the body of a client's request: its size limits, the room for it in memory, its encoding and content type."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tollgate.content_encoding import MAX_RATIO, CorruptBody, UnknownCoding, Unpacker
from tollgate.errors import BadRequest, BodyTooLarge
from tollgate.room import SMALL, Place
from tollgate.wire import declared_length

if TYPE_CHECKING:
    from tollgate.http import Receive

_SMALL_PACKED = 1024
"""A compressed body up to this size is decompressed on the event loop: it becomes a megabyte at most, which takes a
millisecond. 32 MB would block the loop for a tenth of a second."""


class ClientGone(Exception):
    """The client left."""


async def read_body(receive: Receive, headers: Mapping[str, str], limit: int, place: Place) -> bytes:
    """The whole body as sent. Its bytes are reserved in `place` before they are read. Raises `BodyTooLarge` as soon as
    the limit is exceeded, `BodyMemoryFull` if there is no room, `ClientGone`."""
    size = declared_length(headers)
    if size is not None:
        if size > limit:
            raise BodyTooLarge(limit)
        if size > SMALL:
            await place.widen(size)
        else:
            place.set(size)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    body: bytes = message.get("body", b"")
    if message.get("more_body", False):
        blocks = [body]
        size = len(body)
        while message.get("more_body", False):
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            blocks.append(message.get("body", b""))
            size += len(blocks[-1])
            if size > limit:
                raise BodyTooLarge(limit)
            if size > place.bytes:  # the length was not announced
                await place.widen(min(limit, 2 * size))
        body = b"".join(blocks)
    if len(body) > limit:
        raise BodyTooLarge(limit)
    if len(body) != place.bytes:
        place.narrow(len(body))
    return body


async def unpacked(body: bytes, headers: Mapping[str, str], limit: int, place: Place) -> bytes:
    """The body decompressed as `Content-Encoding` says; `place` then holds its new size. Raises `BodyTooLarge`,
    `BadRequest`, `BodyMemoryFull`."""
    encoding = headers.get("content-encoding", "").strip().lower() or "identity"
    if encoding == "identity":
        return body
    await place.widen(len(body) + min(limit, MAX_RATIO * len(body)))
    if len(body) <= _SMALL_PACKED:
        plain = _decompress(body, encoding, limit)
    else:
        plain = await asyncio.to_thread(_decompress, body, encoding, limit)
    place.narrow(len(plain))
    return plain


def require_json(headers: Mapping[str, str]) -> None:
    """Refuse a content type that is not JSON; a missing one is taken as JSON."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind and kind != "application/json" and not kind.endswith("+json") and kind != "text/json":
        raise BadRequest(
            f"content type {kind} is not supported; send application/json", code="unsupported_content_type"
        )


def _decompress(body: bytes, encoding: str, limit: int) -> bytes:
    try:
        unpacker = Unpacker(encoding)
    except UnknownCoding:
        raise BadRequest(f"content encoding {encoding} is not supported; send gzip, deflate or none") from None
    try:
        plain = bytearray(unpacker.unpack(body))
        while unpacker.more and len(plain) <= limit:
            plain += unpacker.unpack(b"")
        if len(plain) > limit:
            raise BodyTooLarge(limit)
        unpacker.check_complete()
    except CorruptBody as error:
        raise BadRequest(f"the request body is not valid {encoding}: it {error}") from None
    return bytes(plain)
