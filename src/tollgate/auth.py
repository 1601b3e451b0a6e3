"""Who is calling: the key of a request, from either of the two headers, and its record; and whether it may be used
here.

The caller's key never goes past this module; everything below works with a `KeyRecord`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tollgate.client_address import address_of, is_among
from tollgate.errors import PermissionDenied, Unauthorized

if TYPE_CHECKING:
    from tollgate.config.model import Proxies
    from tollgate.http import Scope
    from tollgate.ledger import KeyRecord, Ledger

log = logging.getLogger("tollgate.auth")


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
        if other is not None and other != key:
            with contextlib.suppress(Unauthorized):
                return ledger.find_key(other)
        raise


def _other_key(headers: Mapping[str, str]) -> str | None:
    return headers.get("x-api-key", "").strip() or None


def authenticate_optional(ledger: Ledger, headers: Mapping[str, str]) -> KeyRecord | None:
    """For endpoints that need no key: None without one, but a wrong one is refused so that typos show (CLIENTS 3d)."""
    return authenticate(ledger, headers) if key_of(headers) is not None else None


def permit(key: KeyRecord, endpoint: str, scope: Scope, proxies: Proxies) -> None:
    """Raise `PermissionDenied` where a `restricted` key may not be used: from an address that is not among its own, or
    at an endpoint that is not. `endpoint` is one of `KEY_ENDPOINTS`, or empty for the catalogs, which need no key.

    The address is checked first, so that whoever calls from elsewhere learns nothing of what the key is for. The log
    names it, for an operator whose proxy is not among `server.trusted_proxies`.
    """
    if key.allowed_addresses:
        address = address_of(scope, proxies)
        if not is_among(address, key.allowed_addresses):
            log.debug("key %s may not be used from %s", key.id, address or "an unknown address")
            raise PermissionDenied("this key may not be used from this address")
    if endpoint and key.endpoints and endpoint not in key.endpoints:
        raise PermissionDenied(f"this key may not be used for {endpoint}")
