"""The event loop of tests: its clock stops while the process is not running.

A busy machine may suspend a process for half a second. By the machine's clock several timers are overdue then at once:
for example the idle timeout of a connection, and the pause after which the test would have used it. With this clock
they expire one after the other, as on an idle machine. It is never ahead of the machine's clock, so no timer expires
early.
"""

from __future__ import annotations

import asyncio
import selectors
import time

_STEP = 0.02
"""The most time, in seconds, that this clock counts between two waits; any more is time in which the process was
suspended."""


class _Selector(selectors.DefaultSelector):
    """Records the timeout of the last wait."""

    timeout_of_wait: float | None = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        try:
            return super().select(timeout)
        finally:
            self.timeout_of_wait = timeout


class PatientLoop(asyncio.SelectorEventLoop):
    """asyncio's own event loop with such a clock."""

    def __init__(self) -> None:
        self._looked = self._now = time.monotonic()
        self._waits = _Selector()
        super().__init__(self._waits)

    def time(self) -> float:
        """Seconds, without those in which the process was suspended."""
        looked, self._looked = self._looked, time.monotonic()
        passed, timeout_of_wait = self._looked - looked, self._waits.timeout_of_wait
        self._waits.timeout_of_wait = 0.0
        self._now += passed if timeout_of_wait is None else min(passed, max(timeout_of_wait, 0.0) + _STEP)
        return self._now
