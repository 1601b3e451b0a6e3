"""The time of day for decisions that delete something. A clock that was set wrong must not delete a year of it, so it
is trusted only after it has advanced as much as the monotonic clock for ten minutes."""

from __future__ import annotations

import time
from collections.abc import Callable

STEADY_SECONDS = 600.0
"""How long a changed clock must stay as it is before it is trusted; so long it is ignored after a start, too."""
_DRIFT_SECONDS = 60.0


class SteadyTime:
    """Compares two clocks whenever it is asked: `wall` is the time of day, which people change; `clock` is
    monotonic."""

    def __init__(self, wall: Callable[[], float] = time.time, clock: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._clock = clock
        self._since = clock()
        self._offset = wall() - self._since

    def now(self) -> float | None:
        """The time of day in Unix seconds; None while it cannot be trusted."""
        now = self._clock()
        offset = self._wall() - now
        if abs(offset - self._offset) > _DRIFT_SECONDS:
            self._since, self._offset = now, offset
        return now + offset if now >= self._since + STEADY_SECONDS else None
