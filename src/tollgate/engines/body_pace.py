"""The speed at which request bodies arrive on an HTTP/1 connection; both engines close one that is too slow."""

from __future__ import annotations

from tollgate.engines import SLOWEST_BYTES


class BodyPace:
    """Counts the body bytes that arrived on one connection, and remembers the count of the last check."""

    __slots__ = ("_asked", "_then", "came")

    def __init__(self) -> None:
        self.came = 0
        """Body bytes of all requests so far; updated by the connection."""
        self._asked: object = None
        self._then = 0

    def lags(self, request: object) -> bool:
        """Whether fewer than `SLOWEST_BYTES` of the body of `request` arrived since the last call for the same request.
        The caller must know that the body is incomplete, and that reading is not paused."""
        lags = request is self._asked and self.came - self._then < SLOWEST_BYTES
        self._asked, self._then = request, self.came
        return lags

    def forget(self) -> None:
        """The connection is lost: drop the reference to the request, which may refer to the connection."""
        self._asked = None
