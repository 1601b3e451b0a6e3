"""tollgate.images: the life of a job against a provider driven by hand; ledger, client and catalog are real."""

import asyncio
import dataclasses
import errno
import gc
import json
import os
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from support.image_provider import (
    PNG,
    Provider,
    at,
    close_services,
    image_model,
    job,
    make_offer,
    open_services,
    runtime_of,
    settled,
)
from tollgate.config.authorisation import Authorisation
from tollgate.config.model import Credits
from tollgate.errors import (
    BadRequest,
    ModelNotFound,
    NotFound,
    QuotaExhausted,
    RateLimited,
    Unavailable,
    Unwritten,
    UpstreamError,
    UpstreamFailed,
    UpstreamRejected,
    UpstreamUnreachable,
)
from tollgate.images import (
    create_generation,
    get_generation,
    image_listing,
    jobs_of,
    list_generations,
    run_refresher,
)
from tollgate.images.order import Order, Unsaved
from tollgate.images.refresher import Refresher
from tollgate.ledger import Generation, UsageRow
from tollgate.mapping import MappingFailure
from tollgate.mapping.images.hosts import read_host
from tollgate.mapping.images.offer import ImageOffers, Step
from tollgate.mapping.images.price import ImagePrice, Line
from tollgate.services import Inbound

URL = [{"url": "https://pictures.example/a.png", "width": 1024, "height": 1024}]


