"""The life of a job with a scripted provider: submitted, failed over, polled, ended."""

import asyncio
import gc
import json
from datetime import timedelta
from decimal import Decimal

import pytest

from support.image_jobs import URL, Numbered, Script, accepted_rows, create, inbound, look, pass_time, unfit
from support.image_provider import PNG, Provider, at, image_model, job, make_offer, settled
from support.stores import available_to
from support.waiting import until
from tollgate.errors import (
    BadRequest,
    ModelNotFound,
    NotFound,
    QuotaExhausted,
    RateLimited,
    Unavailable,
    UpstreamError,
    UpstreamFailed,
    UpstreamRejected,
    UpstreamUnreachable,
)
from tollgate.images.catalog import image_listing
from tollgate.images.order import Order
from tollgate.images.service import create_generation, get_generation, jobs_of, list_generations
from tollgate.mapping.images.offer import ImageOffers, Step
from tollgate.mapping.images.price import ImagePrice


async def test_a_job_is_submitted_polled_and_charged_once(gateway):
    services, key, provider = await gateway(
        Script(
            (200, {"id": "p1", "status": "starting"}),
            (200, {"id": "p1", "status": "processing"}),
            (200, {"id": "p1", "status": "succeeded", "images": URL * 2}),
        )
    )
    made = await create(services, key, {"prompt": "a cat", "n": 2}, webhook="https://hook.example")
    assert made == {"id": made["id"], "model": "acme/draw", "status": "starting"}
    assert await look(services, key, made["id"]) == {"id": made["id"], "model": "acme/draw", "status": "processing"}
    done = await look(services, key, made["id"])
    assert done == {"id": made["id"], "model": "acme/draw", "status": "succeeded", "images": URL * 2, "cost": 0.08}
    calls = len(provider.calls)
    assert await look(services, key, made["id"]) == done
    assert len(provider.calls) == calls, "a finished job is not polled again"
    assert services.metrics.outcomes == {"ok": 1}
    assert provider.calls[0] == ("POST", "/jobs", {"model": "draw-1", "input": {"prompt": "a cat", "n": 2}})
    assert services.ledger.balance(key.account_id) == Decimal("9.92")
    assert await available_to(services.ledger, key.account_id) == Decimal("9.92")
    stored = await services.ledger.generations.get(key.account_id, made["id"])
    assert (stored.webhook, stored.input, stored.answer["images"]) == (
        "https://hook.example",
        {"prompt": "a cat", "n": 2},
        URL * 2,
    )
    listed = json.loads((await list_generations(services, key)).body)["data"]
    assert listed == [{"id": made["id"], "model": "acme/draw", "status": "succeeded", "images": URL * 2, "cost": 0.08}]


async def test_a_job_that_is_processing_never_goes_back_to_starting(gateway):
    told = ["starting", "processing", "starting"]
    services, key, _ = await gateway(Script(*((200, {"id": "p1", "status": status}) for status in told)))
    made = await create(services, key)
    assert [(await look(services, key, made["id"]))["status"] for _ in told] == ["processing"] * 3


async def test_a_job_is_polled_at_the_intervals_of_its_file_and_from_then_on_at_the_last(gateway):
    services, key, _ = await gateway(Numbered(), make_offer(every=(5, 10, 60)))
    pass_time(services, 0)
    made = await create(services, key)
    tracked = jobs_of(services).tracked
    watch, waits = tracked.pending[made["id"]], []
    for _ in range(4):
        waits.append(watch.due - tracked.clock())
        pass_time(services, waits[-1])
        watch.next(tracked.clock())
    assert waits == pytest.approx([5, 10, 60, 60])


@pytest.mark.parametrize("polled", [True, False])
async def test_the_deadline_of_a_job_is_that_of_its_file(gateway, polled):
    services, key, _ = await gateway(Numbered(), make_offer(give_up=77, poll=polled))
    made = []
    store = services.ledger.generations.create
    services.ledger.generations.create = lambda job: made.append(job) or store(job)
    await create(services, key)
    assert [job.deadline_at - job.created_at for job in made] == [timedelta(seconds=77)]


async def test_a_provider_that_finishes_at_once_is_charged(gateway):
    services, key, _ = await gateway(Script((201, {"id": "p1", "status": "succeeded", "images": URL})))
    made = await create(services, key)
    assert made["status"] == "succeeded"
    assert services.ledger.balance(key.account_id) == Decimal("9.96")


