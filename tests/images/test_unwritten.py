"""Jobs while the ledger cannot write: nothing is lost, nothing is made or paid twice."""

import asyncio
import errno
import json
import os
from decimal import Decimal

import pytest

from support.image_jobs import URL, Script, create, look
from support.image_provider import close_services, make_offer, settled
from support.stores import available_to
from tollgate.errors import Unavailable, Unwritten
from tollgate.images.order import Unsaved
from tollgate.images.refresher import Refresher
from tollgate.images.service import jobs_of, list_generations


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_final_answer_ends_its_job_though_its_end_could_not_be_written(gateway, monkeypatch, restarts):
    """It has no id to be asked about again, and the provider has made the pictures."""
    services, key, provider = await gateway(Script((200, {"status": "succeeded", "images": URL * 2})))

    async def killed(*_):
        raise Unavailable("the database is gone")

    with monkeypatch.context() as patch:
        patch.setattr(services.ledger.generations, "update", killed)
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
    assert services.metrics.cost == {"acme": 2 * Decimal("0.04")}, "the metric of billed cost has jobs, too"
    assert len(provider.calls) == seen, "nobody is asked again"


def fill_disk(services):
    """The journal's disk is full from now on; calling what is returned makes room again, and waits for the journal to
    have written what waited."""
    journal = services.ledger._backend.journal
    write, journal._retry_seconds = journal._os_write, 0.01

    def full(descriptor, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def room():
        journal._os_write = write
        while journal.outage.reason:
            await asyncio.sleep(0.01)

    journal._os_write = full
    return room


async def test_a_job_that_the_provider_took_on_a_full_disk_is_told_so_goes_on_and_is_charged_once(gateway):
    services, key, provider = await gateway(
        Script((200, {"id": "p1", "status": "starting"}), (200, {"status": "succeeded", "images": URL}))
    )
    room = fill_disk(services)
    with pytest.raises(Unsaved) as raised:
        await create(services, key)
    assert (raised.value.status, raised.value.billed) == (500, True)
    assert await available_to(services.ledger, key.account_id) == Decimal("9.96"), "what it may cost stays held"
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


async def test_a_call_that_was_not_made_for_a_full_disk_is_not_made_by_the_next_start(gateway):
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


def refuse_to_store(services):
    """No job is stored any more; how one is stored after all, and the jobs that were refused."""
    store, refused = services.ledger.generations.create, []

    async def refuse(generation):
        refused.append(generation)
        raise Unavailable("the database is gone")

    services.ledger.generations.create = refuse
    return store, refused


async def refused_at_first(services, key):
    """A job that its provider took, and that the ledger could not store; the job, how it is stored after all, and a
    look by the refresher a minute later each time."""
    jobs, (store, refused) = jobs_of(services), refuse_to_store(services)
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


async def test_a_job_that_is_written_a_moment_after_the_database_is_back_is_not_given_up(gateway):
    services, key, _ = await gateway(
        Script((200, {"id": "p1", "status": "starting"}), (200, {"status": "succeeded", "images": URL}))
    )
    made, store, look_again = await refused_at_first(services, key)
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


async def test_a_job_that_is_written_after_its_client_was_refused_is_taken_back(gateway, monkeypatch):
    monkeypatch.setattr("tollgate.images.tracked._TAKE_BACK_SECONDS", (0, 0.05, 0.05))
    services, key, provider = await gateway(Script((200, {"images": URL})), make_offer(poll=False))
    store, refused = refuse_to_store(services)
    with pytest.raises(Unavailable):
        await create(services, key)
    await asyncio.sleep(0.02)
    await store(refused[0])
    await settled(services)
    ended = await services.ledger.generations.get(key.account_id, refused[0].id)
    assert (ended.status, ended.error, provider.calls) == ("failed", "the job could not be stored", [])


async def test_a_call_is_made_though_its_beginning_waits_to_be_written(gateway):
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


async def test_a_job_that_is_never_written_holds_nothing_for_long(gateway):
    services, key, _ = await gateway(Script((200, {"id": "p1", "status": "starting"})))
    _, _, look_again = await refused_at_first(services, key)
    await look_again()
    await look_again()
    assert await available_to(services.ledger, key.account_id) == Decimal(10)
    assert jobs_of(services).tracked.pending == {}


async def test_a_look_while_the_ledger_cannot_be_read_is_no_failure_of_the_job(gateway):
    """As for the list and every other request: a 503, of which no client is told not to repeat it."""
    services, key, _ = await gateway(Script((200, {"id": "p1", "status": "starting"})))
    made = await create(services, key)

    async def away(*_):
        raise Unavailable("the database is gone")

    services.ledger.generations.get = away
    with pytest.raises(Unavailable):
        await look(services, key, made["id"])


async def test_an_end_that_cannot_be_written_is_told_so_and_may_be_looked_at_again(gateway):
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
        raise Unwritten("disk full")

    services.ledger.generations.get = unwritten
    with pytest.raises(Unsaved) as raised:
        await look(services, key, made["id"])
    assert (raised.value.status, raised.value.billed) == (500, False)
