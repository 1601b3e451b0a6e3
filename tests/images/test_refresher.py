"""Jobs nobody reads: finished, taken up after a restart, adopted from gateways that are gone."""

import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from support.image_jobs import URL, Numbered, Script, create, look
from support.image_provider import Provider, close_services, image_model, make_offer, runtime_of, settled
from support.stores import available_to
from tollgate.config.settings import Credits
from tollgate.errors import Unavailable
from tollgate.images.order import Unsaved
from tollgate.images.refresher import Refresher
from tollgate.images.service import jobs_of, run_refresher
from tollgate.ledger import Generation, UsageRow


async def test_a_mistake_of_ours_does_not_end_the_looking_after_jobs(gateway, monkeypatch, caplog):
    """They would be held for, and nobody would finish them, until the next start."""
    monkeypatch.setattr("tollgate.images.service._TICK_SECONDS", 0.001)
    services, _, _ = await gateway(Numbered())
    ticks = []

    async def tick(refresher, most):
        ticks.append(most)
        raise Unavailable("the database is gone") if len(ticks) == 1 else ZeroDivisionError

    monkeypatch.setattr(Refresher, "tick", tick)
    services.tasks.spawn(run_refresher(services))
    async with asyncio.timeout(10):
        while len(ticks) < 4:
            await asyncio.sleep(0.001)
    assert "image jobs could not be refreshed: the database is gone" in caplog.text
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("ours", [True, False], ids=["written here", "written by another gateway"])
async def test_a_job_whose_end_was_written_late_is_not_looked_after_for_ever(gateway, ours):
    services, key, _ = await gateway(
        Script((200, {"id": "p1", "status": "starting"}), (200, {"status": "succeeded", "images": URL}))
    )
    made = await create(services, key)
    jobs, write = jobs_of(services), services.ledger.generations.update

    async def late(id, changes, row, hold):
        await write(id, changes, row, hold if ours else None)
        raise Unavailable("disk full")

    services.ledger.generations.update = late
    with pytest.raises(Unsaved):
        await look(services, key, made["id"])
    assert made["id"] in jobs.tracked.pending
    now = jobs.tracked.clock() + 60
    jobs.tracked.clock = lambda: now
    await Refresher(jobs).tick(10)
    assert jobs.tracked.pending == {}
    assert (
        services.ledger.balance(key.account_id)
        == await available_to(services.ledger, key.account_id)
        == Decimal("9.96")
    )


async def test_the_refresher_finishes_jobs_nobody_polls(gateway):
    services, key, provider = await gateway(
        Script(
            (200, {"id": "p1", "status": "starting"}),
            (200, {"status": "processing"}),
            (200, {"status": "succeeded", "images": URL}),
        )
    )
    now = 0.0
    jobs = jobs_of(services)
    refresher = Refresher(jobs)
    jobs.tracked.clock = lambda: now
    made = await create(services, key)
    await refresher.tick(10)
    assert len(provider.calls) == 1, "not due yet"
    for now in (3.0, 6.0, 9.0):
        await refresher.tick(10)
    assert (await services.ledger.generations.get(key.account_id, made["id"])).status == "succeeded"
    assert jobs.tracked.pending == {}
    assert services.ledger.balance(key.account_id) == Decimal("9.96")


async def test_the_refresher_comes_round_to_every_job(gateway):
    """More jobs than it asks about in one tick, each due again before the round is over: none may wait for the others
    to end."""
    services, key, provider = await gateway(Numbered())
    now = 0.0
    jobs = jobs_of(services)
    refresher = Refresher(jobs)
    jobs.tracked.clock = lambda: now
    for number in range(7):
        await create(services, key, request_id=f"req_{number}")
    provider.calls.clear()
    for now in (3.0, 5.5, 8.0, 10.5):
        await refresher.tick(2)
    assert len({path for _, path, _ in provider.calls}) == 7


async def test_a_provider_that_hangs_does_not_keep_the_refresher_from_the_jobs_of_others(gateway, monkeypatch):
    monkeypatch.setattr("tollgate.images.refresher._VISIT_SECONDS", 0.05)
    hung = asyncio.Event()

    async def answer(method, path, body):
        if path == "/jobs/p0":
            await hung.wait()
        return numbered(method, path, body)

    numbered = Numbered()
    services, key, provider = await gateway(answer)
    now = 0.0
    jobs = jobs_of(services)
    refresher = Refresher(jobs)
    jobs.tracked.clock = lambda: now
    for number in range(2):
        await create(services, key, request_id=f"req_{number}")
    for now in (3.0, 6.0, 9.0):
        await refresher.tick(1)

    def asked():
        return [path for method, path, _ in provider.calls if method == "GET"]

    async with asyncio.timeout(10):
        while "/jobs/p1" not in asked():
            await asyncio.sleep(0.01)
    assert asked().count("/jobs/p0") == 1, "the one that hangs is not asked about twice"
    hung.set()
    await settled(services)


