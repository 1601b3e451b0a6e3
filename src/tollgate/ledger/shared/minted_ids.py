"""Which account got which id of a provider's, for gateways that share a ledger; see `tollgate.remembered.minted`."""

from __future__ import annotations

import logging

from tollgate.errors import TollgateError
from tollgate.ledger.shared.connections import Connections
from tollgate.remembered.minted import KEEP_SECONDS, Minted

log = logging.getLogger("tollgate.minted")


class SharedRegister(Minted):
    """The register in the shared database."""

    def __init__(self, connections: Connections) -> None:
        super().__init__(None)
        self._connections = connections

    async def _keep(self, digests: list[bytes], provider: str) -> None:
        try:
            async with self._connections.connection() as connection, connection.transaction():
                await connection.execute(
                    "DELETE FROM tollgate.minted WHERE at < now() - make_interval(secs => $1)", KEEP_SECONDS
                )
                await connection.execute(
                    "INSERT INTO tollgate.minted (digest, provider) SELECT unnest($1::bytea[]), $2 ON CONFLICT "
                    "(digest) DO UPDATE SET provider = excluded.provider, at = now()",
                    sorted({*digests}),  # an answer may name an id twice; and in one order, so that none deadlock
                    provider,
                )
        except TollgateError as error:  # the answer that came with these ids must still reach its client
            log.error("which provider keeps what it answered cannot be written: %s", error.message)

    async def _look_up(self, digests: list[bytes]) -> dict[bytes, str]:
        return {
            row["digest"]: row["provider"]
            for row in await self._connections.rows(
                "SELECT digest, provider FROM tollgate.minted WHERE digest = ANY($1::bytea[])", digests
            )
        }
