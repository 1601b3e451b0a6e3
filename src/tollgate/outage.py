"""Logs a lasting failure of a retried operation once when it begins and once when it ends, instead of at every retry.

The owner of an `Outage` decides what is retried, and what is rejected meanwhile.
"""

from __future__ import annotations

import logging


class Outage:
    """The state of one operation: working, or failing for a reason. Changes are logged to `log`. Only one thread may
    call the methods; others may read `reason`."""

    def __init__(self, log: logging.Logger) -> None:
        self.reason = ""
        """Why the operation is failing; empty while it works."""
        self._log = log

    def begin(
        self, reason: str, message: str = "", *, level: int = logging.ERROR, error: BaseException | None = None
    ) -> None:
        """The operation failed. If `reason` is new, `message` (or else `reason`) is logged, with the traceback of
        `error` if given."""
        if reason != self.reason:
            self.reason = reason
            self._log.log(level, "%s", message or reason, exc_info=error)

    def end(self, message: str) -> None:
        """The operation succeeded. If it had failed before, `message` is logged."""
        if self.reason:
            self.reason = ""
            self._log.warning("%s", message)
