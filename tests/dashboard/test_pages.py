"""The pages and forms of the account that is signed in."""

from __future__ import annotations

import asyncio
import contextlib
import html
import io
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import duckdb
import pytest
import pytest_asyncio

from support.inprocess import inprocess, replying
from support.places import SANDBOX_IMAGES
from support.stores import spent_by
from support.waiting import SECONDS
from tollgate.dashboard.key_list import MOST
from tollgate.dashboard.pages import tryit
from tollgate.dashboard.pages.usage import RANGES, Download
from tollgate.dashboard.usage_report import bucket_starts
from tollgate.errors import Unavailable
from tollgate.ledger import KEY_ENDPOINTS, UsageRow
from tollgate.services import CLIENT_LEFT, Inbound

from .browser import text_of
from .conftest import browsers, chat_sender, gateway, user


async def test_a_new_account_is_shown_how_to_start(alice):
    assert "Create a key first" in text_of(await alice.get())
    await alice.make_key(name="laptop")
    page = text_of(await alice.get())
    assert "Send a first request" in page and 'model="sandbox/echo"' in page and "http://127.0.0.1:8787/v1" in page


async def test_an_account_without_credits_has_a_warning(app, alice):
    assert "Requests are refused" not in text_of(await alice.get())
    await app.services.ledger.grant("alice", Decimal("-9.995"), "")
    assert "Requests are rejected below 0.01 credits." in text_of(await alice.get())


async def test_the_overview_shows_the_newest_keys(app, alice):
    await chat_sender(app)(await alice.make_key(name="laptop"))
    for number in range(6):
        await alice.make_key(name=f"bot-{number}")
    page = text_of(await alice.get())
    assert "bot-5" in page and "bot-1" in page and "bot-0" not in page


async def test_the_page_of_a_store_that_is_down_does_not_say_where_it_is(app, alice, monkeypatch):
    async def down(*_):
        raise Unavailable('the store cannot be written: Cannot open "/srv/my data/t.duckdb": see /srv/t.wal; try again')

    monkeypatch.setattr(app.services.ledger, "keys_spent", down)
    reply = await alice.get("/keys")
    assert reply.status_code == 503 and "/srv" not in reply.text
    assert "The store cannot be written: Cannot open …: see … try again." in text_of(reply)


async def test_a_key_is_shown_once(app, alice):
    secret = await alice.make_key(
        name="laptop",
        expires="30d",
        models="sandbox/*",
        cap="2.5",
        window="month",
        rpm="60",
        tpm="10_000",
        strict="yes",
    )
    key = app.services.ledger.find_key(secret)
    assert (
        key.name,
        key.account_id,
        key.allowed_models,
        key.spend_cap,
        key.cap_window,
        key.rpm,
        key.tpm,
        key.strict,
    ) == ("laptop", "alice", ("sandbox/*",), Decimal("2.5"), "month", 60, 10_000, True)
    for path in ("/keys", f"/keys/{key.id}"):
        page = await alice.get(path)
        assert secret not in page.text and f"sk-tg-…{secret[-4:]}" in text_of(page)
    assert "60 requests/min, 10k tokens/min, strict" in text_of(await alice.get("/keys"))


async def test_a_repeated_key_form_creates_no_second_key(app, alice):
    once = await alice.field("/keys", "once")
    await alice.post("/keys", once=once, name="laptop")
    again = await alice.post("/keys", once=once, name="laptop")
    assert again.status_code == 303 and len(await app.services.ledger.list_keys("alice")) == 1
    assert "nothing was done twice" in text_of(await alice.get("/keys?done=again"))


async def test_an_account_creates_some_keys_a_day_and_an_operator_any_number(app, alice, operator, monkeypatch):
    monkeypatch.setattr("tollgate.dashboard.pages.keys._MOST_A_DAY", 2)
    ledger = app.services.ledger
    await alice.make_key()
    await ledger.revoke_key(ledger.find_key(await alice.make_key()).id)  # which stays in memory
    refused = await alice.post("/keys", once=await alice.field("/keys", "once"), name="third")
    assert refused.status_code == 400 and "has 2 keys of the last 24 hours" in text_of(refused)
    await ledger.create_key("alice", "by a command")
    assert len(await ledger.list_keys("alice")) == 3
    for _ in range(3):
        await operator.make_key()


async def test_a_form_whose_token_cannot_be_ours_creates_no_key(app, alice):
    """Tokens are remembered, and a form may have a megabyte of them: two thousand would take two gigabytes."""
    reply = await alice.post("/keys", once="x" * 1000, name="laptop")
    assert reply.headers["location"] == "/dashboard/keys?done=again"
    assert await app.services.ledger.list_keys("alice") == []


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("expires", "soon", "wanted a span such as 30d"),
        ("expires", "2020-01-01", "which is over already"),
        ("cap", "lots", "no exact decimal"),
        ("cap", "-1", "wanted 0 to 1000000000000"),
        ("cap", "9" * 27, "wanted 0 to 1000000000000"),
        ("rpm", "1.5", "wanted a whole number from 1"),
        ("tpm", "0", "wanted a whole number from 1"),
        ("concurrent", "0", "wanted a whole number from 1"),
        ("endpoints", "models", "wanted all, or some of chat"),
        ("addresses", "10.1.2.3/8", "that network is 10.0.0.0/8"),
        ("window", "hour", "wanted one of day, week, month, total"),
        ("name", "x" * 101, "wanted at most 100"),
    ],
)
async def test_an_invalid_key_form_shows_the_reason_and_keeps_the_input(app, alice, field, value, message):
    reply = await alice.post("/keys", once=await alice.field("/keys", "once"), **{"name": "laptop", field: value})
    assert reply.status_code == 400 and message in text_of(reply) and value in reply.text
    # the browser focuses this field
    assert field == "window" or re.search(rf'<input id="{field}"[^>]* aria-invalid="true" autofocus', reply.text)
    assert not await app.services.ledger.list_keys("alice")