async def test_jobs_survive_a_restart(gateway, tmp_path):
    services, key, _ = await gateway(Script((200, {"id": "p1", "status": "starting"})), credits="0.05")
    made = await create(services, key)
    await close_services(services)
    again, _, provider = await gateway(Script((200, {"status": "succeeded", "images": URL})), credits="0.05")
    for _ in range(2):  # it may have broken off half way
        await Refresher(jobs_of(again)).resume()
        assert await available_to(again.ledger, key.account_id) == Decimal("0.01"), (
            "what it may cost is held again, once"
        )
    assert (await look(again, key, made["id"]))["status"] == "succeeded"
    assert provider.calls == [("GET", "/jobs/p1", b"")]
    assert again.ledger.balance(key.account_id) == Decimal("0.01")


async def test_a_held_call_is_made_again_after_a_restart_but_not_for_ever(gateway):
    async def never(method, path, body):
        await asyncio.sleep(60)

    offer = make_offer(poll=False)
    services, key, _ = await gateway(never, offer)
    made = await create(services, key)
    await asyncio.sleep(0.05)
    for _ in range(2):
        await close_services(services)
        services, _, _ = await gateway(never, offer)
        await Refresher(jobs_of(services)).resume()
        await asyncio.sleep(0.05)
        assert (await look(services, key, made["id"]))["status"] == "processing"
    await close_services(services)
    services, _, _ = await gateway(never, offer)
    await Refresher(jobs_of(services)).resume()
    assert (await look(services, key, made["id"]))["error"] == "interrupted too often by restarts of the gateway"


@pytest.mark.parametrize("poll", [True, False], ids=["polled", "held"])
async def test_a_job_whose_model_is_gone_after_a_restart_keeps_no_other_from_being_taken_up(gateway, poll):
    async def answer(method, path, body):
        if not poll:
            await asyncio.sleep(60)
        return 200, {"id": "p1", "status": "starting"}

    services, key, _ = await gateway(
        answer,
        make_offer(poll=poll),
        make_offer("bemo", poll=poll, model=image_model("acme/paint", "bemo")),
        apps={"acme": Provider(answer), "bemo": Provider(answer)},
    )
    made = [await create(services, key, model=model, request_id=model) for model in ("acme/paint", "acme/draw")]
    await asyncio.sleep(0.05)
    await close_services(services)
    again, _, provider = await gateway(answer, make_offer(poll=poll))
    jobs = jobs_of(again)
    await Refresher(jobs).resume()
    await asyncio.sleep(0.05)
    assert jobs.tracked.pending.keys() == {each["id"] for each in made}
    assert await available_to(again.ledger, key.account_id) == Decimal("9.92")
    assert (await look(again, key, made[0]["id"]))["status"] in ("starting", "processing"), "the model may come back"
    assert len(provider.calls) == (0 if poll else 1)


@pytest.mark.parametrize("late", [False, True])
async def test_a_held_call_that_another_gateway_makes_is_looked_at_as_it_is_stored_until_its_deadline(gateway, late):
    services, key, provider = await gateway(Script((500, {})), make_offer(poll=False))
    deadline = datetime.now(UTC) + timedelta(seconds=-1 if late else 60)
    made = Generation(
        id="00000000-0000-4000-8000-000000000001",
        account_id=key.account_id,
        key_id=key.id,
        model="acme/draw",
        provider="acme",
        status="processing",
        deadline_at=deadline,
        row={"instance": "elsewhere"},
    )
    await services.ledger.generations.create(made)
    assert (await look(services, key, made.id))["status"] == ("failed" if late else "processing")
    assert provider.calls == []


async def test_an_orphan_past_its_deadline_is_adopted(gateway):
    services, key, _ = await gateway(Script((200, {"id": "p1", "status": "starting"}), (200, {"status": "processing"})))
    made = await create(services, key)
    jobs = jobs_of(services)
    refresher = Refresher(jobs)
    jobs.tracked.pending.clear()  # as if another instance had looked after it
    await services.ledger.generations.update(made["id"], {"deadline_at": datetime.now(UTC) - timedelta(seconds=1)})
    now = jobs.tracked.clock()
    jobs.tracked.clock = lambda: now
    await refresher.tick(10)
    now += 5
    await refresher.tick(10)
    assert (await services.ledger.generations.get(key.account_id, made["id"])).status == "failed"


