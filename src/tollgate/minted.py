"""Ids that a provider minted through this gateway: which account got them and which provider keeps what they name.

A stored response, a file or a container lives at one provider under *our* account there, so its id is honoured only
for the account that was handed it (DESIGN section 4). One small SQLite file; digests only, the ids themselves are not
kept. Reads and writes run off the event loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

KEEP_SECONDS = 60 * 24 * 3600
"""Providers keep stored answers for 30 days; twice that is never too short."""
_RECENT = 10_000


class Minted:
    """The register. `path` None keeps it in memory (tests)."""

    def __init__(self, path: Path | None) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._file = sqlite3.connect(str(path) if path else ":memory:", check_same_thread=False, isolation_level=None)
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = NORMAL")
        self._file.execute("CREATE TABLE IF NOT EXISTS minted (digest BLOB PRIMARY KEY, provider TEXT NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID")
        self._file.execute("DELETE FROM minted WHERE at < ?", (int(time.time()) - KEEP_SECONDS,))
        self._recent: OrderedDict[bytes, str] = OrderedDict()

    async def remember(self, account_id: str, provider: str, ids: Iterable[str]) -> None:
        """These ids were handed to this account by this provider; found again from the moment this returns."""
        rows = [(_digest(account_id, each), provider, int(time.time())) for each in ids]
        if not rows:
            return
        for digest, _, _ in rows:
            self._recent[digest] = provider
        while len(self._recent) > _RECENT:
            self._recent.popitem(last=False)
        await asyncio.to_thread(self._write, rows)

    async def provider_of(self, account_id: str, minted_id: str) -> str | None:
        """The provider that minted an id for this account; None when it never did."""
        digest = _digest(account_id, minted_id)
        known = self._recent.get(digest)
        return known if known is not None else await asyncio.to_thread(self._read, digest)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def _write(self, rows: list[tuple[bytes, str, int]]) -> None:
        with self._lock:
            self._file.execute("BEGIN")
            self._file.executemany("INSERT OR REPLACE INTO minted VALUES (?, ?, ?)", rows)
            self._file.execute("COMMIT")

    def _read(self, digest: bytes) -> str | None:
        with self._lock:
            row = self._file.execute("SELECT provider FROM minted WHERE digest = ?", (digest,)).fetchone()
        return row[0] if row else None


def _digest(account_id: str, minted_id: str) -> bytes:
    return hashlib.sha256(f"{account_id}\0{minted_id}".encode()).digest()[:16]
