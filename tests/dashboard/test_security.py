"""Security of the pages: foreign forms, other accounts' data, injected scripts."""

from __future__ import annotations

import re
from decimal import Decimal
from urllib.parse import quote

import pytest
import pytest_asyncio

from tollgate.dashboard.application import PLACES
from tollgate.dashboard.templating import Statics
from tollgate.ledger import UsageRow

from .browser import text_of
from .conftest import browsers, chat_sender, gateway, user

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVIL = "<img src=x onerror=alert(1)>'\"><script>alert(2)</script>{{7*7}}"


def filled(path: str, **parts: str) -> str:
    """A path of the table with its parameters filled in."""
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: quote(parts.get(found[1], "x"), safe=""), path)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(tmp_path_factory):
    """One gateway for the whole file: the requests here change nothing."""
    async with gateway(tmp_path_factory.mktemp("security")) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(app):
    async with browsers(app) as make:
        yield make


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(browser):
    return await browser().sign_in("default")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def alice(app, browser):
    return await user(app, browser(), "alice", 10)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def others(app, operator, browser):
    """A request, an image and a key of `default`, and `bob`, who tries to see them."""
    await chat_sender(app)(app.key, "a secret question")
    job = await succeeded_image(app, "a private picture")
    keys = await app.services.ledger.list_keys("default")
    row = re.search(r"/requests/(req_\w+)", (await operator.get("/requests")).text)
    assert row
    return {"bob": await user(app, browser(), "bob", 1), "key": keys[0], "request": row[1], "job": job}


async def succeeded_image(app, prompt: str) -> str:
    """Creates an image; returns the id of its job."""
    reply = await app.post("/v1/images/generations", {"model": "sandbox/paint", "input": {"prompt": prompt}})
    job = reply.json()["data"]["id"]
    assert (await app.ended_job(job)).json()["data"]["status"] == "succeeded"
    return job


GETS = [place for place in PLACES if place.method == "GET"]
POSTS = [place for place in PLACES if place.method == "POST"]


@pytest.mark.parametrize(
    "place", [place for place in PLACES if place.who != "anybody"], ids=lambda place: f"{place.method} {place.path}"
)
async def test_pages_require_signing_in(browser, place):
    path = filled(place.path, form="csv", number="0")
    reply = await (browser().get(path) if place.method == "GET" else browser().post(path, token="x"))
    assert reply.status_code == 303 and reply.headers["location"].startswith("/dashboard/sign-in")


@pytest.mark.parametrize(
    "place",
    [place for place in PLACES if place.who == "operator"],
    ids=lambda place: f"{place.method} {place.path}",
)
async def test_operator_pages_are_not_there_for_users(alice, place):
    path = filled(place.path, form="csv", account="alice", key="x")
    reply = await (alice.get(path) if place.method == "GET" else alice.post(path))
    assert reply.status_code == 404 and "there is no such page" in text_of(reply).lower()


async def test_users_see_no_links_to_operator_pages(alice):
    assert "/operator/" not in (await alice.get()).text


@pytest.mark.parametrize("place", POSTS, ids=lambda place: place.path)
@pytest.mark.parametrize("token", ["", "x", "other"], ids=["none", "made up", "of another session"])
async def test_a_form_without_a_valid_token_is_rejected(app, operator, browser, place, token):
    if token == "other":
        token = await (await browser().sign_in("default")).token()
    before = len(await app.services.ledger.list_keys()), app.balance()
    reply = await operator.post(
        filled(place.path, account="default"),
        token=token,
        id="eve",
        name="n",
        once="1",
        amount="5",
        key="x",
        prompt="x",
        model="x",
    )
    assert reply.status_code == 403
    assert (len(await app.services.ledger.list_keys()), app.balance()) == before


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_form_from_another_site_is_rejected_even_with_a_token(operator, site):
    reply = await operator.post("/keys", headers={"sec-fetch-site": site}, once="1", name="n")
    assert reply.status_code == 403 and "another site" in text_of(reply)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"\xff\xfe", 400),
        (b"&".join(b"a%d=1" % number for number in range(500)), 400),
        (b"x" * (1024 * 1024 + 1), 413),
    ],
    ids=["not text", "many fields", "too large"],
)
async def test_an_invalid_form_is_rejected(operator, body, status):
    reply = await operator.http.post("/dashboard/keys", content=body)
    assert reply.status_code == status


