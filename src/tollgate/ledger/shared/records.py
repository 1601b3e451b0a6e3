"""Reads and changes accounts, keys, grants, sums and image jobs in the tables of a shared store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import orjson

from tollgate.errors import NotFound
from tollgate.ledger.administration import account_exists
from tollgate.ledger.records import (
    Account,
    AccountSums,
    Generation,
    Grant,
    KeyRecord,
    Record,
    batches,
    columns_of,
    decode,
    encode,
    fitting,
)
from tollgate.ledger.shared.change_listener import CHANNEL
from tollgate.ledger.shared.connections import Connections, storable
from tollgate.wire import PENDING

ACCOUNT, KEY, GRANT = columns_of(Account), columns_of(KeyRecord), columns_of(Grant)
JOB = ("id", "account_id", "status", "model", "created_at", "cost", "document", "answer")
GONE = "SELECT pg_try_advisory_xact_lock(tollgate.lock_of($1))"
"""True where no gateway of this name runs: a running one holds the lock in its session. We hold it until the end of our
transaction, so a gateway of that name that starts meanwhile waits for a moment."""

_SPENT_BY_KEY = """SELECT k.id, coalesce(CASE WHEN w.since IS NULL THEN s.spent
    ELSE (SELECT sum(d.spent) FROM tollgate.key_days d WHERE d.key_id = k.id AND d.day >= w.since::date
        AND d.day < w.until::date)
    END, 0) AS spent