class Script:
    """Answers in order; the last repeats."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def __call__(self, method, path, body):
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
async def gateway(tmp_path):
    opened = []

    async def start(answer, *offers, credits="10", folder=tmp_path, apps=None, **settings):
        provider = Provider(answer)
        services, (key, _) = await open_services(
            folder, *(offers or (make_offer(),)), apps=apps or {"acme": provider}, credits=credits, **settings
        )
        opened.append(services)
        return services, key, provider

    yield start
    for services in opened:
        await close_services(services)


def inbound(key, body, request_id="req_1"):
    return Inbound("images", key, body if isinstance(body, bytes) else json.dumps(body).encode(), {}, request_id)


class Numbered:
    """Jobs p0, p1, ... that never end."""

    def __init__(self):
        self.made = 0

    def __call__(self, method, path, body):
        if method == "GET":
            return 200, {"status": "processing"}
        self.made += 1
        return 200, {"id": f"p{self.made - 1}", "status": "starting"}


def pass_time(services, seconds):
    """So many seconds later, for the jobs of this gateway."""
    jobs = jobs_of(services)
    now = jobs.clock() + seconds
    jobs.clock = lambda: now


async def create(services, key, given=None, request_id="req_1", **more):
    reply = await create_generation(
        services, inbound(key, {"model": "acme/draw", "input": given or {"prompt": "a cat"}, **more}, request_id)
    )
    assert reply.status == 200
    envelope = json.loads(reply.body)
    assert (envelope["success"], envelope["code"]) == (True, 200)
    return envelope["data"]


def accepted_rows(services):
    """The rows that the ledger takes from now on."""
    rows: list[UsageRow] = []
    accept = services.ledger.accept
    services.ledger.accept = lambda row: rows.append(row) or accept(row)
    return rows


async def look(services, key, job_id):
    return json.loads((await get_generation(services, key, job_id)).body)["data"]


@pytest.mark.parametrize(
    ("encoding", "kind", "sent"),
    [
        ("json", "application/json", b'{"model":"draw-1","prompt":"a cat","n":1,"seed":null}'),
        ("form", "application/x-www-form-urlencoded", b"model=draw-1&prompt=a+cat&n=1"),
        ("multipart", "multipart/form-data; boundary=tollgate-", b'name="prompt"\r\n\r\na cat\r\n'),
    ],
)
async def test_a_step_sends_its_document_in_the_encoding_of_its_file(gateway, encoding, kind, sent):
    submit = Step(
        "submit",
        "POST",
        lambda values: "app://acme/jobs",
        lambda values: {"id": "p1", "status": "succeeded", "images": URL},
        {},
        lambda values: {"model": values["$"]["model"], **values["$"]["input"], "seed": None},
        encoding,
    )
    services, key, provider = await gateway(Script((200, {})), make_offer(submit=submit))
    await create(services, key, {"prompt": "a cat", "n": 1})
    await settled(services)
    assert provider.headers[0]["content-type"].startswith(kind)
    assert sent in provider.bodies[0]
    assert b"seed" not in provider.bodies[0] or encoding == "json"


def storing(*, when=None, status=201, encoding="file", image="AAAA"):
    """A provider that wants a picture in its storage first: its answers, and an offer of it."""

    def answer(method, path, body):
        if path == "/assets":
            return 200, {"id": "a1", "to": "app://acme/storage/1?sig=s"}
        if path.startswith("/storage"):
            return status, b"" if status < 400 else b"<Error><Code>SignatureDoesNotMatch</Code></Error>"
        return 200, {"id": "p1", "status": "processing"}

    prepare = Step(
        "prepare",
        "POST",
        lambda values: "app://acme/assets",
        lambda values: {"picture": values["$"]["id"], "to": values["$"]["to"]},
        body=lambda values: {"model": values["$"]["model"]},
        when=when,
    )
    upload = Step(
        "upload",
        "PUT",
        at("$job", "to"),
        lambda values: None,
        {"authorization": lambda values: None},
        lambda values: image,
        encoding,
        auth=False,
        when=when,
    )
    picture = at("$job", "picture")
    submit = Step("submit", "POST", lambda values: "app://acme/jobs", job, body=lambda values: {"of": picture(values)})
    poll = Step("poll", "GET", lambda values: f"app://acme/jobs/{picture(values)}", job)
    return answer, make_offer(submit=submit, poll=poll, before=(prepare, upload))


@pytest.mark.parametrize(
    ("image", "kind"),
    [
        ("AAAA", "application/octet-stream"),
        ("data:image/png;base64,AAAA", "image/png"),
        ({"file": "AAAA", "type": "image/webp"}, "image/webp"),
    ],
    ids=["base64", "a data address", "with its type"],
)
async def test_a_picture_is_sent_before_the_job_that_is_made_of_it(gateway, image, kind):
    answer, offer = storing(image=image)
    services, key, provider = await gateway(answer, offer)
    made = await create(services, key)
    await look(services, key, made["id"])
    assert provider.calls[:4] == [
        ("POST", "/assets", {"model": "draw-1"}),
        ("PUT", "/storage/1?sig=s", b"\0\0\0"),
        ("POST", "/jobs", {"of": "a1"}),
        ("GET", "/jobs/a1", b""),
    ]
    assert provider.headers[1]["content-type"] == kind
    assert "authorization" in provider.headers[0] and "authorization" not in provider.headers[1]


async def test_a_job_without_a_picture_has_no_upload(gateway):
    answer, offer = storing(when=at("$input", "image"))
    services, key, provider = await gateway(answer, offer)
    await create(services, key)
    assert provider.calls == [("POST", "/jobs", {"of": None})]


@pytest.mark.parametrize("status", [400, 403, 404, 500])
async def test_an_upload_that_fails_is_a_failure_of_the_route_and_says_nothing_of_our_key(gateway, status):
    answer, offer = storing(status=status)
    other = Provider(lambda *_: (200, {"id": "b1", "status": "processing"}))
    first = Provider(answer)
    services, key, _ = await gateway(
        answer, offer, make_offer("bemo", model=image_model(provider="bemo")), apps={"acme": first, "bemo": other}
    )
    await create(services, key)
    assert [path for _, path, _ in first.calls] == ["/assets", "/storage/1?sig=s"]
    assert [path for _, path, _ in other.calls] == ["/jobs"]
    assert services.health.alarms() == []


async def test_an_upload_with_our_key_that_is_refused_is_told_to_the_operator(gateway, caplog):
    answer, offer = storing(status=401)
    prepare, upload = offer.before
    offer = dataclasses.replace(offer, before=(prepare, dataclasses.replace(upload, auth=True)))
    services, key, _ = await gateway(answer, offer)
    with pytest.raises(UpstreamFailed):
        await create(services, key)
    assert "provider acme: our key there is refused" in caplog.text


async def test_what_storage_answers_to_an_upload_need_not_be_json(gateway):
    answer, offer = storing()
    services, key, provider = await gateway(
        lambda method, path, body: (200, b"<Stored/>") if path.startswith("/storage") else answer(method, path, body),
        offer,
    )
    assert (await create(services, key))["status"] == "processing"
    assert provider.calls[-1] == ("POST", "/jobs", {"of": "a1"})


async def test_a_step_has_headers_of_its_own_and_a_file_the_type_they_say(gateway):
    answer, offer = storing(image="data:image/png;base64,AAAA")
    prepare, upload = offer.before
    typed = dataclasses.replace(upload, headers={"content-type": lambda values: "image/x-own", "x-size": lambda _: 3})
    services, key, provider = await gateway(answer, dataclasses.replace(offer, before=(prepare, typed)))
    await create(services, key)
    assert (provider.headers[1]["content-type"], provider.headers[1]["x-size"]) == ("image/x-own", "3")


async def test_a_picture_that_is_none_is_the_caller_s_fault(gateway):
    answer, offer = storing(image="no base64!")
    services, key, provider = await gateway(answer, offer)
    with pytest.raises(BadRequest, match="input: the file is neither base64 nor a data URL"):
        await create(services, key)
    assert [path for _, path, _ in provider.calls] == ["/assets"]


@pytest.mark.parametrize("encoding", ["form", "multipart"])
async def test_a_list_is_no_form(gateway, encoding):
    submit = Step(
        "submit", "POST", lambda values: "app://acme/jobs", lambda values: {}, {}, lambda values: ["a cat"], encoding
    )
    services, key, provider = await gateway(Script((200, {})), make_offer(submit=submit))
    with pytest.raises(UpstreamFailed, match="does not fit its file"):
        await create_generation(services, inbound(key, {"model": "acme/draw", "input": {"prompt": "a cat"}}))
    assert provider.bodies == []


@pytest.mark.parametrize("synchronous", [False, True], ids=["polled", "held"])
async def test_a_job_is_charged_by_the_prices_it_was_taken_at(gateway, synchronous):
    """A reload while it runs changes prices and rates for those after it (DESIGN section 3: running requests finish on
    the old one)."""

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
    assert len(provider.calls) == calls, "a finished job is not asked about again"
    assert services.metrics.outcomes == {"ok": 1}
    assert provider.calls[0] == ("POST", "/jobs", {"model": "draw-1", "input": {"prompt": "a cat", "n": 2}})
    assert services.ledger.balance(key.account_id) == Decimal("9.92")
    assert services.ledger.available(key.account_id) == Decimal("9.92")
    stored = await services.ledger.generations.get(key.account_id, made["id"])
    assert (stored.webhook, stored.input, stored.answer["images"]) == (
        "https://hook.example",
        {"prompt": "a cat", "n": 2},
        URL * 2,
    )
    listed = json.loads((await list_generations(services, key)).body)["data"]
    assert listed == [{"id": made["id"], "model": "acme/draw", "status": "succeeded", "images": URL * 2, "cost": 0.08}]


async def test_a_job_in_flight_holds_what_it_may_cost(gateway):
    services, key, _ = await gateway(Script((200, {"id": "p1", "status": "starting"})), credits="0.10")
    await create(services, key, {"prompt": "x", "n": 2})
    assert services.ledger.available(key.account_id) == Decimal("0.02")
    await create(services, key, {"prompt": "x", "n": 2}, "req_2")
    assert services.ledger.available(key.account_id) == 0
    with pytest.raises(QuotaExhausted):
        await create(services, key, {"prompt": "x"}, "req_3")


async def test_a_failed_job_costs_nothing_and_says_why(gateway):
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
    assert services.ledger.available(key.account_id) == Decimal(10)
    assert json.loads((await list_generations(services, key)).body)["data"] == []


async def test_the_row_of_a_failed_job_says_so_and_costs_nothing(gateway):
    services, key, _ = await gateway(
        Script((200, {"id": "p1", "status": "starting"}), (200, {"status": "failed", "error": "NSFW", "images": URL}))
    )
    rows = accepted_rows(services)
    made = await create(services, key)
    await look(services, key, made["id"])
    [row] = rows
    assert (row.request_id, row.provider, row.attempts, row.status) == ("req_1", "acme", 1, 200)
    assert (row.outcome, row.error_code) == ("upstream_error", "generation_failed")
    assert (row.images, row.cost, row.native_cost, row.currency, row.rate, row.prices) == (0, 0, 0, "USD", 1, None)


async def test_the_row_of_a_job_measures_from_its_request_to_its_end(gateway):
    services, key, _ = await gateway(
        Script((200, {"id": "p1", "status": "starting"}), (200, {"status": "succeeded", "images": URL}))
    )
    rows = accepted_rows(services)
    asked = datetime.now(UTC) - timedelta(seconds=3)
    order = Order(key, "req_1", "acme/draw", {"prompt": "a"}, None, "images", asked)
    job_id = (await jobs_of(services).create(order)).id
    await look(services, key, job_id)
    assert rows[0].time == asked
    assert 3_000 <= rows[0].total_ms < 60_000


@pytest.mark.parametrize("polled", [True, False])
async def test_a_job_is_given_as_long_as_its_file_says(gateway, polled):
    services, key, _ = await gateway(Numbered(), make_offer(give_up=77, poll=polled))
    made = []
    keep = services.ledger.generations.create
    services.ledger.generations.create = lambda job: made.append(job) or keep(job)
    await create(services, key)
    assert [job.deadline_at - job.created_at for job in made] == [timedelta(seconds=77)]


async def test_an_answer_in_which_no_picture_is_found_is_told_to_the_operator(gateway, caplog):
    services, key, _ = await gateway(
        Script((200, {"id": "p1", "status": "starting"}), (200, {"id": "p1", "status": "succeeded", "pictures": URL}))
    )
    ended = await look(services, key, (await create(services, key))["id"])
    assert (ended["status"], ended["error"]) == ("failed", "the provider returned no image")
    assert (
        "provider acme: `images` of its poll step finds no picture in the answer, which has 'id, status, pictures'"
        in caplog.text
    )


async def test_a_provider_that_is_done_at_once(gateway):
    services, key, _ = await gateway(Script((201, {"id": "p1", "status": "succeeded", "images": URL})))
    made = await create(services, key)
    assert made["status"] == "succeeded"
    assert services.ledger.balance(key.account_id) == Decimal("9.96")


async def test_a_synchronous_provider_runs_in_the_background(gateway):
    release = asyncio.Event()

    async def answer(method, path, body):
        await release.wait()
        return 200, {"status": "succeeded", "images": [{"data": PNG}]}

    services, key, _ = await gateway(answer, make_offer(poll=False))
    made = await create(services, key)
    assert made["status"] == "starting"
    await asyncio.sleep(0.05)
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
    assert services.ledger.available(key.account_id) == Decimal(10)


@pytest.mark.parametrize(
    "answer",
    [(500, {"error": "stack trace with secret"}), (200, {"id": "p1", "status": "processing"})],
    ids=["failed", "not done, and cannot be asked again"],
)
async def test_a_providers_own_failure_is_told_in_our_words(gateway, answer):
    services, key, _ = await gateway(Script(answer), make_offer(poll=False))
    made = await create(services, key)
    await settled(services)
    assert (await look(services, key, made["id"]))["error"] == "the provider failed to produce the image"
    assert [route.successes for route in services.health.routes()] == [0], "else the route would never rest"


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
async def test_a_submit_that_fails_leaves_no_job_and_no_hold(gateway, answer, error):
    services, key, _ = await gateway(Script(answer))
    with pytest.raises(error):
        await create(services, key)
    assert services.ledger.available(key.account_id) == Decimal(10)
    assert await services.ledger.generations.pending() == []
    assert [route.successes for route in services.health.routes()] == [0], "else the route would never rest"


@pytest.mark.parametrize(
    ("answer", "endpoint", "told"),
    [
        ((422, {"error": "size is not supported"}), "images", (400, "rejected", "upstream_rejected")),
        ((500, {"error": "boom"}), "images", (500, "upstream_error", "upstream_failed")),
        ((500, {"error": "boom"}), "mcp", (200, "upstream_error", "upstream_failed")),
    ],
    ids=["rejected", "failed", "failed in a tool"],
)
async def test_a_request_no_provider_takes_leaves_a_row(gateway, answer, endpoint, told):
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
    assert (row.status, row.outcome, row.error_code) == told
    assert row.prices is None, "an empty text is no JSON: one such row made every query over `prices` fail"
    assert services.metrics.outcomes[row.outcome] == 1
    assert services.ledger.available(key.account_id) == Decimal(10)


async def test_a_key_the_provider_refuses_is_told_to_the_operator(gateway, caplog):
    services, key, _ = await gateway(Script((401, {"error": "bad key"})))
    with pytest.raises(UpstreamFailed):
        await create(services, key)
    assert "provider acme: our key there is refused (bad key)" in caplog.text


async def test_a_key_that_is_refused_while_a_job_runs_is_told_to_the_operator_too(gateway, caplog):
    services, key, _ = await gateway(Script((200, {"id": "p1", "status": "starting"}), (401, {"error": "key revoked"})))
    made = await create(services, key)
    with pytest.raises(UpstreamFailed):
        await look(services, key, made["id"])
    assert "provider acme: our key there is refused (key revoked)" in caplog.text


async def test_a_provider_that_cannot_be_reached(gateway):
    services, key, _ = await gateway(Script((200, {})), apps={"other": Provider(Script((200, {})))})
    with pytest.raises(UpstreamUnreachable):
        await create(services, key)


async def test_the_next_route_is_tried_and_recorded(gateway):
    second = Provider(Script((200, {"id": "q1", "status": "succeeded", "images": URL})))
    services, key, _ = await gateway(
        None,
        make_offer("acme"),
        make_offer("bemo", price=ImagePrice(Decimal("0.05"))),
        apps={"acme": Provider(Script((503, {"error": "busy"}))), "bemo": second},
    )
    rows = []
    update = services.ledger.generations.update

    async def noted(id, changes, row=None, hold=None):
        rows.extend([row] if row else [])
        return await update(id, changes, row, hold)

    services.ledger.generations.update = noted
    made = await create(services, key)
    assert made["status"] == "succeeded"
    generation = await services.ledger.generations.get(key.account_id, made["id"])
    assert (generation.provider, generation.row["attempts"], generation.cost) == ("bemo", 2, Decimal("0.05"))
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
    assert {name: earlier[name] for name in ("provider", "upstream_model", "error", "status")} == {
        "provider": "acme",
        "upstream_model": "draw-1",
        "error": "upstream_failed",
        "status": 503,
    }


async def test_a_job_whose_held_call_failed_goes_on_at_a_route_that_is_polled(gateway):
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
    assert (pending.provider, pending.upstream_id, pending.row["attempts"]) == ("bemo", "q1", 2)
    assert (await look(services, key, made["id"]))["images"] == URL
    assert [path for _, path, _ in second.calls] == ["/jobs", "/jobs/q1"]
    assert services.ledger.balance(key.account_id) == services.ledger.available(key.account_id) == Decimal("9.95")


async def test_a_held_call_whose_pictures_are_gone_leads_to_the_next_route(gateway):
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


async def test_a_poll_that_the_provider_refuses_as_wrong_ends_the_job_with_its_words(gateway):
    services, key, _ = await gateway(
        Script((200, {"id": "p1", "status": "starting"}), (422, {"error": "no faces, please"}))
    )
    made = await create(services, key)
    seen = await look(services, key, made["id"])
    assert (seen["status"], seen["error"]) == ("failed", "no faces, please")
    assert services.ledger.available(key.account_id) == Decimal(10)


async def test_a_job_that_another_gateway_ended_first_is_told_as_it_ended_there(gateway):
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
    assert services.ledger.balance(key.account_id) == services.ledger.available(key.account_id) == Decimal(10)
    assert not services.metrics.cost


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


async def test_a_route_that_has_no_price_for_the_input_is_left_out(gateway):
    """It would have refused the job for the routes that have one."""
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


async def test_a_route_whose_schema_refuses_the_input_is_left_out(gateway):
    narrow = make_offer("bemo", schema={"type": "object", "properties": {"prompt": {"maxLength": 2}}})
    second = Provider(Script((200, {"id": "q1", "status": "succeeded", "images": URL})))
    services, key, _ = await gateway(
        None, make_offer("acme"), narrow, apps={"acme": Provider(Script((503, {}))), "bemo": second}
    )
    with pytest.raises(UpstreamFailed):
        await create(services, key, {"prompt": "long"})
    assert second.calls == []


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
async def test_a_wrong_request_reaches_no_provider(gateway, body, message):
    services, key, provider = await gateway(Script((200, {})))
    with pytest.raises(BadRequest) as raised:
        await create_generation(services, inbound(key, body))
    assert raised.value.message.startswith(message)
    assert provider.calls == []


async def test_a_bought_token_that_is_refused_is_not_kept(gateway):
    tokens = []

    def issuer(method, path, body):
        if path.endswith("/token"):
            tokens.append(path)
            return 200, {"access_token": f"token-{len(tokens)}"}
        return (
            (403, {"error": {"message": "token expired"}})
            if len(tokens) == 1
            else (200, {"id": "p1", "status": "starting"})
        )

    auth = Authorisation("oauth_client", {"token_url": "app://acme/token", "client_id": "us", "client_secret": "x"})
    services, key, _ = await gateway(issuer, make_offer(auth=auth))
    with pytest.raises(UpstreamFailed):
        await create(services, key)
    assert (await create(services, key))["status"] == "starting"


async def test_unknown_and_forbidden_models_look_alike(gateway):
    services, key, _ = await gateway(Script((200, {})))
    forbidden = await services.ledger.update_key(key.id, allowed_models=["other/*"])
    for who, model in ((key, "acme/none"), (forbidden, "acme/draw")):
        with pytest.raises(ModelNotFound):
            await create_generation(services, inbound(who, {"model": model, "input": {"prompt": "a"}}))


async def test_other_peoples_jobs_are_not_found(gateway):
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


async def test_an_unknown_word_keeps_the_job_processing(gateway, caplog):
    services, key, _ = await gateway(
        Script((200, {"id": "p1", "status": "Queued-Up"})), make_offer(words={"Done": "succeeded"})
    )
    made = await create(services, key)
    assert made["status"] == "processing"
    for _ in range(3):
        await look(services, key, made["id"])
    assert len([record for record in caplog.records if "'Queued-Up'" in record.message]) == 1, (
        "said once, not at every poll"
    )


async def test_an_answer_of_more_values_than_are_read_in_a_moment_is_refused(gateway, monkeypatch):
    monkeypatch.setattr("tollgate.images.calls._MOST_VALUES", 100)
    services, key, _ = await gateway(
        lambda method, path, body: (200, {"id": "p1", "status": "succeeded", "images": URL, "more": [[]] * 100}),
        make_offer(),
    )
    with pytest.raises(UpstreamFailed, match="the answer holds more than 100 values"):
        await create(services, key)


@pytest.mark.parametrize(
    ("answer", "served", "why"),
    [
        ((200, {"status": "processing"}), True, "the provider did not finish within 600 s"),
        ((503, {}), True, "the provider did not finish within 600 s"),
        ((404, {}), True, "the provider no longer knows this job"),
        ((200, {"status": "processing"}), False, "the provider did not finish within 600 s"),
    ],
    ids=["it goes on", "it fails", "it forgot the job", "it is gone from the files"],
)
async def test_a_lost_job_is_failed_at_its_deadline(gateway, answer, served, why):
    services, key, _ = await gateway(
        Script((200, {"id": "p1", "status": "starting"}), (200, {"status": "processing"}), answer),
        make_offer(give_up=600),
    )
    made = await create(services, key)
    assert (await look(services, key, made["id"]))["status"] == "processing"
    if not served:
        services.runtime.current.images = ImageOffers(())
        assert (await look(services, key, made["id"]))["status"] == "processing", "it may come back until then"
    pass_time(services, 601)
    done = await look(services, key, made["id"])
    assert (done["status"], done["error"]) == ("failed", why)
    assert services.ledger.available(key.account_id) == Decimal(10)


@pytest.mark.parametrize("answer", [(200, {"status": "processing"}), (404, {})], ids=["it goes on", "not known yet"])
@pytest.mark.parametrize("set_to", [timedelta(hours=-5), timedelta(hours=5)], ids=["back", "ahead"])
async def test_a_clock_that_is_set_makes_no_job_old_or_young(gateway, answer, set_to):
    services, key, _ = await gateway(Script((200, {"id": "p1", "status": "starting"}), answer), make_offer(give_up=600))
    made = await create(services, key)
    stored = await services.ledger.generations.get(key.account_id, made["id"])
    times = {"created_at": stored.created_at - set_to, "deadline_at": stored.deadline_at - set_to}
    await services.ledger.generations.update(made["id"], times)  # as after the clock was set
    assert (await look(services, key, made["id"]))["status"] in ("starting", "processing")
    pass_time(services, 601)
    assert (await look(services, key, made["id"]))["status"] == "failed"


async def test_a_provider_in_trouble_does_not_end_a_job(gateway):
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
        "a job this young may not have been written down there yet"
    )
    assert (await look(services, key, made["id"]))["status"] == "succeeded"


async def test_a_job_the_provider_forgot_is_failed(gateway):
    services, key, _ = await gateway(Script((200, {"id": "p1", "status": "starting"}), (404, {})))
    made = await create(services, key)
    pass_time(services, 120)
    assert (await look(services, key, made["id"]))["error"] == "the provider no longer knows this job"


@pytest.mark.parametrize("status", ["succeeded", None])
async def test_pictures_fetched_by_a_further_step(gateway, status):
    def answer(method, path, body):
        return {
            "/jobs": (200, {"id": "p1", "status": "IN_QUEUE", "response_url": "app://acme/results/p1"}),
            "/jobs/p1": (200, {"status": "COMPLETED"}),
            "/results/p1": (200, {"status": status, "images": URL}),
        }[path]

    def job(values):
        return {name: values["$"].get(name) for name in ("id", "status", "images", "response_url")}

    submit = Step("submit", "POST", lambda values: "app://acme/jobs", job)
    fetch = Step("fetch", "GET", lambda values: values["$job"]["response_url"], job)
    services, key, provider = await gateway(
        answer, make_offer(submit=submit, fetch=fetch, words={"IN_QUEUE": "starting", "COMPLETED": "succeeded"})
    )
    made = await create(services, key)
    assert (await look(services, key, made["id"]))["images"] == URL
    assert [path for _, path, _ in provider.calls] == ["/jobs", "/jobs/p1", "/results/p1"]


@pytest.mark.parametrize("status", ["failed", "canceled"])
async def test_nothing_is_fetched_for_a_job_that_did_not_succeed(gateway, status):
    fetch = Step("fetch", "GET", lambda values: "app://acme/results/p1", job)
    services, key, provider = await gateway(
        Script((200, {"id": "p1", "status": "starting"}), (200, {"status": status, "error": "no"})),
        make_offer(fetch=fetch),
    )
    made = await create(services, key)
    assert (await look(services, key, made["id"]))["status"] == status
    assert [path for _, path, _ in provider.calls] == ["/jobs", "/jobs/p1"]


@pytest.mark.parametrize("first", [404, 503])
async def test_a_provider_that_is_done_at_once_and_does_not_have_its_pictures_yet(gateway, first):
    pictures = [(first, {"error": "not yet"}), (200, {"status": "succeeded", "images": URL})]

    def answer(method, path, body):
        return pictures.pop(0) if path == "/results/p1" else (200, {"id": "p1", "status": "succeeded"})

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
async def test_a_job_whose_pictures_are_still_being_made_when_they_are_fetched_goes_on_and_is_charged_once(
    gateway, at_once
):
    pictures = [(200, {"status": "processing"}), (200, {"status": "succeeded", "images": URL})]

    def answer(method, path, body):
        if path == "/results/p1":
            return pictures.pop(0)
        return 200, {"id": "p1", "status": "succeeded" if at_once or path == "/jobs/p1" else "starting"}

    fetch = Step("fetch", "GET", lambda values: "app://acme/results/p1", job)
    services, key, _ = await gateway(answer, make_offer(fetch=fetch))
    made = await create(services, key)
    if not at_once:
        made = await look(services, key, made["id"])
    assert made["status"] == "processing"
    assert services.ledger.available(key.account_id) == Decimal("9.96")
    seen = await look(services, key, made["id"])
    assert (seen["status"], seen["images"], seen["cost"]) == ("succeeded", URL, 0.04)
    assert services.ledger.balance(key.account_id) == services.ledger.available(key.account_id) == Decimal("9.96")


async def test_an_address_under_no_declared_host_is_not_called(gateway):
    def job(values):
        return {"id": "p1", "status": "starting", "poll_url": "https://evil.example/steal"}

    submit = Step("submit", "POST", lambda values: "app://acme/jobs", job)
    poll = Step("poll", "GET", at("$job", "poll_url"), job, hosts=(read_host("acme.example"),))
    services, key, provider = await gateway(Script((200, {})), make_offer(submit=submit, poll=poll))
    made = await create(services, key)
    with pytest.raises(UpstreamFailed, match="under no declared host"):
        await look(services, key, made["id"])
    assert len(provider.calls) == 1


@pytest.mark.parametrize("told", [None, "", 7], ids=["nothing", "an empty text", "a number"])
async def test_an_answer_without_the_address_to_ask_at_is_the_provider_s_failure(gateway, told):
    submit = Step("submit", "POST", lambda values: "app://acme/jobs", job)
    poll = Step("poll", "GET", lambda values: told, job)
    services, key, provider = await gateway(
        Script((200, {"id": "p1", "status": "starting"})), make_offer(submit=submit, poll=poll)
    )
    made = await create(services, key)
    with pytest.raises(UpstreamFailed, match="holds no address for the poll step"):
        await look(services, key, made["id"])
    assert len(provider.calls) == 1


async def test_an_answer_its_file_cannot_work_with_is_told_to_the_operator_and_is_the_provider_s_failure(
    gateway, caplog
):
    submit = Step("submit", "POST", lambda values: "app://acme/jobs", unfit)
    services, key, _ = await gateway(Script((200, {"id": "p1"})), make_offer(submit=submit))
    with pytest.raises(UpstreamFailed, match="does not fit its file"):
        await create(services, key)
    assert "provider acme: an answer does not fit its submit step: cannot subtract a text and a number" in caplog.text


async def test_an_error_is_no_stream_whatever_its_step_is(gateway):
    submit = Step("submit", "POST", lambda values: "app://acme/jobs", job, framing="sse")
    services, key, _ = await gateway(Script((400, {"error": "no cats"})), make_offer(submit=submit))
    with pytest.raises(UpstreamRejected, match="no cats"):
        await create(services, key)


async def test_many_readers_ask_the_provider_once(gateway):
    async def answer(method, path, body):
        await asyncio.sleep(0.02)
        return 200, {"id": "p1", "status": "starting"} if method == "POST" else {"status": "succeeded", "images": URL}

    services, key, provider = await gateway(answer)
    made = await create(services, key)
    seen = await asyncio.gather(*(look(services, key, made["id"]) for _ in range(50)))
    assert {each["status"] for each in seen} == {"succeeded"}
    assert len(provider.calls) == 2
    assert services.ledger.balance(key.account_id) == Decimal("9.96")


async def test_a_client_that_leaves_while_the_job_is_submitted_loses_nothing(gateway):
    release = asyncio.Event()

    async def answer(method, path, body):
        await release.wait()
        return 200, {"id": "p1", "status": "starting"}

    services, key, _ = await gateway(answer)
    task = asyncio.create_task(create(services, key))
    await asyncio.sleep(0.02)
    task.cancel()
    release.set()
    await settled(services)
    assert [job.upstream_id for job in await services.ledger.generations.pending()] == ["p1"]


async def test_a_failure_that_nobody_waits_for_is_told_in_a_line(gateway, caplog):
    caplog.set_level("INFO")
    release = asyncio.Event()

    async def answer(method, path, body):
        if method == "POST" and "cat" in str(body):
            return 200, {"id": "p1", "status": "starting"}
        await release.wait()
        return 500, {"error": "out of paint"}

    services, key, _ = await gateway(answer)
    made = await create(services, key)
    waiting = [
        asyncio.create_task(look(services, key, made["id"])),
        asyncio.create_task(create(services, key, {"prompt": "a dog"}, "req_2")),
    ]
    await asyncio.sleep(0.02)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    release.set()
    await settled(services)
    gc.collect()  # where asyncio tells of failures that nobody read
    assert [record.message for record in caplog.records if not record.message.startswith("route ")] == [
        "an image job went wrong when nobody waited for it: out of paint"
    ] * 2
    assert "never retrieved" not in caplog.text


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
    now = jobs.clock() + 60
    jobs.clock = lambda: now
    await Refresher(jobs).tick(10)
    assert jobs.tracked.pending == {}
    assert services.ledger.balance(key.account_id) == services.ledger.available(key.account_id) == Decimal("9.96")


async def test_a_gateway_that_is_to_stop_does_not_wait_for_jobs(gateway):
    services, key, _ = await gateway(Numbered(), make_offer(every=(0.01,)))
    made = await create(services, key)
    jobs = jobs_of(services)
    waiting = asyncio.create_task(jobs.wait(await jobs.tracked.stored(key.account_id, made["id"]), 30.0))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    services.draining = True
    assert (await asyncio.wait_for(waiting, 1)).status == "processing"


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
    jobs.clock = lambda: now
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
    jobs.clock = lambda: now
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
    jobs.clock = lambda: now
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
        assert again.ledger.available(key.account_id) == Decimal("0.01"), "what it may cost is held again, once"
    assert (await look(again, key, made["id"]))["status"] == "succeeded"
    assert provider.calls == [("GET", "/jobs/p1", b"")]
    assert again.ledger.balance(key.account_id) == Decimal("0.01")


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
    assert services.ledger.available(key.account_id) == services.ledger.balance(key.account_id)
    assert services.metrics.cost == {"acme": 2 * Decimal("0.04")}, "the metric of billed cost has jobs, too"
    assert len(provider.calls) == seen, "nobody is asked again"


async def test_what_a_running_job_may_cost_counts_for_the_spend_cap_after_a_restart_too(gateway):
    services, key, _ = await gateway(Numbered())
    capped = await services.ledger.update_key(key.id, spend_cap=Decimal("0.06"))
    await create(services, capped)
    await close_services(services)
    again, _, _ = await gateway(Numbered())
    await Refresher(jobs_of(again)).resume()
    await create(again, capped, request_id="req_2")
    with pytest.raises(QuotaExhausted):
        await create(again, capped, request_id="req_3")


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
    assert again.ledger.available(key.account_id) == Decimal("9.92")
    assert (await look(again, key, made[0]["id"]))["status"] in ("starting", "processing"), "the model may come back"
    assert len(provider.calls) == (0 if poll else 1)


async def test_a_price_table_that_refuses_is_a_wrong_input(gateway):
    price = ImagePrice(Decimal("0.04"), by=(at("$input", "size"),), table={"small": Decimal("0.01")}, refuse=True)
    services, key, provider = await gateway(Script((200, {})), make_offer(price=price))
    with pytest.raises(BadRequest, match="no price is set for large"):
        await create(services, key, {"prompt": "a", "size": "large"})
    assert provider.calls == []


def unfit(values):
    raise MappingFailure("cannot subtract a text and a number")


async def test_figures_that_make_no_price_cost_the_declared_one(gateway):
    price = ImagePrice(Decimal("0.04"), lines=(Line(unfit, Decimal(1), 1),))
    services, key, _ = await gateway(
        Script((200, {"id": "p", "status": "succeeded", "images": URL})), make_offer(price=price)
    )
    made = await create(services, key)
    assert (await look(services, key, made["id"]))["cost"] == 0.04


async def test_an_input_the_file_cannot_work_with_ends_the_job(gateway):
    submit = Step("submit", "POST", lambda values: "app://acme/jobs", dict, {}, unfit)
    services, key, provider = await gateway(Script((200, {})), make_offer(poll=False, submit=submit))
    made = await create(services, key)
    await settled(services)
    assert (await look(services, key, made["id"]))["status"] == "failed"
    assert (provider.calls, services.ledger.available(key.account_id)) == ([], Decimal(10))


async def test_a_running_job_outlives_a_schema_that_asks_for_more(gateway):
    services, key, _ = await gateway(
        Script((200, {"id": "p", "status": "starting"}), (200, {"id": "p", "status": "succeeded", "images": URL}))
    )
    made = await create(services, key)
    services.runtime.current.images = ImageOffers(
        [make_offer(schema={"type": "object", "required": ["size"], "properties": {"size": {"type": "string"}}})]
    )
    assert (await look(services, key, made["id"]))["status"] == "succeeded"


async def test_prices_in_another_currency_become_credits(gateway):
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


async def test_a_price_may_read_the_headers_of_the_answer_and_what_was_told_before(gateway):
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


async def test_a_request_that_a_provider_refuses_as_wrong_is_no_failure_of_its_route(gateway):
    services, key, _ = await gateway(Script((422, {"error": "size is not supported"})))
    with pytest.raises(UpstreamRejected):
        await create(services, key)
    [route] = services.health.routes()
    assert (route.rejections, route.failures) == (1, 0)


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


async def test_the_catalog_shows_descriptors(gateway):
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


async def test_an_error_inside_a_200_leads_to_the_next_route(gateway):
    """A synchronous provider's file says `succeeded`; that nothing came and why is in the body."""
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


