"""How fast the bodies of requests come on an HTTP/1 connection; both engines end one on which hardly anything does."""

from __future__ import annotations

from tollgate.engines import SLOWEST_BYTES


class BodyPace:
    """The bytes of bodies that came on one connection, and how many there were when somebody looked last."""

    __slots__ = ("_asked", "_then", "came")

    def __init__(self) -> None:
        self.came = 0
        """Bytes of all its requests' bodies so far; the connection counts them here."""
        self._asked: object = None
        self._then = 0

    def lags(self, request: object) -> bool:
        """Whether the body of `request` comes too slowly: fewer than `SLOWEST_BYTES` since the last call, if that was
        about the same request. The caller must know that more is to come of the body, and that nothing of ours holds it
        up."""
        lags = request is self._asked and self.came - self._then < SLOWEST_BYTES
        self._asked, self._then = request, self.came
        return lags

    def forget(self) -> None:
        """The connection is lost: keep no request, which may refer to the connection."""
        self._asked = None