async def test_a_synchronous_provider_runs_in_the_background(gateway):
    release = asyncio.Event()

    async def answer(method, path, body):
        await release.wait()
        return 200, {"status": "succeeded", "images": [{"data": PNG}]}

    services, key, provider = await gateway(answer, make_offer(poll=False))
    made = await create(services, key)
    assert made["status"] == "starting"
    await until(lambda: provider.calls)
    assert (await look(services, key, made["id"]))["status"] == "processing"
    release.set()
    await settled(services)
    done = await look(services, key, made["id"])
    assert done["images"] == [{"data": PNG, "context_type": "image/png"}]
    assert services.ledger.balance(key.account_id) == Decimal("9.96")


async def test_a_synchronous_failure_ends_the_job(gateway):
    services, key, _ = await gateway(Script((400, {"error": "the prompt was blocked"})), make_offer(poll=False))
    made = await create(services, key)
    await settled(services)
    assert await look(services, key, made["id"]) == {
        "id": made["id"],
        "model": "acme/draw",
        "status": "failed",
        "error": "the prompt was blocked",
    }
    assert await available_to(services.ledger, key.account_id) == Decimal(10)


@pytest.mark.parametrize(
    "answer",
    [(500, {"error": "stack trace with secret"}), (200, {"id": "p1", "status": "processing"})],
    ids=["failed", "unfinished, but cannot be polled"],
)
async def test_a_provider_s_own_failure_is_shown_in_our_words(gateway, answer):
    services, key, _ = await gateway(Script(answer), make_offer(poll=False))
    made = await create(services, key)
    await settled(services)
    assert (await look(services, key, made["id"]))["error"] == "the provider failed to produce the image"
    assert [route.successes for route in services.health.routes()] == [0], "or the route would never cool down"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((422, {"error": "size is not supported"}), UpstreamRejected),
        ((500, {"error": "boom"}), UpstreamFailed),
        ((401, {"error": "bad key"}), UpstreamFailed),
        ((200, b"<html>oops</html>"), UpstreamFailed),
        ((200, {"status": "starting"}), UpstreamFailed),
    ],
    ids=["rejected", "failed", "our key", "html", "no id"],
)
async def test_a_failed_submission_leaves_no_job_and_no_hold(gateway, answer, error):
    services, key, _ = await gateway(Script(answer))
    with pytest.raises(error):
        await create(services, key)
    assert await available_to(services.ledger, key.account_id) == Decimal(10)
    assert await services.ledger.generations.pending() == []
    assert [route.successes for route in services.health.routes()] == [0], "or the route would never cool down"


@pytest.mark.parametrize(
    ("answer", "endpoint", "expected"),
    [
        ((422, {"error": "size is not supported"}), "images", (400, "rejected", "upstream_rejected")),
        ((500, {"error": "boom"}), "images", (500, "upstream_error", "upstream_failed")),
        ((500, {"error": "boom"}), "mcp", (200, "upstream_error", "upstream_failed")),
    ],
    ids=["rejected", "failed", "failed in a tool"],
)
async def test_a_request_that_every_route_rejects_has_a_row(gateway, answer, endpoint, expected):
    services, key, _ = await gateway(Script(answer))
    rows = []
    record = services.ledger.record
    services.ledger.record = lambda row, hold: rows.append(row) or record(row, hold)
    with pytest.raises(UpstreamError):
        await jobs_of(services).create(Order(key, "req_9", "acme/draw", {"prompt": "a"}, None, endpoint))
    [row] = rows
    assert (row.request_id, row.endpoint, row.model, row.provider, row.attempts, row.cost) == (
        "req_9",
        endpoint,
        "acme/draw",
        "acme",
        1,
        0,
    )
    assert (row.status, row.outcome, row.error_code) == expected
    assert row.prices is None, "empty text is not JSON: one such row would fail every query over `prices`"
    assert services.metrics.outcomes[row.outcome] == 1
    assert await available_to(services.ledger, key.account_id) == Decimal(10)


async def test_a_rejected_key_is_reported_to_the_operator(gateway, caplog):
    services, key, _ = await gateway(Script((401, {"error": "bad key"})))
    with pytest.raises(UpstreamFailed):
        await create(services, key)
    assert "provider acme: our key there is refused (bad key)" in caplog.text


async def test_a_key_rejected_during_a_poll_is_reported_to_the_operator(gateway, caplog):
    services, key, _ = await gateway(Script((200, {"id": "p1", "status": "starting"}), (401, {"error": "key revoked"})))
    made = await create(services, key)
    with pytest.raises(UpstreamFailed):
        await look(services, key, made["id"])
    assert "provider acme: our key there is refused (key revoked)" in caplog.text


async def test_an_unreachable_provider_is_an_error(gateway):
    services, key, _ = await gateway(Script((200, {})), apps={"other": Provider(Script((200, {})))})
    with pytest.raises(UpstreamUnreachable):
        await create(services, key)


