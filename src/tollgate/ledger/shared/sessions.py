"""What makes a session of the dashboard valid at every gateway: a common signing secret, and the list of sessions that
were signed out."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping

from tollgate.ledger.shared.change_listener import CHANNEL
from tollgate.ledger.shared.connections import CALL_SECONDS, Connections

_NAME = "dashboard"


class SharedSessions:
    """The `SessionKeeper` of `dashboard.sessions`."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.secret = b""
        self.ended: Mapping[str, int] = {}

    async def read(self) -> None:
        """Read both again; the first gateway makes the secret."""
        self._loop = asyncio.get_running_loop()
        if not self.secret:
            await self._connections.rows(
                "INSERT INTO tollgate.secrets VALUES ($1, $2) ON CONFLICT DO NOTHING", _NAME, secrets.token_bytes(48)
            )
            self.secret = await self._connections.value("SELECT value FROM tollgate.secrets WHERE name = $1", _NAME)
        self.ended = {
            row["id"]: int(row["ends"])
            for row in await self._connections.rows(
                "SELECT id, extract(epoch FROM expires_at) AS ends FROM tollgate.ended_sessions "
                "WHERE expires_at > now()"
            )
        }

    def end(self, id: str, ends: int) -> None:
        """Add a session to the list. Called on a thread, like the version for a single gateway, which writes a file."""
        asyncio.run_coroutine_threadsafe(self._end(id, ends), self._loop).result(2 * CALL_SECONDS)

    async def _end(self, id: str, ends: int) -> None:
        self.ended = {**self.ended, id: ends}
        async with self._connections.connection() as connection, connection.transaction():
            await connection.execute("DELETE FROM tollgate.ended_sessions WHERE expires_at < now()")
            await connection.execute(
                "INSERT INTO tollgate.ended_sessions VALUES ($1, to_timestamp($2)) ON CONFLICT DO NOTHING", id, ends
            )
            await connection.execute("SELECT pg_notify($1, 'session')", CHANNEL)
