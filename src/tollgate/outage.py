"""Something that fails for a while and is tried again: the log is told once when it begins, and once when it is over.

Who tries again every half second would fill the log otherwise. The owner of an `Outage` decides what is tried, and what
is refused meanwhile.
"""

from __future__ import annotations

import logging


class Outage:
    """The state of one thing that can fail: `reason` while it does, told in `log`. For one thread at a time; any other
    may read `reason`."""

    def __init__(self, log: logging.Logger) -> None:
        self.reason = ""
        """Why it fails now; empty while it works."""
        self._log = log

    def begin(
        self, reason: str, message: str = "", *, level: int = logging.ERROR, error: BaseException | None = None
    ) -> None:
        """It failed. Unless `reason` is already known, `message` is logged (`reason` where there is none), with the
        traceback of `error` if one is given."""
        if reason != self.reason:
            self.reason = reason
            self._log.log(level, "%s", message or reason, exc_info=error)

    def end(self, message: str) -> None:
        """It worked. If it had failed before, `message` is logged."""
        if self.reason:
            self.reason = ""
            self._log.warning("%s", message)
