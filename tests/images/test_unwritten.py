"""Jobs while the ledger cannot write: nothing is lost, created twice or charged twice."""

import asyncio
import errno
import json
import os
from decimal import Decimal

import pytest

from support.image_jobs import URL, Script, create, look
from support.image_provider import close_services, make_offer, settled
from support.stores import available_to
from support.waiting import until
from tollgate.errors import NotDurable, Unavailable
from tollgate.images.order import Unsaved
from tollgate.images.refresher import Refresher
from tollgate.images.service import jobs_of, list_generations


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_final_answer_ends_its_job_even_if_the_end_could_not_be_written(gateway, monkeypatch, restarts):
    """The job has no id for another poll, and the provider has made the images."""
    services, key, provider = await gateway(Script((200, {"status": "succeeded", "images": URL * 2})))

    async def fail(*_):
        raise Unavailable("the database is gone")

    with monkeypatch.context() as patch:
        patch.setattr(services.ledger.generations, "update", fail)
        with pytest.raises(Unsaved):
            await create(services, key, {"prompt": "a cat", "n": 2})
    (pending,) = await services.ledger.generations.pending()
    if restarts:
        await close_services(services)
        services, _, provider = await gateway(Script((500, {})))
        await Refresher(jobs_of(services)).resume()
    seen = len(provider.calls)
    assert (await look(services, key, pending.id))["images"] == URL * 2
    assert services.ledger.balance(key.account_id) == Decimal(10) - 2 * Decimal("0.04")
    assert await available_to(services.ledger, key.account_id) == services.ledger.balance(key.account_id)
    assert services.metrics.cost == {"acme": 2 * Decimal("0.04")}, "the metric of billed cost includes jobs"
    assert len(provider.calls) == seen, "no provider is called again"