async def test_the_next_route_is_tried_and_recorded(gateway):
    def busy(method, path, body):
        pass_time(services, 0.25)
        return 503, {"error": "busy"}

    second = Provider(Script((200, {"id": "q1", "status": "succeeded", "images": URL})))
    services, key, _ = await gateway(
        None,
        make_offer("acme"),
        make_offer("bemo", price=ImagePrice(Decimal("0.05"))),
        apps={"acme": Provider(busy), "bemo": second},
    )
    pass_time(services, 0)
    rows = []
    update = services.ledger.generations.update

    async def record(id, changes, row=None, hold=None):
        rows.extend([row] if row else [])
        return await update(id, changes, row, hold)

    services.ledger.generations.update = record
    made = await create(services, key)
    assert made["status"] == "succeeded"
    generation = await services.ledger.generations.get(key.account_id, made["id"])
    assert (generation.provider, generation.row.attempts, generation.cost) == ("bemo", 2, Decimal("0.05"))
    [row] = rows
    wanted = {
        "request_id": "req_1",
        "account_id": key.account_id,
        "key_id": key.id,
        "endpoint": "images",
        "asked_model": "acme/draw",
        "model": "acme/draw",
        "provider": "bemo",
        "upstream_model": "draw-1",
        "client_protocol": "images",
        "upstream_protocol": "images",
        "attempts": 2,
        "status": 200,
        "outcome": "ok",
        "images": 1,
        "cost": Decimal("0.05"),
        "native_cost": Decimal("0.05"),
        "currency": "USD",
        "rate": Decimal(1),
        "error_code": None,
        "lost": None,
        "time": generation.created_at,
    }
    assert {name: getattr(row, name) for name in wanted} == wanted
    [earlier] = json.loads(row.earlier_attempts)
    assert earlier == {
        "provider": "acme",
        "upstream_model": "draw-1",
        "error": "upstream_failed",
        "status": 503,
        "ms": 250.0,
    }


async def test_a_failed_synchronous_call_continues_at_a_polled_route(gateway):
    second = Provider(Script((200, {"id": "q1", "status": "starting"}), (200, {"status": "succeeded", "images": URL})))
    services, key, _ = await gateway(
        None,
        make_offer("acme", poll=False),
        make_offer("bemo", price=ImagePrice(Decimal("0.05"))),
        apps={"acme": Provider(Script((503, {"error": "busy"}))), "bemo": second},
    )
    made = await create(services, key)
    await settled(services)
    [pending] = await services.ledger.generations.pending()
    assert (pending.provider, pending.upstream_id, pending.row.attempts) == ("bemo", "q1", 2)
    assert (await look(services, key, made["id"]))["images"] == URL
    assert [path for _, path, _ in second.calls] == ["/jobs", "/jobs/q1"]
    assert (
        services.ledger.balance(key.account_id)
        == await available_to(services.ledger, key.account_id)
        == Decimal("9.95")
    )


async def test_a_synchronous_call_whose_images_are_missing_tries_the_next_route(gateway):
    def first(method, path, body):
        return (404, {}) if path == "/results" else (200, {"status": "succeeded"})

    fetch = Step("fetch", "GET", lambda values: "app://acme/results", job)
    second = Provider(Script((200, {"status": "succeeded", "images": URL})))
    services, key, _ = await gateway(
        None,
        make_offer("acme", poll=False, fetch=fetch),
        make_offer("bemo", poll=False),
        apps={"acme": Provider(first), "bemo": second},
    )
    rows = accepted_rows(services)
    made = await create(services, key)
    await settled(services)
    assert (await look(services, key, made["id"]))["images"] == URL
    [earlier] = json.loads(rows[0].earlier_attempts)
    assert (rows[0].provider, earlier["provider"], earlier["error"]) == ("bemo", "acme", "upstream_failed")


async def test_a_poll_rejected_by_the_provider_ends_the_job_with_its_message(gateway):
    services, key, _ = await gateway(
        Script((200, {"id": "p1", "status": "starting"}), (422, {"error": "no faces, please"}))
    )
    made = await create(services, key)
    seen = await look(services, key, made["id"])
    assert (seen["status"], seen["error"]) == ("failed", "no faces, please")
    assert await available_to(services.ledger, key.account_id) == Decimal(10)


async def test_a_job_ended_by_another_gateway_keeps_that_end(gateway):
    services, key, _ = await gateway(
        Script((200, {"id": "p1", "status": "starting"}), (200, {"status": "succeeded", "images": URL}))
    )
    made = await create(services, key)
    write = services.ledger.generations.update

    async def beaten(id, changes, row, hold):
        await write(id, {"status": "canceled"})
        return await write(id, changes, row, hold)

    services.ledger.generations.update = beaten
    assert (await look(services, key, made["id"]))["status"] == "canceled"
    assert services.ledger.balance(key.account_id) == await available_to(services.ledger, key.account_id) == Decimal(10)
    assert not services.metrics.cost


