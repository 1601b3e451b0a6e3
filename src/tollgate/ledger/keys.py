"""The secret a caller sends: its shape, its checksum, its hash and how it is shown.

`sk-tg-` + 43 url-safe characters (256 random bits) + 6 characters of checksum. The checksum distinguishes a mistyped
key from an unknown one without a look-up. Only the SHA-256 and the last four characters are ever stored.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import zlib

PREFIX = "sk-tg-"
_CHECK = 6
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

SCAN_PATTERN = PREFIX + r"[A-Za-z0-9_-]{43}[0-9A-Za-z]{6}"
"""What a secret scanner looks for."""


def mint() -> str:
    """A new secret; the only time it exists in clear on this side."""
    body = PREFIX + secrets.token_urlsafe(32)
    return body + checksum(body)


def checksum(body: str) -> str:
    """Six base-62 characters over prefix and random part."""
    value = zlib.crc32(body.encode())
    digits = ""
    for _ in range(_CHECK):
        value, digit = divmod(value, 62)
        digits = _BASE62[digit] + digits
    return digits


def is_well_formed(secret: str) -> bool:
    """Whether shape and checksum are right: False for a typing error, but True also for a key that never existed."""
    return re.fullmatch(SCAN_PATTERN, secret) is not None and checksum(secret[:-_CHECK]) == secret[-_CHECK:]


def digest(secret: str) -> bytes:
    """SHA-256: what is stored and looked up, also for the tokens of sign-in links. With 256 random bits a slow hash
    would add nothing."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def last_four(secret: str) -> str:
    """The end of the secret, enough for its owner to recognise it."""
    return secret[-4:]


def mask(secret: str) -> str:
    """How a secret is shown in messages: `sk-tg-...abcd`; a foreign one shows at most its last four characters."""
    if secret.startswith(PREFIX) and len(secret) > len(PREFIX) + 8:
        return f"{PREFIX}...{last_four(secret)}"
    return f"...{last_four(secret)}" if len(secret) >= 12 else "..."
