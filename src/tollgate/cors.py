"""CORS: web pages of the origins in `server.cors_origins` may call the gateway from a browser (Fetch standard, "CORS
protocol").

Credentials are never allowed. Pages send a key in a header, so the dashboard's cookie is never used.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from tollgate.http import Scope, Send

_ANY = "*"
_METHODS = (b"access-control-allow-methods", b"GET, HEAD, POST, DELETE")
_AGE = (b"access-control-max-age", b"7200")
"""Seconds for which a browser may cache a preflight; the longest time that all browsers accept."""
_VARY = (b"vary", b"origin")
_EXPOSED = (b"access-control-expose-headers", b"*")
"""Pages may read all headers, such as request ids, limits and dropped fields."""


def admits(origins: tuple[str, ...], origin: str) -> bool:
    """Whether pages of `origin` may call the API: admits(("https://app.example",), "https://app.example") -> True"""
    return _ANY in origins or origin.lower().rstrip("/") in origins


async def send_with_cors(scope: Scope, send: Send, origins: tuple[str, ...]) -> Send | None:
    """A `send` that adds the CORS headers to the answer, if pages of `origins` may call the gateway. None if the
    request is a preflight, which is answered here."""
    received = dict(scope["headers"])
    origin = received.get(b"origin")
    if origin is None or not admits(origins, origin.decode("latin-1")):
        # a browser may cache this answer, and must not use it for an origin that is allowed
        return _with_headers(send, [_VARY]) if scope["method"] in ("GET", "HEAD") else send
    shared = [(b"access-control-allow-origin", b"*" if _ANY in origins else origin), _VARY]
    if scope["method"] == "OPTIONS" and b"access-control-request-method" in received:
        # `*` does not cover the authorization header
        headers = received.get(b"access-control-request-headers", b"authorization, content-type")
        await send(
            {
                "type": "http.response.start",
                "status": 204,
                "headers": [*shared, _METHODS, (b"access-control-allow-headers", headers), _AGE],
            }
        )
        await send({"type": "http.response.body", "body": b""})
        return None

    return _with_headers(send, [*shared, _EXPOSED])


def _with_headers(send: Send, more: list[tuple[bytes, bytes]]) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return sending
