"""One-time sign-in links that any of the gateways accepts; see `ledger.sign_in_links`."""

from __future__ import annotations

import secrets

from tollgate.ledger.keys import digest
from tollgate.ledger.shared.connections import Connections
from tollgate.ledger.sign_in_links import LINK_SECONDS, SignInLinks


class SharedLinks(SignInLinks):
    """The links that have not been used yet, known to the database by their hashes only."""

    def __init__(self, connections: Connections) -> None:
        super().__init__()
        self._connections = connections

    async def make(self, account_id: str) -> str:
        token = secrets.token_urlsafe(32)
        async with self._connections.connection() as connection, connection.transaction():
            await connection.execute("DELETE FROM tollgate.links WHERE expires_at < now()")
            await connection.execute(
                "INSERT INTO tollgate.links VALUES ($1, $2, now() + make_interval(secs => $3))",
                digest(token),
                account_id,
                LINK_SECONDS,
            )
        return token

    async def look(self, token: str) -> str | None:
        account: str | None = await self._connections.value(
            "SELECT account_id FROM tollgate.links WHERE digest = $1 AND expires_at > now()", digest(token)
        )
        return account

    async def take(self, token: str) -> str | None:
        account: str | None = await self._connections.value(
            "DELETE FROM tollgate.links WHERE digest = $1 AND expires_at > now() RETURNING account_id", digest(token)
        )
        return account
