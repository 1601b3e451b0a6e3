"""Jobs that no client polls: finished, resumed after a restart, adopted from gateways that are gone."""

import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from support.image_jobs import URL, Numbered, Script, create, look, pass_time
from support.image_provider import Provider, close_services, image_model, make_offer, runtime_of, settled
from support.stores import available_to
from support.waiting import until
from tollgate.config.settings import Credits
from tollgate.errors import Unavailable
from tollgate.images.order import Unsaved
from tollgate.images.refresher import Refresher
from tollgate.images.service import jobs_of, run_refresher
from tollgate.ledger import Generation, JobRow, UsageRow


async def test_an_internal_error_does_not_end_the_refresher(gateway, monkeypatch, caplog):
    """Otherwise jobs would keep their holds and remain unfinished until the next start."""
    monkeypatch.setattr("tollgate.images.service._TICK_SECONDS", 0.001)
    services, _, _ = await gateway(Numbered())
    ticks = []

    async def tick(refresher, most):
        ticks.append(most)
        raise Unavailable("the database is gone") if len(ticks) == 1 else ZeroDivisionError

    monkeypatch.setattr(Refresher, "tick", tick)
    services.tasks.spawn(run_refresher(services))
    await until(lambda: len(ticks) >= 4)
    assert "image jobs could not be refreshed: the database is gone" in caplog.text
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("ours", [True, False], ids=["written here", "written by another gateway"])
async def test_a_job_whose_end_was_written_late_is_dropped_by_the_refresher(gateway, ours):
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


async def test_the_refresher_finishes_jobs_that_nobody_polls(gateway):
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


async def test_the_refresher_reaches_every_job(gateway):
    """There are more jobs than one tick polls, and each is due again before the round is over."""
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


async def test_the_refresher_leaves_two_seconds_between_polls_whatever_the_file_says(gateway):
    services, key, provider = await gateway(
        Script((200, {"id": "p1", "status": "starting"})), make_offer(every=(0.01,))
    )
    now = 0.0
    jobs = jobs_of(services)
    refresher = Refresher(jobs)
    jobs.tracked.clock = lambda: now
    await create(services, key)
    polls = []
    for now in (1.9, 2.0, 3.9, 4.0):
        await refresher.tick(9)
        polls.append(len(provider.calls) - 1)
    assert polls == [0, 1, 1, 2]


@pytest.mark.parametrize(("asked", "waited"), [("30", 30.0), ("900", 120.0)], ids=["as asked", "at most"])
async def test_the_refresher_waits_as_long_as_the_provider_asks_for(gateway, asked, waited):
    now, polls = 0.0, []

    async def provider(method, path, headers, body):
        if method == "GET":
            polls.append(now)

        async def chunks():
            yield b'{"id": "p1", "status": "starting"}' if len(polls) != 1 else b"{}"

        if len(polls) == 1:
            return 429, {"content-type": "application/json", "retry-after": asked}, chunks()
        return 200, {"content-type": "application/json"}, chunks()

    services, key, _ = await gateway(None, make_offer(every=(0.01,)), apps={"acme": provider})
    jobs = jobs_of(services)
    refresher = Refresher(jobs)
    jobs.tracked.clock = lambda: now
    await create(services, key)
    for now in (2.0, 4.0, 1.9 + waited, 2.0 + waited, 4.0 + waited):
        await refresher.tick(9)
    assert polls == [2.0, 2.0 + waited, 4.0 + waited]


async def test_a_hanging_provider_does_not_block_the_refresher(gateway, monkeypatch):
    monkeypatch.setattr("tollgate.images.refresher._VISIT_SECONDS", 0.5)
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

    def polled():
        return [path for method, path, _ in provider.calls if method == "GET"]

    await until(lambda: len(polled()) >= 3)
    assert polled().count("/jobs/p0") == 1, "the hanging job is not polled twice"
    assert polled().count("/jobs/p1") == 2, "nor does it take the other job's turn"
    hung.set()
    await settled(services)


async def test_jobs_survive_a_restart(gateway, tmp_path):
    services, key, _ = await gateway(Script((200, {"id": "p1", "status": "starting"})), credits="0.05")
    made = await create(services, key)
    await close_services(services)
    again, _, provider = await gateway(Script((200, {"status": "succeeded", "images": URL})), credits="0.05")
    for _ in range(2):  # an earlier attempt may have been interrupted
        await Refresher(jobs_of(again)).resume()
        assert await available_to(again.ledger, key.account_id) == Decimal("0.01"), "its maximum cost is held once"
    assert (await look(again, key, made["id"]))["status"] == "succeeded"
    assert provider.calls == [("GET", "/jobs/p1", b"")]
    assert again.ledger.balance(key.account_id) == Decimal("0.01")


