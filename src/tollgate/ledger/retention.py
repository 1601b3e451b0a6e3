"""How long rows and image jobs stay in the store and usage files in their folder (`store.keep_rows_days`,
`store.keep_jobs_days`, `store.keep_files_days`).

Decides which day is the first to keep; the stores remove what is older. Whole UTC days only, so that an hour's rows go
together. What day it is says `SteadyTime`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from tollgate.config.settings import Store
from tollgate.steady_time import STEADY_SECONDS, SteadyTime

LOOK_SECONDS = STEADY_SECONDS
"""How often to look for what is too old."""


class FirstDays(NamedTuple):
    """The first days to keep of rows, usage files and image jobs; None keeps all."""

    rows: date | None
    files: date | None
    jobs: date | None


class Retention:
    """When to look, and which days to keep. `wall` is the time of day, which people change; `clock` is monotonic."""

    def __init__(
        self, settings: Store, wall: Callable[[], float] = time.time, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._times = SteadyTime(wall, clock)
        self._looked_at = clock()

    def look(self) -> FirstDays | None:
        """The first days to keep. None when everything is kept, when it is not time to look yet, and when the time of
        day was changed since the last look."""
        now, kept = self._clock(), self._settings
        if not (kept.keep_rows_days or kept.keep_jobs_days) or now < self._looked_at + LOOK_SECONDS:
            return None
        self._looked_at = now
        if (time_of_day := self._times.now()) is None:
            return None
        today = datetime.fromtimestamp(time_of_day, UTC).date()
        rows, files, jobs = (
            today - timedelta(days=days) if days else None
            for days in (kept.keep_rows_days, kept.keep_files_days if kept.keep_rows_days else 0, kept.keep_jobs_days)
        )
        return FirstDays(rows, files, jobs)
