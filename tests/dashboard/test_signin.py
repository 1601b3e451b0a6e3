"""Ways in and out: links, passwords, sign-out; sessions that cannot be fixed, forged or guessed."""

from __future__ import annotations

import pytest

from .browser import text_of

PASSWORD = "correct horse battery"


async def test_a_link_signs_in_once(here, browser):
    link = (await here.services.ledger.create_link("default")).partition("/dashboard")[2]
    first, second = browser(), browser()
    for person in (first, second):
        page = await person.get(link)
        assert page.status_code == 200 and "signs you in as default" in text_of(page)
    assert (await first.post(link, page=link)).headers["location"] == "/dashboard"
    assert "Overview" in text_of(await first.get())
    late = await second.post(link, page="/sign-in")
    assert late.status_code == 404 and "used already" in text_of(late)


async def test_looking_at_a_link_does_not_use_it_up(here, browser):
    link = (await here.services.ledger.create_link("default")).partition("/dashboard")[2]
    for _ in range(3):
        assert (await browser().get(link)).status_code == 200


async def test_the_start_prints_a_link(here):
    assert here.opened.sign_in.startswith("http://127.0.0.1:8787/dashboard/link/")


async def test_pages_lead_to_the_sign_in_page_and_back(browser, here):
    person = browser()
    reply = await person.get("/keys?x=1")
    assert reply.status_code == 303 and reply.headers["location"] == "/dashboard/sign-in?next=%2Fkeys%3Fx%3D1"
    from tollgate import accounts

    await accounts.set_password(here.services.ledger, "default", PASSWORD)
    done = await person.post("/sign-in", page="/sign-in", account="default", password=PASSWORD, next="/keys?x=1")
    assert done.headers["location"] == "/dashboard/keys?x=1"


async def test_a_form_sent_by_nobody_leads_to_the_sign_in_page_and_not_back_to_where_forms_go(browser):
    reply = await browser().post("/keys?x=1", token="x", once="x", name="n")
    assert (reply.status_code, reply.headers["location"]) == (303, "/dashboard/sign-in")


@pytest.mark.parametrize(
    "onward",
    ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/\tx", "\\\\evil.example"],
)
async def test_signing_in_never_leads_elsewhere(here, browser, onward):
    from tollgate import accounts

    await accounts.set_password(here.services.ledger, "default", PASSWORD)
    done = await browser().post("/sign-in", page="/sign-in", account="default", password=PASSWORD, next=onward)
    assert done.headers["location"] == "/dashboard"


@pytest.mark.parametrize(
    ("account", "password"),
    [("default", "wrong password"), ("nobody", PASSWORD), ("default", ""), ("", "")],
    ids=["password", "account", "empty", "nothing"],
)
async def test_a_wrong_sign_in_does_not_say_what_was_wrong(here, browser, account, password):
    from tollgate import accounts

    await accounts.set_password(here.services.ledger, "default", PASSWORD)
    reply = await browser().post("/sign-in", page="/sign-in", account=account, password=password)
    assert reply.status_code == 403 and "That account and password do not fit." in text_of(reply)


async def test_an_account_without_a_password_cannot_sign_in_with_an_empty_one(browser):
    assert (await browser().post("/sign-in", page="/sign-in", account="default", password="")).status_code == 403


async def test_guessing_is_throttled(here, browser, monkeypatch):
    from tollgate.dashboard import signin

    monkeypatch.setattr(signin, "check_password", lambda password, stored: False)
    person = browser()
    codes = [
        (await person.post("/sign-in", page="/sign-in", account="default", password="x" * 12)).status_code
        for _ in range(11)
    ]
    assert codes == [403] * 10 + [429]
    reply = await person.post("/sign-in", page="/sign-in", account="default", password="x" * 12)
    assert int(reply.headers["retry-after"]) > 600


async def test_the_session_id_changes_at_sign_in(here, browser):
    """An attacker who plants a cookie of their own does not get into the session it becomes (no fixation)."""
    person = browser()
    link = (await here.services.ledger.create_link("default")).partition("/dashboard")[2]
    token = await person.token(link)
    planted = person.http.cookies["tollgate"]
    await person.post(link, token=token)
    assert person.http.cookies["tollgate"] != planted
    other = browser()
    other.http.cookies.set("tollgate", planted)
    assert (await other.get()).status_code == 303


