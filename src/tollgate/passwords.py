"""Hashes dashboard passwords with scrypt. The parameters are stored with each hash, so that they can be raised later.

The format is `scrypt$<log2 N>$<r>$<p>$<salt>$<hash>`, the last two in base64. A check takes about 70 ms and 32 MiB, so
callers run it off the event loop.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os

_LOG_N, _R, _P = 15, 8, 1
_SALT_BYTES = 16
_HASH_BYTES = 32
_MEMORY = 128 * 1024 * 1024
SHORTEST, LONGEST = 10, 200
"""Length limits of a password; the upper one limits the cost of hashing."""

_REMOVED = "none$"
NO_PASSWORD = "scrypt$15$8$1$AAAAAAAAAAAAAAAAAAAAAA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
"""A hash that matches no password. It is checked for unknown accounts, so that they take as long as existing ones."""


def hash_password(password: str) -> str:
    """The text to store. Raises ValueError if the password is too short or too long."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise ValueError(f"the password has {len(password)} characters, wanted {SHORTEST} to {LONGEST}")
    salt = os.urandom(_SALT_BYTES)
    return "$".join(
        ("scrypt", str(_LOG_N), str(_R), str(_P), _text(salt), _text(_scrypt(password, salt, _LOG_N, _R, _P)))
    )


def removed_password() -> str:
    """The text to store instead of a hash when a password is removed. Each is different: sessions that a password ended
    would be valid again if the text were the same as before it."""
    return f"{_REMOVED}{_text(os.urandom(_SALT_BYTES))}"


def has_password(stored: str) -> bool:
    """Whether an account with this stored text has a password."""
    return bool(stored) and not stored.startswith(_REMOVED)


def check_password(password: str, stored: str) -> bool:
    """Whether this is the password of which `stored` is the hash. Always false for an account without a password."""
    if len(password) > LONGEST:
        return False
    known = has_password(stored)
    kind, _, rest = (stored if known else NO_PASSWORD).partition("$")
    if kind != "scrypt":
        return False
    log_n, r, p, salt, wanted = rest.split("$")
    found = _scrypt(password, base64.b64decode(salt), int(log_n), int(r), int(p))
    return hmac.compare_digest(found, base64.b64decode(wanted)) and known


def _scrypt(password: str, salt: bytes, log_n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(
        password.encode("utf-8", "surrogatepass"), salt=salt, n=1 << log_n, r=r, p=p, maxmem=_MEMORY, dklen=_HASH_BYTES
    )


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()
