"""Moves an embedded store into a shared one: accounts, keys, grants, rows, sums, image jobs and providers' ids.

One transaction, committed only when every sum is what it was, to the last digit. The embedded store is locked
meanwhile. The shared store remembers which stores were moved into it, so repeating a move does nothing. The embedded
store is marked, so that no gateway can spend the same credits there again.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from tollgate.config.settings import Credits, Store
from tollgate.errors import TollgateError
from tollgate.ledger import Ledger
from tollgate.ledger.durable_files import write_durably
from tollgate.ledger.embedded import EmbeddedBackend
from tollgate.ledger.interface import Snapshot
from tollgate.ledger.shared.change_listener import CHANNEL
from tollgate.ledger.shared.connections import connect, driver_errors, storable
from tollgate.ledger.shared.records import ACCOUNT, GONE, GRANT, JOB, KEY, job_columns, values_of
from tollgate.ledger.shared.tables import migrate
from tollgate.ledger.store import FILE_NAME
from tollgate.ledger.store import Store as EmbeddedStore
from tollgate.ledger.store_directory import MOVED_NAME
from tollgate.ledger.usage_row import COLUMNS
from tollgate.remembered.minted import written
from tollgate.wording import first_line

if TYPE_CHECKING:
    from asyncpg import Connection

T = TypeVar("T")
_SECONDS = 3600.0
"""One statement over all rows may take much longer than a gateway's statements."""
_SHOWN = 5
_BEGUN = (
    "a move into a shared store was begun and not ended: run `tollgate store move` again, which ends it or finds that "
    "it is done."
)
_JOBS = 20
"""Jobs copied at once; each may hold some megabytes of pictures."""
_REMOVED = ("account_id", "key_id", "day", "cost", "last_time")


@dataclass(frozen=True, slots=True)
class Moved:
    """What was moved, now or (`again`) by an earlier move."""

    accounts: int
    keys: int
    grants: int
    rows: int
    jobs: int
    balance: Decimal
    again: bool = False
    at: datetime | None = None


class _RollBack(Exception):
    """Ends the transaction of a dry run."""


async def move(source: Store, address: str, *, dry_run: bool = False) -> Moved:
    """Move the embedded store `source` into the shared one at `address`, its rows under the name `source.instance`.

    With `dry_run` everything is done, compared and rolled back. Raises `StoreInUse` while a gateway runs on the store,
    and `TollgateError` when the shared store has something else under the same names, when sums differ, and when the
    disk or the database refuses; nothing is changed then.
    """
    if not (source.directory / FILE_NAME).exists():
        raise TollgateError(f"{source.directory}: no embedded store is here")
    source = replace(source, url="", keep_rows_days=0, keep_files_days=0, keep_jobs_days=0)
    backend = EmbeddedBackend(source, moved=True)
    async with Ledger(source, Credits(), backend=backend) as ledger:
        await ledger.settle()
        snapshot = await asyncio.to_thread(backend.store.snapshot)
        move = _Move(source, backend.store, snapshot, await connect(address, "tollgate store move"))
        try:
            moved = await move.run(dry_run=dry_run)
        except (duckdb.Error, sqlite3.Error) as error:
            raise TollgateError(
                f"{source.directory}: the store cannot be read, and nothing was moved: {first_line(error)}"
            ) from error
        finally:
            move.connection.terminate()
        if not dry_run:
            at = (moved.at or datetime.now(UTC)).isoformat(timespec="seconds")
            await asyncio.to_thread(
                _mark, source.directory, f"this store was moved into a shared one at {at}, with {moved.rows} rows."
            )
    return moved


