"""The operator's pages and forms."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from support.waiting import until
from tollgate.dashboard import usage_report, usage_sums
from tollgate.dashboard.pages import operator as operator_pages
from tollgate.ledger import Ledger

from .browser import text_of


async def test_an_account_is_created_with_credits(app, operator):
    done = await operator.post("/operator/accounts", id="carol", name="Carol", role="user", credits="12.50")
    assert done.headers["location"] == "/dashboard/operator/accounts/carol?done=made"
    assert app.balance("carol") == Decimal("12.50")
    assert "Carol" in text_of(await operator.get("/operator/accounts"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": "Carol!"}, "wanted lower-case letters"),
        ({"id": "default"}, "exists already"),
        ({"id": "x", "credits": "lots"}, "no exact decimal"),
        ({"id": "x", "credits": "-5"}, "wanted more than 0"),
        ({"id": "x", "credits": "1.2345678901234"}, "13 decimal places"),
        ({"id": "x", "role": "king"}, "wanted user or operator"),
    ],
)
async def test_an_invalid_account_form_shows_the_reason(app, operator, fields, message):
    reply = await operator.post("/operator/accounts", **fields)
    assert reply.status_code == 400 and message in text_of(reply)
    assert [account.id for account in await app.services.ledger.list_accounts()] == ["default"]


async def test_every_page_shows_operators_that_new_requests_are_rejected(operator, alice, monkeypatch):
    assert "are refused" not in text_of(await operator.get("/models"))
    monkeypatch.setattr(Ledger, "not_ready_reason", "the journal cannot be written: No space left on device")
    assert "New requests are rejected The journal cannot be written: No space left on device." in " ".join(
        text_of(await operator.get("/models")).split()
    )
    assert "are refused" not in text_of(await alice.get("/models"))


async def test_credits_are_granted_once_and_taken_back(app, operator, alice):
    page = "/operator/accounts/alice"
    once = await operator.field(page, "once")
    for _ in range(2):
        await operator.post(page + "/grant", once=once, amount="5", note="thanks")
    assert app.balance("alice") == Decimal(15)
    await operator.post(page + "/grant", once=await operator.field(page, "once"), amount="-1")
    assert app.balance("alice") == Decimal(14)
    assert "thanks" in text_of(await operator.get(page))
    wrong = await operator.post(page + "/grant", once=await operator.field(page, "once"), amount="0", note="for <May>")
    assert wrong.status_code == 400 and "non-zero" in text_of(wrong)
    assert (
        'name="amount" value="0" aria-invalid="true"' in wrong.text
        and 'name="note" value="for &lt;May&gt;"' in wrong.text
    ), "the typed values are kept"


@pytest.mark.parametrize("page", ["/operator/accounts/alice/grant", "/keys"])
async def test_a_form_that_is_refused_while_the_disk_is_full_works_when_it_is_sent_again(
    app, operator, alice, monkeypatch, page
):
    once = await operator.field(page.removesuffix("/grant"), "once")
    ledger = app.services.ledger
    keys = len(await ledger.list_keys())
    outage = ledger._backend.journal.outage
    monkeypatch.setattr(outage, "reason", "disk full")
    assert (await operator.post(page, once=once, amount="5")).status_code == 503
    monkeypatch.setattr(outage, "reason", "")
    assert "again" not in (await operator.post(page, once=once, amount="5")).headers.get("location", "")
    assert (app.balance("alice"), len(await ledger.list_keys())) in ((Decimal(15), keys), (Decimal(10), keys + 1))


async def test_a_sign_in_link_for_another_account_is_shown_once(operator, alice, browser):
    reply = await operator.post("/operator/accounts/alice/link")
    link = next(word for word in text_of(reply).split() if "/dashboard/link/" in word).partition("/dashboard")[2]
    person = browser()
    await person.post(link, page=link)
    assert "Alice" in text_of(await person.get())
    assert link not in (await operator.get("/operator/accounts/alice")).text


async def test_operators_change_other_roles_but_not_their_own(app, operator, alice):
    assert (await operator.post("/operator/accounts/alice/change", name="Alice B.", role="operator")).status_code == 303
    assert (await alice.get("/operator/accounts")).status_code == 200
    assert (await operator.post("/operator/accounts/default/change", name="x", role="user")).status_code == 400
    await alice.post("/operator/accounts/default/change", name="x", role="user")
    assert (await operator.get("/operator/accounts")).status_code == 404


async def test_a_new_name_does_not_bring_back_the_role_that_another_operator_took(app, operator, alice):
    ledger = app.services.ledger
    page = "/operator/accounts/alice"
    await ledger.update_account("alice", role="operator")
    shown = {name: await operator.field(page, name) for name in ("shown_name", "shown_role")}
    await ledger.update_account("alice", role="user")
    assert (await operator.post(page + "/change", name="May", role="operator", **shown)).status_code == 303
    changed = await ledger.get_account("alice")
    assert (changed.name, changed.role) == ("May", "user")


async def test_an_operator_revokes_a_key_only_on_the_page_of_its_account(app, operator, alice):
    secret = await alice.make_key(name="laptop")
    key = app.services.ledger.find_key(secret)
    assert (await operator.post(f"/operator/accounts/default/keys/{key.id}/revoke")).status_code == 404
    assert (await operator.post(f"/operator/accounts/alice/keys/{key.id}/revoke")).status_code == 303
    assert (await app.services.ledger.get_key(key.id)).revoked


async def test_operators_see_usage_by_account(app, operator, alice, send_chat):
    await send_chat(app.key)
    await send_chat(await alice.make_key())
    page = text_of(await operator.get("/operator/usage?range=24h&by=account_id"))
    assert "Cost by account" in page and "alice" in page and "default" in page
    only = text_of(await operator.get("/operator/requests?range=24h&account=alice"))
    assert "alice" in only and "End of list" in only


async def test_keys_of_the_same_name_are_distinguished(app, operator, alice, send_chat):
    secrets = [await alice.make_key(name=name) for name in ("laptop", "laptop", "ci")]
    for secret in (*secrets, app.key):
        await send_chat(secret)
    one, other = (secret[-4:] for secret in secrets[:2])
    for path in ("/operator/usage?range=24h", "/operator/requests"):
        page = text_of(await operator.get(path))
        assert f" laptop (alice) …{one} " in page and f" laptop (alice) …{other} " in page
        assert " ci (alice) " in page and " first key (default) " in page
    page = text_of(await alice.get("/usage?range=24h"))
    assert f" laptop …{one} " in page and f" laptop …{other} " in page and " ci " in page and "(alice)" not in page


async def test_the_first_of_many_accounts_are_listed_and_any_can_be_found(app, operator, alice, monkeypatch):
    monkeypatch.setattr(operator_pages, "_MOST", 2)
    await app.services.ledger.create_account("carol", "Caroline & Co")
    await alice.make_key(name="one")
    reply = await operator.get("/operator/accounts")
    assert " 2 of 3 accounts " in text_of(reply) and "/operator/accounts/carol" not in reply.text
    page = text_of(await operator.get("/operator/accounts?q=LINE+%26"))
    assert " carol Caroline & Co user 0 $0" in page and " 1 of 3 accounts " in page and " alice " not in page
    page = text_of(await operator.get("/operator/accounts?q=alice"))
    assert re.search(r" alice .{0,20}user 1 \$10", page), page[100:400]
    assert " 0 of 3 accounts " in text_of(await operator.get("/operator/accounts?q=nobody"))
    monkeypatch.setattr(operator_pages, "_MOST", 3)
    assert 'role="search"' not in (await operator.get("/operator/accounts")).text


async def test_the_most_expensive_of_many_keys_are_listed_and_any_can_be_selected(
    app, operator, alice, send_chat, monkeypatch
):
    for name in ("one", "two", "three"):
        await send_chat(await alice.make_key(name=name))
    monkeypatch.setattr(usage_sums, "MOST", 2)
    monkeypatch.setattr(usage_report, "_BYTES_A_ROW", 1)
    reply = await operator.get("/operator/usage?range=24h&by=key_id")
    page = text_of(reply)
    assert " 1 other " in page
    assert re.search(r'<input id="f-key" name="key" value="" list="l-key" [^>]*placeholder="all 3; an id">', reply.text)
    assert len(re.findall('<option value="key_', reply.text)) == 2
    assert '<select id="f-account"' in reply.text, "there is only one account"
    keys = [key.id for key in await app.services.ledger.list_keys("alice")]
    for key in keys:
        assert "Requests 1 " in text_of(await operator.get(f"/operator/usage?range=24h&key={key}"))


async def test_a_damaged_usage_file_is_reported_and_the_rest_is_shown(app, operator, alice, send_chat):
    await send_chat(app.key)
    folder = (
        app.services.runtime.current.gateway.store.usage_directory
        / f"{datetime.now(UTC) - timedelta(hours=30):%Y-%m-%d}"
    )
    folder.mkdir(parents=True)
    (folder / "03.duckdb").write_bytes(b"the disk failed here")
    for page in ("/operator/usage?range=7d", "/operator/requests?range=7d", "/operator/accounts/alice", ""):
        reply = await operator.get(page)
        assert reply.status_code == 200 and f"usage/{folder.name}/03.duckdb is damaged; when it is deleted" in text_of(
            reply
        )
    downloads = "/operator/usage/download.csv?range=7d", "/usage/download.parquet?range=7d"
    names = [(await operator.get(address)).headers["content-disposition"] for address in downloads]
    assert ["-7d-incomplete.csv" in names[0], "-7d-incomplete.parquet" in names[1]] == [True, True]
    (folder / "03.duckdb").unlink()
    assert "damaged" not in text_of(await operator.get("/operator/usage?range=7d"))
    assert "-7d.csv" in (await operator.get(downloads[0])).headers["content-disposition"]


async def test_failing_routes_and_alarms_are_shown(app, operator, send_chat):
    health = app.services.health
    for _ in range(3):
        await send_chat(app.key, "[[error=503]]")
    page = text_of(await operator.get("/operator/providers"))
    assert page.count("cooling down") >= 2 and "cooling down for" in page and "upstream_failed" in page
    health.failed("sandbox/echo", "sandbox", "upstream_failed", "account suspended", alarm="balance")
    page = text_of(await operator.get("/operator/providers"))
    assert "our balance there is used up" in page and "account suspended" in page
    start = (await operator.get()).text
    assert "a provider refuses us" in start and "the files are wrong" not in start


async def test_a_provider_with_an_open_alarm_is_not_called_healthy_after_its_cooldown(app, operator, monkeypatch):
    health = app.services.health
    for _ in range(20):
        health.succeeded("sandbox/echo", "sandbox")
    health.failed("sandbox/echo", "sandbox", "upstream_failed", "no money left", alarm="balance")
    monkeypatch.setattr(type(health), "cooling", lambda self: {})
    page = text_of(await operator.get("/operator/providers"))
    assert re.search(r"\bsandbox [a-z, ]*failing\b", page), page


async def test_providers_with_failures_come_first_with_their_routes(tmp_path):
    from support.inprocess import inprocess

    from .browser import Browser

    file = "provider: {0}\nurl: https://{0}.example/v1\nspeaks: chat\nmodels: {{{0}/a: {{}}}}\n"
    names = ("aaa", "bbb", "ccc")
    async with inprocess(tmp_path, providers={name: file.format(name) for name in names}) as app:
        health = app.services.health
        health.succeeded("aaa/a", "aaa")
        for name, times in (("ccc", 5), ("bbb", 9)):
            health.succeeded(f"{name}/a", name)
            for _ in range(times):
                health.failed(f"{name}/a", name, "upstream_failed")
            health.succeeded(f"{name}/a", name)
        health.failed("ccc/a", "ccc", "upstream_failed", retry_after=60)
        text = text_of(await (await Browser(app, app.http).sign_in()).get("/operator/providers"))
    assert re.findall(r"\b(bbb|ccc|aaa|sandbox) (?:chat|chat,)", text)[:3] == ["bbb", "ccc", "aaa"], text
    assert [text.count(f"{name}/a") for name in names] == [1, 1, 1]


async def test_disabled_providers_come_after_the_active_ones(tmp_path):
    from support.inprocess import inprocess

    from .browser import Browser

    waiting = (
        'provider: {0}\nurl: https://{0}.example/v1\nspeaks: chat\nheaders: {{Authorization: "Bearer {{{{ '
        '$secret.KEY_{0} }}}}"}}\nmodels: {{{0}/a: {{}}}}\n'
    )
    async with inprocess(tmp_path, providers={name: waiting.format(name) for name in ("acme", "globex")}) as app:
        page = text_of(await (await Browser(app, app.http).sign_in()).get("/operator/providers"))
    assert (
        page.index("Routes since start")
        < page.index("2 providers are off, waiting for a secret")
        < page.index("acme secret KEY_acme is not set")
    )


async def test_a_running_request_is_listed_until_it_ends(app, operator):
    running = asyncio.ensure_future(
        app.post(
            "/v1/chat/completions", {"model": "sandbox/echo", "messages": [{"role": "user", "content": "[[delay=1s]]"}]}
        )
    )
    await until(lambda: app.services.live)
    page = text_of(await operator.get("/operator/live"))
    assert "sandbox/echo" in page and "first key" in page and "waiting" in page
    await running
    assert "No requests in progress." in text_of(await operator.get("/operator/live"))


async def test_a_request_of_a_disconnected_client_is_removed_from_the_list(app, operator):
    running = asyncio.ensure_future(
        app.post(
            "/v1/chat/completions", {"model": "sandbox/echo", "messages": [{"role": "user", "content": "[[delay=5s]]"}]}
        )
    )
    await until(lambda: app.services.live)
    running.cancel()
    await until(lambda: not app.services.live)  # its usage is counted first
    assert "No requests in progress." in text_of(await operator.get("/operator/live"))


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    """The working directory is the gateway's folder: files have the same names in its reloads as at its start."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("in_folder")
async def test_an_invalid_file_is_shown_with_its_line_and_the_configuration_is_kept(app, operator, tmp_path):
    (tmp_path / "providers" / "broken.yaml").write_text(
        "provider: broken\nurl: https://x.example/v1\nspeaks: chat\nmodels:\n  broken/a:\n    contxt: 100\n"
    )
    assert (await operator.post("/operator/config/reload")).status_code == 303
    page = await operator.get("/operator/config")
    text = text_of(page)
    assert (
        "The changed files have errors" in text and "contxt: 100" in text and "did you mean" in text and ":6:5" in text
    )
    assert "<b>^</b>" in page.text and "the files are wrong" in page.text
    (tmp_path / "providers" / "broken.yaml").unlink()
    await operator.post("/operator/config/reload")
    assert "in force" in text_of(await operator.get("/operator/config"))


