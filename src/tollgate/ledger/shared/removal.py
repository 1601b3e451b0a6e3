"""Removes rows, image jobs and usage files that are too old to keep (`retention`). Any gateway does it for all. The
sums of removed rows stay: they have tables of their own."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, date, datetime, time

from tollgate.config.settings import Store
from tollgate.ledger.publish import remove_files
from tollgate.ledger.retention import Retention
from tollgate.ledger.shared.connections import Connections
from tollgate.wire import PENDING

log = logging.getLogger("tollgate.ledger")

_AT_ONCE = 5000
_DELETE = (
    "DELETE FROM tollgate.usage WHERE ctid IN (SELECT ctid FROM tollgate.usage WHERE instance = $1 AND time < $2 "
    f"AND seq <= (SELECT published FROM tollgate.instances WHERE name = $1) LIMIT {_AT_ONCE})"
)

_JOBS_AT_ONCE = 200
_DELETE_JOBS = (
    "DELETE FROM tollgate.generations WHERE id IN (SELECT id FROM tollgate.generations WHERE created_at < $1 "
    f"AND status <> ALL($2) LIMIT {_JOBS_AT_ONCE})"
)


class Removal:
    """Looks now and then for what is too old, for all gateways: one that is gone cannot do it itself."""

    def __init__(self, connections: Connections, settings: Store) -> None:
        self._connections = connections
        self._directory = settings.usage_directory
        self._retention = Retention(settings)

    async def look(self) -> None:
        """Remove what is too old. Raises the errors of `Connections` and the disk."""
        kept = self._retention.look()
        if kept is None:
            return
        if kept.jobs is not None:
            await self._remove_jobs(kept.jobs)
        if kept.rows is None:
            return
        for row in await self._connections.rows("SELECT name FROM tollgate.instances ORDER BY name"):
            await self._remove_rows(row["name"], kept.rows)
            if kept.files is not None:
                await self._remove_files(row["name"], kept.files)

    async def _remove_rows(self, instance: str, kept: date) -> None:
        """Remove published rows, some thousands in one transaction."""
        start = datetime.combine(kept, time.min, UTC)
        await self._connections.rows(
            "UPDATE tollgate.instances SET rows_from = greatest(rows_from, $2) WHERE name = $1", instance, start
        )
        if removed := await self._delete(_AT_ONCE, _DELETE, instance, start):
            log.info('%d row(s) of gateway "%s" from before %s were removed; their sums stay', removed, instance, kept)

    async def _remove_jobs(self, kept: date) -> None:
        """Remove jobs that have ended, of all gateways, only some in one transaction because of their pictures. Their
        costs stay: those are in rows and sums."""
        start = datetime.combine(kept, time.min, UTC)
        if removed := await self._delete(_JOBS_AT_ONCE, _DELETE_JOBS, start, list(PENDING)):
            log.info("%d image job(s) from before %s were removed", removed, kept)

    async def _delete(self, at_once: int, statement: str, *values: object) -> int:
        """Repeat a statement that deletes up to `at_once` rows until it finds fewer; returns how many were deleted."""
        removed, count = 0, at_once
        while count == at_once:
            async with self._connections.connection() as connection:
                count = int((await connection.execute(statement, *values)).rpartition(" ")[2])
            removed += count
        return removed

    async def _remove_files(self, instance: str, kept: date) -> None:
        oldest = await self._connections.value("SELECT min(time) FROM tollgate.usage WHERE instance = $1", instance)
        if oldest is not None:
            kept = min(kept, oldest.astimezone(UTC).date())
        if removed := await asyncio.to_thread(remove_files, self._directory, instance, kept):
            log.info('%d usage file(s) of gateway "%s" from before %s were removed', removed, instance, kept)