async def test_a_synchronous_call_is_repeated_after_a_restart_up_to_a_limit(gateway):
    async def never(method, path, body):
        await asyncio.sleep(60)

    offer = make_offer(poll=False)
    services, key, provider = await gateway(never, offer)
    made = await create(services, key)
    await until(lambda: provider.calls)
    for _ in range(2):
        await close_services(services)
        services, _, provider = await gateway(never, offer)
        for _ in range(2):  # an earlier attempt may have been interrupted
            await Refresher(jobs_of(services)).resume()
        await until(lambda provider=provider: provider.calls)
        await asyncio.sleep(0.01)
        assert len(provider.calls) == 1
        assert (await look(services, key, made["id"]))["status"] == "processing"
    await close_services(services)
    services, _, _ = await gateway(never, offer)
    await Refresher(jobs_of(services)).resume()
    assert (await look(services, key, made["id"]))["error"] == "interrupted too often by restarts of the gateway"


async def test_a_submission_after_a_synchronous_route_is_repeated_after_a_restart(gateway):
    async def never(method, path, body):
        await asyncio.sleep(60)

    acme, bemo = Provider(Script((503, {}))), Provider(never)
    offers = make_offer(poll=False), make_offer("bemo", model=image_model(provider="bemo"))
    services, key, _ = await gateway(None, *offers, apps={"acme": acme, "bemo": bemo})
    made = await create(services, key)
    await until(lambda: bemo.calls)
    await close_services(services)
    bemo = Provider(Script((200, {"id": "p1", "status": "starting"}), (200, {"status": "succeeded", "images": URL})))
    services, _, _ = await gateway(None, *offers, apps={"acme": acme, "bemo": bemo})
    assert (await look(services, key, made["id"]))["status"] == "processing"
    assert bemo.calls == [], "it has no id yet that could be polled"
    await Refresher(jobs_of(services)).resume()
    await settled(services)
    assert (await look(services, key, made["id"]))["status"] == "succeeded"


@pytest.mark.parametrize("poll", [True, False], ids=["polled", "synchronous"])
async def test_a_job_that_is_just_being_made_is_not_resumed(gateway, poll):
    """Requests are served while the jobs of the last process are read from a slow database."""
    answers = [(200, {"id": "p1", "status": "starting"})] * poll + [(200, {"status": "succeeded", "images": URL})]
    services, key, provider = await gateway(Script(*answers), make_offer(poll=poll))
    store = services.ledger.generations.create

    async def resuming(job):
        await store(job)
        await Refresher(jobs_of(services)).resume()

    services.ledger.generations.create = resuming
    made = await create(services, key)
    await settled(services)
    assert (await look(services, key, made["id"]))["status"] == "succeeded"
    assert len(provider.calls) == len(answers)
    assert await available_to(services.ledger, key.account_id) == Decimal("9.96")


@pytest.mark.parametrize("poll", [True, False], ids=["polled", "synchronous"])
async def test_a_job_of_a_removed_model_does_not_prevent_others_from_being_resumed(gateway, poll):
    begun = []

    async def answer(method, path, body):
        begun.append(path)
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
    await until(lambda: len(begun) == len(made))
    await close_services(services)
    again, _, provider = await gateway(answer, make_offer(poll=poll))
    jobs = jobs_of(again)
    await Refresher(jobs).resume()
    if not poll:
        await until(lambda: provider.calls)
    assert jobs.tracked.pending.keys() == {each["id"] for each in made}
    assert await available_to(again.ledger, key.account_id) == Decimal("9.92")
    assert (await look(again, key, made[0]["id"]))["status"] in ("starting", "processing"), "its model may return"
    assert len(provider.calls) == (0 if poll else 1)


@pytest.mark.parametrize("late", [False, True])
async def test_a_synchronous_job_of_another_gateway_is_read_as_stored_until_its_deadline(gateway, late):
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
        row=JobRow(instance="elsewhere"),
    )
    await services.ledger.generations.create(made)
    assert (await look(services, key, made.id))["status"] == ("failed" if late else "processing")
    assert provider.calls == []


async def test_an_orphan_past_its_deadline_is_adopted(gateway):
    services, key, _ = await gateway(Script((200, {"id": "p1", "status": "starting"}), (200, {"status": "processing"})))
    made = await create(services, key)
    jobs = jobs_of(services)
    refresher = Refresher(jobs)
    jobs.tracked.pending.clear()  # as if another instance had run it
    await services.ledger.generations.update(made["id"], {"deadline_at": datetime.now(UTC) - timedelta(seconds=1)})
    now = jobs.tracked.clock()
    jobs.tracked.clock = lambda: now
    await refresher.tick(10)
    now += 5
    await refresher.tick(10)
    assert (await services.ledger.generations.get(key.account_id, made["id"])).status == "failed"