async def test_a_list_of_models_is_escaped(app, alice):
    reply = await alice.post("/keys", once=await alice.field("/keys", "once"), models="<b>x</b>")
    assert "<b>x</b>" not in reply.text and "&lt;b&gt;x&lt;/b&gt;" in reply.text


@pytest.mark.parametrize(
    ("models", "useless"),
    [("echo", True), ("sandbox/ech", True), ("!*", True), ("sandbox/*", False), ("none", False), ("", False)],
)
async def test_a_key_without_usable_models_has_a_warning(app, alice, models, useless):
    reply = await alice.post("/keys", once=await alice.field("/keys", "once"), models=models)
    assert ("this key can use none now" in text_of(reply)) is useless
    [key] = await app.services.ledger.list_keys("alice")
    assert ("this key can use none now" in text_of(await alice.get(f"/keys/{key.id}"))) is useless


@pytest.mark.parametrize(
    ("models", "shown", "stored"),
    [
        ("sandbox/*, !sandbox/draw", "sandbox/*, !sandbox/draw", ("sandbox/*", "!sandbox/draw")),
        ("none", "none", ()),
        ("", "all", None),
    ],
    ids=["some", "none", "all"],
)
async def test_a_key_form_sent_unchanged_keeps_the_models(app, alice, models, shown, stored):
    key = app.services.ledger.find_key(await alice.make_key(models=models))
    page = (await alice.get(f"/keys/{key.id}")).text
    typed = dict(re.findall(r'<input[^>]* name="(?!form_token)(\w+)" value="([^"]*)"', page))
    assert typed["models"] == shown
    assert (await alice.post(f"/keys/{key.id}", **typed)).status_code == 303
    assert (await app.services.ledger.get_key(key.id)).allowed_models == stored


async def test_a_key_form_sent_unchanged_keeps_the_limits(app, alice):
    secret = await alice.make_key(
        name="laptop",
        cap="2.5",
        window="month",
        rpm="60",
        tpm="10_000",
        concurrent="3",
        endpoints="chat",
        addresses="192.0.2.1",
    )
    key = app.services.ledger.find_key(secret)
    page = (await alice.get(f"/keys/{key.id}")).text
    typed = dict(re.findall(r'<input[^>]* name="(?!form_token)(\w+)" value="([^"]*)"', page))
    typed.pop("strict")
    assert (await alice.post(f"/keys/{key.id}", **(typed | {"window": "month"}))).status_code == 303
    assert app.services.ledger.find_key(secret) == key


async def test_an_invalid_form_of_a_key_shows_the_reason_and_changes_nothing(app, alice):
    key = app.services.ledger.find_key(await alice.make_key(name="laptop", rpm="5"))
    reply = await alice.post(f"/keys/{key.id}", page=f"/keys/{key.id}", name="desk", rpm="many")
    assert reply.status_code == 400 and "many" in reply.text and 'value="desk"' in reply.text
    assert await app.services.ledger.get_key(key.id) == key


async def test_changing_one_limit_keeps_the_others(app, alice):
    secret = await alice.make_key(name="laptop", expires="30d", cap="2")
    key = app.services.ledger.find_key(secret)
    page = (await alice.get(f"/keys/{key.id}")).text
    typed = dict(re.findall(r'<input[^>]* name="(?!form_token)(\w+)" value="([^"]*)"', page))
    typed.pop("strict")
    assert typed["cap"] == "2" and typed["models"] == "all"
    done = await alice.post(f"/keys/{key.id}", **(typed | {"rpm": "5", "window": "day"}))
    assert done.status_code == 303
    changed = app.services.ledger.find_key(secret)
    assert (changed.rpm, changed.cap_window, changed.spend_cap) == (5, "day", Decimal(2))
    assert abs((changed.expires_at - key.expires_at).total_seconds()) < 60


async def test_a_key_form_keeps_what_was_changed_after_it_was_shown(app, alice):
    ledger = app.services.ledger
    key = ledger.find_key(await alice.make_key(name="laptop", cap="10"))
    page = f"/keys/{key.id}"
    typed = {"name": "desk", "models": "all", "cap": "10", "window": "total", "shown": await alice.field(page, "shown")}
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    await ledger.update_key(key.id, spend_cap=Decimal(2), expires_at=expires)  # as `tollgate keys change` does
    wrong = await alice.post(page, **typed, rpm="many")
    assert html.unescape(re.search('name="shown" value="([^"]*)"', wrong.text)[1]) == typed["shown"]
    assert (await alice.post(page, **typed, rpm="5")).status_code == 303
    changed = await ledger.get_key(key.id)
    assert (changed.name, changed.spend_cap, changed.expires_at, changed.rpm) == ("desk", 2, expires, 5)


