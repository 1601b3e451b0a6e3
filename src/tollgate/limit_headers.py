"""A key's rate limits as response headers: one spelling for chat, responses and embeddings, another for messages (CLIENTS 3c)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tollgate.ledger.limits import Limits, Window
from tollgate.services import Headers


def limit_headers(dialect: str, limits: Limits) -> Headers:
    """The headers for the windows a key has; none for a key without limits.

    Resets are durations (`12ms`, `1s`, `6m0s`), in the messages dialect instants (RFC 3339).
    """
    headers: Headers = []
    for kind, window in (("requests", limits.requests), ("tokens", limits.tokens)):
        if window is None:
            continue
        if dialect == "messages":
            instant = datetime.now(UTC) + timedelta(seconds=window.reset_seconds)
            headers += _three("anthropic-ratelimit-{}-{}", kind, window, instant.strftime("%Y-%m-%dT%H:%M:%SZ"), kind_first=True)
        else:
            headers += _three("x-ratelimit-{}-{}", kind, window, duration(window.reset_seconds), kind_first=False)
    return headers


def duration(seconds: float) -> str:
    """0.012 -> `12ms`, 1 -> `1s`, 360 -> `6m0s`."""
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))}ms"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _three(pattern: str, kind: str, window: Window, reset: str, *, kind_first: bool) -> Headers:
    values = (("limit", str(window.limit)), ("remaining", str(window.remaining)), ("reset", reset))
    return [(pattern.format(*((kind, what) if kind_first else (what, kind))).encode(), value.encode()) for what, value in values]