async def test_forms_of_visitors_have_a_smaller_limit(browser):
    visitor = browser().http
    for size, status in ((64 * 1024, 403), (64 * 1024 + 1, 413)):
        assert (await visitor.post("/dashboard/sign-in", content=b"x" * size)).status_code == status


async def test_every_reply_has_the_security_headers(operator, browser):
    for reply in [
        await operator.get(),
        await operator.get("/nowhere"),
        await browser().get("/sign-in"),
        await browser().get("/keys"),
        await operator.get("/usage/download.csv"),
    ]:
        policy = reply.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'") and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert reply.headers["x-frame-options"] == "DENY" and reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "same-origin" and reply.headers["cache-control"] == "no-store"


async def test_every_reply_has_its_own_request_id(operator, browser):
    name = next(iter(Statics().tags))
    replies = [await operator.get(), await operator.get("/nowhere"), await browser().get("/keys"),
               await operator.get(f"/static/{name}"), await operator.get("/usage/download.csv")]  # fmt: skip
    ids = [reply.headers["x-request-id"] for reply in replies]
    assert ids == [reply.headers["request-id"] for reply in replies] and len(set(ids)) == len(ids)


async def test_pages_contain_no_inline_scripts_or_styles(app, operator):
    await chat_sender(app)(app.key)
    for place in GETS:
        page = (await operator.get(filled(place.path, model="sandbox/echo", account="default"))).text
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style\b|\sstyle=|\son\w+=|javascript:", page), place.path
        assert not re.search(r"(?:src|href|action)=\"(?:https?:)?//", page), place.path


async def test_an_account_cannot_open_pages_of_another(others, operator):
    bob = others["bob"]
    for path in (
        f"/keys/{others['key'].id}",
        f"/requests/{others['request']}",
        f"/images/{others['job']}",
        f"/images/{others['job']}/0",
    ):
        assert (await operator.get(path)).status_code == 200, path
        assert (await bob.get(path)).status_code == 404, path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/keys",
        "/usage",
        "/requests",
        "/credits",
        "/images",
        "/try",
        "/usage?account=default",
        "/requests?account=default",
        "/requests?key={key}",
        "/usage?key={key}&by=account_id",
        "/usage/download.csv?account=default",
    ],
)
async def test_an_account_never_reads_about_another(others, path):
    page = await others["bob"].get(path.format(key=others["key"].id))
    assert page.status_code == 200
    for secret in (
        others["request"],
        others["job"],
        "a private picture",
        "first key",
        others["key"].last_four,
        "first start",
    ):
        assert secret not in page.text, secret


async def test_a_download_of_another_account_is_empty(others):
    reply = await others["bob"].get("/usage/download.csv?account=default&range=90d")
    assert len(reply.text.strip().splitlines()) == 1 and "provider_cost" not in reply.text


@pytest.mark.parametrize("path", ["/keys/{key}", "/keys/{key}/revoke"])
async def test_an_account_cannot_change_keys_of_another(app, others, path):
    reply = await others["bob"].post(path.format(key=others["key"].id), name="mine now", models="none")
    assert reply.status_code == 404
    key = await app.services.ledger.get_key(others["key"].id)
    assert (key.name, key.revoked, key.allowed_models) == ("first key", False, None)


@pytest.mark.parametrize(("path", "status"), [("/try", 404), ("/try/stream", 404), ("/images", 400)])
async def test_an_account_cannot_spend_with_a_key_of_another(app, others, path, status):
    before = app.balance()
    reply = await others["bob"].post(
        path, page="/account", key=others["key"].id, model="sandbox/echo", prompt="hi", once="z"
    )
    assert reply.status_code == status
    assert app.balance() == before


