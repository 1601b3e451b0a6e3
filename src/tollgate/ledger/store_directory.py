"""The directory of an embedded store: made where it is missing, closed to other users, locked against other processes.

What is in it belongs to others: the journal, the store and its large jobs, the admin socket.
"""

from __future__ import annotations

import logging
import stat

from tollgate.config.settings import Store as StoreSettings
from tollgate.errors import TollgateError
from tollgate.ledger.interface import StoreInUse
from tollgate.ledger.locks import FileLocks

log = logging.getLogger("tollgate.ledger")

LOCK_NAME = "ledger.lock"
MOVED_NAME = "moved.txt"
"""Its text says into which shared store this one was moved."""


class StoreDirectory:
    """The directories of `settings`, owned by this process from `take` to `release`."""

    def __init__(self, settings: StoreSettings) -> None:
        self.path = settings.directory
        self.journal = self.path / "journal"
        self._settings = settings
        self._locks = FileLocks()

    def take(self, *, moved: bool) -> None:
        """Make the directories and lock them. `moved`: also where the store was moved into a shared one.

        Raises `StoreInUse`, and `TollgateError` when the disk refuses or the store was moved. Call `release` then, too.
        """
        try:
            if not self.path.exists():
                # hashes of keys and passwords are in there; `parents` would get the usual mode
                self.path.mkdir(parents=True, mode=0o700)
            self._close_to_others()
            self.journal.mkdir(exist_ok=True, mode=0o700)
            self._settings.usage_directory.mkdir(parents=True, exist_ok=True)
            self._lock()
            if not moved:
                self._refuse_moved()
        except OSError as error:
            raise TollgateError(
                f"{error.filename or self.path}: the ledger cannot be kept here: {error.strerror}"
            ) from error

    def release(self) -> None:
        """Give up the locks."""
        self._locks.release()

    def _close_to_others(self) -> None:
        """Take the permissions of other users from a directory that existed before: DuckDB makes its files readable for
        everybody. What the directory's group may do stays."""
        mode = stat.S_IMODE(self.path.stat().st_mode)
        if not mode & stat.S_IRWXO:
            return
        why = "the file system keeps no modes"
        try:
            self.path.chmod(mode & ~stat.S_IRWXO)
        except OSError as error:
            why = str(error.strerror)
        if self.path.stat().st_mode & stat.S_IRWXO:  # some file systems accept a chmod and ignore it
            log.warning(
                "%s: every user of this machine may look into it, and hashes of keys and passwords are in there; it "
                "cannot be closed: %s",
                self.path,
                why,
            )

    def _lock(self) -> None:
        """Keep other processes out of the store, and out of the usage files that this one publishes."""
        holder = self._locks.take(self.path / LOCK_NAME)
        if holder:
            raise StoreInUse(f"{self.path} is in use by another process (pid {holder})")
        self._locks.take_usage(self._settings.usage_directory, self._settings.instance)

    def _refuse_moved(self) -> None:
        mark = self.path / MOVED_NAME
        if mark.exists():
            raise TollgateError(
                f"{self.path}: {mark.read_text('utf-8').strip()} Set store.url; who deletes {mark} goes on with "
                "balances that are spent elsewhere too"
            )
