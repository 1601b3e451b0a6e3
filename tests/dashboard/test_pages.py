"""What the pages say and do, for the account that is signed in."""

from __future__ import annotations

import asyncio
import contextlib
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
from support.stores import spent_by
from tollgate.dashboard.key_list import MOST
from tollgate.dashboard.pages import tryit
from tollgate.dashboard.pages.usage import RANGES, Download
from tollgate.dashboard.usage_report import bucket_starts
from tollgate.ledger import KEY_ENDPOINTS, UsageRow
from tollgate.services import Inbound

from .browser import text_of
from .conftest import asking, browsers, gateway, user


async def test_a_new_account_is_told_how_to_begin(alice):
    assert "Make a key first" in text_of(await alice.get())
    await alice.make_key(name="laptop")
    page = text_of(await alice.get())
    assert "Send a first request" in page and 'model="sandbox/echo"' in page and "http://127.0.0.1:8787/v1" in page


async def test_who_has_no_credits_is_told_before_the_first_request(here, alice):
    assert "Requests are refused" not in text_of(await alice.get())
    await here.services.ledger.grant("alice", Decimal("-9.995"), "")
    assert "Requests are refused below 0.01 credits." in text_of(await alice.get())


async def test_a_key_is_shown_once(here, alice):
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
    key = here.services.ledger.find_key(secret)
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


async def test_sending_the_key_form_again_makes_no_second_key(here, alice):
    once = await alice.field("/keys", "once")
    await alice.post("/keys", once=once, name="laptop")
    again = await alice.post("/keys", once=once, name="laptop")
    assert again.status_code == 303 and len(await here.services.ledger.list_keys("alice")) == 1
    assert "nothing was done twice" in text_of(await alice.get("/keys?done=again"))


@pytest.mark.parametrize(
    ("field", "said", "told"),
    [
        ("expires", "soon", "wanted a span such as 30d"),
        ("expires", "2020-01-01", "which is over already"),
        ("cap", "lots", "no exact decimal"),
        ("cap", "-1", "wanted 0 or more"),
        ("rpm", "1.5", "wanted a whole number from 1"),
        ("tpm", "0", "wanted a whole number from 1"),
        ("concurrent", "0", "wanted a whole number from 1"),
        ("endpoints", "models", "wanted all, or some of chat"),
        ("addresses", "10.1.2.3/8", "that network is 10.0.0.0/8"),
        ("window", "hour", "wanted one of day, week, month, total"),
        ("name", "x" * 101, "wanted at most 100"),
    ],
)
async def test_a_wrong_key_form_says_why_and_keeps_what_was_typed(here, alice, field, said, told):
    reply = await alice.post("/keys", once=await alice.field("/keys", "once"), **{"name": "laptop", field: said})
    assert reply.status_code == 400 and told in text_of(reply) and said in reply.text
    # where the browser goes
    assert field == "window" or re.search(rf'<input id="{field}"[^>]* aria-invalid="true" autofocus', reply.text)
    assert not await here.services.ledger.list_keys("alice")


async def test_a_list_of_models_is_no_markup(here, alice):
    made = await alice.post("/keys", once=await alice.field("/keys", "once"), models="<b>x</b>")
    assert "<b>x</b>" not in made.text and "&lt;b&gt;x&lt;/b&gt;" in made.text


@pytest.mark.parametrize(
    ("models", "useless"),
    [("echo", True), ("sandbox/ech", True), ("!*", True), ("sandbox/*", False), ("none", False), ("", False)],
)
async def test_a_key_whose_models_are_none_of_the_catalog_is_told(here, alice, models, useless):
    made = await alice.post("/keys", once=await alice.field("/keys", "once"), models=models)
    assert ("this key can use none now" in text_of(made)) is useless
    [key] = await here.services.ledger.list_keys("alice")
    assert ("this key can use none now" in text_of(await alice.get(f"/keys/{key.id}"))) is useless


