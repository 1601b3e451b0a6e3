"""The event loop of tests: its clock does not run while the process does not.

A busy machine may let a process stand still for half a second. With the clock of the machine everything is overdue
then at once: the time that a connection may be idle, and the pause after which the test would have used it. Here both
come one after the other, as on a machine that has nothing else to do. Its clock is never ahead of the machine's, so
nothing happens sooner than it was asked for.
"""

from __future__ import annotations

import asyncio
import selectors
import time

_STEP = 0.02
"""Seconds that work between two waits may take by this clock; where it took more, the process stood still."""


class _Selector(selectors.DefaultSelector):
    """Notes how long a wait may have taken."""

    asked: float | None = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        try:
            return super().select(timeout)
        finally:
            self.asked = timeout


class PatientLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop with such a clock."""

    def __init__(self) -> None:
        self._looked = self._now = time.monotonic()
        self._waits = _Selector()
        super().__init__(self._waits)

    def time(self) -> float:
        """Seconds, of which those that the process stood still are left out."""
        looked, self._looked = self._looked, time.monotonic()
        passed, asked = self._looked - looked, self._waits.asked
        self._waits.asked = 0.0
        self._now += passed if asked is None else min(passed, max(asked, 0.0) + _STEP)
        return self._now