async def test_restrictions_are_shown_in_normalized_form(app, alice):
    secret = await alice.make_key(concurrent="2", endpoints="mcp, chat", addresses="192.0.2.1/32 ::ffff:10.0.0.0/104")
    key = app.services.ledger.find_key(secret)
    assert (key.max_concurrent, key.endpoints, key.allowed_addresses) == (
        2,
        ("chat", "mcp"),
        ("192.0.2.1", "10.0.0.0/8"),
    )
    assert "2 at once, chat and mcp only, from 192.0.2.1 and 1 more" in text_of(await alice.get("/keys"))
    page = await alice.get(f"/keys/{key.id}")
    for field, typed in (("concurrent", "2"), ("endpoints", "chat, mcp"), ("addresses", "192.0.2.1, 10.0.0.0/8")):
        assert re.search(rf'<input id="{field}"[^>]* value="{typed}"', page.text), field
    assert ", ".join(KEY_ENDPOINTS) in text_of(page), "the page lists all endpoints"
    await alice.post(f"/keys/{key.id}", addresses="all", endpoints="", concurrent="")
    assert not app.services.ledger.find_key(secret).restricted


async def test_a_key_that_has_spent_its_cap_is_marked(app, alice, operator, send_chat):
    secret = await alice.make_key(name="small", cap="0.0000001")
    assert "cap used up" not in text_of(await alice.get("/keys"))
    await send_chat(secret)
    [key] = await app.services.ledger.list_keys("alice")
    for page in (
        await alice.get("/keys"),
        await alice.get(f"/keys/{key.id}"),
        await operator.get("/operator/accounts/alice"),
    ):
        assert "active cap used up" in text_of(page)


async def test_a_revoked_key_is_rejected_and_still_listed(app, alice, send_chat):
    secret = await alice.make_key(name="laptop")
    assert (await send_chat(secret)).status_code == 200
    key = app.services.ledger.find_key(secret)
    assert (await alice.post(f"/keys/{key.id}/revoke")).status_code == 303
    refused = await send_chat(secret)
    assert refused.status_code == 401 and refused.json()["error"]["code"] == "invalid_api_key"
    assert "laptop" in text_of(await alice.get("/keys")) and "revoked" in text_of(await alice.get("/keys"))


async def test_the_usage_page_shows_totals_models_keys_and_charts(alice, send_chat):
    secret = await alice.make_key(name="laptop")
    for _ in range(3):
        await send_chat(secret)
    await send_chat(secret, "[[error=503]]")
    page = await alice.get("/usage?range=1h")
    text = text_of(page)
    assert "4 1 failed, 25%" in text and "sandbox/echo" in text and "laptop" in text
    assert page.text.count('role="img"') == 4
    assert '<rect class="s0"' in page.text


async def test_cache_writes_have_a_column_only_if_there_are_any(alice, send_chat):
    secret = await alice.make_key()
    await send_chat(secret)
    assert "Cache read Output" in text_of(await alice.get("/usage?range=1h"))
    await send_chat(secret, "[[prompt-tokens=9000]] [[cache-write-tokens=7654]]")
    text = text_of(await alice.get("/usage?range=1h"))
    assert re.search(r"Cache read Cache write Output .*? sandbox/echo 2 0 1.4k 0 7.7k ", text)


async def test_a_single_remaining_value_is_labelled_1_other(app, alice):
    for number in range(1, 8):
        await app.services.ledger.record(
            UsageRow(f"req_{number}", "alice", "key_1", "chat", model=f"acme/m{number}", cost=Decimal(number))
        )
    await app.services.ledger.settle()
    assert " 1 other " in text_of(await alice.get("/usage?range=24h"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def alice_with_requests(tmp_path_factory):
    """Alice with one successful and one failed request, shared by tests that only read."""
    async with gateway(tmp_path_factory.mktemp("alice_with_requests")) as app, browsers(app) as make:
        alice = await user(app, make(), "alice", 10)
        secret = await alice.make_key()
        await chat_sender(app)(secret, user="needle-7")
        await chat_sender(app)(secret, "[[error=503]]")
        yield alice


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("range", ["1h", "24h", "7d", "30d", "90d", "nonsense"])
async def test_every_time_range_works(alice_with_requests, range):
    assert "sandbox/echo" in text_of(await alice_with_requests.get(f"/usage?range={range}"))


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("model=sandbox/echo", 2),
        ("model=sandbox/*", 0),
        ("provider=sandbox", 2),
        ("provider=other", 0),
        ("endpoint=chat", 2),
        ("endpoint=messages", 0),
        ("outcome=ok", 1),
        ("outcome=failed", 1),
        ("text=NEEDLE", 1),
        ("text=%25", 0),
        ("text=' OR 1=1 --", 0),
        ("key=nokey", 0),
        ("account=default", 2),
    ],
)
async def test_requests_are_filtered(alice_with_requests, query, found):
    page = (await alice_with_requests.get(f"/requests?range=24h&{query}")).text
    assert len(re.findall(r"<tr>\s*<td><a", page)) == found


