"""The connections to one origin, without a network: a transport in memory stands where a socket would."""

from __future__ import annotations

import asyncio

import pytest

from tollgate.upstream.connection import Connection
from tollgate.upstream.pool import Pool


class Line(asyncio.Transport):
    """A transport that is only open or closed, and tells its connection of it in the next turn, as sockets do."""

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


class Lines:
    """Dials connections over such transports, or fails while `refused` is more than 0."""

    def __init__(self) -> None:
        self.made: list[Line] = []
        self.refused = 0

    async def __call__(self, pool: Pool) -> Connection:
        await asyncio.sleep(0)
        if self.refused:
            self.refused -= 1
            raise ConnectionRefusedError
        connection = Connection(pool, "here")
        self.made.append(Line(connection))
        return connection

    @property
    def open(self) -> list[bool]:
        return [line.open for line in self.made]


@pytest.fixture
def lines() -> Lines:
    return Lines()


def now() -> float:
    return asyncio.get_running_loop().time()


async def taken(task: asyncio.Task[Connection]) -> Connection:
    """What one who waits in line gets."""
    async with asyncio.timeout(20):
        return await task


async def turns() -> None:
    """Let everything happen that waits for nothing outside."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_connection_used_last_is_used_next(lines: Lines) -> None:
    pool = Pool(lines)
    first, second = [await pool.acquire(now()) for _ in range(2)]
    pool.release(first)
    pool.release(second)
    assert [await pool.acquire(now()) for _ in range(2)] == [second, first]
    assert len(lines.made) == pool.size == 2


@pytest.mark.parametrize("unfit", ["closed", "too long idle"])
async def test_an_idle_connection_that_is_unfit_is_closed_and_another_one_taken(lines: Lines, unfit: str) -> None:
    pool = Pool(lines)
    fit, old = [await pool.acquire(now()) for _ in range(2)]
    pool.release(fit)
    pool.release(old)
    if unfit == "closed":
        lines.made[1].open = False
    else:
        old.expires = now() - 1
    assert await pool.acquire(now()) is fit
    assert lines.open == [True, False]


async def test_a_fresh_one_is_opened_beside_idle_ones_and_in_the_place_of_the_oldest(lines: Lines) -> None:
    pool = Pool(lines, limit=2)
    first, second = [await pool.acquire(now()) for _ in range(2)]
    pool.release(first)
    pool.release(second)
    third = await pool.acquire(now(), fresh=True)
    assert third not in (first, second)
    assert lines.open == [False, True, True]
    await turns()
    assert (pool.size, pool.idle) == (2, 1)


async def test_a_dial_that_fails_gives_its_place_to_who_waits(lines: Lines) -> None:
    pool = Pool(lines, limit=1)
    lines.refused = 1
    failed, waiting = [asyncio.create_task(pool.acquire(now())) for _ in range(2)]
    with pytest.raises(ConnectionRefusedError):
        await failed
    assert (await taken(waiting)).usable
    assert pool.size == 1


async def test_one_that_is_lost_gives_its_place_to_who_waits(lines: Lines) -> None:
    pool = Pool(lines, limit=1)
    held = await pool.acquire(now())
    waiting = asyncio.create_task(pool.acquire(now()))
    await turns()
    assert not waiting.done()
    held.abort()
    assert (await taken(waiting)).usable
    assert (pool.size, lines.open) == (1, [False, True])


@pytest.mark.parametrize("handed", ["a connection", "a closed connection", "a place"])
async def test_what_is_handed_to_one_who_leaves_that_moment_goes_on_to_the_next(lines: Lines, handed: str) -> None:
    pool = Pool(lines, limit=1)
    held = await pool.acquire(now())
    leaver, next_one = [asyncio.create_task(pool.acquire(now())) for _ in range(2)]
    await turns()
    if handed == "a place":
        held.connection_lost(None)
    else:
        pool.release(held)
    if handed == "a closed connection":
        lines.made[0].abort()
    leaver.cancel()
    got = await taken(next_one)
    assert leaver.cancelled()
    assert got.usable and (got is held) == (handed == "a connection")
    assert pool.size == 1


async def test_one_that_closes_while_it_is_handed_over_is_not_used(lines: Lines) -> None:
    pool = Pool(lines, limit=1)
    held = await pool.acquire(now())
    waiting = asyncio.create_task(pool.acquire(now()))
    await turns()
    pool.release(held)
    lines.made[0].abort()
    assert (await taken(waiting)) is not held
    assert pool.size == 1


async def test_each_idle_connection_is_closed_in_its_own_time(lines: Lines) -> None:
    pool = Pool(lines, idle_seconds=0.01)
    brief, longer, kept = [await pool.acquire(now()) for _ in range(3)]
    longer.idle_seconds, kept.idle_seconds = 0.1, 600
    for connection in (brief, longer, kept):
        pool.release(connection)
    async with asyncio.timeout(20):
        while lines.made[1].open:
            await asyncio.sleep(0.01)
    assert lines.open == [False, False, True]
    pool.close()
    await turns()
    assert (pool.size, pool.idle, lines.open) == (0, 0, [False] * 3)


async def test_one_that_may_not_rest_is_closed_at_once(lines: Lines) -> None:
    pool = Pool(lines)
    connection = await pool.acquire(now())
    connection.idle_seconds = 0
    pool.release(connection)
    await turns()
    assert (pool.size, pool.idle, lines.open) == (0, 0, [False])
