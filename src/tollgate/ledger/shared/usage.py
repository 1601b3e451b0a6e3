"""Publishes the usage files of one gateway, from the rows it wrote to the shared database."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import orjson

from tollgate.config.settings import Store
from tollgate.errors import TollgateError
from tollgate.ledger.duckdb_paths import require_openable
from tollgate.ledger.locks import FileLocks, once_free
from tollgate.ledger.publish import Effort, Publisher, naive, unpublished
from tollgate.ledger.reports import in_memory
from tollgate.ledger.shared.connections import CALL_SECONDS, Connections
from tollgate.ledger.shared.leftovers import Leftovers
from tollgate.ledger.shared.removal import Removal
from tollgate.ledger.usage_row import COLUMNS, base_type
from tollgate.ledger.usage_source import LAST_MOMENT
from tollgate.outage import Outage

log = logging.getLogger("tollgate.ledger")

_PAGE = 2000
_LOOK_SECONDS = 30.0
"""How often to look for gateways that are gone and left unpublished rows."""
_LOCK_SECONDS = 15.0
"""How long a start waits for another gateway that is publishing what this one left: a turn of `Publisher.publish`, and
one more file."""
_FIELDS = ", ".join(f"{c.name}::text AS {c.name}" if c.type.startswith("DECIMAL") else c.name for c in COLUMNS)
"""Money as text, since a JSON reader could turn it into a float."""
_SHAPE = orjson.dumps({c.name: base_type(c) for c in COLUMNS}).decode()
_PAGE_STATEMENT = (
    f"SELECT row_to_json(r)::text AS line, seq FROM (SELECT {_FIELDS} FROM tollgate.usage WHERE instance = $1 "
    "AND time BETWEEN $2 AND $3 AND seq > $4 ORDER BY seq LIMIT $5) r"
)
_COPIED = f"BY NAME SELECT unnest(from_json(j, '{_SHAPE}')) FROM (SELECT unnest(?::VARCHAR[]) AS j)"


class SharedRows:
    """The rows that one gateway wrote; see `usage_source.UsageSource`. Used on a thread, while its queries run on the
    event loop."""

    def __init__(self, connections: Connections, instance: str, loop: asyncio.AbstractEventLoop) -> None:
        self._connections = connections
        self._instance = instance
        self._loop = loop
        self.connection = in_memory(threads=1, memory_limit="96MB")

    def progress(self) -> tuple[int, int]:
        row = self._rows(
            "SELECT (SELECT published FROM tollgate.instances WHERE name = $1) AS published, "
            "(SELECT max(seq) FROM tollgate.usage WHERE instance = $1) AS newest",
            self._instance,
        )[0]
        published = row["published"] or 0
        return published, max(published, row["newest"] or 0)

    def set_published(self, seq: int) -> None:
        self._rows(
            "UPDATE tollgate.instances SET published = greatest(published, $2) WHERE name = $1", self._instance, seq
        )

    def hours(self, after: int = 0) -> dict[datetime, int]:
        return {
            naive(row["hour"]): row["newest"]
            for row in self._rows(
                "SELECT date_trunc('hour', time) AS hour, max(seq) AS newest FROM tollgate.usage WHERE instance = $1 "
                "AND seq > $2 GROUP BY 1 ORDER BY 1",
                self._instance,
                after,
            )
        }

    def is_whole(self, hour: datetime) -> bool:
        return not self._rows(
            "SELECT 1 FROM tollgate.instances WHERE name = $1 AND rows_from > $2",
            self._instance,
            hour.replace(tzinfo=UTC),
        )

    def copy(self, hour: datetime, after: int, table: str) -> None:
        start = hour.replace(tzinfo=UTC)
        while rows := self._rows(_PAGE_STATEMENT, self._instance, start, start + LAST_MOMENT, after, _PAGE):
            self.connection.execute(f"INSERT INTO {table} {_COPIED}", [[row["line"] for row in rows]])
            after = rows[-1]["seq"]

    def _rows(self, statement: str, *values: object) -> list[Any]:
        return asyncio.run_coroutine_threadsafe(self._connections.rows(statement, *values), self._loop).result(
            2 * CALL_SECONDS
        )


class Publishing:
    """Publishes new rows every few seconds, in the event loop's thread pool."""

    def __init__(self, connections: Connections, settings: Store) -> None:
        loop = asyncio.get_running_loop()
        self._settings = settings
        self._locks = FileLocks()
        self._rows = SharedRows(connections, settings.instance, loop)
        self._publisher = Publisher(self._rows, settings.usage_directory, settings.instance, shared=True)
        self._leftovers = Leftovers(connections, settings, lambda name: SharedRows(connections, name, loop))
        self._removal = Removal(connections, settings)
        self._looks_at = 0.0
        self._effort = Effort()
        self.outage = Outage(log)
        """Why the files are not up to date."""
        self._turn = asyncio.Lock()
        self._stop = asyncio.Event()

    async def open(self) -> int:
        """Lock the usage files of this name; returns the highest `seq` in them."""
        directory = self._settings.usage_directory
        require_openable(directory)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            await once_free(lambda: self._take_name(directory), _LOCK_SECONDS)
        except OSError as error:
            raise TollgateError(
                f"{error.filename or directory}: usage files cannot be kept here: {error.strerror}"
            ) from error
        self._publisher.remove_leftovers()
        self._publisher.recheck()
        return await asyncio.to_thread(self._publisher.highest_seq)

    async def _take_name(self, directory: Path) -> None:
        self._locks.take_usage(directory, self._settings.instance)

    def start(self) -> None:
        """Begin to publish."""
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._stop.is_set():
            began = loop.time()
            await self.publish()
            if began >= self._looks_at and not self.outage.reason:
                self._looks_at = began + _LOOK_SECONDS
                await self._tried(self._look())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), max(self._settings.publish_seconds, self._effort.pause))

    async def publish(self) -> None:
        """Bring the files up to date. What fails is logged and tried again."""
        async with self._turn:
            if await self._tried(asyncio.to_thread(self._publish)):
                self.outage.end("usage files are published again")

    def _publish(self) -> None:
        with self._effort:
            self._publisher.publish(datetime.now(UTC))

    async def _look(self) -> None:
        await self._leftovers.look()
        if not self._publisher.behind:
            await self._removal.look()

    async def _tried(self, work: Awaitable[None]) -> bool:
        """Do this and log a failure, once for each reason. The result is whether it worked."""
        try:
            await work
        except Exception as error:  # also a mistake of ours: it must not end the task, which nobody would notice
            expected = isinstance(error, (duckdb.Error, OSError, TollgateError, TimeoutError))
            reason = (str(error) or "no answer").splitlines()[0]
            self.outage.begin(reason, unpublished(reason), error=None if expected else error)
            return False
        return True

    async def close(self) -> None:
        """Publish the rest."""
        self._stop.set()
        await self._task
        await self.publish()
        self.let_go()

    def let_go(self) -> None:
        """Release this name for other gateways."""
        self._rows.connection.close()
        self._locks.release()
