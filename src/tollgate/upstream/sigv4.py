"""AWS Signature Version 4 as a pure function from a request and a time to headers.

The signature covers the body, so every retry is signed again. The result equals that of the vendor's library, also for
session tokens and for paths, which are escaped twice (`%3A` is signed as `%253A`).
"""

from __future__ import annotations

import functools
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from posixpath import normpath
from urllib.parse import quote

from tollgate.upstream.http import CONNECTION_HEADERS, authority, split_url

_UNSIGNED = CONNECTION_HEADERS | {
    "authorization",
    "user-agent",
    "expect",
    "x-amzn-trace-id",
    "host",
    "x-amz-date",
    "x-amz-security-token",
}


@dataclass(frozen=True, slots=True)
class Credentials:
    """The access key, with the service and region it is used for."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    region: str
    service: str
    session_token: str = field(default="", repr=False)


def sign(
    credentials: Credentials, method: str, url: str, headers: Mapping[str, str], body: bytes, at: datetime
) -> dict[str, str]:
    """The headers to add to this request, signed at time `at`. All of `headers` are signed, except `_UNSIGNED`."""
    scheme, host, port, target = split_url(url)
    path, _, query = target.partition("?")
    moment = at.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    signed = {name.lower(): " ".join(value.split()) for name, value in headers.items() if name.lower() not in _UNSIGNED}
    signed["host"] = authority(scheme, host, port)
    signed["x-amz-date"] = moment
    added = {"x-amz-date": moment}
    if credentials.session_token:
        signed["x-amz-security-token"] = added["x-amz-security-token"] = credentials.session_token
    names = ";".join(sorted(signed))
    pairs = sorted(item.partition("=")[::2] for item in query.split("&")) if query else []
    canonical = "\n".join(
        [
            method.upper(),
            quote(_normal(path), safe="/~"),
            "&".join(f"{key}={value}" for key, value in pairs),
            *(f"{name}:{signed[name]}" for name in sorted(signed)),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        ]
    )
    scope = f"{moment[:8]}/{credentials.region}/{credentials.service}/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = _key(credentials.secret_key, moment[:8], credentials.region, credentials.service)
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    added["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return added


def _normal(path: str) -> str:
    """The path without dot segments and doubled slashes; a trailing slash is kept."""
    normal = "/" + normpath(path).lstrip("/")
    return normal + "/" if path.endswith("/") and normal != "/" else normal


@functools.lru_cache(maxsize=32)
def _key(secret: str, day: str, region: str, service: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key