async def test_a_route_without_a_price_for_the_input_is_skipped(gateway):
    """It must not reject the job for routes that have one."""
    few = ImagePrice(Decimal("0.05"), by=(at("$input", "prompt"),), table={"a dog": Decimal("0.06")}, refuse=True)
    done = Provider(Script((200, {"id": "q1", "status": "succeeded", "images": URL})))
    busy = Provider(Script((503, {"error": "busy"})))
    services, key, _ = await gateway(
        None,
        make_offer("acme"),
        make_offer("bemo", price=few),
        make_offer("cosmo"),
        apps={"acme": busy, "bemo": done, "cosmo": done},
    )
    rows = accepted_rows(services)
    for number, prompt in enumerate(("a cat", "a dog")):
        await create(services, key, {"prompt": prompt}, f"req_{number}")
    assert [(row.provider, row.cost) for row in rows] == [("cosmo", Decimal("0.04")), ("bemo", Decimal("0.06"))]


async def test_a_rejected_input_is_not_sent_to_the_next_route(gateway):
    second = Provider(Script((200, {"id": "q1", "status": "succeeded", "images": URL})))
    rejecting = Provider(Script((400, {"error": "no cats"})))
    services, key, _ = await gateway(
        None, make_offer("acme"), make_offer("bemo"), apps={"acme": rejecting, "bemo": second}
    )
    with pytest.raises(UpstreamRejected):
        await create(services, key)
    assert (len(rejecting.calls), second.calls) == (1, [])


async def test_the_hold_covers_the_most_expensive_route(gateway):
    pending = Provider(Script((200, {"id": "p1", "status": "starting"})))
    services, key, _ = await gateway(
        None,
        make_offer("acme"),
        make_offer("bemo", price=ImagePrice(Decimal("0.07"))),
        apps={"acme": pending, "bemo": pending},
    )
    await create(services, key)
    assert await available_to(services.ledger, key.account_id) == Decimal("9.93")


async def test_a_route_whose_schema_rejects_the_input_is_skipped(gateway):
    narrow = make_offer("bemo", schema={"type": "object", "properties": {"prompt": {"maxLength": 2}}})
    second = Provider(Script((200, {"id": "q1", "status": "succeeded", "images": URL})))
    services, key, _ = await gateway(
        None, make_offer("acme"), narrow, apps={"acme": Provider(Script((503, {}))), "bemo": second}
    )
    with pytest.raises(UpstreamFailed):
        await create(services, key, {"prompt": "long"})
    assert second.calls == []


@pytest.mark.parametrize(
    ("given", "tried"), [({"prompt": "p", "count": 3}, False), ({"prompt": "p"}, True), ({"prompt": "p", "x": 1}, True)]
)
async def test_a_route_that_would_ignore_a_described_field_of_the_input_is_skipped(gateway, given, tried):
    first = make_offer("acme", schema={"properties": {"prompt": {"type": "string"}, "count": {"type": "integer"}}})
    other = make_offer("bemo", schema={"properties": {"prompt": {"type": "string"}, "n": {"type": "integer"}}})
    second = Provider(Script((503, {})))
    services, key, _ = await gateway(None, first, other, apps={"acme": Provider(Script((503, {}))), "bemo": second})
    with pytest.raises(UpstreamFailed):
        await create(services, key, given)
    assert bool(second.calls) is tried


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "the request body is not valid JSON"),
        (b"[]", "the request body is no JSON object"),
        ({"input": {}}, "model is required"),
        ({"model": "acme/draw"}, "input is required"),
        ({"model": "acme/draw", "input": None}, "input is required"),
        ({"model": "acme/draw", "input": "a cat"}, "input is required and must be an object"),
        ({"model": "acme/draw", "input": {}}, "input.prompt: is required"),
        ({"model": "acme/draw", "input": {"prompt": "a", "n": 9}}, "input.n: 9 is greater than the maximum of 4"),
        ({"model": "acme/draw", "input": {"prompt": "a"}, "webhook": 5}, "webhook is not text"),
        (
            {"model": "acme/draw", "input": {"prompt": "a"}, "webhook": "call me"},
            'webhook is "call me", wanted an address such as https://',
        ),
        (
            {"model": "acme/draw", "input": {"prompt": "a"}, "webhook": "https:///hook"},
            'webhook is "https:///hook", wanted an address',
        ),
    ],
)
async def test_an_invalid_request_reaches_no_provider(gateway, body, message):
    services, key, provider = await gateway(Script((200, {})))
    with pytest.raises(BadRequest) as raised:
        await create_generation(services, inbound(key, body))
    assert raised.value.message.startswith(message)
    assert provider.calls == []