@pytest.mark.parametrize(
    ("models", "shown", "kept"),
    [
        ("sandbox/*, !sandbox/draw", "sandbox/*, !sandbox/draw", ("sandbox/*", "!sandbox/draw")),
        ("none", "none", ()),
        ("", "all", None),
    ],
    ids=["some", "none", "all"],
)
async def test_a_key_s_form_sent_as_it_is_shown_leaves_the_key_its_models(here, alice, models, shown, kept):
    key = here.services.ledger.find_key(await alice.make_key(models=models))
    page = (await alice.get(f"/keys/{key.id}")).text
    typed = dict(re.findall(r'<input[^>]* name="(?!form_token)(\w+)" value="([^"]*)"', page))
    assert typed["models"] == shown
    assert (await alice.post(f"/keys/{key.id}", **typed)).status_code == 303
    assert (await here.services.ledger.get_key(key.id)).allowed_models == kept


async def test_a_key_s_form_sent_as_it_is_shown_leaves_the_key_its_limits(here, alice):
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
    key = here.services.ledger.find_key(secret)
    page = (await alice.get(f"/keys/{key.id}")).text
    typed = dict(re.findall(r'<input[^>]* name="(?!form_token)(\w+)" value="([^"]*)"', page))
    typed.pop("strict")
    assert (await alice.post(f"/keys/{key.id}", **(typed | {"window": "month"}))).status_code == 303
    assert here.services.ledger.find_key(secret) == key


async def test_a_wrong_form_for_a_key_says_why_and_changes_nothing(here, alice):
    key = here.services.ledger.find_key(await alice.make_key(name="laptop", rpm="5"))
    reply = await alice.post(f"/keys/{key.id}", page=f"/keys/{key.id}", name="desk", rpm="many")
    assert reply.status_code == 400 and "many" in reply.text and 'value="desk"' in reply.text
    assert await here.services.ledger.get_key(key.id) == key


async def test_limits_of_a_key_are_changed_and_kept(here, alice):
    secret = await alice.make_key(name="laptop", expires="30d", cap="2")
    key = here.services.ledger.find_key(secret)
    page = (await alice.get(f"/keys/{key.id}")).text
    typed = dict(re.findall(r'<input[^>]* name="(?!form_token)(\w+)" value="([^"]*)"', page))
    typed.pop("strict")
    assert typed["cap"] == "2" and typed["models"] == "all"
    done = await alice.post(f"/keys/{key.id}", **(typed | {"rpm": "5", "window": "day"}))
    assert done.status_code == 303
    changed = here.services.ledger.find_key(secret)
    assert (changed.rpm, changed.cap_window, changed.spend_cap) == (5, "day", Decimal(2))
    assert abs((changed.expires_at - key.expires_at).total_seconds()) < 60


async def test_what_a_key_is_held_to_is_shown_as_it_was_typed(here, alice):
    secret = await alice.make_key(concurrent="2", endpoints="mcp, chat", addresses="192.0.2.1/32 ::ffff:10.0.0.0/104")
    key = here.services.ledger.find_key(secret)
    assert (key.max_concurrent, key.endpoints, key.allowed_addresses) == (
        2,
        ("chat", "mcp"),
        ("192.0.2.1", "10.0.0.0/8"),
    )
    assert "2 at once, chat and mcp only, from 192.0.2.1 and 1 more" in text_of(await alice.get("/keys"))
    page = await alice.get(f"/keys/{key.id}")
    for field, typed in (("concurrent", "2"), ("endpoints", "chat, mcp"), ("addresses", "192.0.2.1, 10.0.0.0/8")):
        assert re.search(rf'<input id="{field}"[^>]* value="{typed}"', page.text), field
    assert ", ".join(KEY_ENDPOINTS) in text_of(page), "the page names them all"
    await alice.post(f"/keys/{key.id}", addresses="all", endpoints="", concurrent="")
    assert not here.services.ledger.find_key(secret).restricted


async def test_a_key_that_spent_its_cap_is_marked(here, alice, operator, ask):
    secret = await alice.make_key(name="small", cap="0.0000001")
    assert "cap used up" not in text_of(await alice.get("/keys"))
    await ask(secret)
    [key] = await here.services.ledger.list_keys("alice")
    for page in (
        await alice.get("/keys"),
        await alice.get(f"/keys/{key.id}"),
        await operator.get("/operator/accounts/alice"),
    ):
        assert "active cap used up" in text_of(page)


async def test_a_revoked_key_is_refused_and_stays_listed(here, alice, ask):
    secret = await alice.make_key(name="laptop")
    assert (await ask(secret)).status_code == 200
    key = here.services.ledger.find_key(secret)
    assert (await alice.post(f"/keys/{key.id}/revoke")).status_code == 303
    refused = await ask(secret)
    assert refused.status_code == 401 and refused.json()["error"]["code"] == "invalid_api_key"
    assert "laptop" in text_of(await alice.get("/keys")) and "revoked" in text_of(await alice.get("/keys"))


