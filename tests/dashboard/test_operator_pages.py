"""What an operator sees and does."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from tollgate.dashboard import usage_report, usage_sums
from tollgate.dashboard.pages import operator as operator_pages
from tollgate.ledger import Ledger

from .browser import text_of


async def test_an_account_is_created_with_credits(here, operator):
    done = await operator.post("/operator/accounts", id="carol", name="Carol", role="user", credits="12.50")
    assert done.headers["location"] == "/dashboard/operator/accounts/carol?done=made"
    assert here.balance("carol") == Decimal("12.50")
    assert "Carol" in text_of(await operator.get("/operator/accounts"))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"id": "Carol!"}, "wanted lower-case letters"),
        ({"id": "default"}, "exists already"),
        ({"id": "x", "credits": "lots"}, "no exact decimal"),
        ({"id": "x", "credits": "-5"}, "wanted more than 0"),
        ({"id": "x", "credits": "1.2345678901234"}, "13 decimal places"),
        ({"id": "x", "role": "king"}, "wanted user or operator"),
    ],
)
async def test_a_wrong_account_form_says_why(here, operator, fields, told):
    reply = await operator.post("/operator/accounts", **fields)
    assert reply.status_code == 400 and told in text_of(reply)
    assert [account.id for account in await here.services.ledger.list_accounts()] == ["default"]


async def test_every_page_tells_an_operator_that_new_requests_are_refused(operator, alice, monkeypatch):
    assert "are refused" not in text_of(await operator.get("/models"))
    monkeypatch.setattr(Ledger, "not_ready_reason", "the journal cannot be written: No space left on device")
    assert "New requests are refused The journal cannot be written: No space left on device." in " ".join(
        text_of(await operator.get("/models")).split()
    )
    assert "are refused" not in text_of(await alice.get("/models"))


async def test_credits_are_granted_once_and_taken_back(here, operator, alice):
    page = "/operator/accounts/alice"
    once = await operator.field(page, "once")
    for _ in range(2):
        await operator.post(page + "/grant", once=once, amount="5", note="thanks")
    assert here.balance("alice") == Decimal(15)
    await operator.post(page + "/grant", once=await operator.field(page, "once"), amount="-1")
    assert here.balance("alice") == Decimal(14)
    assert "thanks" in text_of(await operator.get(page))
    wrong = await operator.post(page + "/grant", once=await operator.field(page, "once"), amount="0", note="for <May>")
    assert wrong.status_code == 400 and "non-zero" in text_of(wrong)
    assert (
        'name="amount" aria-invalid="true" autofocus value="0"' in wrong.text
        and 'name="note" value="for &lt;May&gt;"' in wrong.text
    ), "what was typed stays"


async def test_a_sign_in_link_for_somebody_else_is_shown_once(operator, alice, browser):
    reply = await operator.post("/operator/accounts/alice/link")
    link = next(word for word in text_of(reply).split() if "/dashboard/link/" in word).partition("/dashboard")[2]
    person = browser()
    await person.post(link, page=link)
    assert "Alice" in text_of(await person.get())
    assert link not in (await operator.get("/operator/accounts/alice")).text


async def test_roles_are_changed_but_not_ones_own(here, operator, alice):
    assert (await operator.post("/operator/accounts/alice/change", name="Alice B.", role="operator")).status_code == 303
    assert (await alice.get("/operator/accounts")).status_code == 200
    assert (await operator.post("/operator/accounts/default/change", name="x", role="user")).status_code == 400
    await alice.post("/operator/accounts/default/change", name="x", role="user")
    assert (await operator.get("/operator/accounts")).status_code == 404


async def test_an_operator_revokes_a_key_of_that_account_only(here, operator, alice):
    secret = await alice.make_key(name="laptop")
    key = here.services.ledger.find_key(secret)
    assert (await operator.post(f"/operator/accounts/default/keys/{key.id}/revoke")).status_code == 404
    assert (await operator.post(f"/operator/accounts/alice/keys/{key.id}/revoke")).status_code == 303
    assert (await here.services.ledger.get_key(key.id)).revoked


async def test_all_usage_is_by_account_too(here, operator, alice, ask):
    await ask(here.key)
    await ask(await alice.make_key())
    page = text_of(await operator.get("/operator/usage?range=24h&by=account_id"))
    assert "Cost by account" in page and "alice" in page and "default" in page
    only = text_of(await operator.get("/operator/requests?range=24h&account=alice"))
    assert "alice" in only and "That is all" in only


async def test_keys_of_one_name_are_told_apart(here, operator, alice, ask):
    secrets = [await alice.make_key(name=name) for name in ("laptop", "laptop", "ci")]
    for secret in (*secrets, here.key):
        await ask(secret)
    one, other = (secret[-4:] for secret in secrets[:2])
    for path in ("/operator/usage?range=24h", "/operator/requests"):
        said = text_of(await operator.get(path))
        assert f" laptop (alice) …{one} " in said and f" laptop (alice) …{other} " in said
        assert " ci (alice) " in said and " first key (default) " in said
    said = text_of(await alice.get("/usage?range=24h"))
    assert f" laptop …{one} " in said and f" laptop …{other} " in said and " ci " in said and "(alice)" not in said


async def test_of_many_accounts_the_first_are_listed_and_any_is_found(here, operator, alice, monkeypatch):
    monkeypatch.setattr(operator_pages, "_MOST", 2)
    await here.services.ledger.create_account("carol", "Caroline & Co")
    await alice.make_key(name="one")
    reply = await operator.get("/operator/accounts")
    assert " 2 of 3 accounts " in text_of(reply) and "/operator/accounts/carol" not in reply.text
    said = text_of(await operator.get("/operator/accounts?q=LINE+%26"))
    assert " carol Caroline & Co user 0 $0" in said and " 1 of 3 accounts " in said and " alice " not in said
    said = text_of(await operator.get("/operator/accounts?q=alice"))
    assert re.search(r" alice .{0,20}user 1 \$10", said), said[100:400]
    assert " 0 of 3 accounts " in text_of(await operator.get("/operator/accounts?q=nobody"))
    monkeypatch.setattr(operator_pages, "_MOST", 3)
    assert 'role="search"' not in (await operator.get("/operator/accounts")).text


async def test_of_many_keys_the_dearest_are_named_and_any_can_be_asked_for(here, operator, alice, ask, monkeypatch):
    for name in ("one", "two", "three"):
        await ask(await alice.make_key(name=name))
    monkeypatch.setattr(usage_sums, "MOST", 2)
    monkeypatch.setattr(usage_report, "_BYTES_A_ROW", 1)
    reply = await operator.get("/operator/usage?range=24h&by=key_id")
    said = text_of(reply)
    assert " 1 other " in said
    assert re.search(r'<input id="f-key" name="key" value="" list="l-key" [^>]*placeholder="all 3; an id">', reply.text)
    assert len(re.findall('<option value="key_', reply.text)) == 2
    assert '<select id="f-account"' in reply.text, "there is one"
    keys = [key.id for key in await here.services.ledger.list_keys("alice")]
    for key in keys:
        assert "Requests 1 " in text_of(await operator.get(f"/operator/usage?range=24h&key={key}"))


async def test_a_damaged_usage_file_is_told_of_and_the_rest_is_shown(here, operator, alice, ask):
    await ask(here.key)
    folder = (
        here.services.runtime.current.gateway.store.usage_directory
        / f"{datetime.now(UTC) - timedelta(hours=30):%Y-%m-%d}"
    )
    folder.mkdir(parents=True)
    (folder / "03.duckdb").write_bytes(b"the disk failed here")
    for page in ("/operator/usage?range=7d", "/operator/requests?range=7d", "/operator/accounts/alice", ""):
        reply = await operator.get(page)
        assert reply.status_code == 200 and f"usage/{folder.name}/03.duckdb is damaged; when it is deleted" in text_of(
            reply
        )
    (folder / "03.duckdb").unlink()
    assert "damaged" not in text_of(await operator.get("/operator/usage?range=7d"))


async def test_failing_routes_and_alarms_are_shown(here, operator, ask):
    health = here.services.health
    for _ in range(3):
        await ask(here.key, "[[error=503]]")
    page = text_of(await operator.get("/operator/providers"))
    assert "resting" in page and "rests" in page and "upstream_failed" in page
    health.failed("sandbox/echo", "sandbox", "upstream_failed", "account suspended", alarm="balance")
    page = text_of(await operator.get("/operator/providers"))
    assert "our balance there is used up" in page and "account suspended" in page
    start = (await operator.get()).text
    assert "a provider refuses us" in start and "the files are wrong" not in start


async def test_providers_in_trouble_come_first_each_with_its_own_routes(tmp_path):
    from support.inprocess import inprocess

    from .browser import Browser

    file = "provider: {0}\nurl: https://{0}.example/v1\nspeaks: chat\nmodels: {{{0}/a: {{}}}}\n"
    names = ("aaa", "bbb", "ccc")
    async with inprocess(tmp_path, providers={name: file.format(name) for name in names}) as here:
        health = here.services.health
        health.succeeded("aaa/a", "aaa")
        for name, times in (("ccc", 5), ("bbb", 9)):
            health.succeeded(f"{name}/a", name)
            for _ in range(times):
                health.failed(f"{name}/a", name, "upstream_failed")
            health.succeeded(f"{name}/a", name)
        health.failed("ccc/a", "ccc", "upstream_failed", retry_after=60)
        text = text_of(await (await Browser(here, here.http).sign_in()).get("/operator/providers"))
    assert re.findall(r"\b(bbb|ccc|aaa|sandbox) (?:chat|chat,)", text)[:3] == ["bbb", "ccc", "aaa"], text
    assert [text.count(f"{name}/a") for name in names] == [1, 1, 1]


async def test_providers_that_are_off_do_not_bury_those_that_are_on(tmp_path):
    from support.inprocess import inprocess

    from .browser import Browser

    waiting = (
        'provider: {0}\nurl: https://{0}.example/v1\nspeaks: chat\nheaders: {{Authorization: "Bearer {{{{ '
        '$secret.KEY_{0} }}}}"}}\nmodels: {{{0}/a: {{}}}}\n'
    )
    async with inprocess(tmp_path, providers={name: waiting.format(name) for name in ("acme", "globex")}) as here:
        page = text_of(await (await Browser(here, here.http).sign_in()).get("/operator/providers"))
    assert (
        page.index("Routes since the start")
        < page.index("2 providers are off, waiting for a secret")
        < page.index("acme secret KEY_acme is not set")
    )


async def test_running_requests_are_seen_and_go_away(here, operator):
    running = asyncio.ensure_future(
        here.post(
            "/v1/chat/completions", {"model": "sandbox/echo", "messages": [{"role": "user", "content": "[[delay=1s]]"}]}
        )
    )
    for _ in range(50):
        await asyncio.sleep(0.02)
        page = text_of(await operator.get("/operator/live"))
        if "waiting" in page:
            break
    assert "sandbox/echo" in page and "first key" in page and "waiting" in page
    await running
    assert "Nothing at this moment." in text_of(await operator.get("/operator/live"))


async def test_a_client_that_leaves_is_not_left_in_the_list(here, operator):
    running = asyncio.ensure_future(
        here.post(
            "/v1/chat/completions", {"model": "sandbox/echo", "messages": [{"role": "user", "content": "[[delay=5s]]"}]}
        )
    )
    await asyncio.sleep(0.1)
    running.cancel()
    for _ in range(100):
        await asyncio.sleep(0.05)  # what was used is counted first
        if not here.services.live:
            break
    assert "Nothing at this moment." in text_of(await operator.get("/operator/live"))


async def test_a_wrong_file_is_shown_with_its_line_and_leaves_the_running_configuration(here, operator, tmp_path):
    (tmp_path / "providers" / "broken.yaml").write_text(
        "provider: broken\nurl: https://x.example/v1\nspeaks: chat\nmodels:\n  broken/a:\n    contxt: 100\n"
    )
    assert (await operator.post("/operator/config/reload")).status_code == 303
    page = await operator.get("/operator/config")
    said = text_of(page)
    assert (
        "The files were changed, and are wrong" in said
        and "contxt: 100" in said
        and "did you mean" in said
        and ":6:5" in said
    )
    assert "<b>^</b>" in page.text and "the files are wrong" in page.text
    (tmp_path / "providers" / "broken.yaml").unlink()
    await operator.post("/operator/config/reload")
    assert "in force" in text_of(await operator.get("/operator/config"))


async def test_the_files_in_force_stand_below_their_folders(here, operator, tmp_path):
    said = text_of(await operator.get("/operator/config"))
    names = sorted(path.name for path in (tmp_path / "providers").glob("*.yaml"))
    assert " ".join([str(tmp_path / "providers"), *names]) in " ".join(said.split())


async def test_a_secret_is_on_no_page(tmp_path):
    from support.inprocess import inprocess

    from .browser import Browser

    provider = (
        'provider: acme\nurl: https://acme.example/v1\nspeaks: chat\nheaders: {Authorization: "Bearer {{ '
        '$secret.ACME_KEY }}"}\nmodels: {acme/a: {upstream: a}}\n'
    )
    async with inprocess(tmp_path, providers={"acme": provider}, environ={"ACME_KEY": "canary-12345678"}) as here:
        person = await Browser(here, here.http).sign_in()
        for path in (
            "",
            "/models/acme/a",
            "/operator/providers",
            "/operator/config",
            "/operator/live",
            "/operator/accounts/default",
        ):
            assert "canary-12345678" not in (await person.get(path)).text