async def test_unknown_and_forbidden_models_have_the_same_error(gateway):
    services, key, _ = await gateway(Script((200, {})))
    forbidden = await services.ledger.update_key(key.id, allowed_models=["other/*"])
    for who, model in ((key, "acme/none"), (forbidden, "acme/draw")):
        with pytest.raises(ModelNotFound):
            await create_generation(services, inbound(who, {"model": model, "input": {"prompt": "a"}}))


async def test_jobs_of_other_accounts_are_not_found(gateway):
    services, key, _ = await gateway(Script((200, {"id": "p1", "status": "starting"})))
    made = await create(services, key)
    await services.ledger.create_account("other")
    stranger, _ = await services.ledger.create_key("other")
    for who, job_id in (
        (stranger, made["id"]),
        (key, "nonsense"),
        (key, "00000000-0000-4000-8000-000000000000"),
        (key, made["id"][:-1]),
    ):
        with pytest.raises(NotFound):
            await get_generation(services, who, job_id)


@pytest.mark.parametrize(
    ("answer", "served", "why"),
    [
        ((200, {"status": "processing"}), True, "the provider did not finish within 600 s"),
        ((503, {}), True, "the provider did not finish within 600 s"),
        ((404, {}), True, "the provider no longer knows this job"),
        ((200, {"status": "processing"}), False, "the provider did not finish within 600 s"),
    ],
    ids=["still processing", "failing polls", "job unknown", "model removed"],
)
async def test_a_lost_job_fails_at_its_deadline(gateway, answer, served, why):
    services, key, _ = await gateway(
        Script((200, {"id": "p1", "status": "starting"}), (200, {"status": "processing"}), answer),
        make_offer(give_up=600),
    )
    made = await create(services, key)
    assert (await look(services, key, made["id"]))["status"] == "processing"
    if not served:
        services.runtime.current.images = ImageOffers(())
        jobs_of(services).tracked.pending[made["id"]].terms = None  # as a job that an earlier process submitted
        assert (await look(services, key, made["id"]))["status"] == "processing", "its model may return until then"
    pass_time(services, 601)
    done = await look(services, key, made["id"])
    assert (done["status"], done["error"]) == ("failed", why)
    assert await available_to(services.ledger, key.account_id) == Decimal(10)


@pytest.mark.parametrize("answer", [(200, {"status": "processing"}), (404, {})], ids=["processing", "not known yet"])
@pytest.mark.parametrize("set_to", [timedelta(hours=-5), timedelta(hours=5)], ids=["back", "ahead"])
async def test_a_changed_system_clock_does_not_change_the_deadline(gateway, answer, set_to):
    services, key, _ = await gateway(Script((200, {"id": "p1", "status": "starting"}), answer), make_offer(give_up=600))
    made = await create(services, key)
    stored = await services.ledger.generations.get(key.account_id, made["id"])
    times = {"created_at": stored.created_at - set_to, "deadline_at": stored.deadline_at - set_to}
    await services.ledger.generations.update(made["id"], times)  # as if the clock had been changed
    assert (await look(services, key, made["id"]))["status"] in ("starting", "processing")
    pass_time(services, 601)
    assert (await look(services, key, made["id"]))["status"] == "failed"


async def test_a_failing_provider_does_not_end_a_job(gateway):
    services, key, _ = await gateway(
        Script(
            (200, {"id": "p1", "status": "starting"}),
            (503, {}),
            (404, {}),
            (200, {"status": "succeeded", "images": URL}),
        )
    )
    made = await create(services, key)
    with pytest.raises(UpstreamFailed):
        await look(services, key, made["id"])
    assert (await look(services, key, made["id"]))["status"] == "starting", (
        "the provider may not know a job this young yet"
    )
    assert (await look(services, key, made["id"]))["status"] == "succeeded"


async def test_a_job_that_the_provider_no_longer_knows_fails(gateway):
    services, key, _ = await gateway(Script((200, {"id": "p1", "status": "starting"}), (404, {})))
    made = await create(services, key)
    pass_time(services, 120)
    assert (await look(services, key, made["id"]))["error"] == "the provider no longer knows this job"