async def test_usage_shows_what_was_used(alice, ask):
    secret = await alice.make_key(name="laptop")
    for _ in range(3):
        await ask(secret)
    await ask(secret, "[[error=503]]")
    page = await alice.get("/usage?range=1h")
    said = text_of(page)
    assert "4 1 failed, 25%" in said and "sandbox/echo" in said and "laptop" in said
    assert page.text.count('role="img"') == 4
    assert '<rect class="s0"' in page.text


async def test_what_was_written_to_caches_is_a_column_where_something_was(alice, ask):
    secret = await alice.make_key()
    await ask(secret)
    assert "Cache read Output" in text_of(await alice.get("/usage?range=1h"))
    await ask(secret, "[[prompt-tokens=9000]] [[cache-write-tokens=7654]]")
    said = text_of(await alice.get("/usage?range=1h"))
    assert re.search(r"Cache read Cache write Output .*? sandbox/echo 2 0 1.4k 0 7.7k ", said)


async def test_a_single_value_beyond_the_dearest_is_one_other(here, alice):
    for number in range(1, 8):
        await here.services.ledger.record(
            UsageRow(f"req_{number}", "alice", "key_1", "chat", model=f"acme/m{number}", cost=Decimal(number))
        )
    await here.services.ledger.settle()
    assert " 1 other " in text_of(await alice.get("/usage?range=24h"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def asked(tmp_path_factory):
    """Alice at a gateway where one request of hers was answered and one failed; who only looks can share it."""
    async with gateway(tmp_path_factory.mktemp("asked")) as here, browsers(here) as make:
        alice = await user(here, make(), "alice", 10)
        secret = await alice.make_key()
        await asking(here)(secret, user="needle-7")
        await asking(here)(secret, "[[error=503]]")
        yield alice


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("range", ["1h", "24h", "7d", "30d", "90d", "nonsense"])
async def test_every_range_works(asked, range):
    assert "sandbox/echo" in text_of(await asked.get(f"/usage?range={range}"))


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
async def test_requests_are_filtered(asked, query, found):
    page = (await asked.get(f"/requests?range=24h&{query}")).text
    assert len(re.findall(r"<tr>\s*<td><a", page)) == found


async def test_requests_are_paged_without_gaps_or_repeats(here, alice, ask, monkeypatch):
    from tollgate.dashboard.pages import requests

    monkeypatch.setattr(requests, "_PAGE", 3)
    secret = await alice.make_key()
    for number in range(8):
        await here.post(
            "/v1/chat/completions",
            {"model": "sandbox/echo", "messages": [{"role": "user", "content": str(number)}]},
            key=secret,
        )
    await here.services.ledger.settle()
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


async def test_one_request_shows_its_way_its_losses_and_its_row(here, alice, ask):
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
    await here.services.ledger.record(row)
    await here.services.ledger.settle()
    said = text_of(await alice.get("/requests/req_lossy"))
    assert (
        "converted to messages" in said
        and "logit_bias" in said
        and "seed" in said
        and "$0.0123" in said
        and "completion 15" in said
    )
    assert "provider_cost" not in said and "earlier_attempts" not in said


async def test_a_refused_request_lost_nothing_and_a_foreign_price_is_written_out(here, alice):
    from tollgate.ledger import UsageRow

    await here.services.ledger.record(
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
    await here.services.ledger.settle()
    said = text_of(await alice.get("/requests/req_strict"))
    assert "so the request was refused" in said and "were left out" not in said
    assert "0 CNY, at 0.14 USD for 1 CNY." in said and "0E-12" not in said


async def test_a_stream_that_failed_is_not_shown_as_a_200(here, alice):
    from tollgate.ledger import UsageRow

    await here.services.ledger.record(
        UsageRow(
            "req_cut", "alice", "key_1", "chat", status=200, outcome="upstream_error", error_code="upstream_failed"
        )
    )
    await here.services.ledger.settle()
    assert '<span class="tag bad" title="upstream_failed">failed</span>' in (await alice.get("/requests")).text


async def test_a_typed_prompt_is_not_lost_while_pictures_are_made(here, alice):
    key = await alice.make_key(name="k")
    assert (
        await here.post(
            "/v1/images/generations", {"model": "sandbox/draw", "input": {"prompt": "slow [[duration=20s]]"}}, key=key
        )
    ).status_code == 200
    page = await alice.get("/images")
    assert "Being made" in text_of(page) and "Look again" in text_of(page) and "http-equiv" not in page.text


@pytest.mark.parametrize("said", ["99999999999999999-1", "1-9999999999999999999", "x-1", "1-x", "\u00b2-1", "-"])
async def test_a_place_among_requests_that_is_none_is_the_first_page(asked, said):
    """`asked` has made requests."""
    reply = await asked.get(f"/requests?before={said}")
    assert reply.status_code == 200 and "sandbox/echo" in text_of(reply)


async def test_an_unknown_request_is_not_found(alice):
    assert (await alice.get("/requests/req_nothing?at=9999999999999999-1")).status_code == 404


async def test_usage_is_downloaded_as_csv_and_parquet(alice, ask, tmp_path):
    secret = await alice.make_key(name="laptop")
    for _ in range(3):
        await ask(secret)
    table = await alice.get("/usage/download.csv?range=24h")
    assert table.headers["content-disposition"] == 'attachment; filename="tollgate-usage-alice-24h.csv"'
    lines = table.text.splitlines()
    assert len(lines) == 4 and lines[0].startswith("request_id,account_id,key_id") and "provider_cost" not in lines[0]
    file = tmp_path / "usage.parquet"
    file.write_bytes((await alice.get("/usage/download.parquet?range=24h")).content)
    [found] = duckdb.execute(f"SELECT count(*), sum(cost), any_value(account_id) FROM '{file}'").fetchall()
    assert found[0] == 3 and found[1] > 0 and found[2] == "alice"
    assert (await alice.get("/usage/download.xlsx")).status_code == 404


async def test_charts_rows_and_downloads_of_a_range_begin_at_the_same_moment(alice, here):
    """A download began exactly 30 days ago, the first column at its midnight: the sums were not the same."""
    now = datetime.now(UTC)
    for name, (_, width, count) in RANGES.items():
        [first, *_] = bucket_starts(now, width, count)
        for shown, time in (("in", first + width), ("out", first - timedelta(seconds=1))):
            await here.services.ledger.record(
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
    await here.services.ledger.settle()
    for name in RANGES:
        query = f"range={name}&provider=p{name}"
        lines = (await alice.get(f"/usage/download.csv?{query}")).text.splitlines()
        assert [line.partition(",")[0] for line in lines] == ["request_id", f"req_in_{name}"]
        assert f"req_out_{name}" not in (await alice.get(f"/requests?{query}")).text
        assert re.search(r"\$1\b", text_of(await alice.get(f"/usage?{query}"))), name


async def test_operators_download_every_column_of_everybody(operator, alice, ask, here):
    await ask(here.key)
    await ask(await alice.make_key())
    lines = (await operator.get("/operator/usage/download.csv?range=24h")).text.splitlines()
    assert "provider_cost" in lines[0] and len(lines) == 3


async def test_what_stands_beyond_the_dearest_of_a_list_is_shown_together_to_the_last_digit(here, alice):
    ledger = here.services.ledger
    for number in range(1, 41):
        row = UsageRow(f"req_{number}", "alice", "key_1", "chat", model=f"acme/m{number}")
        await ledger.record(replace(row, cost=Decimal(number) + Decimal(number).scaleb(-12)))
    await ledger.settle()
    said = text_of(await alice.get("/usage?range=24h"))
    assert "Cost $820.00000000082 " in said
    assert " 34 others " in said
    assert re.search(r" \$40\S* \$39\S* .* \$35\S* \$595\S* ", said), "the chart has six, 40 to 35"
    assert re.search(r" 28 others 28 (\S+ )*?\$406\.000000000406 ", said), "the table twelve, 40 to 29"


async def test_a_download_says_what_it_is(alice):
    kinds = [(await alice.get(f"/usage/download.{form}")).headers["content-type"] for form in ("csv", "parquet")]
    assert kinds == ["text/csv; charset=utf-8", "application/vnd.apache.parquet"]


async def test_credits_are_exact(here, alice, ask):
    await ask(await alice.make_key())
    spent = await spent_by(here.services.ledger, "alice")
    said = text_of(await alice.get("/credits"))
    assert f"${Decimal(10) - spent}".rstrip("0").replace(" ", "") in said.replace(" ", "") and "a gift" in said


async def test_credits_say_how_long_they_last_at_the_pace_of_the_seven_days_before_today(here, alice):
    ledger, now = here.services.ledger, datetime.now(UTC)
    assert "1 credit is 1 USD" in text_of(await alice.get("/credits")), "nothing was spent yet"
    for days, cost in ((0, "1"), (1, "0.7"), (7, "0.7"), (8, "3")):
        row = UsageRow(f"req_{days}", "alice", "key_1", "chat", cost=Decimal(cost), time=now - timedelta(days=days))
        await ledger.record(row)
    await ledger.settle()
    assert "about 23 days at this week’s pace" in text_of(await alice.get("/credits"))
    await ledger.grant("alice", -ledger.balance("alice"), "taken back")
    assert "this week’s pace" not in text_of(await alice.get("/credits"))


async def test_the_catalog_is_searched(alice):
    assert "sandbox/reasoner" in text_of(await alice.get("/models"))
    page = text_of(await alice.get("/models?q=echo"))
    assert "sandbox/echo" in page and "sandbox/reasoner" not in page
    assert "No model fits" in text_of(await alice.get("/models?q=nothing+like+it"))
    page = text_of(await alice.get("/models?type=image"))
    assert "sandbox/draw" in page and "sandbox/echo" not in page
    page = text_of(await alice.get("/models?type=nonsense&q=++ECHO+"))
    assert "sandbox/echo" in page and "sandbox/draw" not in page


async def test_a_model_shows_prices_routes_and_an_example(alice):
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


async def test_a_try_without_scripts_answers_on_the_page_and_is_billed(here, alice):
    key = here.services.ledger.find_key(await alice.make_key())
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
    assert await spent_by(here.services.ledger, "alice") > 0


async def test_of_many_keys_some_are_shown_and_all_are_found(here, alice):
    assert 'type="search"' not in (await alice.get("/keys")).text
    made = [await here.services.ledger.create_key("alice", f"Bot {number}") for number in range(MOST + 1)]
    oldest = made[0][0].id
    for listed in ("/keys", "/try"):
        page = (await alice.get(listed)).text
        assert oldest not in page and made[-1][0].id in page, listed
    assert f"{MOST} of {MOST + 1} keys" in text_of(await alice.get("/keys"))
    found = (await alice.get("/keys?q=bot%200")).text
    assert oldest in found and made[-1][0].id not in found and 'value="bot 0"' in found
    none = text_of(await alice.get("/keys?q=<none>"))
    assert "No key of this account has <none> in its name." in none
    tried = await alice.post("/try", page="/try", key=oldest, model="sandbox/echo", prompt="hi")
    assert f'value="{oldest}" selected' in tried.text and "You said: hi" in text_of(tried)


async def test_a_try_offers_models_that_talk_and_usage_no_other_accounts(alice, ask):
    await ask(await alice.make_key())
    page = (await alice.get("/try")).text
    assert ">sandbox/echo</option>" in page and "sandbox/draw" not in page
    page = text_of(await alice.get("/usage?by=account_id"))
    assert "by model" in page and "by account" not in page


async def test_a_try_streams(here, alice):
    key = here.services.ledger.find_key(await alice.make_key())
    reply = await alice.post("/try/stream", page="/try", key=key.id, model="sandbox/echo", prompt="good morning")
    assert (
        reply.headers["content-type"].startswith("text/event-stream")
        and reply.headers["x-tollgate-provider"] == "sandbox"
    )
    assert reply.text.rstrip().endswith("data: [DONE]") and "content-security-policy" in reply.headers
    await here.services.ledger.settle()
    assert reply.headers["x-request-id"] in (await alice.get("/requests")).text
    assert await spent_by(here.services.ledger, "alice") > 0


async def test_a_browser_that_leaves_a_try_cancels_the_call_and_leaves_its_slot(here, alice):
    secret = await alice.make_key()
    key = await here.services.ledger.update_key(here.services.ledger.find_key(secret).id, max_concurrent=1)
    body = {"model": "sandbox/echo", "stream": True, "messages": [{"role": "user", "content": "[[delay=60s]] hi"}]}
    inbound = Inbound("chat", key, json.dumps(body).encode(), {}, "req_left")
    sent = []

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    async with asyncio.timeout(20):
        await tryit.Streamed(here.services, inbound)({"type": "http"}, receive, send)
    assert not asyncio.current_task().cancelling(), "the next request on the connection is answered"
    assert not sent
    here.services.ledger.occupy(key).leave()
    await here.services.settlements.drain(20)
    await here.services.ledger.settle()
    page = text_of(await alice.get("/requests/req_left"))
    assert "client_gone" in page or "client gone" in page, page


async def test_a_try_is_refused_while_the_ledger_cannot_be_written(here, alice, monkeypatch):
    key = here.services.ledger.find_key(await alice.make_key())
    form = {"key": key.id, "model": "sandbox/echo", "prompt": "hi"}
    page = await alice.get("/try")
    monkeypatch.setattr(here.services.ledger._backend.journal.outage, "reason", "disk full")
    assert page.status_code == 200
    reply = await alice.post("/try/stream", page="/try", **form)
    assert (reply.status_code, reply.json()["error"]["message"]) == (503, "disk full")


@pytest.mark.parametrize(
    ("fields", "status", "told"),
    [
        ({"model": "acme/none"}, 400, "model not found"),
        ({"prompt": " "}, 400, "write something"),
        ({"temperature": "hot"}, 400, "wanted a number"),
        ({"max_tokens": "99999999"}, 400, "wanted 0 to"),
        ({"prompt": "[[error=503]]"}, 500, "overloaded"),
        ({"key": "key_none"}, 404, "choose one of your active keys"),
    ],
)
async def test_a_try_that_fails_says_why(here, alice, fields, status, told):
    key = here.services.ledger.find_key(await alice.make_key())
    form = {"key": key.id, "model": "sandbox/echo", "prompt": "hi"} | fields
    whole = await alice.post("/try", page="/try", **form)
    assert whole.status_code == status and told in text_of(whole)
    streamed = await alice.post("/try/stream", page="/try", **form)
    assert told in streamed.json()["error"]["message"]


PARTS = [{"type": "thinking", "thinking": [{"type": "text", "text": "so far"}]}, {"type": "text", "text": "so good"}, 7]


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        pytest.param({"message": None, "finish_reason": "content_filter"}, None, id="no message"),
        pytest.param({"message": {"content": PARTS}}, ("so far", "so good"), id="parts"),
        pytest.param({"message": {"content": None, "refusal": "I will not"}}, (None, "I will not"), id="a refusal"),
        pytest.param({"message": {"content": {"a": 1}, "reasoning": ["b"]}}, (None, ""), id="what is no text"),
    ],
)
async def test_a_try_shows_what_is_text_of_an_answer_and_what_it_cost(tmp_path, message, shown):
    acme = """
provider: acme
speaks: chat
url: app://acme/chat
models: {acme/one: {price: {prompt: "1", completion: "1", unit: 1000000, currency: USD}}}
"""
    usage = {"prompt_tokens": 7, "completion_tokens": 0, "total_tokens": 7}
    body = {"id": "c", "choices": [{"index": 0, **message}], "usage": usage}
    apps = {"acme": replying(body=json.dumps(body).encode())}
    async with inprocess(tmp_path, providers={"acme": acme}, apps=apps) as here, browsers(here) as make:
        alice = await user(here, make(), "alice", 10)
        key = here.services.ledger.find_key(await alice.make_key())
        reply = await alice.post("/try", page="/try", key=key.id, model="acme/one", prompt="hi")
        assert reply.status_code == 200 and "7 tokens in, 0 out" in text_of(reply)
        thought, written = shown or (None, "")
        assert f" data-text>{written}</div>" in reply.text
        assert ("<details data-reasoning>" in reply.text) == (thought is not None)
        assert f" data-reasoning-text>{thought or ''}</div>" in reply.text


async def test_the_limits_of_a_key_hold_for_a_try(here, alice):
    key = here.services.ledger.find_key(await alice.make_key(rpm="1"))
    form = {"key": key.id, "model": "sandbox/echo", "prompt": "hi"}
    assert (await alice.post("/try", page="/try", **form)).status_code == 200
    assert (await alice.post("/try", page="/try", **form)).status_code == 429


@pytest.mark.parametrize(
    ("limits", "status", "told"),
    [
        ({"endpoints": "embeddings"}, 403, "this key may not be used for "),
        ({"addresses": "192.0.2.1"}, 403, "this key may not be used from this address"),
        ({"concurrent": "1"}, 429, "Rate limit reached for concurrent requests"),
        ({"concurrent": "2", "addresses": "127.0.0.1", "endpoints": "chat, images"}, 200, ""),
    ],
    ids=["endpoints", "addresses", "at once", "none in the way"],
)
async def test_what_a_key_is_held_to_holds_for_tries_and_pictures(here, alice, limits, status, told):
    key = here.services.ledger.find_key(await alice.make_key(**limits))
    asked = {"key": key.id, "model": "sandbox/echo", "prompt": "hi"}
    with here.services.ledger.occupy(key) or contextlib.nullcontext():
        whole = await alice.post("/try", page="/try", **asked)
        streamed = await alice.post("/try/stream", page="/try", **asked)
        once = await alice.field("/images", "once")
        drawn = await alice.post("/images", once=once, page="/images", **(asked | {"model": "sandbox/draw"}))
    assert [whole.status_code, streamed.status_code] == [status, status]
    assert drawn.status_code == (303 if status == 200 else status)
    if told:
        assert told in text_of(whole) and told in streamed.json()["error"]["message"] and told in text_of(drawn)
    if key.max_concurrent is not None:
        assert not here.services.ledger.concurrency._running


async def test_a_picture_is_made_and_hung(here, alice):
    key = here.services.ledger.find_key(await alice.make_key())
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


async def test_a_picture_form_that_is_sent_twice_makes_one_job(here, alice):
    key = here.services.ledger.find_key(await alice.make_key())
    fields = {"once": await alice.field("/images", "once"), "key": key.id, "model": "sandbox/draw", "prompt": "a fox"}
    first, second = [await alice.post("/images", **fields) for _ in range(2)]
    none = await alice.post("/images", **(fields | {"once": ""}))
    assert re.fullmatch(r"/dashboard/images/[0-9a-f-]{36}", first.headers["location"])
    assert second.headers["location"] == none.headers["location"] == "/dashboard/images?done=again"
    assert [job.id for job in await here.services.ledger.generations.pending()] == [first.headers["location"][-36:]]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"input": "{"}, "not valid JSON"),
        ({"input": "[1]"}, "no JSON object"),
        ({"model": "acme/none"}, "model not found"),
        ({"input": '{"n": 99}'}, "n "),
    ],
)
async def test_a_wrong_picture_form_says_why(here, alice, fields, told):
    key = here.services.ledger.find_key(await alice.make_key())
    reply = await alice.post(
        "/images",
        **(
            {"once": await alice.field("/images", "once"), "key": key.id, "model": "sandbox/paint", "prompt": "a fox"}
            | fields
        ),
    )
    assert reply.status_code == 400 and told in text_of(reply)


