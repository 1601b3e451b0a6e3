"""A failure that is retried until it is over: it is logged once when it begins, and once when it is over.

Otherwise a retry every half second would fill the log. The owner of an `Outage` decides what is retried, and what is
refused meanwhile.
"""

from __future__ import annotations

import logging


class Outage:
    """Whether one operation fails at the moment, and why; changes are logged in `log`. To be used by one thread; others
    may read `reason`."""

    def __init__(self, log: logging.Logger) -> None:
        self.reason = ""
        """Why it fails now; empty while it works."""
        self._log = log

    def begin(
        self, reason: str, message: str = "", *, level: int = logging.ERROR, error: BaseException | None = None
    ) -> None:
        """The operation failed. Unless `reason` is already known, `message` (or else `reason`) is logged, with the
        traceback of `error` if one is given."""
        if reason != self.reason:
            self.reason = reason
            self._log.log(level, "%s", message or reason, exc_info=error)

    def end(self, message: str) -> None:
        """The operation succeeded. If it had failed before, `message` is logged."""
        if self.reason:
            self.reason = ""
            self._log.warning("%s", message)
