"""Rows that a gateway wrote and did not publish before it went for good: another one publishes them, under the name of
the first.

So a file's name still says whose rows it has, each row stands in one file, and a gateway that does come back goes on
from there. One gateway at a time does it for a name, and only while no gateway of that name has its session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

import duckdb

from tollgate.config.model import Store
from tollgate.ledger.interface import StoreInUse
from tollgate.ledger.locks import FileLocks
from tollgate.ledger.publish import Publisher
from tollgate.ledger.shared.connections import KEEPALIVE, Connections
from tollgate.ledger.shared.records import GONE
from tollgate.ledger.usage_source import UsageSource

log = logging.getLogger("tollgate.ledger")

_LEFT = (
    "SELECT name FROM tollgate.instances i WHERE name <> $1 AND published < "
    "(SELECT max(seq) FROM tollgate.usage WHERE instance = i.name) ORDER BY name"
)
_TURN = "SELECT pg_try_advisory_xact_lock(hashtextextended('tollgate publishes ' || $1, 0))"


class Leftovers:
    """Looks for such rows now and then. `rows_of` gives the source of a gateway's rows, to be closed by its
    connection."""

    def __init__(self, connections: Connections, settings: Store, rows_of: Callable[[str], UsageSource]) -> None:
        self._connections = connections
        self._settings = settings
        self._rows_of = rows_of
        self._gone: set[str] = set()
        """Who was gone at the last look: a gateway that just starts anew publishes by itself."""

    async def look(self) -> None:
        """Publish what those left who are gone at the second look in a row. Raises what `Connections`, DuckDB and the
        disk raise."""
        gone = {
            row["name"]
            for row in await self._connections.rows(_LEFT, self._settings.instance)
            if await self._connections.value(GONE, row["name"])
        }
        known, self._gone = self._gone, gone
        for name in sorted(gone & known):
            await self._publish(name)

    async def _publish(self, name: str) -> None:
        """One turn of some seconds for one name; what is left after that is for the next look."""
        locks = FileLocks()
        failure: duckdb.Error | OSError | None = None
        try:
            locks.take_usage(self._settings.usage_directory, name)
            async with self._connections.connection() as connection, connection.transaction():
                await connection.execute(KEEPALIVE["LOCAL"])
                if await connection.fetchval(_TURN, name):
                    try:
                        await asyncio.to_thread(self._turn, name)
                    except (duckdb.Error, OSError) as error:  # the disk's, and not to be told as the database's
                        failure = error
        except StoreInUse:
            return  # it is back, or a gateway beside this one does it
        finally:
            locks.release()
        if failure is not None:
            raise failure

    def _turn(self, name: str) -> None:
        rows = self._rows_of(name)
        try:
            publisher = Publisher(rows, self._settings.usage_directory, name, shared=True)
            publisher.remove_leftovers()
            if written := publisher.publish(datetime.now(UTC)):
                log.warning(
                    'gateway "%s" is gone; %d usage file(s) got the rows that it had not published', name, written
                )
        finally:
            rows.connection.close()