async def test_pages_of_requests_have_no_gaps_or_repeats(app, alice, send_chat, monkeypatch):
    from tollgate.dashboard.pages import requests

    monkeypatch.setattr(requests, "_PAGE", 3)
    secret = await alice.make_key()
    for number in range(8):
        await app.post(
            "/v1/chat/completions",
            {"model": "sandbox/echo", "messages": [{"role": "user", "content": str(number)}]},
            key=secret,
        )
    await app.services.ledger.settle()
    seen, path, pages = [], "/requests?range=24h", 0
    while path and pages < 9:
        page = (await alice.get(path)).text
        seen += re.findall(r"/requests/(req_\w+)", page)
        older = re.search(
            r'href="/dashboard([^"]*)" rel="next"|rel="next" href="/dashboard([^"]*)"', page
        ) or re.search(r'<a class="button" rel="next" href="/dashboard([^"]*)"', page)
        path = older and (older[1] or older[2]).replace("&amp;", "&")
        pages += 1
    assert len(seen) == len(set(seen)) == 8 and pages == 3


async def test_the_page_of_a_request_shows_its_conversion_its_losses_and_its_price(app, alice, send_chat):
    from tollgate.ledger import UsageRow

    row = UsageRow(
        "req_lossy",
        "alice",
        "key_1",
        "chat",
        client_protocol="chat",
        upstream_protocol="messages",
        lost="logit_bias; seed",
        cost=Decimal("0.0123"),
        prices='{"prompt":"3","completion":"15","unit":1000000,"currency":"USD"}',
        input_tokens=100,
        output_tokens=20,
        model="acme/large",
        provider="acme",
    )
    await app.services.ledger.record(row)
    await app.services.ledger.settle()
    page = text_of(await alice.get("/requests/req_lossy"))
    assert (
        "converted to messages" in page
        and "logit_bias" in page
        and "seed" in page
        and "$0.0123" in page
        and "completion 15" in page
    )
    assert "provider_cost" not in page and "earlier_attempts" not in page


async def test_a_rejected_request_lost_nothing_and_its_foreign_price_is_shown(app, alice):
    from tollgate.ledger import UsageRow

    await app.services.ledger.record(
        UsageRow(
            "req_strict",
            "alice",
            "key_1",
            "chat",
            client_protocol="chat",
            upstream_protocol="messages",
            lost="seed",
            status=400,
            outcome="rejected",
            error_code="cannot_convert",
            currency="CNY",
            rate=Decimal("0.14"),
            native_cost=Decimal(0),
            prices='{"prompt":"7","currency":"CNY"}',
        )
    )
    await app.services.ledger.settle()
    page = text_of(await alice.get("/requests/req_strict"))
    assert "so the request was refused" in page and "were left out" not in page
    assert "0 CNY, at 0.14 USD for 1 CNY." in page and "0E-12" not in page


async def test_a_failed_stream_is_not_shown_as_200(app, alice):
    from tollgate.ledger import UsageRow

    await app.services.ledger.record(
        UsageRow(
            "req_cut", "alice", "key_1", "chat", status=200, outcome="upstream_error", error_code="upstream_failed"
        )
    )
    await app.services.ledger.settle()
    assert '<span class="tag bad" title="upstream_failed">failed</span>' in (await alice.get("/requests")).text


async def test_the_images_page_does_not_reload_itself_while_images_are_made(app, alice):
    key = await alice.make_key(name="k")
    assert (
        await app.post(
            "/v1/images/generations", {"model": "sandbox/draw", "input": {"prompt": "slow [[duration=20s]]"}}, key=key
        )
    ).status_code == 200
    page = await alice.get("/images")
    assert "In progress" in text_of(page) and "Refresh" in text_of(page) and "http-equiv" not in page.text


@pytest.mark.parametrize("position", ["99999999999999999-1", "1-9999999999999999999", "x-1", "1-x", "\u00b2-1", "-"])
async def test_an_invalid_position_in_the_list_shows_the_first_page(alice_with_requests, position):
    """`alice_with_requests` has sent requests."""
    reply = await alice_with_requests.get(f"/requests?before={position}")
    assert reply.status_code == 200 and "sandbox/echo" in text_of(reply)


async def test_an_unknown_request_is_404(alice):
    assert (await alice.get("/requests/req_nothing?at=9999999999999999-1")).status_code == 404


async def test_usage_is_downloaded_as_csv_and_parquet(alice, send_chat, tmp_path):
    secret = await alice.make_key(name="laptop")
    for _ in range(3):
        await send_chat(secret)
    table = await alice.get("/usage/download.csv?range=24h")
    assert table.headers["content-disposition"] == 'attachment; filename="tollgate-usage-alice-24h.csv"'
    lines = table.content.decode("utf-8-sig").splitlines()
    assert len(lines) == 4 and lines[0].startswith("request_id,account_id,key_id") and "provider_cost" not in lines[0]
    file = tmp_path / "usage.parquet"
    file.write_bytes((await alice.get("/usage/download.parquet?range=24h")).content)
    [found] = duckdb.execute(f"SELECT count(*), sum(cost), any_value(account_id) FROM '{file}'").fetchall()
    assert found[0] == 3 and found[1] > 0 and found[2] == "alice"
    assert (await alice.get("/usage/download.xlsx")).status_code == 404


