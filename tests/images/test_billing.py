"""What a job holds and is charged, and its usage row."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from support.image_jobs import URL, Numbered, Script, accepted_rows, create, look, pass_time, unfit
from support.image_provider import at, close_services, make_offer, runtime_of, settled
from support.stores import available_to
from tollgate.config.settings import Credits
from tollgate.errors import BadRequest, QuotaExhausted
from tollgate.images.order import Order
from tollgate.images.refresher import Refresher
from tollgate.images.service import jobs_of, list_generations
from tollgate.mapping.images.price import ImagePrice, Line, ReportedCost


@pytest.mark.parametrize("synchronous", [False, True], ids=["polled", "synchronous"])
async def test_a_job_is_charged_at_the_prices_of_its_start(gateway, synchronous):
    """A reload changes prices and rates only for later jobs (DESIGN section 3: running requests finish on the old
    one)."""

    def offer(price):
        return make_offer(
            poll=not synchronous, price=ImagePrice(Decimal(price), currency="CNY", asked=at("$input", "n"))
        )

    async def answer(method, path, body):
        await reloaded.wait()
        return 200, {"id": "p1", "status": "succeeded" if synchronous or method == "GET" else "starting", "images": URL}

    reloaded = asyncio.Event()
    services, key, _ = await gateway(answer, offer("0.04"))
    making = asyncio.ensure_future(create(services, key))
    await asyncio.sleep(0)
    services.runtime.current = runtime_of(offer("4"), credits=Credits(rates={"USD": Decimal(1), "CNY": Decimal("0.5")}))
    reloaded.set()
    made = await making
    await settled(services)
    assert (await look(services, key, made["id"]))["cost"] == 0.0056
    made = await create(services, key, request_id="req_2")
    await settled(services)
    assert (await look(services, key, made["id"]))["cost"] == 2
    assert services.ledger.balance(key.account_id) == Decimal("7.9944")


async def test_a_running_job_holds_its_maximum_cost(gateway):
    services, key, _ = await gateway(Script((200, {"id": "p1", "status": "starting"})), credits="0.10")
    await create(services, key, {"prompt": "x", "n": 2})
    assert await available_to(services.ledger, key.account_id) == Decimal("0.02")
    with pytest.raises(QuotaExhausted):  # the remaining credits must cover it in addition to the first job
        await create(services, key, {"prompt": "x"}, "req_2")
    assert await available_to(services.ledger, key.account_id) == Decimal("0.02")


async def test_a_failed_job_costs_nothing_and_has_its_error(gateway):
    services, key, _ = await gateway(
        Script((200, {"id": "p1", "status": "starting"}), (200, {"status": "failed", "error": "NSFW content"}))
    )
    made = await create(services, key)
    assert await look(services, key, made["id"]) == {
        "id": made["id"],
        "model": "acme/draw",
        "status": "failed",
        "error": "NSFW content",
    }
    assert await available_to(services.ledger, key.account_id) == Decimal(10)
    assert json.loads((await list_generations(services, key)).body)["data"] == []


async def test_images_that_are_not_base64_are_neither_delivered_nor_charged(gateway):
    answer = {"id": "p1", "status": "succeeded", "images": [{"data": "@@@", "context_type": "image/png"}]}
    services, key, _ = await gateway(
        Script((200, {"id": "p1", "status": "starting"}), (200, answer)),
    )
    ended = await look(services, key, (await create(services, key))["id"])
    assert (ended["status"], ended["error"]) == ("failed", "the provider returned no image")
    assert "images" not in ended
    assert await available_to(services.ledger, key.account_id) == Decimal(10)


async def test_the_row_of_a_failed_job_has_no_cost(gateway):
    """Although its answer has pictures and a cost."""
    price = ImagePrice(Decimal("0.04"), reported=ReportedCost(at("$", "cost"), Decimal(1)))
    failed = {"status": "failed", "error": "NSFW", "images": URL, "cost": 0.04}
    services, key, _ = await gateway(
        Script((200, {"id": "p1", "status": "starting"}), (200, failed)), make_offer(price=price)
    )
    rows = accepted_rows(services)
    made = await create(services, key)
    await look(services, key, made["id"])
    [row] = rows
    assert (row.request_id, row.provider, row.attempts, row.status) == ("req_1", "acme", 1, 200)
    assert (row.outcome, row.error_code) == ("upstream_error", "generation_failed")
    assert (row.images, row.cost, row.native_cost, row.currency, row.rate, row.prices) == (0, 0, 0, "USD", 1, None)


@pytest.mark.parametrize(
    "answer, outcome, code",
    [
        ((400, {"error": "the prompt was blocked"}), "rejected", "upstream_rejected"),
        ((503, {"error": "busy"}), "upstream_error", "upstream_failed"),
    ],
)
async def test_the_row_of_a_failed_job_says_why_also_at_a_synchronous_provider(gateway, answer, outcome, code):
    services, key, _ = await gateway(Script(answer), make_offer(poll=False))
    rows = accepted_rows(services)
    await create(services, key)
    await settled(services)
    [row] = rows
    assert (row.outcome, row.error_code, row.provider, row.upstream_model) == (outcome, code, "acme", "draw-1")
    assert (row.status, row.cost, row.prices) == (200, 0, None)


async def test_the_row_of_a_rejected_poll_says_why(gateway):
    services, key, _ = await gateway(Script((200, {"id": "p1", "status": "starting"}), (400, {"error": "blocked"})))
    rows = accepted_rows(services)
    await look(services, key, (await create(services, key))["id"])
    assert [(row.outcome, row.error_code, row.upstream_model) for row in rows] == [
        ("rejected", "upstream_rejected", "draw-1")
    ]


async def test_the_row_of_a_job_past_its_time_is_a_timeout(gateway):
    services, key, _ = await gateway(Numbered(), make_offer(give_up=60))
    rows = accepted_rows(services)
    made = await create(services, key)
    pass_time(services, 61)
    assert (await look(services, key, made["id"]))["error"] == "the provider did not finish within 60 s"
    assert [(row.outcome, row.error_code, row.upstream_model) for row in rows] == [
        ("timeout", "upstream_timeout", "draw-1")
    ]


async def test_the_row_of_a_job_measures_from_its_request_to_its_end(gateway):
    services, key, _ = await gateway(
        Script((200, {"id": "p1", "status": "starting"}), (200, {"status": "succeeded", "images": URL}))
    )
    rows = accepted_rows(services)
    requested_at = datetime.now(UTC) - timedelta(seconds=3)
    order = Order(key, "req_1", "acme/draw", {"prompt": "a"}, None, "images", requested_at)
    job_id = (await jobs_of(services).create(order)).id
    await look(services, key, job_id)
    assert rows[0].time == requested_at
    assert 3_000 <= rows[0].total_ms < 60_000


async def test_a_changed_system_clock_does_not_change_the_duration_in_the_row(gateway):
    services, key, _ = await gateway(
        Script((200, {"id": "p1", "status": "starting"}), (200, {"status": "succeeded", "images": URL}))
    )
    rows = accepted_rows(services)
    made = await create(services, key)
    stored = await services.ledger.generations.get(key.account_id, made["id"])
    times = {"created_at": stored.created_at - timedelta(days=30)}
    await services.ledger.generations.update(made["id"], times)  # as if the clock had been changed
    await look(services, key, made["id"])
    assert 0 <= rows[0].total_ms < 60_000


async def test_the_hold_of_a_running_job_counts_towards_the_spend_cap_after_a_restart(gateway):
    services, key, _ = await gateway(Numbered())
    capped = await services.ledger.update_key(key.id, spend_cap=Decimal("0.08"))
    await create(services, capped)
    await close_services(services)
    again, _, _ = await gateway(Numbered())
    await Refresher(jobs_of(again)).resume()
    await create(again, capped, request_id="req_2")
    with pytest.raises(QuotaExhausted):
        await create(again, capped, request_id="req_3")


async def test_an_input_without_a_price_is_rejected(gateway):
    price = ImagePrice(Decimal("0.04"), by=(at("$input", "size"),), table={"small": Decimal("0.01")}, refuse=True)
    services, key, provider = await gateway(Script((200, {})), make_offer(price=price))
    with pytest.raises(BadRequest, match="no price is set for large"):
        await create(services, key, {"prompt": "a", "size": "large"})
    assert provider.calls == []


async def test_usage_that_yields_no_price_costs_the_declared_price(gateway):
    price = ImagePrice(Decimal("0.04"), lines=(Line(unfit, Decimal(1), 1),))
    services, key, _ = await gateway(
        Script((200, {"id": "p", "status": "succeeded", "images": URL})), make_offer(price=price)
    )
    made = await create(services, key)
    assert (await look(services, key, made["id"]))["cost"] == 0.04


async def test_a_price_in_another_currency_is_converted_to_credits(gateway):
    services, key, _ = await gateway(
        Script((200, {"id": "p", "status": "succeeded", "images": URL})),
        make_offer(price=ImagePrice(Decimal("0.20"), "CNY")),
    )
    rows = accepted_rows(services)
    await create(services, key)
    assert (rows[0].cost, rows[0].native_cost, rows[0].currency, rows[0].rate, rows[0].images) == (
        Decimal("0.028"),
        Decimal("0.20"),
        "CNY",
        Decimal("0.14"),
        1,
    )


async def test_a_price_can_read_response_headers_and_earlier_results(gateway):
    price = ImagePrice(
        Decimal("0.01"),
        lines=(Line(at("$http", "headers", "content-type"), Decimal(1), 1), Line(at("$job", "id"), Decimal("0.5"), 1)),
        bill=lambda values: len(values["$http"]["headers"]["content-type"]),
    )
    services, key, _ = await gateway(
        Script((200, {"id": "p", "status": "succeeded", "images": URL})), make_offer(price=price)
    )
    rows = accepted_rows(services)
    await create(services, key)
    assert rows[0].cost == Decimal("0.01") * len("application/json")
