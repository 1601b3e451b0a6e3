"""Filters for bytes written as text: base64 of either alphabet, with or without padding, and hexadecimal digits.

Pure like the others: value in, value out, and absent for what they do not work on.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from tollgate.mapping.values import Text
from tollgate.media_types import type_by_bytes

if TYPE_CHECKING:
    from tollgate.mapping.context import Context


def from_base64(value: Text, context: Context) -> str | None:
    """The text inside base64 text, of either alphabet and with or without padding; absent when it is not that.

    Where a piece of a stream is read, which may end inside a character, bytes that are not UTF-8 become surrogates.
    """
    if type(value) is not str:
        return None
    try:
        return _unpacked(value).decode(errors="surrogateescape" if context.in_pieces else "strict")
    except ValueError:
        return None


def standard_base64(value: str) -> str:
    """Base64 in the standard alphabet and with its padding, as clients' decoders read it: some skip the `-` and `_` of
    the URL-safe one without a word. Line breaks stay."""
    letters = len(value) - value.count("\n") - value.count("\r")
    return value.replace("-", "+").replace("_", "/") + "=" * (-letters % 4)


def _unpacked(value: str) -> bytes:
    """The bytes inside base64 text; ValueError when it is not that, also for letters beyond ASCII."""
    return base64.b64decode(standard_base64(value), validate=True)


def base64_to_hex(value: Text) -> str | None:
    """Bytes written in base64, such as a picture, in hexadecimal digits; absent when it is not that."""
    try:
        return _unpacked(value).hex() if type(value) is str else None
    except ValueError:
        return None


def media_type(value: Text) -> str | None:
    """The media type of a file in base64 by its first bytes, whatever it is said to be; absent when it is not known."""
    try:
        return type_by_bytes(_unpacked(value[:16])) if type(value) is str else None
    except ValueError:
        return None


def hex_to_base64(value: Text) -> str | None:
    """Bytes written in hexadecimal digits in base64; absent when it is not that."""
    try:
        return base64.b64encode(bytes.fromhex(value)).decode() if type(value) is str else None
    except ValueError:
        return None