def fill_disk(services):
    """Makes the journal's disk full. The returned function frees it and waits until the journal has written its
    backlog."""
    journal = services.ledger._backend.journal
    write, journal._retry_seconds = journal._os_write, 0.01

    def full(descriptor, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def room():
        journal._os_write = write
        await until(lambda: not journal.outage.reason)

    journal._os_write = full
    return room


async def test_a_job_accepted_on_a_full_disk_is_reported_as_unsaved_continues_and_is_charged_once(gateway):
    services, key, provider = await gateway(
        Script((200, {"id": "p1", "status": "starting"}), (200, {"status": "succeeded", "images": URL}))
    )
    room = fill_disk(services)
    with pytest.raises(Unsaved) as raised:
        await create(services, key)
    assert (raised.value.status, raised.value.billed) == (500, True)
    assert await available_to(services.ledger, key.account_id) == Decimal("9.96"), "its maximum cost stays held"
    await room()
    jobs = jobs_of(services)
    now = jobs.tracked.clock() + 60
    jobs.tracked.clock = lambda: now
    await Refresher(jobs).tick(10)
    assert (jobs.tracked.pending, len(provider.calls)) == ({}, 2)
    listed = json.loads((await list_generations(services, key)).body)["data"]
    assert [(each["images"], each["cost"]) for each in listed] == [(URL, 0.04)]
    assert (
        services.ledger.balance(key.account_id)
        == await available_to(services.ledger, key.account_id)
        == Decimal("9.96")
    )


async def test_a_call_not_made_because_of_a_full_disk_is_not_made_after_a_restart(gateway):
    offer = make_offer(poll=False)
    services, key, provider = await gateway(Script((200, {"images": URL})), offer)
    room = fill_disk(services)
    with pytest.raises(Unavailable):
        await create(services, key)
    assert await available_to(services.ledger, key.account_id) == Decimal(10)
    await room()
    await close_services(services)
    services, _, again = await gateway(Script((200, {"images": URL})), offer)
    await Refresher(jobs_of(services)).resume()
    await settled(services)
    assert provider.calls == again.calls == []
    assert await services.ledger.generations.pending() == []
    assert await available_to(services.ledger, key.account_id) == Decimal(10)


def reject_new_jobs(services):
    """Makes storing jobs fail. Returns the function that stores one after all, and the jobs that were not stored."""
    store, rejected = services.ledger.generations.create, []

    async def refuse(generation):
        rejected.append(generation)
        raise Unavailable("the database is gone")

    services.ledger.generations.create = refuse
    return store, rejected


async def unstored_job(services, key):
    """A job that its provider accepted, but that the ledger could not store. Returns the job, the function that stores
    it after all, and a function that runs the refresher a minute later each time."""
    jobs, (store, refused) = jobs_of(services), reject_new_jobs(services)
    now = jobs.tracked.clock()
    jobs.tracked.clock = lambda: now
    refresher = Refresher(jobs)

    async def look_again():
        nonlocal now
        now += 60
        await refresher.tick(10)

    with pytest.raises(Unsaved):
        await create(services, key)
    return refused[0], store, look_again


async def test_a_job_stored_shortly_after_the_database_returns_is_not_abandoned(gateway):
    services, key, _ = await gateway(
        Script((200, {"id": "p1", "status": "starting"}), (200, {"status": "succeeded", "images": URL}))
    )
    made, store, look_again = await unstored_job(services, key)
    await look_again()
    assert await available_to(services.ledger, key.account_id) == Decimal("9.96")
    await store(made)
    await look_again()
    assert (await services.ledger.generations.get(key.account_id, made.id)).status == "succeeded"
    assert (
        services.ledger.balance(key.account_id)
        == await available_to(services.ledger, key.account_id)
        == Decimal("9.96")
    )


async def test_a_job_stored_after_its_client_got_an_error_is_withdrawn(gateway, monkeypatch):
    # more attempts than are made while it is stored here
    monkeypatch.setattr("tollgate.images.tracked._TAKE_BACK_SECONDS", (0, *[0.05] * 200))
    services, key, provider = await gateway(Script((200, {"images": URL})), make_offer(poll=False))
    store, refused = reject_new_jobs(services)
    with pytest.raises(Unavailable):
        await create(services, key)
    await asyncio.sleep(0.02)
    await store(refused[0])
    await settled(services)
    ended = await services.ledger.generations.get(key.account_id, refused[0].id)
    assert (ended.status, ended.error, provider.calls) == ("failed", "the job could not be stored", [])


async def test_a_call_is_made_even_if_its_start_cannot_be_written_yet(gateway):
    services, key, _ = await gateway(Script((200, {"images": URL})), make_offer(poll=False))
    write, refused = services.ledger.generations.update, []

    async def refuse_first(*change):
        if not refused:
            refused.append(change)
            raise Unavailable("the database is gone")
        return await write(*change)

    services.ledger.generations.update = refuse_first
    made = await create(services, key)
    await settled(services)
    assert len(refused) == 1
    assert (await look(services, key, made["id"]))["status"] == "succeeded"
    assert (
        services.ledger.balance(key.account_id)
        == await available_to(services.ledger, key.account_id)
        == Decimal("9.96")
    )


async def test_a_stopping_gateway_makes_no_call_whose_start_cannot_be_written(gateway):
    """The next start makes it, and would make it twice."""
    services, key, provider = await gateway(Script((200, {"images": URL})), make_offer(poll=False))

    async def refuse(*_):
        services.draining = True
        raise Unavailable("the database is gone")

    services.ledger.generations.update = refuse
    made = await create(services, key)
    await settled(services)
    assert provider.calls == []
    assert (await services.ledger.generations.get(key.account_id, made["id"])).status == "starting"


async def test_a_job_that_is_never_stored_soon_holds_nothing(gateway):
    services, key, _ = await gateway(Script((200, {"id": "p1", "status": "starting"})))
    _, _, look_again = await unstored_job(services, key)
    await look_again()
    await look_again()
    assert await available_to(services.ledger, key.account_id) == Decimal(10)
    assert jobs_of(services).tracked.pending == {}


async def test_polling_while_the_ledger_cannot_be_read_is_no_failure_of_the_job(gateway):
    """As for the list and every other request: a 503, which clients may retry."""
    services, key, _ = await gateway(Script((200, {"id": "p1", "status": "starting"})))
    made = await create(services, key)

    async def away(*_):
        raise Unavailable("the database is gone")

    services.ledger.generations.get = away
    with pytest.raises(Unavailable):
        await look(services, key, made["id"])


async def test_an_end_that_cannot_be_written_is_unsaved_and_may_be_polled_again(gateway):
    services, key, _ = await gateway(
        Script((200, {"id": "p1", "status": "starting"}), (200, {"status": "succeeded", "images": URL}))
    )
    made = await create(services, key)

    async def refuse(*_):
        raise Unavailable("disk full")

    services.ledger.generations.update = refuse
    with pytest.raises(Unsaved) as raised:
        await look(services, key, made["id"])
    assert (raised.value.status, raised.value.billed) == (500, False)

    async def unwritten(*_):
        raise NotDurable("disk full")

    services.ledger.generations.get = unwritten
    with pytest.raises(Unsaved) as raised:
        await look(services, key, made["id"])
    assert (raised.value.status, raised.value.billed) == (500, False)
