"""How long rows and image jobs stay in the store and usage files in their folder (`store.keep_rows_days`,
`store.keep_jobs_days`, `store.keep_files_days`).

Decides from which day on they are kept; the stores remove. Whole UTC days only, so that an hour's rows go together. A
clock that was set wrong must not cost a year of rows: it counts only when it went as fast as the machine's own since
the last look.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from tollgate.config.model import Store

LOOK_SECONDS = 600.0
"""How often to look for what is too old. A clock that was set must stay as it is for so long before it is believed."""
_DRIFT_SECONDS = 60.0


class FirstDays(NamedTuple):
    """The first days of which rows, files and image jobs are kept; None: all."""

    rows: date | None
    files: date | None
    jobs: date | None


class Retention:
    """When to look, and from which days on things are kept. `wall` is the clock that people set, `clock` the one that
    nobody does."""

    def __init__(
        self, settings: Store, wall: Callable[[], float] = time.time, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rows = settings.keep_rows_days
        self._files = settings.keep_files_days
        self._jobs = settings.keep_jobs_days
        self._wall = wall
        self._clock = clock
        self._looked_at = clock()
        self._offset = wall() - self._looked_at

    def look(self) -> FirstDays | None:
        """What is to be kept now; None when everything is, when it is not time to look yet, and when the clock was set
        since the last time."""
        now = self._clock()
        if not (self._rows or self._jobs) or now < self._looked_at + LOOK_SECONDS:
            return None
        before, self._offset, self._looked_at = self._offset, self._wall() - now, now
        if abs(self._offset - before) > _DRIFT_SECONDS:
            return None
        today = datetime.fromtimestamp(now + self._offset, UTC).date()
        rows, files, jobs = (
            today - timedelta(days=days) if days else None
            for days in (self._rows, self._files if self._rows else 0, self._jobs)
        )
        return FirstDays(rows, files, jobs)
