"""Signatures over reasoning that only the sandbox can create: a replayed block that was changed on the way is
refused."""

from __future__ import annotations

import base64
import hashlib

_SALT = b"sandbox reasoning v1\0"


def sign(text: str) -> str:
    """The signature of a thinking text, 128 characters of base64."""
    digest = hashlib.blake2b(_SALT + text.encode("utf-8", "surrogatepass"), digest_size=64).digest()
    return base64.b64encode(b"sandbox-signature:v1:" + digest + b"0123456789a").decode()


def is_signed(text: str, signature: str) -> bool:
    """Whether this signature belongs to this text; an omitted (empty) text is accepted with any signature made here."""
    if text:
        return signature == sign(text)
    try:
        return base64.b64decode(signature, validate=True).startswith(b"sandbox-signature:v1:")
    except ValueError:
        return False


def seal(text: str) -> str:
    """Reasoning as opaque content: `encrypted_content` of an item, `data` of a redacted block."""
    raw = text.encode("utf-8", "surrogatepass")
    return base64.urlsafe_b64encode(hashlib.blake2b(_SALT + raw, digest_size=16).digest() + raw[::-1]).decode()


def is_sealed(content: str) -> bool:
    """Whether opaque content was made by `seal` and is unchanged."""
    try:
        data = base64.urlsafe_b64decode(content)
    except ValueError:
        return False
    return data[:16] == hashlib.blake2b(_SALT + data[16:][::-1], digest_size=16).digest()