async def test_charts_rows_and_downloads_of_a_range_start_at_the_same_time(alice, app):
    """A download used to start exactly 30 days ago, but the chart at that day's midnight, so their sums differed."""
    now = datetime.now(UTC)
    for name, (_, width, count) in RANGES.items():
        [first, *_] = bucket_starts(now, width, count)
        for shown, time in (("in", first + width), ("out", first - timedelta(seconds=1))):
            await app.services.ledger.record(
                UsageRow(
                    f"req_{shown}_{name}",
                    "alice",
                    "key_1",
                    "chat",
                    time=time,
                    model="acme/large",
                    provider=f"p{name}",
                    end_user=shown,
                    cost=Decimal(1),
                )
            )
    await app.services.ledger.settle()
    for name in RANGES:
        query = f"range={name}&provider=p{name}"
        lines = (await alice.get(f"/usage/download.csv?{query}")).content.decode("utf-8-sig").splitlines()
        assert [line.partition(",")[0] for line in lines] == ["request_id", f"req_in_{name}"]
        assert f"req_out_{name}" not in (await alice.get(f"/requests?{query}")).text
        assert re.search(r"\$1\b", text_of(await alice.get(f"/usage?{query}"))), name


async def test_operators_download_every_column_of_all_accounts(operator, alice, send_chat, app):
    await send_chat(app.key)
    await send_chat(await alice.make_key())
    lines = (await operator.get("/operator/usage/download.csv?range=24h")).text.splitlines()
    assert "provider_cost" in lines[0] and len(lines) == 3


async def test_values_below_the_most_expensive_are_summed_exactly(app, alice):
    ledger = app.services.ledger
    for number in range(1, 41):
        row = UsageRow(f"req_{number}", "alice", "key_1", "chat", model=f"acme/m{number}")
        await ledger.record(replace(row, cost=Decimal(number) + Decimal(number).scaleb(-12)))
    await ledger.settle()
    page = text_of(await alice.get("/usage?range=24h"))
    assert "Cost $820.00000000082 " in page
    assert " 34 others " in page
    assert re.search(r" \$40\S* \$39\S* .* \$35\S* \$595\S* ", page), "the chart shows six models, 40 to 35"
    assert re.search(r" 28 others 28 (\S+ )*?\$406\.000000000406 ", page), "the table shows twelve, 40 to 29"


async def test_a_download_has_its_content_type(alice):
    kinds = [(await alice.get(f"/usage/download.{form}")).headers["content-type"] for form in ("csv", "parquet")]
    assert kinds == ["text/csv; charset=utf-8", "application/vnd.apache.parquet"]


async def test_credits_are_exact(app, alice, send_chat):
    await send_chat(await alice.make_key())
    spent = await spent_by(app.services.ledger, "alice")
    page = text_of(await alice.get("/credits"))
    assert f"${Decimal(10) - spent}".rstrip("0").replace(" ", "") in page.replace(" ", "") and "a gift" in page


@pytest.mark.usefixtures("within_one_day")
async def test_the_credits_page_estimates_from_the_previous_seven_days(app, alice):
    ledger, now = app.services.ledger, datetime.now(UTC)
    assert "1 credit is 1 USD" in text_of(await alice.get("/credits")), "nothing spent yet"
    for days, cost in ((0, "1"), (1, "0.7"), (7, "0.7"), (8, "3")):
        row = UsageRow(f"req_{days}", "alice", "key_1", "chat", cost=Decimal(cost), time=now - timedelta(days=days))
        await ledger.record(row)
    await ledger.settle()
    assert "about 23 days at this week’s pace" in text_of(await alice.get("/credits"))
    await ledger.grant("alice", -ledger.balance("alice"), "taken back")
    assert "this week’s pace" not in text_of(await alice.get("/credits"))


async def test_the_catalog_can_be_searched(alice):
    assert "sandbox/reasoner" in text_of(await alice.get("/models"))
    page = text_of(await alice.get("/models?q=echo"))
    assert "sandbox/echo" in page and "sandbox/reasoner" not in page
    assert "No matching models" in text_of(await alice.get("/models?q=nothing+like+it"))
    page = text_of(await alice.get("/models?type=image"))
    assert "sandbox/draw" in page and "sandbox/echo" not in page
    page = text_of(await alice.get("/models?type=nonsense&q=++ECHO+"))
    assert "sandbox/echo" in page and "sandbox/draw" not in page


async def test_the_page_of_a_model_shows_prices_routes_and_an_example(alice):
    page = text_of(await alice.get("/models/sandbox/echo"))
    assert (
        "Prices per million tokens" in page
        and "Input $0.10" in page
        and "in use" in page
        and 'model="sandbox/echo"' in page
    )
    assert (await alice.get("/models/echo")).status_code == 200
    assert "an image" in text_of(await alice.get("/models/sandbox/draw"))
    assert (await alice.get("/models/acme/none")).status_code == 404


async def test_a_try_without_javascript_shows_the_answer_and_is_billed(app, alice):
    key = app.services.ledger.find_key(await alice.make_key())
    reply = await alice.post(
        "/try",
        page="/try",
        key=key.id,
        model="sandbox/echo",
        prompt="good morning",
        system="be kind",
        temperature="0.5",
        max_tokens="50",
    )
    assert reply.status_code == 200 and "You said: good morning" in text_of(reply)
    assert reply.headers["x-request-id"] in text_of(reply)  # finds the row in Requests, as the id that the script shows
    assert await spent_by(app.services.ledger, "alice") > 0


