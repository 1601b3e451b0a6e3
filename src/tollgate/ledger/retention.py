"""How long rows and image jobs stay in the store and usage files in their folder (`store.keep_rows_days`,
`store.keep_jobs_days`, `store.keep_files_days`).

Decides which day is the first to keep; the stores remove what is older. Whole UTC days only, so that an hour's rows go
together. A clock that was set wrong must not delete a year of rows: the time of day is trusted only if it advanced as
much as the monotonic clock since the last look.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from tollgate.config.settings import Store

LOOK_SECONDS = 600.0
"""How often to look for what is too old, and so how long a changed clock must stay as it is before it is trusted."""
_DRIFT_SECONDS = 60.0


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
        self._wall = wall
        self._clock = clock
        self._looked_at = clock()
        self._offset = wall() - self._looked_at

    def look(self) -> FirstDays | None:
        """The first days to keep. None when everything is kept, when it is not time to look yet, and when the time of
        day was changed since the last look."""
        now, kept = self._clock(), self._settings
        if not (kept.keep_rows_days or kept.keep_jobs_days) or now < self._looked_at + LOOK_SECONDS:
            return None
        before, self._offset, self._looked_at = self._offset, self._wall() - now, now
        if abs(self._offset - before) > _DRIFT_SECONDS:
            return None
        today = datetime.fromtimestamp(now + self._offset, UTC).date()
        rows, files, jobs = (
            today - timedelta(days=days) if days else None
            for days in (kept.keep_rows_days, kept.keep_files_days if kept.keep_rows_days else 0, kept.keep_jobs_days)
        )
        return FirstDays(rows, files, jobs)
