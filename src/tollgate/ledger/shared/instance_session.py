"""The database session of one gateway. Its lock on the gateway's name shows the others that it is alive.

`rounds.py` sends the rounds over it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tollgate.ledger.interface import StoreInUse
from tollgate.ledger.shared.connections import connect, driver_errors
from tollgate.ledger.shared.tables import migrate

if TYPE_CHECKING:
    from asyncpg import Connection

log = logging.getLogger("tollgate.ledger")

LOOK_SECONDS = 10.0
"""How often to look for gateways that are gone. It also notices a database that is."""


class InstanceSession:
    """The session of the gateway `instance`, shown in the database as the program `name`; replaced after a failure."""

    def __init__(self, address: str, instance: str, name: str) -> None:
        self.connection: Connection | None = None
        self._address = address
        self._instance = instance
        self._name = name
        self._backend_pid = 0
        """The database's number for the last session of ours; 0 before the first."""
        self._look_at = 0.0

    async def open(self, on_lost: Callable[[], None]) -> list[tuple[str, str]]:
        """Connect and lock the name. Returns account and key of what the database knows as held by this gateway, from
        an earlier session, perhaps of another process. Raises `StoreInUse` while another gateway has the name,
        `DatabaseLost` without a database. `on_lost` is called when the session ends."""
        self.drop()
        connection = await connect(self._address, self._name)
        try:
            with driver_errors():
                await migrate(connection)
                await self._take_name(connection)
                held = await connection.fetch(
                    "SELECT account_id, key_id FROM tollgate.holds WHERE instance = $1", self._instance
                )
        except BaseException:
            connection.terminate()
            raise
        self.connection = connection
        connection.add_termination_listener(lambda _: on_lost())
        return [(row["account_id"], row["key_id"]) for row in held]

    async def _take_name(self, connection: Connection) -> None:
        """Lock this gateway's name. A session of our own that the database still believes in is ended first. The
        database shows the first 63 characters of a program's name."""
        if self._backend_pid:
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND application_name = "
                "left($2, 63)",
                self._backend_pid,
                self._name,
            )
        for _ in range(10):
            if await connection.fetchval("SELECT pg_try_advisory_lock(tollgate.lock_of($1))", self._instance):
                # from the database: behind a pooler the driver knows another number
                self._backend_pid = await connection.fetchval("SELECT pg_backend_pid()")
                return
            await asyncio.sleep(0.05)
        raise StoreInUse(
            f'another gateway named "{self._instance}" uses this store; give each a `store.instance` of its own'
        )

    async def release_gone(self) -> None:
        """Every ten seconds, release what gateways held that are gone."""
        if time.monotonic() < self._look_at:
            return
        assert self.connection is not None
        self._look_at = time.monotonic() + LOOK_SECONDS
        with driver_errors():
            while (
                gone := await self.connection.fetchval("SELECT tollgate.release_gone($1)", self._instance)
            ) is not None:
                log.warning('gateway "%s" is gone; what its requests held is given back', gone)

    @property
    def is_open(self) -> bool:
        """Whether there is a session, as far as the driver knows."""
        return self.connection is not None and not self.connection.is_closed()

    def drop(self) -> None:
        """End the session, if there is one, without waiting for the database."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.terminate()