@pytest.mark.usefixtures("in_folder")
async def test_providers_that_are_off_are_not_counted_as_in_force(operator, tmp_path):
    before = re.search(r"in force (\d+) providers", text_of(await operator.get("/operator/config")))
    (tmp_path / "providers" / "idle.yaml").write_text(
        "provider: idle\nurl: https://x.example/v1\nspeaks: chat\nheaders: {x-key: $secret.NEVER_SET}\nmodels: {}\n"
    )
    await operator.post("/operator/config/reload")
    after = " ".join(text_of(await operator.get("/operator/config")).split())
    assert before is not None and f"in force {before[1]} providers (1 more is off)," in after


async def test_the_loaded_files_are_listed_by_folder(app, operator, tmp_path):
    page = text_of(await operator.get("/operator/config"))
    names = sorted(path.name for path in (tmp_path / "providers").glob("*.yaml"))
    assert " ".join([str(tmp_path / "providers"), *names]) in " ".join(page.split())


@pytest.mark.usefixtures("in_folder")
@pytest.mark.parametrize(("models", "opened"), [(20, True), (21, False)])
async def test_many_warnings_are_folded_so_that_the_files_stay_in_reach(app, operator, tmp_path, models, opened):
    text = "provider: dear\nurl: https://dear.example/v1\nspeaks: {chat: /chat}\nmodels:\n" + "".join(
        f"  dear/m{n}: {{price: {{prompt: '2', completion: '1', unit: 1000000}}}}\n" for n in range(models)
    )
    (tmp_path / "providers" / "dear.yaml").write_text(text)
    await operator.post("/operator/config/reload")
    page = (await operator.get("/operator/config")).text
    assert f'<details class="card"{" open" if opened else ""}><summary>{models} warnings</summary>' in page
    assert page.count("which is below the prompt price") == models