async def test_a_visitors_form_is_worthless_after_sign_in(here, browser):
    person = browser()
    old = await person.token("/sign-in")
    await person.sign_in()
    assert (await person.post("/keys", token=old, once="x", name="n")).status_code == 403


async def test_signing_out_ends_the_session_for_every_copy_of_the_cookie(operator, browser):
    copy = browser()
    copy.http.cookies.set("tollgate", operator.http.cookies["tollgate"])
    assert (await copy.get()).status_code == 200
    done = await operator.post("/sign-out")
    assert done.status_code == 303
    assert "tollgate" not in operator.http.cookies, "the browser is told to forget it"
    assert done.headers["set-cookie"].startswith('tollgate=""; ') and "Max-Age=0" in done.headers["set-cookie"]
    assert (await operator.get()).status_code == 303
    assert (await copy.get()).status_code == 303


async def test_a_new_password_signs_out_every_other_browser(operator, browser):
    other = await browser().sign_in("default")
    done = await operator.post("/account/password", page="/account", new=PASSWORD, again=PASSWORD)
    assert done.headers["location"].endswith("done=password")
    assert (await operator.get()).status_code == 200
    assert (await other.get()).status_code == 303


async def test_a_password_is_changed_only_with_the_current_one(operator):
    await operator.post("/account/password", page="/account", new=PASSWORD, again=PASSWORD)
    wrong = await operator.post(
        "/account/password", page="/account", current="something else", new="another long one", again="another long one"
    )
    assert wrong.status_code == 403
    differ = await operator.post(
        "/account/password", page="/account", current=PASSWORD, new="another long one", again="another long two"
    )
    assert differ.status_code == 400 and "differ" in text_of(differ)
    assert (
        await operator.post("/account/password", page="/account", current=PASSWORD, remove="yes")
    ).status_code == 303


async def test_a_password_that_is_too_short_is_refused_in_a_sentence(operator, here):
    reply = await operator.post("/account/password", page="/account", new="short", again="short")
    assert reply.status_code == 400
    assert "The password has 5 characters" in text_of(reply)
    assert not (await here.services.ledger.get_account("default")).password_hash


async def test_who_is_signed_in_is_led_on_from_the_sign_in_page(operator):
    reply = await operator.get("/sign-in?next=/keys")
    assert reply.status_code == 303 and reply.headers["location"].startswith("/dashboard")


async def test_a_deleted_or_foreign_cookie_is_nobody(browser):
    person = browser()
    person.http.cookies.set("tollgate", "W10.AAAA")
    assert (await person.get()).status_code == 303


async def test_the_cookie_cannot_be_read_by_scripts_nor_sent_by_other_sites(browser, here):
    link = (await here.services.ledger.create_link("default")).partition("/dashboard")[2]
    person = browser()
    reply = await person.post(link, page=link)
    cookie = reply.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=lax" in cookie and "secure" not in cookie and "max-age" not in cookie


async def test_over_https_the_cookie_is_secure_and_bound_to_the_host(tmp_path):
    import httpx

    from support.inprocess import inprocess

    from .browser import Browser

    async with inprocess(tmp_path, settings="server: {base_url: 'https://gate.example/ai'}\n") as here:
        assert here.opened.sign_in.startswith("https://gate.example/ai/dashboard/link/")
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=here.opened.app), base_url="https://gate.example"
        ) as client:
            person = Browser(here, client)
            link = here.opened.sign_in.partition("/dashboard")[2]
            reply = await person.post(link, page=link)
            cookie = reply.headers["set-cookie"]
            assert cookie.startswith("__Host-tollgate=") and "Secure" in cookie and "Path=/;" in cookie
            assert reply.headers["location"] == "/ai/dashboard"
            assert (await client.get("/ai/dashboard")).status_code == 200


async def test_light_and_dark_are_remembered_and_harmless(operator):
    assert 'data-theme="auto"' in (await operator.get()).text
    await operator.post("/theme", theme="dark", next="/keys")
    assert 'data-theme="dark"' in (await operator.get("/keys")).text
    operator.http.cookies.set("theme", '"><script>alert(1)</script>', path="/dashboard")
    assert "<script>alert" not in (await operator.get()).text