async def test_some_of_many_keys_are_shown_and_all_can_be_found(app, alice):
    assert 'type="search"' not in (await alice.get("/keys")).text
    created = [await app.services.ledger.create_key("alice", f"Bot {number}") for number in range(MOST + 1)]
    oldest = created[0][0].id
    for listed in ("/keys", "/try"):
        page = (await alice.get(listed)).text
        assert oldest not in page and created[-1][0].id in page, listed
    assert f"{MOST} of {MOST + 1} keys" in text_of(await alice.get("/keys"))
    found = (await alice.get("/keys?q=bot%200")).text
    assert oldest in found and created[-1][0].id not in found and 'value="bot 0"' in found
    none = text_of(await alice.get("/keys?q=<none>"))
    assert "No key of this account has <none> in its name." in none
    reply = await alice.post("/try", page="/try", key=oldest, model="sandbox/echo", prompt="hi")
    assert f'value="{oldest}" selected' in reply.text and "You said: hi" in text_of(reply)


async def test_try_offers_only_chat_models_and_users_cannot_group_by_account(alice, send_chat):
    await send_chat(await alice.make_key())
    page = (await alice.get("/try")).text
    assert ">sandbox/echo</option>" in page and "sandbox/draw" not in page
    page = text_of(await alice.get("/usage?by=account_id"))
    assert "by model" in page and "by account" not in page


async def test_a_try_is_streamed(app, alice):
    key = app.services.ledger.find_key(await alice.make_key())
    reply = await alice.post("/try/stream", page="/try", key=key.id, model="sandbox/echo", prompt="good morning")
    assert (
        reply.headers["content-type"].startswith("text/event-stream")
        and reply.headers["x-tollgate-provider"] == "sandbox"
    )
    assert reply.text.rstrip().endswith("data: [DONE]") and "content-security-policy" in reply.headers
    await app.services.ledger.settle()
    assert reply.headers["x-request-id"] in (await alice.get("/requests")).text
    assert await spent_by(app.services.ledger, "alice") > 0


@pytest.mark.parametrize(
    ("markers", "end"),
    [("[[delay=400ms]]", "data: [DONE]"), ("[[delay=400ms]] [[error=503]]", 'data: {"error":{"message":"')],
    ids=["an answer", "a failure"],
)
async def test_a_silent_try_is_kept_open(tmp_path, markers, end):
    """Proxies cut a stream off that is silent for too long, here as at the API."""
    async with inprocess(tmp_path, settings="server: {keepalive_comment_seconds: 0.05}") as app:
        async with browsers(app) as browser:
            alice = await user(app, browser(), "alice", 10)
            key = app.services.ledger.find_key(await alice.make_key())
            reply = await alice.post(
                "/try/stream", page="/try", key=key.id, model="sandbox/echo", prompt=f"good morning {markers}"
            )
    assert reply.status_code == 200 and reply.text.startswith(": keep-alive\n: keep-alive\n")
    assert reply.text.rstrip().splitlines()[-1].startswith(end)


async def test_a_stopping_gateway_begins_no_try_and_no_image(app, alice):
    key = app.services.ledger.find_key(await alice.make_key())
    once = await alice.field("/images", "once")
    fields = {"key": key.id, "model": "sandbox/echo", "prompt": "hi"}
    app.services.draining = True
    whole = await alice.post("/try", page="/try", **fields)
    streamed = await alice.post("/try/stream", page="/try", **fields)
    drawn = await alice.post("/images", once=once, page="/images", **(fields | {"model": "sandbox/draw"}))
    app.services.draining = False
    assert [each.status_code for each in (whole, streamed, drawn)] == [503] * 3
    assert not await app.services.ledger.generations.pending()


async def test_a_disconnected_try_cancels_the_call_and_frees_its_slot(app, alice):
    secret = await alice.make_key()
    key = await app.services.ledger.update_key(app.services.ledger.find_key(secret).id, max_concurrent=1)
    body = {"model": "sandbox/echo", "stream": True, "messages": [{"role": "user", "content": "[[delay=600s]] hi"}]}
    inbound = Inbound("chat", key, json.dumps(body).encode(), {}, "req_left")
    sent = []

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    async with asyncio.timeout(SECONDS):
        await tryit.Streamed(app.services, inbound)({"type": "http"}, receive, send)
    assert not asyncio.current_task().cancelling(), "the next request on the connection can be served"
    assert not sent
    assert app.services.metrics.requests["chat", CLIENT_LEFT] == 1
    app.services.ledger.occupy(key).leave()
    await app.services.settlements.drain(SECONDS)
    await app.services.ledger.settle()
    page = text_of(await alice.get("/requests/req_left"))
    assert "client_gone" in page or "client gone" in page, page


