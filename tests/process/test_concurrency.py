"""Work that goes on when whoever waits for it leaves, and work that ends then."""

import asyncio
import gc

import pytest

from tollgate.process.concurrency import few_at_once, shielded


async def work(release, told):
    await release.wait()
    if isinstance(told, Exception):
        raise told
    return told


@pytest.fixture
def release():
    return asyncio.Event()


async def test_what_work_gives_or_raises_reaches_who_waits(release):
    release.set()
    assert await shielded(work(release, "done")) == "done"
    with pytest.raises(ValueError, match="broken"):
        await shielded(work(release, ValueError("broken")))
    task = asyncio.create_task(work(release, "done"))
    await task
    assert await shielded(task) == "done"


async def test_who_leaves_takes_the_work_from_nobody(release):
    task = asyncio.create_task(work(release, "done"))
    leaving, staying = (asyncio.create_task(shielded(task)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    release.set()
    assert await staying == "done"


async def test_work_that_is_cancelled_is_cancelled_for_who_waits(release):
    task = asyncio.create_task(work(release, "done"))
    waiting = asyncio.create_task(shielded(task))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_failure_that_nobody_waits_for_is_not_logged(release, caplog):
    waiting = asyncio.create_task(shielded(work(release, ValueError("broken"))))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    release.set()
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()  # where asyncio tells of failures that nobody read
    assert caplog.records == []


async def test_a_few_pieces_run_at_once_and_come_back_in_their_order():
    running = most = 0

    async def doubled(number):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01 / (number + 1))
        running -= 1
        return number * 2

    assert await few_at_once(3, doubled, range(10)) == [*range(0, 20, 2)]
    assert most == 3


@pytest.mark.parametrize("leaves", [False, True])
async def test_one_that_fails_or_who_leaves_ends_the_other_pieces(leaves):
    began, ended = [], []

    async def piece(number):
        began.append(number)
        try:
            await asyncio.sleep(0.01 if number == 1 and not leaves else 60)
            raise ValueError("broken")
        finally:
            ended.append(number)

    waiting = asyncio.create_task(few_at_once(2, piece, range(4)))
    while len(began) < 2:
        await asyncio.sleep(0)
    if leaves:
        waiting.cancel()
    with pytest.raises(asyncio.CancelledError if leaves else ValueError):
        await waiting
    for _ in range(3):
        await asyncio.sleep(0)
    assert sorted(ended) == sorted(began) and 3 not in began
