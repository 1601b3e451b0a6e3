"""Authentication: finds the key of a request in either of two headers, and checks whether it may be used here.

The secret itself stays in this module; all others work with its `KeyRecord`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tollgate.client_address import address_of, is_among
from tollgate.errors import PermissionDenied, Unauthorized

if TYPE_CHECKING:
    from tollgate.config.settings import Proxies
    from tollgate.http import Scope
    from tollgate.ledger import KeyRecord, Ledger

log = logging.getLogger("tollgate.auth")


def key_of(headers: Mapping[str, str]) -> str | None:
    """The key of a request: `Authorization: Bearer <key>` or `X-Api-Key: <key>` (SPEC authentication 1).

    X-Api-Key is also read if the Authorization header has another scheme. None if there is no key.
    """
    bearer = headers.get("authorization", "")
    if bearer[:7].lower() == "bearer " and (key := bearer[7:].strip()):
        return key
    return _other_key(headers)


def authenticate(ledger: Ledger, headers: Mapping[str, str]) -> KeyRecord:
    """The key's record. Raises `Unauthorized` (missing, malformed, unknown, expired, revoked).

    Both headers are tried: if an SDK requires a bearer token, clients send a placeholder there and the key in
    X-Api-Key.
    """
    key = key_of(headers)
    try:
        return ledger.find_key(key)
    except Unauthorized:
        other = _other_key(headers)
        if other is not None and other != key:
            with contextlib.suppress(Unauthorized):
                return ledger.find_key(other)
        raise


def _other_key(headers: Mapping[str, str]) -> str | None:
    return headers.get("x-api-key", "").strip() or None


def authenticate_optional(ledger: Ledger, headers: Mapping[str, str]) -> KeyRecord | None:
    """As `authenticate`, but None without a key, for endpoints that need none. A wrong key is still rejected, so that
    typos are noticed (CLIENTS 3d)."""
    return authenticate(ledger, headers) if key_of(headers) is not None else None


def permit(key: KeyRecord, endpoint: str, scope: Scope, proxies: Proxies) -> None:
    """Raise `PermissionDenied` if a restricted key may not be used from this client's address or at this endpoint.
    `endpoint` is one of `KEY_ENDPOINTS`, or empty for the catalogs, which need no key.

    The address is checked first, so that other callers learn nothing about the key's endpoints. It is logged, for
    operators whose proxy is missing from `server.trusted_proxies`.
    """
    if key.allowed_addresses:
        address = address_of(scope, proxies)
        if not is_among(address, key.allowed_addresses):
            log.debug("key %s may not be used from %s", key.id, address or "an unknown address")
            raise PermissionDenied("this key may not be used from this address")
    if endpoint and key.endpoints and endpoint not in key.endpoints:
        raise PermissionDenied(f"this key may not be used for {endpoint}")