async def test_a_try_is_503_while_the_ledger_cannot_be_written(app, alice, monkeypatch):
    key = app.services.ledger.find_key(await alice.make_key())
    form = {"key": key.id, "model": "sandbox/echo", "prompt": "hi"}
    page = await alice.get("/try")
    monkeypatch.setattr(app.services.ledger._backend.journal.outage, "reason", "disk full")
    assert page.status_code == 200
    reply = await alice.post("/try/stream", page="/try", **form)
    assert (reply.status_code, reply.json()["error"]["message"]) == (503, "disk full")


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"model": "acme/none"}, 400, "model not found"),
        ({"prompt": " "}, 400, "write something"),
        ({"temperature": "hot"}, 400, "wanted a number"),
        ({"max_tokens": "99999999"}, 400, "wanted 0 to"),
        ({"prompt": "[[error=503]]"}, 500, "overloaded"),
        ({"key": "key_none"}, 404, "choose one of your active keys"),
    ],
)
async def test_a_failed_try_shows_the_reason(app, alice, fields, status, message):
    key = app.services.ledger.find_key(await alice.make_key())
    form = {"key": key.id, "model": "sandbox/echo", "prompt": "hi"} | fields
    whole = await alice.post("/try", page="/try", **form)
    assert whole.status_code == status and message in text_of(whole)
    streamed = await alice.post("/try/stream", page="/try", **form)
    assert message in streamed.json()["error"]["message"]


async def test_tries_are_counted_in_the_metrics_like_requests(app, alice):
    key = app.services.ledger.find_key(await alice.make_key())
    form = {"key": key.id, "model": "sandbox/echo", "prompt": "hi"}
    metrics = app.services.metrics
    before = dict(metrics.requests)
    for place in ("/try", "/try/stream"):
        for more in ({}, {"model": "acme/none"}, {"prompt": ""}):
            await alice.post(place, page="/try", **form | more)
    counted = {counter: number - before.get(counter, 0) for counter, number in metrics.requests.items()}
    assert (counted["chat", 200], counted["chat", 400], metrics.running) == (2, 4, 0)
    assert (metrics.refused["model_not_found"], metrics.refused["invalid_request"]) == (2, 2)


async def test_a_try_that_fails_unexpectedly_is_counted_as_500(app, alice, monkeypatch):
    async def broken(*_, **__):
        raise ValueError("a bug")

    key = app.services.ledger.find_key(await alice.make_key())
    monkeypatch.setattr(tryit, "complete", broken)
    assert (await alice.post("/try", page="/try", key=key.id, model="sandbox/echo", prompt="hi")).status_code == 500
    assert app.services.metrics.requests["chat", 500] == 1


PARTS = [{"type": "thinking", "thinking": [{"type": "text", "text": "so far"}]}, {"type": "text", "text": "so good"}, 7]


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        pytest.param({"message": None, "finish_reason": "content_filter"}, None, id="no message"),
        pytest.param({"message": {"content": PARTS}}, ("so far", "so good"), id="parts"),
        pytest.param({"message": {"content": None, "refusal": "I will not"}}, (None, "I will not"), id="a refusal"),
        pytest.param({"message": {"content": {"a": 1}, "reasoning": ["b"]}}, (None, ""), id="no text"),
    ],
)
async def test_a_try_shows_the_text_of_an_answer_and_its_tokens(tmp_path, message, shown):
    acme = """
provider: acme
speaks: chat
url: app://acme/chat
models: {acme/one: {price: {prompt: "1", completion: "1", unit: 1000000, currency: USD}}}
"""
    usage = {"prompt_tokens": 7, "completion_tokens": 0, "total_tokens": 7}
    body = {"id": "c", "choices": [{"index": 0, **message}], "usage": usage}
    apps = {"acme": replying(body=json.dumps(body).encode())}
    async with inprocess(tmp_path, providers={"acme": acme}, apps=apps) as app, browsers(app) as make:
        alice = await user(app, make(), "alice", 10)
        key = app.services.ledger.find_key(await alice.make_key())
        reply = await alice.post("/try", page="/try", key=key.id, model="acme/one", prompt="hi")
        assert reply.status_code == 200 and "7 tokens in, 0 out" in text_of(reply)
        thought, written = shown or (None, "")
        assert f" data-text>{written}</div>" in reply.text
        assert ("<details data-reasoning>" in reply.text) == (thought is not None)
        assert f" data-reasoning-text>{thought or ''}</div>" in reply.text


async def test_the_rate_limit_of_a_key_applies_to_tries(app, alice):
    key = app.services.ledger.find_key(await alice.make_key(rpm="1"))
    form = {"key": key.id, "model": "sandbox/echo", "prompt": "hi"}
    assert (await alice.post("/try", page="/try", **form)).status_code == 200
    assert (await alice.post("/try", page="/try", **form)).status_code == 429


@pytest.mark.parametrize(
    ("limits", "status", "message"),
    [
        ({"endpoints": "embeddings"}, 403, "this key may not be used for "),
        ({"addresses": "192.0.2.1"}, 403, "this key may not be used from this address"),
        ({"concurrent": "1"}, 429, "Rate limit reached for concurrent requests"),
        ({"concurrent": "2", "addresses": "127.0.0.1", "endpoints": "chat, images"}, 200, ""),
    ],
    ids=["endpoints", "addresses", "concurrent", "within all limits"],
)
async def test_the_restrictions_of_a_key_apply_to_tries_and_images(app, alice, limits, status, message):
    key = app.services.ledger.find_key(await alice.make_key(**limits))
    fields = {"key": key.id, "model": "sandbox/echo", "prompt": "hi"}
    with app.services.ledger.occupy(key) or contextlib.nullcontext():
        whole = await alice.post("/try", page="/try", **fields)
        streamed = await alice.post("/try/stream", page="/try", **fields)
        once = await alice.field("/images", "once")
        drawn = await alice.post("/images", once=once, page="/images", **(fields | {"model": "sandbox/draw"}))
    assert [whole.status_code, streamed.status_code] == [status, status]
    assert drawn.status_code == (303 if status == 200 else status)
    if message:
        assert (
            message in text_of(whole) and message in streamed.json()["error"]["message"] and message in text_of(drawn)
        )
    if key.max_concurrent is not None:
        assert not app.services.ledger.concurrency._running