async def left_behind(services, key, *, upstream_id, **row):
    """A running job of another gateway, `eu-9`."""
    left = Generation(
        "6f1c2f0e-3f5e-4a8e-9a53-0a4f2b7f8a11",
        key.account_id,
        key.id,
        "req_left",
        "acme/draw",
        "acme",
        "processing",
        {"prompt": "a cat"},
        upstream_id=upstream_id,
        row=JobRow(held=Decimal("0.04"), instance="eu-9", **row),
        deadline_at=datetime.now(UTC) + timedelta(hours=1),
    )
    await services.ledger.generations.create(left)
    return left


@pytest.mark.parametrize("held", [False, True], ids=["polled", "synchronous"])
async def test_a_job_of_a_gateway_that_is_gone_is_adopted_at_the_second_look(gateway, held):
    services, key, provider = await gateway(
        Script((200, {"id": "p1", "status": "succeeded", "images": URL})), make_offer(poll=not held)
    )
    left = await left_behind(
        services, key, upstream_id="" if held else "p1", asked_model="acme/draw", attempts=1, runs=1
    )
    refresher = Refresher(jobs := jobs_of(services))
    now = jobs.tracked.clock()
    jobs.tracked.clock = lambda: now
    await refresher.resume()
    await refresher.tick(10)
    assert (jobs.tracked.pending, provider.calls) == ({}, [])
    now += 30
    await refresher.tick(10)
    if not held:  # a repeated synchronous call may have ended by now
        assert services.ledger.balance(key.account_id) == Decimal(10)
        assert await available_to(services.ledger, key.account_id) == Decimal("9.96"), (
            "its maximum cost is now held here"
        )
    now += 3
    await refresher.tick(10)
    await settled(services)
    ended = await services.ledger.generations.get(key.account_id, left.id)
    assert (ended.status, ended.row.instance, len(provider.calls)) == ("succeeded", "main", 1)
    assert (
        services.ledger.balance(key.account_id)
        == await available_to(services.ledger, key.account_id)
        == Decimal("9.96")
    )


async def test_a_job_of_another_gateway_is_read_once_while_that_runs(gateway):
    services, key, _ = await gateway(Script((500, {})))
    generations = services.ledger.generations
    await generations.create(
        Generation(
            id="00000000-0000-4000-8000-000000000001",
            account_id=key.account_id,
            status="processing",
            row=JobRow(instance="elsewhere"),
        )
    )
    read, running = [], generations.running

    async def noting(id):
        read.append(id)
        return await running(id)

    async def none_gone(names):
        return set()

    generations.running, generations.gone = noting, none_gone
    refresher = Refresher(jobs_of(services))
    for _ in range(3):
        await refresher.tick(1)
        pass_time(services, 31)
    assert len(read) == 1


async def test_a_job_adopted_by_another_gateway_holds_nothing_here(gateway):
    services, key, provider = await gateway(Script((200, {"id": "p1", "status": "succeeded", "images": URL})))
    await left_behind(services, key, upstream_id="p1")
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
    assert looks == [{"eu-9"}] * 2, "gateways are not looked up at every tick"


async def test_jobs_are_stored_under_the_instance_name_of_the_start(gateway):
    """Other gateways know this one by that name; a job under another name would be adopted while this gateway runs."""
    services, key, _ = await gateway(Numbered())
    services.runtime.current = runtime_of(
        make_offer(), store=dataclasses.replace(services.ledger.store, instance="eu-2"), credits=Credits()
    )
    await create(services, key)
    [job] = await services.ledger.generations.pending()
    assert job.row.instance == services.ledger.store.instance == "main"
    services.images = None
    refresher = Refresher(jobs := jobs_of(services))
    await refresher.resume()
    assert list(jobs.tracked.pending) == [job.id]


async def test_a_job_of_an_account_without_credits_continues_after_a_restart(gateway, caplog):
    services, key, _ = await gateway(Numbered(), credits="0.05")
    made = await create(services, key)
    await services.ledger.record(UsageRow("req_2", key.account_id, key.id, "chat", cost=Decimal("0.045")))
    await close_services(services)
    again, _, _ = await gateway(Script((200, {"status": "succeeded", "images": URL})))
    await Refresher(jobs_of(again)).resume()
    assert f"job {made['id']}: its account or key no longer covers what it may cost" in caplog.text
    assert (await look(again, key, made["id"]))["status"] == "succeeded"
    assert again.ledger.balance(key.account_id) == Decimal("-0.035")


async def test_a_failed_poll_is_repeated_and_a_missing_job_dropped_at_the_second_look(gateway):
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
        assert list(jobs.tracked.pending) == left, "the store may not have received it yet"