@pytest.mark.usefixtures("in_folder")
async def test_a_model_without_a_price_is_among_the_warnings_as_in_a_check(app, operator, tmp_path):
    (tmp_path / "providers" / "free.yaml").write_text(
        "provider: free\nurl: https://free.example/v1\nspeaks: {chat: /chat}\nmodels: {free/a: {upstream: a}}\n"
    )
    await operator.post("/operator/config/reload")
    page = text_of(await operator.get("/operator/config"))
    assert "1 warning" in page and "found no prompt and no completion price" in page


async def test_a_secret_is_on_no_page(tmp_path):
    from support.inprocess import inprocess

    from .browser import Browser

    provider = (
        'provider: acme\nurl: https://acme.example/v1\nspeaks: chat\nheaders: {Authorization: "Bearer {{ '
        '$secret.ACME_KEY }}"}\nmodels: {acme/a: {upstream: a}}\n'
    )
    async with inprocess(tmp_path, providers={"acme": provider}, environ={"ACME_KEY": "canary-12345678"}) as app:
        person = await Browser(app, app.http).sign_in()
        for path in (
            "",
            "/models/acme/a",
            "/operator/providers",
            "/operator/config",
            "/operator/live",
            "/operator/accounts/default",
        ):
            assert "canary-12345678" not in (await person.get(path)).text
