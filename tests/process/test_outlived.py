"""Work that goes on when whoever waits for it leaves."""

import asyncio
import gc

import pytest

from tollgate.process.outlived import outlived


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
    assert await outlived(work(release, "done")) == "done"
    with pytest.raises(ValueError, match="broken"):
        await outlived(work(release, ValueError("broken")))
    task = asyncio.create_task(work(release, "done"))
    await task
    assert await outlived(task) == "done"


async def test_who_leaves_takes_the_work_from_nobody(release):
    task = asyncio.create_task(work(release, "done"))
    leaving, staying = (asyncio.create_task(outlived(task)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    release.set()
    assert await staying == "done"


async def test_work_that_is_cancelled_is_cancelled_for_who_waits(release):
    task = asyncio.create_task(work(release, "done"))
    waiting = asyncio.create_task(outlived(task))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_failure_that_nobody_waits_for_is_not_logged(release, caplog):
    waiting = asyncio.create_task(outlived(work(release, ValueError("broken"))))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    release.set()
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()  # where asyncio tells of failures that nobody read
    assert caplog.records == []
