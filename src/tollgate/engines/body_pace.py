"""Measures how fast request bodies arrive on an HTTP/1 connection; both engines close one that is too slow."""

from __future__ import annotations

from tollgate.engines import SLOWEST_BYTES


class BodyPace:
    """Counts the body bytes that arrived on one connection since the last check."""

    __slots__ = ("_last", "_request", "received")

    def __init__(self) -> None:
        self.received = 0
        """Body bytes of all requests so far; updated by the connection."""
        self._request: object = None
        self._last = 0

    def lags(self, request: object) -> bool:
        """Whether fewer than `SLOWEST_BYTES` of the body of `request` arrived since the last call for the same request.
        The caller must check that the body is incomplete and that reading is not paused."""
        lags = request is self._request and self.received - self._last < SLOWEST_BYTES
        self._request, self._last = request, self.received
        return lags

    def forget(self) -> None:
        """The connection is lost: drop the reference to the request, which may refer to the connection."""
        self._request = None
