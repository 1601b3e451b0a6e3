"""Who is calling: the key of a request, from either of the two headers, and its record.

The caller's key never goes past this module; everything below works with a `KeyRecord`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tollgate.errors import Unauthorized

if TYPE_CHECKING:
    from tollgate.ledger import KeyRecord, Ledger


def key_of(headers: Mapping[str, str]) -> str | None:
    """The key a request carries: `Authorization: Bearer <key>` or `X-Api-Key: <key>` (SPEC authentication 1).

    An Authorization header of another scheme does not hide a key in X-Api-Key. None when neither is there.
    """
    bearer = headers.get("authorization", "")
    if bearer[:7].lower() == "bearer " and (key := bearer[7:].strip()):
        return key
    return _other_key(headers)


def authenticate(ledger: Ledger, headers: Mapping[str, str]) -> KeyRecord:
    """The key's record. Raises `Unauthorized` (missing, malformed, unknown, expired, revoked).

    A client whose SDK insists on a bearer token gets a placeholder there, and its key in X-Api-Key: so both headers are
    tried, and a wrong one does not hide a right one.
    """
    key = key_of(headers)
    if key is None:
        raise Unauthorized("missing")
    try:
        return ledger.find_key(key)
    except Unauthorized:
        other = _other_key(headers)
        if other is None or other == key:
            raise
        try:
            return ledger.find_key(other)
        except Unauthorized:
            pass
        raise


def _other_key(headers: Mapping[str, str]) -> str | None:
    return headers.get("x-api-key", "").strip() or None


def authenticate_optional(ledger: Ledger, headers: Mapping[str, str]) -> KeyRecord | None:
    """For endpoints that need no key: None without one, but a wrong one is refused so that typos show (CLIENTS 3d)."""
    return authenticate(ledger, headers) if key_of(headers) is not None else None