@pytest.mark.parametrize("first", [404, 503])
async def test_a_finished_job_without_images_is_polled_again(gateway, first):
    results = [(first, {"error": "not yet"}), (200, {"status": "succeeded", "images": URL})]

    def answer(method, path, body):
        return results.pop(0) if path == "/results/p1" else (200, {"id": "p1", "status": "succeeded"})

    def job(values):
        return {name: values["$"].get(name) for name in ("id", "status", "images")}

    submit, poll = (
        Step("submit", "POST", lambda values: "app://acme/jobs", job),
        Step("poll", "GET", lambda values: "app://acme/jobs/p1", job),
    )
    fetch = Step("fetch", "GET", lambda values: "app://acme/results/p1", job)
    services, key, _ = await gateway(answer, make_offer(submit=submit, poll=poll, fetch=fetch))
    made = await create(services, key)
    assert made["status"] == "starting"
    assert (await look(services, key, made["id"]))["images"] == URL


@pytest.mark.parametrize("at_once", [False, True], ids=["a job that is polled", "a job that is done at once"])
async def test_a_job_whose_images_are_not_ready_continues_and_is_charged_once(gateway, at_once):
    results = [(200, {"status": "processing"}), (200, {"status": "succeeded", "images": URL})]

    def answer(method, path, body):
        if path == "/results/p1":
            return results.pop(0)
        return 200, {"id": "p1", "status": "succeeded" if at_once or path == "/jobs/p1" else "starting"}

    fetch = Step("fetch", "GET", lambda values: "app://acme/results/p1", job)
    services, key, _ = await gateway(answer, make_offer(fetch=fetch))
    made = await create(services, key)
    if not at_once:
        made = await look(services, key, made["id"])
    assert made["status"] == "processing"
    assert await available_to(services.ledger, key.account_id) == Decimal("9.96")
    seen = await look(services, key, made["id"])
    assert (seen["status"], seen["images"], seen["cost"]) == ("succeeded", URL, 0.04)
    assert (
        services.ledger.balance(key.account_id)
        == await available_to(services.ledger, key.account_id)
        == Decimal("9.96")
    )


async def test_a_synchronous_job_whose_images_are_not_ready_is_fetched_again(gateway):
    results = [(200, {"status": "processing"}), (200, {"status": "succeeded", "images": URL})]

    def answer(method, path, body):
        return results.pop(0) if path == "/results/p1" else (200, {"id": "p1", "status": "succeeded"})

    fetch = Step("fetch", "GET", lambda values: f"app://acme/results/{values['$job']['id']}", job)
    services, key, provider = await gateway(answer, make_offer(poll=False, fetch=fetch))
    made = await create(services, key)
    await settled(services)
    assert len(results) == 1
    done = await look(services, key, made["id"])
    assert (done["status"], done["images"], done["cost"]) == ("succeeded", URL, 0.04)
    assert len(provider.calls) == 3


async def test_a_job_whose_images_never_come_fails_at_its_deadline(gateway):
    def answer(method, path, body):
        return 200, {"id": "p1", "status": {"/jobs": "starting", "/jobs/p1": "succeeded"}.get(path, "processing")}

    fetch = Step("fetch", "GET", lambda values: "app://acme/results/p1", job)
    services, key, _ = await gateway(answer, make_offer(fetch=fetch, give_up=600))
    made = await create(services, key)
    assert (await look(services, key, made["id"]))["status"] == "processing"
    pass_time(services, 601)
    done = await look(services, key, made["id"])
    assert (done["status"], done["error"]) == ("failed", "the provider did not finish within 600 s")
    assert await available_to(services.ledger, key.account_id) == Decimal(10)


async def test_many_readers_cause_one_poll(gateway):
    async def answer(method, path, body):
        await asyncio.sleep(0.02)
        return 200, {"id": "p1", "status": "starting"} if method == "POST" else {"status": "succeeded", "images": URL}

    services, key, provider = await gateway(answer)
    made = await create(services, key)
    seen = await asyncio.gather(*(look(services, key, made["id"]) for _ in range(50)))
    assert {each["status"] for each in seen} == {"succeeded"}
    assert len(provider.calls) == 2
    assert services.ledger.balance(key.account_id) == Decimal("9.96")


async def test_a_client_that_disconnects_during_the_submission_loses_no_job(gateway):
    release = asyncio.Event()

    async def answer(method, path, body):
        await release.wait()
        return 200, {"id": "p1", "status": "starting"}

    services, key, provider = await gateway(answer)
    task = asyncio.create_task(create(services, key))
    await until(lambda: provider.calls)
    task.cancel()
    release.set()
    await settled(services)
    assert [job.upstream_id for job in await services.ledger.generations.pending()] == ["p1"]