async def test_no_image_is_begun_while_rows_cannot_be_written(app, alice, monkeypatch):
    """The page called the provider, which must be paid, for a job that could not be stored."""
    key = app.services.ledger.find_key(await alice.make_key())
    once = await alice.field("/images", "once")
    monkeypatch.setattr(app.services.ledger, "_state", "without room on its disk")
    begun = []
    monkeypatch.setattr("tollgate.images.runner.Jobs.create", lambda jobs, order: begun.append(order))
    done = await alice.post("/images", once=once, key=key.id, model="sandbox/paint", prompt="a red fox")
    assert (done.status_code, begun) == (503, [])


async def test_the_image_form_lists_the_models_of_ones_keys(tmp_path):
    """It listed the models that everybody sees without a key."""
    pictures = SANDBOX_IMAGES.replace("  sandbox/paint:\n", "  sandbox/paint:\n    public: false\n")
    assert pictures != SANDBOX_IMAGES
    async with inprocess(tmp_path, providers={"sandbox-images": pictures}) as app, browsers(app) as browser:
        alice = await user(app, browser(), "alice", 10)
        for globs, listed in (("sandbox/paint", {"sandbox/paint"}), ("sandbox/*", {"sandbox/draw", "sandbox/paint"})):
            await alice.make_key(models=globs)
            page = (await alice.get("/images")).text
            assert set(re.findall(r'<option value="(sandbox/[a-z]+)"', page)) == listed


async def test_images_are_created_and_shown(app, alice):
    key = app.services.ledger.find_key(await alice.make_key())
    done = await alice.post(
        "/images",
        once=await alice.field("/images", "once"),
        key=key.id,
        model="sandbox/paint",
        prompt="a red fox",
        input='{"n": 2}',
    )
    assert done.status_code == 303, text_of(done)
    path = done.headers["location"].removeprefix("/dashboard")
    for _ in range(100):
        page = await alice.get(path)
        if "succeeded" in text_of(page):
            break
    assert page.text.count("<img") == 2 and "a red fox" in page.text
    assert "a red fox" in text_of(await alice.get("/images"))


async def test_an_image_form_sent_twice_creates_one_job(app, alice):
    key = app.services.ledger.find_key(await alice.make_key())
    fields = {"once": await alice.field("/images", "once"), "key": key.id, "model": "sandbox/draw", "prompt": "a fox"}
    first, second = [await alice.post("/images", **fields) for _ in range(2)]
    none = await alice.post("/images", **(fields | {"once": ""}))
    assert re.fullmatch(r"/dashboard/images/[0-9a-f-]{36}", first.headers["location"])
    assert second.headers["location"] == none.headers["location"] == "/dashboard/images?done=again"
    assert [job.id for job in await app.services.ledger.generations.pending()] == [first.headers["location"][-36:]]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"input": "{"}, "not valid JSON"),
        ({"input": "[1]"}, "no JSON object"),
        ({"model": "acme/none"}, "model not found"),
        ({"input": '{"n": 99}'}, "n "),
    ],
)
async def test_an_invalid_image_form_shows_the_reason(app, alice, fields, message):
    key = app.services.ledger.find_key(await alice.make_key())
    reply = await alice.post(
        "/images",
        **(
            {"once": await alice.field("/images", "once"), "key": key.id, "model": "sandbox/paint", "prompt": "a fox"}
            | fields
        ),
    )
    assert reply.status_code == 400 and message in text_of(reply)


async def test_an_unknown_image_is_404(alice):
    for path in (
        "/images/nonsense",
        "/images/00000000-0000-4000-8000-000000000000",
        "/images/nonsense/0",
        "/images/nonsense/" + "9" * 5000,  # more digits than Python converts to an integer
    ):
        assert (await alice.get(path)).status_code == 404


async def test_a_parquet_download_leaves_no_file_behind(alice, send_chat, monkeypatch, tmp_path):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    await send_chat(await alice.make_key())
    content = (await alice.get("/usage/download.parquet?range=24h")).content
    assert io.BytesIO(content).read(4) == b"PAR1" and not list((tmp_path / "tmp").iterdir())


async def test_a_download_with_an_invalid_range_leaves_no_file_behind(alice, send_chat, monkeypatch, tmp_path):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    await send_chat(await alice.make_key())
    replies = [await alice.get("/usage/download.csv?range=24h", range=part) for part in ("bytes=9999999-", "bytes=x")]
    assert [reply.status_code for reply in replies] == [416, 400]
    assert not list((tmp_path / "tmp").iterdir())


async def test_a_download_of_a_disconnected_browser_leaves_no_file_behind(tmp_path):
    async def gone(message):
        raise OSError("connection lost")

    (tmp_path / "usage.csv").write_text("request_id")
    download = Download(tmp_path / "usage.csv", filename="usage.csv")
    with pytest.raises(OSError, match="connection lost"):
        await download({"type": "http", "method": "GET", "headers": [], "asgi": {"spec_version": "2.4"}}, None, gone)
    assert not list(tmp_path.iterdir())