async def test_an_unknown_picture_is_not_found(alice):
    for path in (
        "/images/nonsense",
        "/images/00000000-0000-4000-8000-000000000000",
        "/images/nonsense/0",
        "/images/nonsense/" + "9" * 5000,  # more digits than Python makes a number of
    ):
        assert (await alice.get(path)).status_code == 404


async def test_a_parquet_download_leaves_no_file_behind(alice, ask, monkeypatch, tmp_path):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    await ask(await alice.make_key())
    content = (await alice.get("/usage/download.parquet?range=24h")).content
    assert io.BytesIO(content).read(4) == b"PAR1" and not list((tmp_path / "tmp").iterdir())


async def test_a_download_that_cannot_be_sent_leaves_no_file_behind(alice, ask, monkeypatch, tmp_path):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    await ask(await alice.make_key())
    answers = [await alice.get("/usage/download.csv?range=24h", range=part) for part in ("bytes=9999999-", "bytes=x")]
    assert [answer.status_code for answer in answers] == [416, 400]
    assert not list((tmp_path / "tmp").iterdir())


async def test_a_download_of_a_browser_that_has_left_leaves_no_file_behind(tmp_path):
    async def gone(message):
        raise OSError("connection lost")

    (tmp_path / "usage.csv").write_text("request_id")
    download = Download(tmp_path / "usage.csv", filename="usage.csv")
    with pytest.raises(OSError, match="connection lost"):
        await download({"type": "http", "method": "GET", "headers": [], "asgi": {"spec_version": "2.4"}}, None, gone)
    assert not list(tmp_path.iterdir())