class _Move:
    """One move, from an open store, over one connection."""

    def __init__(self, source: Store, store: EmbeddedStore, snapshot: Snapshot, connection: Connection) -> None:
        self.connection = connection
        self._source = source
        self._name = source.instance
        self._store = store
        self._snapshot = snapshot

    async def run(self, *, dry_run: bool) -> Moved:
        with driver_errors():
            await migrate(self.connection)
        with contextlib.suppress(_RollBack), driver_errors():
            async with self.connection.transaction():
                moved = await self._earlier_move() or await self._move_all()
                if dry_run:
                    raise _RollBack
                # whether or not the commit succeeds: no gateway may use this store before that is known
                await asyncio.to_thread(_mark, self._source.directory, _BEGUN)
        return moved

    async def _earlier_move(self) -> Moved | None:
        """The result of the same move, if it was made before, perhaps by a process that ended before it knew."""
        await self._execute("SELECT pg_advisory_xact_lock(hashtextextended('tollgate store move', 0))")
        row = await self.connection.fetchrow(
            "SELECT row_count, at FROM tollgate.moved WHERE store = $1", self._identity
        )
        return None if row is None else replace(self._result(0, 0, row["row_count"]), again=True, at=row["at"])

    def _result(self, grants: int, jobs: int, rows: int) -> Moved:
        snapshot = self._snapshot
        balance = sum(snapshot.granted.values(), Decimal(0)) - sum(snapshot.spent.values(), Decimal(0))
        return Moved(len(snapshot.accounts), len(snapshot.keys), grants, rows, jobs, balance)

    async def _move_all(self) -> Moved:
        await self._refuse_taken_names()
        snapshot = self._snapshot
        await self._copy("accounts", ACCOUNT, [[values_of(each, ACCOUNT) for each in snapshot.accounts]])
        keys = [[*values_of(key, KEY), digest.hex()] for key, digest in snapshot.keys]
        await self._copy("keys", (*KEY, "digest"), [keys])
        grants = await self._copy("grants", GRANT, self._read("grants", GRANT, "created_at, id"))
        usage = [each.name for each in COLUMNS]
        rows = await self._copy("usage", (*usage, "instance"), self._read("usage", usage, "seq"), (self._name,))
        jobs = await self._copy_jobs()
        await self._copy_minted()
        await self._add_sums()
        await self._compare(rows)
        await self._execute(
            "INSERT INTO tollgate.instances (name, published, rows_from) VALUES ($1, $2, $3) ON CONFLICT (name) "
            "DO UPDATE SET published = excluded.published, rows_from = excluded.rows_from",
            self._name,
            self._store.progress("published"),
            self._whole_from(),
        )
        await self._execute(
            "INSERT INTO tollgate.moved (store, instance, row_count) VALUES ($1, $2, $3)",
            self._identity,
            self._name,
            rows,
        )
        await self._execute("SELECT pg_notify($1, 'everything')", CHANNEL)
        return self._result(grants, jobs, rows)

    async def _refuse_taken_names(self) -> None:
        """Refuse a store that was moved elsewhere, and names that something else has in the shared store."""
        mark = self._source.directory / MOVED_NAME
        if mark.exists() and mark.read_text("utf-8").strip() != _BEGUN:
            raise TollgateError(f"{self._source.directory}: this store was moved into another shared one, see {mark}")
        if not await self._name_is_free():
            raise TollgateError(
                f'a gateway named "{self._name}" runs on the shared store: stop it, or move the rows under another '
                "name with --instance"
            )
        if await self.connection.fetchval(
            "SELECT EXISTS (SELECT 1 FROM tollgate.usage WHERE instance = $1)", self._name
        ):
            raise TollgateError(
                f'the shared store has rows of a gateway named "{self._name}" already: move these under another name '
                "with --instance"
            )
        for table, ids in (
            ("accounts", [each.id for each in self._snapshot.accounts]),
            ("keys", [key.id for key, _ in self._snapshot.keys]),
        ):
            statement = f"SELECT id FROM tollgate.{table} WHERE id = ANY($1) ORDER BY id LIMIT {_SHOWN}"
            if there := [row["id"] for row in await self.connection.fetch(statement, ids)]:
                raise TollgateError(
                    f"the shared store has {table} of the same names already ({', '.join(there)}): move into a "
                    "database on which no gateway has started yet"
                )

    async def _name_is_free(self) -> bool:
        """Whether no gateway has the name; one that was just stopped is noticed by the database a moment later."""
        for _ in range(20):
            if await self.connection.fetchval(GONE, self._name):
                return True
            await asyncio.sleep(0.05)
        return False

    # ---- copying

    @property
    def _identity(self) -> str:
        """The store's own id, which it keeps when its files are moved."""
        return str(self._store.read("SELECT id FROM identity")[0][0])

    def _read(self, table: str, columns: Sequence[str], order: str) -> Iterator[Sequence[tuple[Any, ...]]]:
        return self._store.pages(f"SELECT {', '.join(columns)} FROM {table} ORDER BY {order}")

    def _whole_from(self) -> datetime | None:
        """The time from which on no row was removed because of its age; None when none ever was."""
        [[day]] = self._store.read("SELECT max(day) FROM removed")
        return None if day is None else datetime.combine(day + timedelta(days=1), time.min, UTC)

    async def _execute(self, statement: str, *values: object) -> None:
        await self.connection.execute(statement, *values, timeout=_SECONDS)

    async def _copy(
        self, table: str, columns: Sequence[str], pages: Iterable[Sequence[Sequence[Any]]], more: tuple[Any, ...] = ()
    ) -> int:
        """Add records to a table, each with the values `more` at its end. Returns how many there were."""
        count = 0
        async for page in _on_thread(iter(pages)):
            records = [tuple(map(storable, (*record, *more))) for record in page]
            await self.connection.copy_records_to_table(
                table, schema_name="tollgate", columns=columns, records=records, timeout=_SECONDS
            )
            count += len(page)
        return count

    async def _copy_minted(self) -> None:
        """Add the register of minted ids; ids that are there already stay as they are."""
        minted = await asyncio.to_thread(written, self._source.directory / "minted.sqlite")
        await self.connection.executemany(
            "INSERT INTO tollgate.minted (digest, provider, at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
            [(digest, storable(provider), datetime.fromtimestamp(at, UTC)) for digest, provider, at in minted],
            timeout=_SECONDS,
        )

    async def _copy_jobs(self) -> int:
        statement = "SELECT id FROM generations ORDER BY created_at, id"
        ids = [id for [id] in await asyncio.to_thread(self._store.read, statement)]
        parts = (ids[start : start + _JOBS] for start in range(0, len(ids), _JOBS))
        pages = ([[*job_columns(job).values()] for job in self._store.generations(part)] for part in parts)
        return await self._copy("generations", JOB, pages)

    async def _add_sums(self) -> None:
        """Make the sums that the shared store keeps beside rows: from the copied rows, and from the sums of removed
        rows."""
        await self._execute(
            "CREATE TEMPORARY TABLE spent ON COMMIT DROP AS SELECT account_id, key_id, (time AT TIME ZONE 'UTC')::date "
            "AS day, cost, time AS last_time FROM tollgate.usage WHERE instance = $1",
            self._name,
        )
        async for page in _on_thread(self._read("removed", _REMOVED, "day")):
            await self.connection.copy_records_to_table("spent", columns=_REMOVED, records=page, timeout=_SECONDS)
        await self._execute(
            "INSERT INTO tollgate.balances (account_id, granted, spent) SELECT id, coalesce((SELECT sum(amount) FROM "
            "tollgate.grants WHERE account_id = a.id), 0), coalesce(s.spent, 0) FROM (SELECT unnest($1::text[]) AS id "
            "UNION SELECT account_id FROM spent) a LEFT JOIN (SELECT account_id, sum(cost) AS spent FROM spent GROUP "
            "BY 1) s ON s.account_id = a.id",
            [each.id for each in self._snapshot.accounts],
        )
        await self._execute(
            "INSERT INTO tollgate.key_sums (key_id, spent, last_used) SELECT key_id, sum(cost), max(last_time) FROM "
            "spent GROUP BY 1"
        )
        await self._execute(
            "INSERT INTO tollgate.key_days (key_id, day, spent) SELECT key_id, day, sum(cost) FROM spent GROUP BY 1, 2"
        )

    # ---- comparing

    async def _compare(self, rows: int) -> None:
        """Raises `TollgateError` unless every sum is what it was in the embedded store."""
        snapshot = self._snapshot
        stored = await self.connection.fetchval(
            "SELECT count(*) FROM tollgate.usage WHERE instance = $1", self._name, timeout=_SECONDS
        )
        if stored != rows:
            raise TollgateError(f"nothing was moved: {stored} rows came of {rows}")
        accounts = list({each.id for each in snapshot.accounts} | snapshot.spent.keys())
        balances = await self.connection.fetch(
            "SELECT account_id, granted, spent FROM tollgate.balances WHERE account_id = ANY($1)",
            accounts,
            timeout=_SECONDS,
        )
        keys = await self.connection.fetch(
            "SELECT key_id, spent FROM tollgate.key_sums WHERE key_id = ANY($1)",
            list(snapshot.spent_by_key),
            timeout=_SECONDS,
        )
        for what, before, after in (
            ("granted to account", snapshot.granted, {row["account_id"]: row["granted"] for row in balances}),
            ("spent by account", snapshot.spent, {row["account_id"]: row["spent"] for row in balances}),
            ("spent by key", snapshot.spent_by_key, {row["key_id"]: row["spent"] for row in keys}),
        ):
            _require_equal(what, before, after)


def _require_equal(what: str, before: Mapping[str, Decimal], after: Mapping[str, Decimal]) -> None:
    for name in before.keys() | after.keys():
        was, became = before.get(name, Decimal(0)), after.get(name, Decimal(0))
        if was != became:
            raise TollgateError(f'nothing was moved: {what} "{name}" was {was:f}, would be {became:f}')


async def _on_thread(pages: Iterator[T]) -> AsyncIterator[T]:
    """The same pages, each read on a thread."""
    while (page := await asyncio.to_thread(next, pages, None)) is not None:
        yield page


def _mark(directory: Path, text: str) -> None:
    """Write into the store's directory what happened to it; durable on return."""
    path = directory / MOVED_NAME
    try:
        write_durably(path, f"{text}\n".encode())
    except OSError as error:
        raise TollgateError(
            f"{path} cannot be written: {error.strerror}; run `tollgate store move` again when it can"
        ) from error
