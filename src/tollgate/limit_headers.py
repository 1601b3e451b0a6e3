"""Response headers for a key's rate limits, with the names of the client's format (CLIENTS 3c)."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from tollgate.errors import whole_seconds
from tollgate.ledger.limits import Limits, Window
from tollgate.mapping import ReplyHeaders
from tollgate.services import Headers

_ALMOST_A_SECOND = timedelta(microseconds=999_999)


def limit_headers(names: ReplyHeaders, limits: Limits) -> Headers:
    """The headers for the key's limits; none for a key without limits.

    Resets are durations (`12ms`, `1s`, `6m0s`), or timestamps (RFC 3339) if the format has these. Both are rounded up,
    like `retry-after`: a client that comes back a moment too early is rejected.
    """
    windows = {"requests": limits.requests, "tokens": limits.tokens}
    return [
        (name, _header_value(fact, window, instants=names.instants).encode())
        for kind, fact, name in names.limits
        if (window := windows[kind]) is not None
    ]


def _header_value(fact: str, window: Window, *, instants: bool) -> str:
    if fact == "limit":
        return str(window.limit)
    if fact == "remaining":
        return str(window.remaining)
    if instants:
        reset = datetime.now(UTC) + timedelta(seconds=window.reset_seconds)
        return (reset + _ALMOST_A_SECOND).strftime("%Y-%m-%dT%H:%M:%SZ")
    return duration(window.reset_seconds)


def duration(seconds: float) -> str:
    """0.012 -> `12ms`, 0.0121 -> `13ms`, 1 -> `1s`, 59.4 -> `1m0s`, 360 -> `6m0s`."""
    if seconds <= 0.999:
        return f"{max(0, math.ceil(seconds * 1000 - 0.001))}ms"
    minutes, rest = divmod(whole_seconds(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