async def test_a_failure_that_nobody_waits_for_is_logged_in_one_line(gateway, caplog):
    caplog.set_level("INFO")
    release = asyncio.Event()

    async def answer(method, path, body):
        if method == "POST" and "cat" in str(body):
            return 200, {"id": "p1", "status": "starting"}
        await release.wait()
        return 500, {"error": "out of paint"}

    services, key, provider = await gateway(answer)
    made = await create(services, key)
    waiting = [
        asyncio.create_task(look(services, key, made["id"])),
        asyncio.create_task(create(services, key, {"prompt": "a dog"}, "req_2")),
    ]
    await until(lambda: len(provider.calls) == 3)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    release.set()
    await settled(services)
    gc.collect()  # asyncio logs unretrieved errors here
    assert [record.message for record in caplog.records if not record.message.startswith("route ")] == [
        "an image job went wrong when nobody waited for it: out of paint"
    ] * 2
    assert "never retrieved" not in caplog.text


async def test_a_mistake_of_ours_that_nobody_waits_for_is_logged_with_its_traceback(gateway, caplog, monkeypatch):
    async def broken(*_):
        raise KeyError("a mistake")

    services, key, _ = await gateway(Script((200, {"images": URL})), make_offer(poll=False))
    monkeypatch.setattr(jobs_of(services).tracked, "settle", broken)
    await create(services, key)
    await settled(services)
    [logged] = [record for record in caplog.records if "nobody waited" in record.message]
    assert (logged.levelname, logged.exc_info[0]) == ("ERROR", KeyError)


async def test_a_stopping_gateway_does_not_wait_for_jobs(gateway):
    services, key, provider = await gateway(Numbered(), make_offer(every=(0.01,)))
    made = await create(services, key)
    jobs = jobs_of(services)
    waiting = asyncio.create_task(jobs.wait(await jobs.tracked.stored(key.account_id, made["id"]), 30.0))
    await until(lambda: len(provider.calls) > 2)
    assert not waiting.done()
    services.draining = True
    assert (await asyncio.wait_for(waiting, 20)).status == "processing"


async def waited(services, key, made, seconds=30.0):
    """The job as somebody has it who waits for its end."""
    jobs = jobs_of(services)
    return await jobs.wait(await jobs.tracked.stored(key.account_id, made["id"]), seconds)


async def test_whoever_waits_for_a_synchronous_provider_has_the_pictures_with_its_answer(gateway):
    release = asyncio.Event()

    async def answer(method, path, body):
        await release.wait()
        return 200, {"status": "succeeded", "images": [{"data": PNG}]}

    services, key, provider = await gateway(answer, make_offer(poll=False, every=(600,)))
    made = await create(services, key)
    await until(lambda: provider.calls)
    waiting = asyncio.create_task(waited(services, key, made))
    await asyncio.sleep(0)
    release.set()
    assert (await asyncio.wait_for(waiting, 20)).status == "succeeded"


async def test_errors_of_a_poll_do_not_end_the_wait_for_a_job(gateway):
    services, key, _ = await gateway(
        Script(
            (200, {"id": "p1", "status": "starting"}),
            (503, {"error": "busy"}),
            (200, {"id": "p1", "status": "succeeded", "images": URL}),
        )
    )
    assert (await waited(services, key, await create(services, key))).status == "succeeded"


async def test_a_store_that_cannot_be_written_for_a_moment_does_not_end_the_wait_for_a_job(gateway):
    services, key, _ = await gateway(
        Script(
            (200, {"id": "p1", "status": "starting"}),
            (200, {"id": "p1", "status": "processing"}),
            (200, {"id": "p1", "status": "succeeded", "images": URL}),
        )
    )
    update, fails = services.ledger.generations.update, [Unavailable("disk full")] * 2

    async def failing(*given):
        if fails:
            raise fails.pop()
        return await update(*given)

    made = await create(services, key)
    services.ledger.generations.update = failing
    assert (await waited(services, key, made)).status == "succeeded"
    assert fails == []


async def test_a_poll_that_hangs_does_not_prolong_the_wait_for_a_job(gateway):
    async def answer(method, path, body):
        if method == "GET":
            await asyncio.sleep(600)
        return 200, {"id": "p1", "status": "starting"}

    services, key, provider = await gateway(answer)
    job = await asyncio.wait_for(waited(services, key, await create(services, key), 0.2), 20)
    assert (job.status, len(provider.calls)) == ("starting", 2)


async def test_an_input_that_does_not_fit_the_file_ends_the_job(gateway):
    submit = Step("submit", "POST", lambda values: "app://acme/jobs", dict, {}, unfit)
    services, key, provider = await gateway(Script((200, {})), make_offer(poll=False, submit=submit))
    made = await create(services, key)
    await settled(services)
    assert (await look(services, key, made["id"]))["status"] == "failed"
    assert (provider.calls, await available_to(services.ledger, key.account_id)) == ([], Decimal(10))


