"""Hears over LISTEN/NOTIFY what other gateways and commands change: accounts, keys, grants, ended sessions.

A notification names the kind and the id of what changed ("key key_12ab"); the record itself is read from its table.
After a lost connection everything is read again, because PostgreSQL does not repeat notifications.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tollgate.errors import TollgateError
from tollgate.ledger.shared.connections import POOLED, DatabaseLost, connect, driver_errors
from tollgate.outage import Outage

if TYPE_CHECKING:
    from asyncpg import Connection

log = logging.getLogger("tollgate.ledger")

CHANNEL = "tollgate"
_RETRY_SECONDS = 0.5
_LOOK_SECONDS = 10.0
_HELLO_SECONDS = 5.0


class ChangeListener:
    """Calls `changed(what, id)` for each change, and `changed("everything", "")` when some may have been missed: at the
    start, and after every lost connection."""

    def __init__(self, address: str, name: str, changed: Callable[[str, str], Awaitable[None]]) -> None:
        self.outage = Outage(log)
        """Why no changes arrive now. New work is refused then: a key revoked elsewhere might be accepted here."""
        self._address = address
        self._name = name
        self._changed = changed
        self._changes: asyncio.Queue[str] = asyncio.Queue()
        """Notifications, and an empty text when the connection ended or `close` was called."""
        self._connection: Connection | None = None
        self._closing = False

    async def open(self) -> None:
        """Listen, and have everything read once. Raises `DatabaseLost`."""
        await self._begin()
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop listening. The task is notified, not cancelled: the driver may turn a cancellation into an error of its
        own."""
        self._closing = True
        self._changes.put_nowait("")
        await self._task
        self._drop()

    async def _begin(self) -> Connection:
        connection = await connect(self._address, self._name)
        try:
            with driver_errors():
                await connection.add_listener(CHANNEL, lambda *notification: self._changes.put_nowait(notification[-1]))
            connection.add_termination_listener(lambda _: self._changes.put_nowait(""))
            await self._check_delivery()
            await self._changed("everything", "")
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection
        return connection

    async def _check_delivery(self) -> None:
        """Send a notification and wait for it: behind a pooler that pools transactions none arrives. Raises
        `DatabaseLost`."""
        hello = f"hello {secrets.token_hex(8)}"
        other = await connect(self._address, self._name)
        try:
            with driver_errors():
                await other.execute("SELECT pg_notify($1, $2)", CHANNEL, hello)
        finally:
            other.terminate()
        try:
            async with asyncio.timeout(_HELLO_SECONDS):
                while await self._changes.get() != hello:
                    pass  # a change from before: everything is read after this
        except TimeoutError as error:
            raise DatabaseLost(POOLED) from error

    async def _run(self) -> None:
        while not self._closing:
            try:
                connection = self._connection or await self._begin()
                self.outage.end("changes of other gateways arrive again")
                if not self._closing:  # `close` may have been called meanwhile
                    await self._next(connection)
            except TollgateError as error:
                lost = self._connection is not None
                self._drop()
                if lost and not self.outage.reason:
                    continue  # connections end now and then: a new one reads what was missed
                self.outage.begin(error.message, f"changes of other gateways do not arrive: {error.message}")
                await asyncio.sleep(_RETRY_SECONDS)
            except Exception as error:  # a mistake of ours must not end the listening
                reason = f"changes of other gateways do not arrive: {type(error).__name__}"
                self.outage.begin(reason, "receiving changes of other gateways failed", error=error)
                self._drop()
                await asyncio.sleep(_RETRY_SECONDS)

    async def _next(self, connection: Connection) -> None:
        """Handle one notification; after a while without any, check that the connection still works."""
        try:
            change = await asyncio.wait_for(self._changes.get(), _LOOK_SECONDS)
        except TimeoutError:
            change = ""
        if change:
            what, _, id = change.partition(" ")
            await self._changed(what, id)
        else:
            with driver_errors():
                await connection.execute("SELECT 1")

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
        while not self._changes.empty():
            self._changes.get_nowait()