def fill_disk(services):
    """The journal's disk is full from now on; calling what is returned makes room again, and waits for the journal to
    have written what waited."""
    journal = services.ledger._backend.journal
    write, journal._retry_seconds = journal._os_write, 0.01

    def full(descriptor, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def room():
        journal._os_write = write
        while journal.problem:
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
    assert services.ledger.available(key.account_id) == Decimal("9.96"), "what it may cost stays held"
    await room()
    jobs = jobs_of(services)
    now = jobs.clock() + 60
    jobs.clock = lambda: now
    await Refresher(jobs).tick(10)
    assert (jobs.tracked.pending, len(provider.calls)) == ({}, 2)
    listed = json.loads((await list_generations(services, key)).body)["data"]
    assert [(each["images"], each["cost"]) for each in listed] == [(URL, 0.04)]
    assert services.ledger.balance(key.account_id) == services.ledger.available(key.account_id) == Decimal("9.96")


async def test_a_call_that_was_not_made_for_a_full_disk_is_not_made_by_the_next_start(gateway):
    offer = make_offer(poll=False)
    services, key, provider = await gateway(Script((200, {"images": URL})), offer)
    room = fill_disk(services)
    with pytest.raises(Unavailable):
        await create(services, key)
    assert services.ledger.available(key.account_id) == Decimal(10)
    await room()
    await close_services(services)
    services, _, again = await gateway(Script((200, {"images": URL})), offer)
    await Refresher(jobs_of(services)).resume()
    await settled(services)
    assert provider.calls == again.calls == []
    assert await services.ledger.generations.pending() == []
    assert services.ledger.available(key.account_id) == Decimal(10)


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
    now = jobs.clock()
    jobs.clock = lambda: now
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
    assert services.ledger.available(key.account_id) == Decimal("9.96")
    await store(made)
    await look_again()
    assert (await services.ledger.generations.get(key.account_id, made.id)).status == "succeeded"
    assert services.ledger.balance(key.account_id) == services.ledger.available(key.account_id) == Decimal("9.96")


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
    assert services.ledger.balance(key.account_id) == services.ledger.available(key.account_id) == Decimal("9.96")


async def test_a_job_that_is_never_written_holds_nothing_for_long(gateway):
    services, key, _ = await gateway(Script((200, {"id": "p1", "status": "starting"})))
    _, _, look_again = await refused_at_first(services, key)
    await look_again()
    await look_again()
    assert services.ledger.available(key.account_id) == Decimal(10)
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


async def test_a_key_s_rate_limit_holds_for_jobs(gateway):
    services, key, provider = await gateway(Script((200, {"id": "p1", "status": "starting"})))
    slow = await services.ledger.update_key(key.id, rpm=1)
    await create(services, slow)
    with pytest.raises(RateLimited):
        await create(services, slow, request_id="req_2")
    assert len(provider.calls) == 1


async def test_an_orphan_past_its_deadline_is_adopted(gateway):
    services, key, _ = await gateway(Script((200, {"id": "p1", "status": "starting"}), (200, {"status": "processing"})))
    made = await create(services, key)
    jobs = jobs_of(services)
    refresher = Refresher(jobs)
    jobs.tracked.pending.clear()  # as if another instance had looked after it
    await services.ledger.generations.update(made["id"], {"deadline_at": datetime.now(UTC) - timedelta(seconds=1)})
    now = jobs.clock()
    jobs.clock = lambda: now
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
    now = jobs.clock()
    jobs.clock = lambda: now
    await refresher.resume()
    await refresher.tick(10)
    assert (jobs.tracked.pending, provider.calls) == ({}, [])
    now += 30
    await refresher.tick(10)
    if not held:  # the call that is made again may have ended
        assert services.ledger.balance(key.account_id) == Decimal(10)
        assert services.ledger.available(key.account_id) == Decimal("9.96"), "what it may cost is held here now"
    now += 3
    await refresher.tick(10)
    await settled(services)
    ended = await services.ledger.generations.get(key.account_id, left.id)
    assert (ended.status, ended.row["instance"], len(provider.calls)) == ("succeeded", "main", 1)
    assert services.ledger.balance(key.account_id) == services.ledger.available(key.account_id) == Decimal("9.96")


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
    now = jobs.clock()
    jobs.clock = lambda: now
    for seconds in (0, 1, 30):
        now += seconds
        await refresher.tick(10)
    assert (jobs.tracked.pending, provider.calls) == ({}, [])
    assert services.ledger.available(key.account_id) == Decimal(10)
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
    now = jobs.clock() + 5
    jobs.clock = lambda: now
    await refresher.tick(10)
    assert list(jobs.tracked.pending) == [made["id"]]

    async def nothing(account_id, job_id):
        return None

    services.ledger.generations.get = nothing
    for left in ([made["id"]], []):
        now += 60
        await refresher.tick(10)
        assert list(jobs.tracked.pending) == left, "the store may not have had it yet"


async def test_a_key_repeated_by_the_provider_is_not_shown(gateway):
    offer = make_offer(redact=lambda text: text.replace("sk-secret", "[secret]"))
    services, key, _ = await gateway(
        Script(
            (200, {"id": "p1", "status": "starting"}),
            (200, {"status": "failed", "error": "key sk-secret is out of credits"}),
        ),
        offer,
    )
    made = await create(services, key)
    assert (await look(services, key, made["id"]))["error"] == "key [secret] is out of credits"
