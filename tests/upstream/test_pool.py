"""The connections to one origin, without a network: an in-memory transport replaces the socket."""

from __future__ import annotations

import asyncio

import pytest

from support.waiting import until
from tollgate.upstream.connection import Connection
from tollgate.upstream.pool import Pool


class MemoryTransport(asyncio.Transport):
    """A transport that is only open or closed, and reports it to its connection in the next turn, as sockets do."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.open = True
        self._connection = connection
        connection.connection_made(self)

    def is_closing(self) -> bool:
        return not self.open

    def abort(self) -> None:
        if self.open:
            self.open = False
            asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)


class Dialer:
    """Dials connections over such transports, or fails while `refused` is more than 0."""

    def __init__(self) -> None:
        self.made: list[MemoryTransport] = []
        self.refused = 0

    async def __call__(self, pool: Pool) -> Connection:
        await asyncio.sleep(0)
        if self.refused:
            self.refused -= 1
            raise ConnectionRefusedError
        connection = Connection(pool, "here")
        self.made.append(MemoryTransport(connection))
        return connection

    @property
    def open(self) -> list[bool]:
        return [line.open for line in self.made]


@pytest.fixture
def dialer() -> Dialer:
    return Dialer()


def now() -> float:
    return asyncio.get_running_loop().time()


async def acquired(task: asyncio.Task[Connection]) -> Connection:
    """The connection that a waiter gets."""
    async with asyncio.timeout(20):
        return await task


async def run_loop() -> None:
    """Runs the loop until nothing is left to do without outside events."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_connection_used_last_is_used_next(dialer: Dialer) -> None:
    pool = Pool(dialer)
    first, second = [await pool.acquire(now()) for _ in range(2)]
    pool.release(first)
    pool.release(second)
    assert [await pool.acquire(now()) for _ in range(2)] == [second, first]
    assert len(dialer.made) == pool.size == 2


@pytest.mark.parametrize("unfit", ["closed", "too long idle"])
async def test_an_unusable_idle_connection_is_closed_and_skipped(dialer: Dialer, unfit: str) -> None:
    pool = Pool(dialer)
    fit, old = [await pool.acquire(now()) for _ in range(2)]
    pool.release(fit)
    pool.release(old)
    if unfit == "closed":
        dialer.made[1].open = False
    else:
        old.expires = now() - 1
    assert await pool.acquire(now()) is fit
    assert dialer.open == [True, False]


async def test_a_fresh_connection_replaces_the_oldest_idle_one_at_the_limit(dialer: Dialer) -> None:
    pool = Pool(dialer, limit=2)
    first, second = [await pool.acquire(now()) for _ in range(2)]
    pool.release(first)
    pool.release(second)
    third = await pool.acquire(now(), fresh=True)
    assert third not in (first, second)
    assert dialer.open == [False, True, True]
    await run_loop()
    assert (pool.size, pool.idle) == (2, 1)


async def test_a_failed_dial_frees_its_place_for_a_waiter(dialer: Dialer) -> None:
    pool = Pool(dialer, limit=1)
    dialer.refused = 1
    failed, waiting = [asyncio.create_task(pool.acquire(now())) for _ in range(2)]
    with pytest.raises(ConnectionRefusedError):
        await failed
    assert (await acquired(waiting)).usable
    assert pool.size == 1


async def test_a_lost_connection_frees_its_place_for_a_waiter(dialer: Dialer) -> None:
    pool = Pool(dialer, limit=1)
    held = await pool.acquire(now())
    waiting = asyncio.create_task(pool.acquire(now()))
    await run_loop()
    assert not waiting.done()
    held.abort()
    assert (await acquired(waiting)).usable
    assert (pool.size, dialer.open) == (1, [False, True])


@pytest.mark.parametrize("handed_over", [False, True], ids=["while all are busy", "as one becomes free"])
async def test_a_cancelled_waiter_is_not_kept(dialer: Dialer, handed_over: bool) -> None:
    """Those of a provider that hangs stayed until one of its thousand calls ended."""
    pool = Pool(dialer, limit=1)
    held = await pool.acquire(now())
    waiting = [asyncio.create_task(pool.acquire(now())) for _ in range(3)]
    await run_loop()
    for each in waiting:
        each.cancel()
    if handed_over:
        pool.release(held)
    await run_loop()
    assert not pool._waiters
    assert (pool.size, pool.idle) == (1, handed_over)


@pytest.mark.parametrize("handed", ["a connection", "a closed connection", "a place"])
async def test_a_connection_or_place_given_to_a_cancelled_waiter_goes_to_the_next(dialer: Dialer, handed: str) -> None:
    pool = Pool(dialer, limit=1)
    held = await pool.acquire(now())
    leaver, next_one = [asyncio.create_task(pool.acquire(now())) for _ in range(2)]
    await run_loop()
    if handed == "a place":
        held.connection_lost(None)
    else:
        pool.release(held)
    if handed == "a closed connection":
        dialer.made[0].abort()
    leaver.cancel()
    got = await acquired(next_one)
    assert leaver.cancelled()
    assert got.usable and (got is held) == (handed == "a connection")
    assert pool.size == 1


async def test_a_connection_that_closes_during_handover_is_not_used(dialer: Dialer) -> None:
    pool = Pool(dialer, limit=1)
    held = await pool.acquire(now())
    waiting = asyncio.create_task(pool.acquire(now()))
    await run_loop()
    pool.release(held)
    dialer.made[0].abort()
    assert (await acquired(waiting)) is not held
    assert pool.size == 1


async def test_each_idle_connection_is_closed_in_its_own_time(dialer: Dialer) -> None:
    pool = Pool(dialer, idle_seconds=0.01)
    brief, longer, kept = [await pool.acquire(now()) for _ in range(3)]
    longer.idle_seconds, kept.idle_seconds = 0.1, 600
    for connection in (brief, longer, kept):
        pool.release(connection)
    await until(lambda: not dialer.made[1].open)
    assert dialer.open == [False, False, True]
    pool.close()
    await run_loop()
    assert (pool.size, pool.idle, dialer.open) == (0, 0, [False] * 3)


async def test_a_connection_without_idle_time_is_closed_at_once(dialer: Dialer) -> None:
    pool = Pool(dialer)
    connection = await pool.acquire(now())
    connection.idle_seconds = 0
    pool.release(connection)
    await run_loop()
    assert (pool.size, pool.idle, dialer.open) == (0, 0, [False])


async def test_a_pool_in_use_closes_connections_that_were_never_idle(dialer: Dialer) -> None:
    pool = Pool(dialer)
    await pool.acquire(now())
    pool.close()
    await run_loop()
    assert (pool.size, dialer.open) == (0, [False])


async def test_a_connection_that_is_closed_as_soon_as_it_is_open_takes_no_place(dialer: Dialer) -> None:
    async def closing(pool: Pool) -> Connection:
        connection = await dialer(pool)
        if len(dialer.made) == 1:
            dialer.made[0].open = False
        return connection

    pool = Pool(closing, limit=1)
    assert not (await pool.acquire(now())).usable
    assert pool.size == 0
    assert (await acquired(asyncio.create_task(pool.acquire(now())))).usable
    assert pool.size == 1
