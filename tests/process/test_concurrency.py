"""Work that continues, or is cancelled, when its waiter is cancelled."""

import asyncio
import gc

import pytest

from tollgate.process.concurrency import few_at_once, in_turns, shielded


async def work(release, result):
    await release.wait()
    if isinstance(result, Exception):
        raise result
    return result


@pytest.fixture
def release():
    return asyncio.Event()


async def test_the_waiter_receives_the_result_or_the_error(release):
    release.set()
    assert await shielded(work(release, "done")) == "done"
    with pytest.raises(ValueError, match="broken"):
        await shielded(work(release, ValueError("broken")))
    task = asyncio.create_task(work(release, "done"))
    await task
    assert await shielded(task) == "done"


async def test_a_cancelled_waiter_does_not_cancel_the_work(release):
    task = asyncio.create_task(work(release, "done"))
    leaving, staying = (asyncio.create_task(shielded(task)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    release.set()
    assert await staying == "done"


async def test_cancelled_work_raises_cancelled_error_for_its_waiter(release):
    task = asyncio.create_task(work(release, "done"))
    waiting = asyncio.create_task(shielded(task))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_an_error_that_nobody_waits_for_is_not_logged(release, caplog):
    waiting = asyncio.create_task(shielded(work(release, ValueError("broken"))))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    release.set()
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()  # asyncio logs unretrieved errors here
    assert caplog.records == []


async def test_a_few_pieces_run_at_once_and_return_in_order():
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


@pytest.mark.parametrize("cancelled", [False, True])
async def test_an_error_or_a_cancelled_waiter_cancels_the_other_pieces(cancelled):
    began, ended = [], []

    async def piece(number):
        began.append(number)
        try:
            await asyncio.sleep(0.01 if number == 1 and not cancelled else 60)
            raise ValueError("broken")
        finally:
            ended.append(number)

    waiting = asyncio.create_task(few_at_once(2, piece, range(4)))
    while len(began) < 2:
        await asyncio.sleep(0)
    if cancelled:
        waiting.cancel()
    with pytest.raises(asyncio.CancelledError if cancelled else ValueError):
        await waiting
    for _ in range(3):
        await asyncio.sleep(0)
    assert sorted(ended) == sorted(began) and 3 not in began


async def test_others_run_during_a_long_list():
    seen: list[int] = []
    asyncio.get_running_loop().call_soon(seen.append, -1)
    async for number in in_turns(range(1001)):
        seen.append(number)
    assert seen == [*range(500), -1, *range(500, 1001)]
