"""Group commit against a shared database: everything that gathered while one round was under way goes out in the next.

A round is one call of `tollgate.round` (functions.sql), one transaction: rows of usage with their costs, jobs, what
running requests hold now, rate limits, and the new holds that requests wait for. Rounds of one gateway follow each
other on one connection, whose session lock says that this gateway lives.

A round that nobody heard the end of is asked again: rows and jobs know themselves, and what is held is said as a whole.
Rows and jobs are kept until they are written; holds and limits are for requests that can be refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any

import orjson

from tollgate.errors import TollgateError, Unavailable
from tollgate.ledger.interface import StoreInUse
from tollgate.ledger.shared.connections import DatabaseLost, DatabaseRefused, connect, driver_errors, storable
from tollgate.ledger.shared.round_parts import Gathered, Part, fail, granted_amount, succeed
from tollgate.ledger.shared.tables import migrate
from tollgate.outage import Outage

if TYPE_CHECKING:
    from asyncpg import Connection

log = logging.getLogger("tollgate.ledger")

RETRY_SECONDS = 0.5
CLOSE_SECONDS = 10.0
"""How long a stop keeps trying to write what the database does not take."""
_LOOK_SECONDS = 10.0
"""How often it is looked whether other gateways are gone, and by that whether the database still is there."""
_MOST_ROWS = 2000
_ZERO = Decimal(0)

Balances = Mapping[str, tuple[Decimal, Decimal]]
"""Granted and spent credits by account."""


class Rounds:
    """One gateway's rounds. All methods belong to one event loop; `on_balances` gets what each round says of the
    accounts in it."""

    def __init__(self, address: str, instance: str, name: str, on_balances: Callable[[Balances], None]) -> None:
        self.outage = Outage(log)
        """Why nothing can be written now."""
        self._address = address
        self._instance = instance
        self._name = name
        self._on_balances = on_balances
        self._gathered = Gathered()
        self._held: dict[tuple[str, str], Decimal] = {}
        """What running requests hold, by account and key."""
        self._changed: set[tuple[str, str]] = set()
        """Whose part of `_held` the database does not know yet."""
        self._next_seq = 1
        self._connection: Connection | None = None
        self._session = 0
        self._wake = asyncio.Event()
        self._closing_until = 0.0
        self._looks_at = 0.0

    # ---- life

    async def open(self) -> None:
        """Become the gateway of this name. Raises `StoreInUse` while another is, `DatabaseLost` without a database."""
        self._loop = asyncio.get_running_loop()
        await self._connect()
        self._task = asyncio.create_task(self._run())

    def start(self, next_seq: int) -> None:
        """Number rows from `next_seq`."""
        self._next_seq = next_seq

    @property
    def last_seq(self) -> int:
        """Number of the newest row, written or not."""
        return self._next_seq - 1

    async def close(self) -> None:
        """Write what is there, give back what is held, and end the session. What the database does not take for ten
        seconds is logged as lost."""
        self._closing_until = time.monotonic() + CLOSE_SECONDS
        self._wake.set()
        await self._task
        if self._connection is not None:
            with contextlib.suppress(DatabaseLost), driver_errors():
                await self._connection.execute("SELECT tollgate.release($1)", self._instance)
            self._drop()

    # ---- what goes into a round

    def row(self, account_id: str, row: bytes) -> asyncio.Future[None]:
        """Charge a row of usage (a JSON object); the future is done when it is durable, or fails with `Unavailable`
        while it is not yet."""
        return self._add(self._gathered.rows, self._numbered(row), account_id)

    def job(self, account_id: str, job: Mapping[str, Any], row: bytes | None) -> asyncio.Future[bool]:
        """Make or change an image job, and charge `row` with it; the result is whether this call did it."""
        part = orjson.dumps(job)[:-1] + b',"row":' + (b"null" if row is None else self._numbered(row)) + b"}"
        return self._add(self._gathered.jobs, part, account_id)

    def mark(self) -> asyncio.Future[None]:
        """Done when everything before it is durable."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._gathered.marks.append(future)
        self._wake.set()
        return future

    async def admit(self, account_id: str, ask: Mapping[str, Any]) -> Any:
        """Count a request against the limits of its key; gives what `tollgate.admit` says. Raises `Unavailable`."""
        self._refuse_unwritten()
        return await self._add(self._gathered.admits, orjson.dumps(ask), account_id)

    def correct(self, account_id: str, used: Mapping[str, Any]) -> None:
        """Correct the tokens that `admit` counted."""
        self._add(self._gathered.used, orjson.dumps(used), account_id)

    async def hold(self, account_id: str, key_id: str, ask: Mapping[str, Any]) -> Any:
        """Reserve credits; gives what `tollgate.hold` says. Who is granted some gives them back with `release`. Raises
        `Unavailable`."""
        self._refuse_unwritten()
        future = self._add(self._gathered.holds, orjson.dumps(ask), account_id, key_id)
        try:
            return await future
        except asyncio.CancelledError:
            # granted in the moment in which its request ended
            if not future.cancelled() and future.exception() is None:
                self.release(account_id, key_id, granted_amount(future.result()))
            raise

    def release(self, account_id: str, key_id: str, amount: Decimal) -> None:
        """Give back what a request held; the database is told in the next round."""
        self._held[account_id, key_id] = self._held.get((account_id, key_id), _ZERO) - amount
        self._changed.add((account_id, key_id))
        self._wake.set()

    def _add(self, kind: list[Part], json: bytes, account_id: str, key_id: str = "") -> asyncio.Future[Any]:
        if self._closing_until:
            raise Unavailable("the ledger is shutting down")
        part = Part(json, account_id, self._loop.create_future(), key_id, self.last_seq)
        kind.append(part)
        if self.outage.reason:
            fail(part.future, Unavailable(self.outage.reason))
        self._wake.set()
        return part.future

    def _refuse_unwritten(self) -> None:
        """Who can be refused does not wait for the database."""
        if self.outage.reason:
            raise Unavailable(self.outage.reason)

    def _numbered(self, row: bytes) -> bytes:
        if b"\\u0000" in row:
            row = orjson.dumps({name: storable(value) for name, value in orjson.loads(row).items()})
        seq = self._next_seq
        self._next_seq = seq + 1
        return b'{"seq":%d,%b' % (seq, row[1:])

    # ---- the rounds

    async def _run(self) -> None:
        taken = Gathered()
        while True:
            with contextlib.suppress(TimeoutError):
                at_once = self.outage.reason or self._closing_until
                await asyncio.wait_for(self._wake.wait(), 0 if at_once else _LOOK_SECONDS)
            self._wake.clear()
            taken = self._take(taken)
            if self._closing_until and not (taken.parts() or taken.marks or self._changed):
                return
            problem = await self._try(taken)
            # a lost connection, most likely: nobody needs to know if the next one serves
            if problem and not self.outage.reason:
                self._drop()
                problem = await self._try(taken)
            if not problem:
                taken = Gathered()
                self.outage.end("the store can be written again")
                continue
            self._failed(taken, problem)
            if self._closing_until and time.monotonic() > self._closing_until:
                log.critical(
                    "%d row(s) and %d job(s) could not be written before the end: %s",
                    len(taken.rows),
                    len(taken.jobs),
                    problem,
                )
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _try(self, taken: Gathered) -> str:
        """One round; gives why it could not be, empty when it was. A mistake of ours must not end the rounds: rows
        would wait for ever."""
        try:
            if self._connection is None or self._connection.is_closed():
                await self._connect()
            if time.monotonic() >= self._looks_at:
                await self._look()
            await self._round(taken)
        except TollgateError as error:
            return error.message
        except Exception as error:
            log.exception("a round with the database went wrong")
            return f"a round with the database went wrong: {type(error).__name__}"
        return ""

    def _take(self, kept: Gathered) -> Gathered:
        """What the last round could not do, and what has gathered since; of very many rows some wait for the next
        round, and with them jobs, whose rows have higher numbers."""
        new = self._gathered
        rows = [*kept.rows, *new.rows]
        self._gathered = later = Gathered(rows=rows[_MOST_ROWS:])
        if later.rows:
            later.jobs, later.marks = new.jobs, new.marks
            new.jobs, new.marks = [], []
            self._wake.set()
        return Gathered(
            rows[:_MOST_ROWS],
            [*kept.jobs, *new.jobs],
            [*kept.used, *new.used],
            new.admits,
            new.holds,
            [*kept.marks, *new.marks],
        )

    async def _round(self, taken: Gathered) -> None:
        try:
            await self._ask(taken)
        except DatabaseRefused as error:
            alone = taken.alone()
            if len(alone) > 2:
                log.error("%s; what was to be written together is written one by one", error.message)
                for each in alone:
                    await self._round(each)
                return
            for part in taken.parts():
                log.critical("%s; it is not stored: %s", error.message, part.json.decode())
                fail(part.future, error)
            for mark in taken.marks:
                succeed(mark, None)

    async def _ask(self, taken: Gathered) -> None:
        """One round with the database; raises before anybody was told anything."""
        parts = taken.parts()
        held = {pair: self._held[pair] for pair in self._changed}
        if not parts and not held:
            for mark in taken.marks:
                succeed(mark, None)
            return
        holds = taken.holds_by_key()
        asked = taken.asked(self._instance, held, holds)
        self._changed.clear()
        try:
            with driver_errors():
                assert self._connection is not None
                said = orjson.loads(await self._connection.fetchval("SELECT tollgate.round($1)", asked.decode()))
        except TollgateError:
            self._changed |= held.keys()
            raise
        self._on_balances(
            {account: (Decimal(granted), Decimal(spent)) for account, (granted, spent) in said["balances"].items()}
        )
        for pair in held:
            if not self._held[pair] and pair not in self._changed:
                del self._held[pair]
        self._answer(taken, holds, said)

    def _answer(self, taken: Gathered, holds: Sequence[Sequence[Part]], result: Mapping[str, Any]) -> None:
        """Give everybody in a round what the database said."""
        for part, answer in zip(chain(*holds), chain(*result["held"]), strict=True):
            pair = part.account_id, part.key_id
            self._held[pair] = self._held.get(pair, _ZERO) + granted_amount(answer)
            if part.future.done():  # whoever asked is gone
                self.release(*pair, granted_amount(answer))
            succeed(part.future, answer)
        for part, answer in chain(
            zip(taken.admits, result["admitted"], strict=True), zip(taken.jobs, result["won"], strict=True)
        ):
            succeed(part.future, answer)
        for future in (*(part.future for part in (*taken.rows, *taken.used)), *taken.marks):
            succeed(future, None)

    def _failed(self, taken: Gathered, problem: str) -> None:
        """Tell everybody who waits. Rows, jobs and corrections are kept; who asked for a hold is refused."""
        self._drop()
        self.outage.begin(problem, f"{problem}; new work is refused until it can be")
        for part in (*taken.parts(), *self._gathered.parts()):
            fail(part.future, Unavailable(problem))
        for asked in (taken, self._gathered):
            asked.holds.clear()
            asked.admits.clear()

    # ---- the connection

    async def _connect(self) -> None:
        self._drop()
        connection = await connect(self._address, self._name)
        try:
            with driver_errors():
                await migrate(connection)
                await self._take_name(connection)
                known = await connection.fetch(
                    "SELECT account_id, key_id FROM tollgate.holds WHERE instance = $1", self._instance
                )
        except BaseException:
            connection.terminate()
            raise
        for row in known:  # held by the last session, and perhaps by no request any more
            self._held.setdefault((row["account_id"], row["key_id"]), _ZERO)
        self._changed |= self._held.keys()
        self._wake.set()
        self._connection = connection
        connection.add_termination_listener(lambda _: self._wake.set())

    async def _take_name(self, connection: Connection) -> None:
        """Lock this gateway's name; a session of our own that the database has not given up yet is ended."""
        if self._session:
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND application_name = $2",
                self._session,
                self._name,
            )
        for _ in range(10):
            if await connection.fetchval("SELECT pg_try_advisory_lock(tollgate.lock_of($1))", self._instance):
                # a pooler tells the driver another one
                self._session = await connection.fetchval("SELECT pg_backend_pid()")
                return
            await asyncio.sleep(0.05)
        raise StoreInUse(
            f'another gateway named "{self._instance}" uses this store; give each a `store.instance` of its own'
        )

    async def _look(self) -> None:
        """Give back what gateways held that are gone."""
        assert self._connection is not None
        self._looks_at = time.monotonic() + _LOOK_SECONDS
        with driver_errors():
            while (
                gone := await self._connection.fetchval("SELECT tollgate.release_gone($1)", self._instance)
            ) is not None:
                log.warning('gateway "%s" is gone; what its requests held is given back', gone)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
