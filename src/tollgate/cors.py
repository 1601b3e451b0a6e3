"""Web pages of other origins: those in `server.cors_origins` may call the gateway from a browser (Fetch standard,
"CORS protocol").

Credentials are never allowed: keys travel in a header that the page sets itself,
and the dashboard's cookie stays out of it.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from tollgate.http import Scope, Send

_ANY = "*"
_METHODS = (b"access-control-allow-methods", b"GET, HEAD, POST, DELETE")
_AGE = (b"access-control-max-age", b"7200")
"""Seconds a browser may remember the answer; the longest that all of them accept."""
_VARY = (b"vary", b"origin")
_EXPOSED = (b"access-control-expose-headers", b"*")
"""Request ids, limits and what was dropped are for the page to read."""


def admits(origins: tuple[str, ...], origin: str) -> bool:
    """Whether pages of `origin` may call: admits(("https://app.example",), "https://app.example") -> True"""
    return _ANY in origins or origin.lower().rstrip("/") in origins


async def answering(scope: Scope, send: Send, origins: tuple[str, ...]) -> Send | None:
    """How the answer to a request is sent when pages of these origins may call: with the headers their browsers ask
    for. None when the request was the browser's own question ahead of the page's (a preflight); then it is answered
    already."""
    received = dict(scope["headers"])
    origin = received.get(b"origin")
    if origin is None or not admits(origins, origin.decode("latin-1")):
        # a browser keeps some of these answers, and must not take them for those that its pages may read
        return _with_headers(send, [_VARY]) if scope["method"] in ("GET", "HEAD") else send
    shared = [(b"access-control-allow-origin", b"*" if _ANY in origins else origin), _VARY]
    if scope["method"] == "OPTIONS" and b"access-control-request-method" in received:
        # `*` would not stand for authorization
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
