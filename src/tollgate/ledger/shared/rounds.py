"""Group commit against a shared database: everything that gathered while one round was under way is sent in the next.

A round is one call of `tollgate.round` (functions.sql) and one transaction: usage rows with their costs, image jobs,
rate limits, new holds that requests wait for, and how much this gateway holds now. A gateway runs one round at a time,
on one connection, whose session lock shows the others that it is alive.

A round whose answer was lost is sent again. That is safe: rows and jobs have ids, and what is held is sent as a total,
not as a difference. Rows and jobs are kept until they are written. Requests that wait for a hold or a limit are refused
instead, as soon as the database is away.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any

import orjson

from tollgate.errors import TollgateError, Unavailable
from tollgate.ledger.shared.connections import DatabaseLost, DatabaseRefused, driver_errors, storable
from tollgate.ledger.shared.instance_session import LOOK_SECONDS, InstanceSession
from tollgate.ledger.shared.round_parts import Gathered, Kind, Part, fail, granted_amount, succeed
from tollgate.outage import Outage

log = logging.getLogger("tollgate.ledger")

RETRY_SECONDS = 0.5
CLOSE_SECONDS = 10.0
"""How long `close` tries to write while the database is away."""
_MOST_ROWS = 2000
"""Rows in one round; the rest wait for the next."""
_ZERO = Decimal(0)

Balances = Mapping[str, tuple[Decimal, Decimal]]
"""Granted and spent credits by account."""


class Rounds:
    """One gateway's rounds. All methods belong to one event loop; `on_balances` is called after each round with the
    balances of the accounts in it."""

    def __init__(self, address: str, instance: str, name: str, on_balances: Callable[[Balances], None]) -> None:
        self.outage = Outage(log)
        """Why nothing can be written now."""
        self._instance = instance
        self._session = InstanceSession(address, instance, name)
        self._on_balances = on_balances
        self._gathered = Gathered()
        """What the next round will send."""
        self._held: dict[tuple[str, str], Decimal] = {}
        """What running requests hold, by account and key."""
        self._changed: set[tuple[str, str]] = set()
        """The entries of `_held` that the database does not know yet."""
        self._next_seq = 1
        self._wake = asyncio.Event()
        self._closing_until = 0.0

    # ---- life

    async def open(self) -> None:
        """Connect and take this gateway's name. Raises `StoreInUse` while another gateway has it, `DatabaseLost`
        without a database."""
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
        """Write what is left, release what is held, and end the session. What cannot be written within ten seconds is
        logged as lost."""
        self._closing_until = time.monotonic() + CLOSE_SECONDS
        self._wake.set()
        await self._task
        if (connection := self._session.connection) is not None:
            with contextlib.suppress(DatabaseLost), driver_errors():
                await connection.execute("SELECT tollgate.release($1)", self._instance)
            self._session.drop()

    # ---- what goes into a round

    def row(self, account_id: str, row: bytes) -> asyncio.Future[None]:
        """Charge a usage row (a JSON object). The future is done when the row is durable; it fails with `Unavailable`
        when the database is away, and the row is written later."""
        return self._add("rows", self._numbered(row), account_id)

    def job(self, account_id: str, job: Mapping[str, Any], row: bytes | None) -> asyncio.Future[bool]:
        """Make or change an image job, and charge `row` with it. The result says whether this call did it: another one
        may have been first."""
        part = orjson.dumps(job)[:-1] + b',"row":' + (b"null" if row is None else self._numbered(row)) + b"}"
        return self._add("jobs", part, account_id)

    def mark(self) -> asyncio.Future[None]:
        """Done when everything before it is durable."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._gathered.marks.append(future)
        self._wake.set()
        return future

    async def admit(self, account_id: str, request: Mapping[str, Any]) -> Any:
        """Count a request against the rate limits of its key: the answer of `tollgate.admit`. Raises `Unavailable`."""
        return await self._add("admits", orjson.dumps(request), account_id)

    def correct(self, account_id: str, used: Mapping[str, Any]) -> None:
        """Correct the tokens that `admit` counted."""
        self._add("used", orjson.dumps(used), account_id)

    async def hold(self, account_id: str, key_id: str, request: Mapping[str, Any]) -> Any:
        """Reserve credits: the answer of `tollgate.hold`. What it grants must be given back with `release`. Raises
        `Unavailable`."""
        future = self._add("holds", orjson.dumps(request), account_id, key_id)
        try:
            return await future
        except asyncio.CancelledError:
            # the request ended in the moment in which it was granted
            if not future.cancelled() and future.exception() is None:
                self.release(account_id, key_id, granted_amount(future.result()))
            raise

    def release(self, account_id: str, key_id: str, amount: Decimal) -> None:
        """Give back what a request held. The next round sends it to the database."""
        self._held[account_id, key_id] = self._held.get((account_id, key_id), _ZERO) - amount
        self._changed.add((account_id, key_id))
        self._wake.set()

    def _add(self, kind: Kind, json: bytes, account_id: str, key_id: str = "") -> asyncio.Future[Any]:
        if self.outage.reason and kind in ("admits", "holds"):  # a request that can be refused need not wait
            raise Unavailable(self.outage.reason)
        if self._closing_until:
            raise Unavailable("the ledger is shutting down")
        part = Part(kind, json, account_id, self._loop.create_future(), key_id)
        self._gathered.parts.append(part)
        if self.outage.reason:
            fail(part.future, Unavailable(self.outage.reason))
        self._wake.set()
        return part.future

    def _numbered(self, row: bytes) -> bytes:
        if b"\\u0000" in row:
            row = orjson.dumps({name: storable(value) for name, value in orjson.loads(row).items()})
        seq = self._next_seq
        self._next_seq = seq + 1
        return b'{"seq":%d,%b' % (seq, row[1:])

    # ---- the rounds

    async def _run(self) -> None:
        """Round after round until `close`, each of what gathered and of what the last one could not write."""
        taken = Gathered()
        while True:
            with contextlib.suppress(TimeoutError):
                at_once = self.outage.reason or self._closing_until
                await asyncio.wait_for(self._wake.wait(), 0 if at_once else LOOK_SECONDS)
            self._wake.clear()
            taken = self._take(taken)
            if self._closing_until and not (taken.parts or taken.marks or self._changed):
                return
            problem = await self._try(taken)
            # most likely a lost connection: if a new one works, nothing is reported
            if problem and not self.outage.reason:
                self._session.drop()
                problem = await self._try(taken)
            if not problem:
                taken = Gathered()
                self.outage.end("the store can be written again")
                continue
            self._failed(taken, problem)
            if self._closing_until and time.monotonic() > self._closing_until:
                log.critical(
                    "%d row(s) and %d job(s) could not be written before the end: %s",
                    len(taken.of("rows")),
                    len(taken.of("jobs")),
                    problem,
                )
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _try(self, taken: Gathered) -> str:
        """Run one round; the result says why it failed, empty when it did not. A mistake of ours must not end the
        rounds, or rows would wait for ever."""
        try:
            if not self._session.is_open:
                await self._connect()
            await self._session.release_gone()
            await self._round(taken)
        except TollgateError as error:
            return error.message
        except Exception as error:
            log.exception("a round with the database went wrong")
            return f"a round with the database went wrong: {type(error).__name__}"
        return ""

    def _take(self, kept: Gathered) -> Gathered:
        """What the next round sends: what the last one could not write, and what has gathered since. Rows beyond
        `_MOST_ROWS` wait, and so do the jobs after them, whose rows have higher numbers, and the marks."""
        new, rows = self._gathered, 0
        self._gathered = later = Gathered()
        now = Gathered(marks=kept.marks)
        for part in (*kept.parts, *new.parts):
            rows += part.kind == "rows"
            waits = rows > _MOST_ROWS and part.kind in ("rows", "jobs")
            (later if waits else now).parts.append(part)
        (later if later.parts else now).marks += new.marks
        if later.parts:
            self._wake.set()
        return now

    async def _round(self, taken: Gathered) -> None:
        """Run one round. When the database refuses a value in it, every part is sent alone, and what it refuses again
        is given up: it goes to the log."""
        try:
            await self._send(taken)
        except DatabaseRefused as error:
            alone = taken.alone()
            if len(alone) > 2:
                log.error("%s; what was to be written together is written one by one", error.message)
                for each in alone:
                    await self._round(each)
                return
            for part in taken.parts:
                log.critical("%s; it is not stored: %s", error.message, part.json.decode())
                fail(part.future, error)
            for mark in taken.marks:
                succeed(mark, None)

    async def _send(self, taken: Gathered) -> None:
        """Send one round and answer everybody in it. Raises before anybody was answered."""
        held = {pair: self._held[pair] for pair in self._changed}
        if not taken.parts and not held:
            for mark in taken.marks:
                succeed(mark, None)
            return
        holds = taken.holds_by_key()
        argument = taken.argument(self._instance, held, holds)
        self._changed.clear()
        try:
            with driver_errors():
                connection = self._session.connection
                assert connection is not None
                result = orjson.loads(await connection.fetchval("SELECT tollgate.round($1)", argument.decode()))
        except TollgateError:
            self._changed |= held.keys()
            raise
        self._on_balances(
            {account: (Decimal(granted), Decimal(spent)) for account, (granted, spent) in result["balances"].items()}
        )
        for pair in held:
            if not self._held[pair] and pair not in self._changed:
                del self._held[pair]
        self._answer(taken, holds, result)

    def _answer(self, taken: Gathered, holds: Sequence[Sequence[Part]], result: Mapping[str, Any]) -> None:
        """Give everybody in a round the database's answer."""
        for part, answer in zip(chain(*holds), chain(*result["held"]), strict=True):
            pair = part.account_id, part.key_id
            self._held[pair] = self._held.get(pair, _ZERO) + granted_amount(answer)
            if part.future.done():  # the request has ended meanwhile
                self.release(*pair, granted_amount(answer))
            succeed(part.future, answer)
        for part, answer in chain(
            zip(taken.of("admits"), result["admitted"], strict=True), zip(taken.of("jobs"), result["won"], strict=True)
        ):
            succeed(part.future, answer)
        for future in (*(part.future for part in taken.of("rows", "used")), *taken.marks):
            succeed(future, None)

    def _failed(self, taken: Gathered, problem: str) -> None:
        """Tell everybody who waits that the round failed. Rows, jobs and corrections are kept for the next one; holds
        and admissions are refused for good."""
        self._session.drop()
        self.outage.begin(problem, f"{problem}; new work is refused until it can be")
        for gathered in (taken, self._gathered):
            for part in gathered.parts:
                fail(part.future, Unavailable(problem))
            gathered.parts = gathered.of("rows", "jobs", "used")

    async def _connect(self) -> None:
        held_before = await self._session.open(on_lost=self._wake.set)
        for pair in held_before:  # what we do not hold is sent as zero
            self._held.setdefault(pair, _ZERO)
        self._changed |= self._held.keys()
        self._wake.set()
