"""The register of ids that providers created through this gateway: which account was given them, and which provider has
their state.

A stored response, a file or a container belongs to *our* account at one provider, so its id is only accepted from the
account here that was given it (DESIGN section 4). The register is one small SQLite file with digests; the ids
themselves are not stored. Reads and writes run in threads. An id that cannot be written is kept in memory and written
with the next one: the answer that it came with is paid for and must not be lost. A damaged file is set aside, because
every conversation would fail otherwise; if it cannot be read for another reason, the request is refused.

Encrypted texts that only their provider (the "minter") can read are registered like ids.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tollgate.errors import Unavailable
from tollgate.outage import Outage
from tollgate.steady_time import SteadyTime

if TYPE_CHECKING:
    import sqlite3

Result = TypeVar("Result")

log = logging.getLogger("tollgate.minted")

KEEP_SECONDS = 60 * 24 * 3600
"""Twice the 30 days for which providers store answers."""
_PARTS = 256
"""Old ids are removed when the time is known (`SteadyTime`), and then a part of them each minute, by the first byte of
their digests: the file of a gateway that runs for months stays small, and no write waits for a look at all of it."""
_RECENT = 20_000
_MOST_AT_ONCE = 512 * 1024
"""Most characters that are hashed on the event loop, which takes half a millisecond."""
SOMEBODY = ""
"""Stands for any account; no account has this name."""


class Minted:
    """The register. `path` None keeps it in memory (tests). The file is opened for the first id: most gateways see
    none."""

    def __init__(self, path: Path | None, times: SteadyTime | None = None) -> None:
        self._path = path
        self._times = times or SteadyTime()
        self._lock = threading.RLock()
        self._opened: sqlite3.Connection | None = None
        self._recent: OrderedDict[bytes, str] = OrderedDict()
        self._unwritten: list[tuple[bytes, str, int]] = []
        self._minute = -1
        """The last minute in which old ids were removed."""
        self._outage = Outage(log)

    async def remember(self, account_id: str, provider: str, ids: Iterable[str]) -> None:
        """Register ids that this provider gave to this account; they are found as soon as this returns."""
        if digests := remembered(account_id, ids):
            await self._keep(digests, provider)

    async def remember_minter(self, account_id: str, minter: str, texts: Iterable[str]) -> None:
        """Register encrypted texts of this minter that were given to this account."""
        if digests := [*await _by_digest(account_id, list(texts))]:
            await self._keep(digests, minter)

    async def minters_of(self, account_id: str, texts: Collection[str]) -> dict[str, str]:
        """The minters of those of these texts that were given to this account here."""
        sought = await _by_digest(account_id, texts)
        return {sought[known]: minter for known, minter in (await self._found(sought)).items()}

    async def _keep(self, digests: list[bytes], provider: str) -> None:
        """Register these digests for a provider."""
        now = int(time.time())
        for known in digests:
            self._recent[known] = provider
        while len(self._recent) > _RECENT:
            self._recent.popitem(last=False)
        await asyncio.to_thread(self._write, [(known, provider, now) for known in digests])

    async def _found(self, digests: Iterable[bytes]) -> dict[bytes, str]:
        """The providers of those of these digests that are registered."""
        digests = list(digests)
        found = {known: self._recent[known] for known in digests if known in self._recent}
        older = [known for known in digests if known not in found]
        return found | await self._look_up(older) if older else found

    async def _look_up(self, digests: list[bytes]) -> dict[bytes, str]:
        """The providers of those of these digests that are in the file."""
        return await asyncio.to_thread(
            lambda: {known: who for known in digests if (who := self._read(known)) is not None}
        )

    async def provider_of(self, account_id: str, minted_id: str) -> str | None:
        """The provider that gave this id to this account; None if none did."""
        sought = digest(account_id, minted_id)
        return (await self._found([sought])).get(sought)

    async def foreign(self, account_id: str, ids: Iterable[str]) -> str | None:
        """The first of these ids that was given to other accounts but not to this one. Unknown ids are not foreign."""
        ids = list(ids)
        found = await self._found(remembered(account_id, ids))
        return next(
            (each for each in ids if digest(SOMEBODY, each) in found and digest(account_id, each) not in found), None
        )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def _file(self) -> sqlite3.Connection:
        """The open file; the caller holds the lock."""
        if self._opened is None:
            import sqlite3

            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                # SQLite gives its log files the mode of this file
                os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            opened = sqlite3.connect(
                str(self._path) if self._path else ":memory:", check_same_thread=False, isolation_level=None
            )
            opened.execute("PRAGMA journal_mode = WAL")
            opened.execute("PRAGMA synchronous = NORMAL")
            opened.execute(
                "CREATE TABLE IF NOT EXISTS minted (digest BLOB PRIMARY KEY, provider TEXT NOT NULL, at INTEGER NOT "
                "NULL) WITHOUT ROWID"
            )
            self._opened = opened
        return self._opened

    def _with_file(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """The result of `work` on the open file, or on a new one if it is damaged. Raises sqlite3.Error and OSError."""
        import sqlite3

        with self._lock:
            try:
                return work(self._file())
            except sqlite3.DatabaseError as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if self._path is None or code not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                    raise
                self._set_aside(self._path, error)
            return work(self._file())

    def _set_aside(self, path: Path, error: Exception) -> None:
        """Rename a damaged file and its log files; the caller holds the lock."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        kept = path.with_suffix(".damaged")
        for end in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{path}{end}").replace(f"{kept}{end}")
        log.error("%s is damaged: %s; it is kept as %s, and the ids in it are unknown now", path, error, kept.name)

    def _write(self, rows: list[tuple[bytes, str, int]]) -> None:
        import sqlite3

        def insert(file: sqlite3.Connection) -> None:
            with file:
                file.execute("BEGIN")
                file.executemany("INSERT OR REPLACE INTO minted VALUES (?, ?, ?)", self._unwritten)
                self._remove_old(file)

        with self._lock:
            self._unwritten += rows
            try:
                self._with_file(insert)
            except (sqlite3.Error, OSError) as error:
                self._outage.begin(
                    str(error),
                    f"{self._path}: which provider keeps what it answered cannot be written, so it is known until the "
                    f"next start only: {error}",
                )
                del self._unwritten[:-_RECENT]
                return
            self._unwritten.clear()
            self._outage.end(f"{self._path} can be written again")

    def _remove_old(self, file: sqlite3.Connection) -> None:
        """Remove the old ids of this minute's part, or the first time all of them."""
        now = self._times.now()
        if now is None or (minute := int(now // 60)) == self._minute:
            return
        if self._minute < 0:
            file.execute("DELETE FROM minted WHERE at < ?", (now - KEEP_SECONDS,))
        self._minute, first = minute, minute % _PARTS
        file.execute(
            "DELETE FROM minted WHERE digest BETWEEN ? AND ? AND at < ?",
            (bytes([first]), bytes([first]) + b"\xff" * 16, now - KEEP_SECONDS),
        )

    def _read(self, sought: bytes) -> str | None:
        import sqlite3

        def find(file: sqlite3.Connection) -> str | None:
            row = file.execute("SELECT provider FROM minted WHERE digest = ?", (sought,)).fetchone()
            return row[0] if row else None

        try:
            return self._with_file(find)
        except (sqlite3.Error, OSError) as error:
            log.error("%s: which provider keeps what a request names cannot be read: %s", self._path, error)
            raise Unavailable("what the request refers to cannot be looked up now") from None


def written(path: Path) -> list[tuple[bytes, str, int]]:
    """The rows of a register's file: digest, provider and Unix time of each id; none if there is no file."""
    import sqlite3

    if not path.exists():
        return []
    with contextlib.closing(sqlite3.connect(str(path))) as file:
        return file.execute("SELECT digest, provider, at FROM minted").fetchall()


def _of_text(account_id: str, text: str) -> bytes:
    """The digest of an encrypted text; different from that of any id."""
    return digest(account_id, f"\0{text}")


async def _by_digest(account_id: str, texts: Collection[str]) -> dict[bytes, str]:
    """These texts by their digests; long ones are hashed in a thread."""
    if sum(map(len, texts)) > _MOST_AT_ONCE:
        return await asyncio.to_thread(_digested, account_id, texts)
    return _digested(account_id, texts)


def _digested(account_id: str, texts: Iterable[str]) -> dict[bytes, str]:
    return {_of_text(account_id, each): each for each in texts}


def remembered(account_id: str, ids: Iterable[str]) -> list[bytes]:
    """The digests to register for ids that this account was given."""
    return [digest(account, each) for each in ids for account in (account_id, SOMEBODY)]


def digest(account_id: str, minted_id: str) -> bytes:
    """The digest of an account's id: the file does not hold the ids themselves."""
    return hashlib.sha256(f"{account_id}\0{minted_id}".encode()).digest()[:16]
