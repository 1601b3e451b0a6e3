"""What other gateways and commands change, heard over LISTEN/NOTIFY: accounts, keys, grants, ended sessions.

A notification says what changed and of whom ("key key_12ab"); the record is read from its table. Whoever lost the
connection reads everything again, because what was said meanwhile is said to nobody later.
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
    """Calls `changed(what, id)` for each change, and `missed()` when some may have gone unheard: at first, and after
    every loss."""

    def __init__(
        self,
        address: str,
        name: str,
        changed: Callable[[str, str], Awaitable[None]],
        missed: Callable[[], Awaitable[None]],
    ) -> None:
        self.outage = Outage(log)
        """Why nothing is heard now: a key that was revoked elsewhere might be taken here."""
        self._address = address
        self._name = name
        self._changed = changed
        self._missed = missed
        self._heard: asyncio.Queue[str] = asyncio.Queue()
        self._connection: Connection | None = None
        self._closing = False

    async def open(self) -> None:
        """Listen, and read what there is. Raises `DatabaseLost`."""
        await self._begin()
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Listen no more. The task is told instead of cancelled: the driver may turn a cancellation into an error of
        its own."""
        self._closing = True
        self._heard.put_nowait("")
        await self._task
        self._drop()

    async def _begin(self) -> None:
        connection = await connect(self._address, self._name)
        with driver_errors():
            await connection.add_listener(CHANNEL, lambda *notification: self._heard.put_nowait(notification[-1]))
        connection.add_termination_listener(lambda _: self._heard.put_nowait(""))
        try:
            await self._hear_something()
            await self._missed()
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection

    async def _hear_something(self) -> None:
        """Make sure that notifications arrive: a pooler of transactions takes them away. Raises `DatabaseLost`."""
        word = f"hello {secrets.token_hex(8)}"
        other = await connect(self._address, self._name)
        try:
            with driver_errors():
                await other.execute("SELECT pg_notify($1, $2)", CHANNEL, word)
        finally:
            other.terminate()
        try:
            async with asyncio.timeout(_HELLO_SECONDS):
                while await self._heard.get() != word:
                    pass  # what was said before everything is read is read with it
        except TimeoutError as error:
            raise DatabaseLost(POOLED) from error

    async def _run(self) -> None:
        while not self._closing:
            try:
                if self._connection is None:
                    await self._begin()
                    self.outage.end("changes of other gateways are heard again")
                if not self._closing:  # it may have been told while all this was under way
                    await self._next(self._connection)
            except TollgateError as error:
                lost = self._connection is not None
                self._drop()
                if lost and not self.outage.reason:
                    continue  # a connection ends now and then; the next one reads what was missed
                self.outage.begin(error.message, f"changes of other gateways are not heard: {error.message}")
                await asyncio.sleep(_RETRY_SECONDS)
            except Exception as error:  # nobody may go on deaf because of a mistake of ours
                reason = f"changes of other gateways are not heard: {type(error).__name__}"
                self.outage.begin(reason, "hearing of changes of other gateways went wrong", error=error)
                self._drop()
                await asyncio.sleep(_RETRY_SECONDS)

    async def _next(self, connection: Connection | None) -> None:
        """Take one notification; after a while without any, look whether the connection still is there."""
        try:
            change = await asyncio.wait_for(self._heard.get(), _LOOK_SECONDS)
        except TimeoutError:
            change = ""
        if change:
            what, _, id = change.partition(" ")
            await self._changed(what, id)
        elif connection is not None:
            with driver_errors():
                await connection.execute("SELECT 1")

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
        while not self._heard.empty():
            self._heard.get_nowait()