async def test_a_running_job_outlives_a_stricter_schema(gateway):
    services, key, _ = await gateway(
        Script((200, {"id": "p", "status": "starting"}), (200, {"id": "p", "status": "succeeded", "images": URL}))
    )
    made = await create(services, key)
    services.runtime.current.images = ImageOffers(
        [make_offer(schema={"type": "object", "required": ["size"], "properties": {"size": {"type": "string"}}})]
    )
    assert (await look(services, key, made["id"]))["status"] == "succeeded"


async def test_a_running_job_keeps_the_defaults_with_which_it_was_submitted(gateway):
    def offer(size):
        properties = {"prompt": {"type": "string"}, "size": {"type": "string", "default": size}}
        prices = {"S": Decimal("0.01"), "L": Decimal(5)}
        return make_offer(
            schema={"type": "object", "properties": properties},
            price=ImagePrice(Decimal("0.04"), by=(at("$input", "size"),), table=prices),
        )

    answers = Script((200, {"id": "p", "status": "starting"}), (200, {"status": "succeeded", "images": URL}))
    services, key, _ = await gateway(answers, offer("S"))
    made = await create(services, key)
    services.runtime.current.images = ImageOffers([offer("L")])
    assert (await look(services, key, made["id"]))["cost"] == 0.01


@pytest.mark.parametrize("left", [(), (make_offer(poll=False),)], ids=["removed", "synchronous now"])
async def test_a_job_whose_provider_a_reload_removed_is_finished_there(gateway, left):
    services, key, _ = await gateway(
        Script((200, {"id": "p", "status": "starting"}), (401, {}), (200, {"status": "succeeded", "images": URL}))
    )
    made = await create(services, key)
    services.runtime.current.images = ImageOffers(left)
    with pytest.raises(UpstreamError):
        await look(services, key, made["id"])
    assert services.health.alarms() == [], "nothing that the operator has to mend"
    done = await look(services, key, made["id"])
    assert (done["status"], done["cost"]) == ("succeeded", 0.04)


async def test_a_rejected_request_is_no_failure_of_its_route(gateway):
    services, key, _ = await gateway(Script((422, {"error": "size is not supported"})))
    with pytest.raises(UpstreamRejected):
        await create(services, key)
    [route] = services.health.routes()
    assert (route.rejections, route.failures) == (1, 0)


async def test_the_image_models_are_listed_with_their_descriptors(gateway):
    services, key, _ = await gateway(
        Script((200, {})), make_offer(), make_offer("acme", model=image_model("acme/hidden", public=False))
    )
    public = json.loads(image_listing(services.runtime.current).body)
    assert public == {
        "success": True,
        "code": 200,
        "data": [
            {
                "id": "acme/draw",
                "name": "Draw",
                "model_provider": "acme",
                "description": "Draws.",
                "tags": ["text-to-image"],
                "pricing": {"price": 0.04, "currency": "USD", "unit": 1},
                "input_schema": make_offer().schema.document,
            }
        ],
    }
    assert [model["id"] for model in json.loads(image_listing(services.runtime.current, key).body)["data"]] == [
        "acme/draw",
        "acme/hidden",
    ]


async def test_an_error_inside_a_200_tries_the_next_route(gateway):
    """A synchronous provider's file sets `succeeded`, but the body has an error and no image."""
    broken = make_offer(
        "acme",
        poll=False,
        submit=Step("submit", "POST", lambda values: "app://acme/jobs", lambda values: {"status": "succeeded"}),
    )
    second = Provider(Script((200, {"status": "succeeded", "images": URL})))
    services, key, _ = await gateway(
        None,
        broken,
        make_offer("bemo", poll=False),
        apps={"acme": Provider(Script((200, {"error": "overloaded"}))), "bemo": second},
    )
    made = await create(services, key)
    await settled(services)
    done = await look(services, key, made["id"])
    assert (done["status"], done["images"]) == ("succeeded", URL)
    assert len(second.calls) == 1


async def test_a_key_s_rate_limit_applies_to_jobs(gateway):
    services, key, provider = await gateway(Script((200, {"id": "p1", "status": "starting"})))
    slow = await services.ledger.update_key(key.id, rpm=1)
    await create(services, slow)
    with pytest.raises(RateLimited):
        await create(services, slow, request_id="req_2")
    assert len(provider.calls) == 1
    assert await available_to(services.ledger, key.account_id) == Decimal("9.96"), "only the first job holds credits"


async def test_a_job_that_credits_do_not_cover_does_not_count_against_the_rate_limit(gateway):
    services, key, _ = await gateway(Script((200, {"id": "p1", "status": "starting"})))
    with pytest.raises(QuotaExhausted):
        await create(services, await services.ledger.update_key(key.id, rpm=1, spend_cap=Decimal(0)))
    await create(services, await services.ledger.update_key(key.id, spend_cap=None), request_id="req_2")