@pytest.mark.parametrize("held", [False, True], ids=["polled", "held call"])
async def test_a_job_of_a_gateway_that_is_gone_is_looked_after_from_the_second_look_on(gateway, held):
    services, key, provider = await gateway(
        Script((200, {"id": "p1", "status": "succeeded", "images": URL})), make_offer(poll=not held)
    )
    held_credits = {
        "held": "0.04",
        "attempts": 1,
        "runs": 1,
        "instance": "eu-9",
        "endpoint": "images",
        "asked_model": "acme/draw",
    }
    left = Generation(
        "6f1c2f0e-3f5e-4a8e-9a53-0a4f2b7f8a11",
        key.account_id,
        key.id,
        "req_left",
        "acme/draw",
        "acme",
        "processing",
        {"prompt": "a cat"},
        upstream_id="" if held else "p1",
        row=held_credits,
        deadline_at=datetime.now(UTC) + timedelta(hours=1),
    )
    await services.ledger.generations.create(left)
    refresher = Refresher(jobs := jobs_of(services))
    now = jobs.tracked.clock()
    jobs.tracked.clock = lambda: now
    await refresher.resume()
    await refresher.tick(10)
    assert (jobs.tracked.pending, provider.calls) == ({}, [])
    now += 30
    await refresher.tick(10)
    if not held:  # the call that is made again may have ended
        assert services.ledger.balance(key.account_id) == Decimal(10)
        assert await available_to(services.ledger, key.account_id) == Decimal("9.96"), (
            "what it may cost is held here now"
        )
    now += 3
    await refresher.tick(10)
    await settled(services)
    ended = await services.ledger.generations.get(key.account_id, left.id)
    assert (ended.status, ended.row["instance"], len(provider.calls)) == ("succeeded", "main", 1)
    assert (
        services.ledger.balance(key.account_id)
        == await available_to(services.ledger, key.account_id)
        == Decimal("9.96")
    )


async def test_a_job_that_another_gateway_took_over_first_holds_nothing_here(gateway):
    services, key, provider = await gateway(Script((200, {"id": "p1", "status": "succeeded", "images": URL})))
    left = Generation(
        "6f1c2f0e-3f5e-4a8e-9a53-0a4f2b7f8a11",
        key.account_id,
        key.id,
        "req_left",
        "acme/draw",
        "acme",
        "processing",
        {"prompt": "a cat"},
        upstream_id="p1",
        row={"held": "0.04", "instance": "eu-9"},
        deadline_at=datetime.now(UTC) + timedelta(hours=1),
    )
    await services.ledger.generations.create(left)
    looks = []

    async def gone(instances):
        looks.append(instances)
        return instances

    async def too_late(id, instance, heir):
        return None

    generations = services.ledger.generations
    generations.gone, generations.adopt = gone, too_late
    refresher = Refresher(jobs := jobs_of(services))
    now = jobs.tracked.clock()
    jobs.tracked.clock = lambda: now
    for seconds in (0, 1, 30):
        now += seconds
        await refresher.tick(10)
    assert (jobs.tracked.pending, provider.calls) == ({}, [])
    assert await available_to(services.ledger, key.account_id) == Decimal(10)
    assert looks == [{"eu-9"}] * 2, "who is gone is not asked for at every tick"


async def test_jobs_are_this_gateway_s_by_the_name_it_started_with_whatever_is_loaded_since(gateway):
    """Others hold that name for alive: under another one a job would be taken over from a gateway that runs."""
    services, key, _ = await gateway(Numbered())
    services.runtime.current = runtime_of(
        make_offer(), store=dataclasses.replace(services.ledger.store, instance="eu-2"), credits=Credits()
    )
    await create(services, key)
    [job] = await services.ledger.generations.pending()
    assert job.row["instance"] == services.ledger.store.instance == "main"
    services.images = None
    refresher = Refresher(jobs := jobs_of(services))
    await refresher.resume()
    assert list(jobs.tracked.pending) == [job.id]


async def test_a_job_whose_account_has_no_credits_left_goes_on_after_a_restart(gateway, caplog):
    services, key, _ = await gateway(Numbered(), credits="0.05")
    made = await create(services, key)
    await services.ledger.record(UsageRow("req_2", key.account_id, key.id, "chat", cost=Decimal("0.045")))
    await close_services(services)
    again, _, _ = await gateway(Script((200, {"status": "succeeded", "images": URL})))
    await Refresher(jobs_of(again)).resume()
    assert f"job {made['id']}: its account or key no longer covers what it may cost" in caplog.text
    assert (await look(again, key, made["id"]))["status"] == "succeeded"
    assert again.ledger.balance(key.account_id) == Decimal("-0.035")


async def test_a_job_that_cannot_be_refreshed_is_asked_about_again_and_one_that_is_gone_is_not(gateway):
    services, key, _ = await gateway(Script((200, {"id": "p1", "status": "starting"}), (503, {})))
    made = await create(services, key)
    refresher = Refresher(jobs := jobs_of(services))
    now = jobs.tracked.clock() + 5
    jobs.tracked.clock = lambda: now
    await refresher.tick(10)
    assert list(jobs.tracked.pending) == [made["id"]]

    async def nothing(account_id, job_id):
        return None

    services.ledger.generations.get = nothing
    for left in ([made["id"]], []):
        now += 60
        await refresher.tick(10)
        assert list(jobs.tracked.pending) == left, "the store may not have had it yet"