FROM tollgate.keys k JOIN unnest($2::text[], $3::text[], $4::text[]) AS w(name, since, until) ON w.name = k.cap_window
LEFT JOIN tollgate.key_sums s ON s.key_id = k.id WHERE $1::text IS NULL OR k.account_id = $1"""


class Records:
    """Reads and changes records. Each change is one transaction, which also notifies the other gateways."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    # ---- accounts and keys

    async def accounts(self, id: str | None = None) -> list[Account]:
        """All accounts, oldest first, or the one with this id."""
        return await self._records(Account, "accounts WHERE $1::text IS NULL OR id = $1 ORDER BY created_at, id", id)

    async def keys(self, id: str | None = None, account_id: str | None = None) -> list[tuple[KeyRecord, bytes]]:
        """All keys with the digests of their secrets, oldest first, or the one with this id, or those of one
        account."""
        return [
            (decode(KeyRecord, dict(row)), bytes.fromhex(row["digest"]))
            for row in await self._connections.rows(
                f"SELECT {', '.join(f'k.{name}' for name in KEY)}, k.digest, s.last_used FROM tollgate.keys k LEFT "
                "JOIN tollgate.key_sums s ON s.key_id = k.id WHERE ($1::text IS NULL OR k.id = $1) AND ($2::text IS "
                "NULL OR k.account_id = $2) ORDER BY k.created_at, k.id",
                id,
                account_id,
            )
        ]

    async def sums(self, account_id: str | None = None) -> list[AccountSums]:
        """The arithmetic of all accounts, or of one."""
        return await self._records(AccountSums, "balances WHERE $1::text IS NULL OR account_id = $1", account_id)

    async def keys_spent(
        self, account_id: str | None, days: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, Decimal]:
        """What each key of an account, or of all, spent in its window; `days`: of each kind of window the first day
        (`since`) and the first day after it (`until`)."""
        ends = [[each[end] for each in days.values()] for end in ("since", "until")]
        rows = await self._connections.rows(_SPENT_BY_KEY, account_id, list(days), *ends)
        return {row["id"]: row["spent"] for row in rows}

    async def add_account(self, account: Account) -> None:
        """A new account; raises `BadRequest` when there is one of this id."""
        async with self._connections.connection() as connection, connection.transaction():
            statement = f"{_insertion('accounts', ACCOUNT)} ON CONFLICT DO NOTHING RETURNING id"
            made = await connection.fetchval(statement, *values_of(account, ACCOUNT))
            if made is None:
                raise account_exists(account.id)
            await connection.execute(
                "INSERT INTO tollgate.balances (account_id) VALUES ($1) ON CONFLICT DO NOTHING", account.id
            )
            await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, f"account {account.id}")

    async def add_key(self, key: KeyRecord, digest: bytes) -> None:
        """A new key."""
        async with self._connections.connection() as connection, connection.transaction():
            await connection.execute(_insertion("keys", (*KEY, "digest")), *values_of(key, KEY), digest.hex())
            await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, f"key {key.id}")

    async def add_grant(self, grant: Grant) -> None:
        """Credits given or taken."""
        async with self._connections.connection() as connection, connection.transaction():
            await connection.execute(_insertion("grants", GRANT), *values_of(grant, GRANT))
            await connection.execute(
                "UPDATE tollgate.balances SET granted = granted + $2 WHERE account_id = $1",
                grant.account_id,
                grant.amount,
            )
            await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, f"balance {grant.account_id}")

    async def change(self, what: str, id: str, changes: Mapping[str, Any]) -> None:
        """Change only these fields of an account or key, so that changes of others at the same time are kept. Raises
        `NotFound`."""
        if not changes:
            return
        settings = ", ".join(f"{name} = ${number}" for number, name in enumerate(changes, start=2))
        async with self._connections.connection() as connection, connection.transaction():
            statement = f"UPDATE tollgate.{what}s SET {settings} WHERE id = $1 RETURNING id"
            if await connection.fetchval(statement, id, *map(storable, changes.values())) is None:
                raise NotFound(f'no {what} "{id}"')
            await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, f"{what} {id}")

    async def grants(self, account_id: str) -> list[Grant]:
        """All grants of an account, newest first."""
        return await self._records(Grant, "grants WHERE account_id = $1 ORDER BY created_at DESC, id", account_id)

    async def _records(self, kind: type[Record], rows: str, *values: object) -> list[Record]:
        """Records of a kind; `rows` is the table and the condition."""
        statement = f"SELECT {', '.join(columns_of(kind))} FROM tollgate.{rows}"
        return [decode(kind, dict(row)) for row in await self._connections.rows(statement, *values)]

    # ---- image jobs

    async def generation(self, account_id: str, id: str) -> Generation | None:
        """One job of this account, with the provider's answer."""
        return next(iter(await self._jobs("id = $1 AND account_id = $2", id, account_id)), None)

    async def job(self, id: str) -> Generation | None:
        """One job of any account."""
        return next(iter(await self._jobs("id = $1", id)), None)

    async def succeeded(self, account_id: str, limit: int) -> list[Generation]:
        """The newest successful jobs, at most `limit` and as many as fit into one list, without the providers'
        answers. Reads few at a time: the pictures of all may be larger than the memory."""
        newest = await self._connections.rows(
            "SELECT id, octet_length(document) AS size FROM tollgate.generations WHERE account_id = $1 AND status = "
            "'succeeded' ORDER BY created_at DESC, id DESC LIMIT $2",
            account_id,
            limit,
        )
        found: list[Generation] = []
        for ids in batches((row["id"], row["size"]) for row in newest):
            rows = await self._connections.rows(
                "SELECT document FROM tollgate.generations WHERE id = ANY($1) ORDER BY created_at DESC, id DESC", ids
            )
            found += (_generation(row["document"]) for row in rows)
            if len(listed := fitting(found)) < len(found):
                return listed
        return found

    async def pending(self, account_id: str | None) -> list[Generation]:
        """All running jobs, or those of one account, oldest first."""
        condition = "status = ANY($1) AND ($2::text IS NULL OR account_id = $2) ORDER BY created_at"
        return await self._jobs(condition, list(PENDING), account_id)

    async def pending_ids(self) -> list[str]:
        """The ids of all running jobs, oldest first."""
        rows = await self._connections.rows(
            "SELECT id FROM tollgate.generations WHERE status = ANY($1) ORDER BY created_at", list(PENDING)
        )
        return [row["id"] for row in rows]

    async def _jobs(self, condition: str, *values: object) -> list[Generation]:
        rows = await self._connections.rows(
            f"SELECT document, answer FROM tollgate.generations WHERE {condition}", *values
        )
        return [_generation(row["document"], row["answer"]) for row in rows]

    async def is_gone(self, instance: str) -> bool:
        """Whether no gateway of this name is connected."""
        return bool(await self._connections.value(GONE, instance))

    async def adopt(self, id: str, instance: str, owner: str) -> Generation | None:
        """Give a running job of a gateway that is gone to `owner`. None when that gateway is back, the job ended, or
        another gateway was first."""
        async with self._connections.connection() as connection, connection.transaction():
            if not await connection.fetchval(GONE, instance):
                return None
            row = await connection.fetchrow(
                "SELECT document, answer FROM tollgate.generations WHERE id = $1 AND status = ANY($2) FOR UPDATE",
                id,
                list(PENDING),
            )
            found = None if row is None else _generation(row["document"], row["answer"])
            if found is None or found.row.instance != instance:
                return None
            adopted = replace(found, row=replace(found.row, instance=owner))
            await connection.execute(
                "UPDATE tollgate.generations SET document = $2 WHERE id = $1", id, _document(adopted)
            )
        return adopted


def written_job(generation: Generation, *, new: bool) -> dict[str, Any]:
    """A job as the argument of `tollgate.put_job`: a new one, or one that is changed only if it still runs."""
    columns = job_columns(generation)
    return columns | {
        "cost": None if generation.cost is None else str(generation.cost),
        "expected": None if new else list(PENDING),
    }


def job_columns(generation: Generation) -> dict[str, Any]:
    """A job as the columns of its table, in the order of `JOB`."""
    stored = {"document": _document(generation), "answer": orjson.dumps(generation.answer).decode()}
    return {name: stored[name] if name in stored else getattr(generation, name) for name in JOB}


def _document(generation: Generation) -> str:
    return encode(replace(generation, answer=None)).decode()


def _generation(document: str, answer: str = "null") -> Generation:
    return decode(Generation, orjson.loads(document) | {"answer": orjson.loads(answer)})


def _insertion(table: str, columns: Sequence[str]) -> str:
    """The statement that adds one record, with a placeholder ($1, $2) for each column."""
    places = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
    return f"INSERT INTO tollgate.{table} ({', '.join(columns)}) VALUES ({places})"


def values_of(record: object, names: Sequence[str]) -> list[Any]:
    """These fields of a record as the database holds them."""
    return [storable(getattr(record, name)) for name in names]
