"""Rows that a gateway wrote and had not published when it went away: another gateway publishes them, under the name of
the first.

So a file's name still says whose rows are in it, each row is in one file, and a gateway that comes back continues from
there. One gateway at a time does this for a name, and only while no gateway of that name is connected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

import duckdb

from tollgate.config.settings import Store
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
    """Looks for such rows now and then. `rows_of` returns the source of a gateway's rows; close its connection after
    use."""

    def __init__(self, connections: Connections, settings: Store, rows_of: Callable[[str], UsageSource]) -> None:
        self._connections = connections
        self._settings = settings
        self._rows_of = rows_of
        self._gone: set[str] = set()
        """The gateways that were gone at the last look. One that is only restarting publishes its rows itself."""

    async def look(self) -> None:
        """Publish the rows of gateways that are gone at two looks in a row. Raises the errors of `Connections`, DuckDB
        and the disk."""
        gone = {
            row["name"]
            for row in await self._connections.rows(_LEFT, self._settings.instance)
            if await self._connections.value(GONE, row["name"])
        }
        known, self._gone = self._gone, gone
        for name in sorted(gone & known):
            await self._publish(name)

    async def _publish(self, name: str) -> None:
        """Publish for one name for some seconds; the next look continues."""
        locks = FileLocks()
        failure: duckdb.Error | OSError | None = None
        try:
            locks.take_usage(self._settings.usage_directory, name)
            async with self._connections.connection() as connection, connection.transaction():
                await connection.execute(KEEPALIVE["LOCAL"])
                if await connection.fetchval(_TURN, name):
                    try:
                        await asyncio.to_thread(self._turn, name)
                    except (duckdb.Error, OSError) as error:  # raised below: here it would count as the database's
                        failure = error
        except StoreInUse:
            return  # it is back, or another gateway is publishing for it
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