NAMING = [
    "",
    "/keys",
    "/usage",
    "/usage?by=key_id",
    "/requests",
    "/requests/req_evil",
    "/credits",
    "/try",
    "/operator/accounts",
    "/operator/accounts/eve",
    "/operator/providers",
    "/operator/requests",
    "/operator/usage?by=account_id",
    f"/models?q={quote(EVIL)}",
    f"/requests?text={quote(EVIL)}&model={quote(EVIL)}&provider={quote(EVIL)}&key={quote(EVIL)}",
    f"/models/{quote(EVIL)}",
    f"/sign-in?next={quote(EVIL)}",
    f"/keys?done={quote(EVIL)}",
    f"/link/{quote(EVIL, safe='')}",
]
"""Pages with names, errors or words of the address."""


async def test_names_and_errors_are_escaped_on_all_pages(tmp_path):
    """Names of keys, accounts and models, end users, errors and losses all appear on pages."""
    async with gateway(tmp_path) as app, browsers(app) as browser:
        operator = await browser().sign_in("default")
        await app.services.ledger.create_account("eve", EVIL)
        await operator.post("/keys", once="q", name=EVIL, models="all")
        await app.services.ledger.grant("default", Decimal(1), EVIL)
        row = UsageRow(
            "req_evil",
            "default",
            EVIL,
            "chat",
            asked_model=EVIL,
            model=EVIL,
            provider=EVIL,
            upstream_model=EVIL,
            outcome="error",
            status=500,
            error_code=EVIL,
            end_user=EVIL,
            lost=f"{EVIL}; x",
            prices='{"<script>": "<b>"}',
            client_protocol=EVIL,
        )
        await app.services.ledger.record(row)
        await app.services.ledger.settle()
        app.services.health.failed(EVIL, EVIL, "upstream_failed", EVIL, alarm="key")
        app.services.health.failed("sandbox/echo", "sandbox", "upstream_failed", EVIL)
        for path in NAMING:
            page = (await operator.get(path)).text
            assert (
                "<img" not in page
                and "<script>" not in page
                and "onerror=alert(1)>'" not in page.replace("&gt;", "").replace("&#39;", "")
            ), path
            assert "49" not in re.findall(r"script>\D*(\d+)", page), path
        shown = [path for path in NAMING if "&lt;script&gt;alert(2)" in (await operator.get(path)).text]
        assert len(shown) >= 12


async def test_only_raster_images_are_served(app, operator, monkeypatch):
    from tollgate.dashboard.pages import images

    async def svg(visit, image):
        return "image/svg+xml", b"<svg onload=alert(1)>"

    job = await succeeded_image(app, "x")
    good = await operator.get(f"/images/{job}/0")
    assert good.headers["content-type"] == "image/png" and good.content.startswith(b"\x89PNG")
    for number in ("1", "-1", "00", "x", "9" * 5000):
        assert (await operator.get(f"/images/{job}/{number}")).status_code == 404
    monkeypatch.setattr(images, "_bytes", svg)
    assert (await operator.get(f"/images/{job}/0")).status_code == 415


@pytest.mark.parametrize("path", ["/static/../visit.py", "/static/..%2fvisit.py", "/static/nothing.css"])
async def test_only_known_static_files_are_served(browser, path):
    assert (await browser().get(path)).status_code == 404


async def test_versioned_static_files_may_be_cached(browser):
    page = (await browser().get("/sign-in")).text
    address = re.search(r'href="/dashboard(/static/style\.css\?\w+)"', page)
    assert address
    reply = await browser().get(address[1])
    assert reply.status_code == 200 and "immutable" in reply.headers["cache-control"]
    assert (await browser().get("/static/style.css")).headers["cache-control"] == "no-cache"
