"""The forms that were sent to any of the gateways: a load balancer may send the second click of a double click to
another gateway than the first."""

from __future__ import annotations

from tollgate.ledger.keys import digest
from tollgate.ledger.sent_forms import SentForms
from tollgate.ledger.shared.connections import Connections


class SharedForms(SentForms):
    """The methods of `SentForms`, on the database."""

    def __init__(self, connections: Connections) -> None:
        super().__init__()
        self._connections = connections

    async def is_new(self, token: str) -> bool:
        async with self._connections.connection() as connection, connection.transaction():
            await connection.execute("DELETE FROM tollgate.sent_forms WHERE at < now() - interval '1 day'")
            made = await connection.fetchval(
                "INSERT INTO tollgate.sent_forms (digest) VALUES ($1) ON CONFLICT DO NOTHING RETURNING true",
                digest(token),
            )
        return bool(made)
