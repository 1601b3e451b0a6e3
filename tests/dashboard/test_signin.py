"""Signing in and out: links, passwords, sessions that cannot be fixed, forged or guessed."""

from __future__ import annotations

import pytest

from .browser import text_of

PASSWORD = "correct horse battery"


async def test_a_link_signs_in_once(app, browser):
    link = (await app.services.ledger.create_link("default")).partition("/dashboard")[2]
    first, second = browser(), browser()
    for person in (first, second):
        page = await person.get(link)
        assert page.status_code == 200 and "signs you in as default" in text_of(page)
    assert (await first.post(link, page=link)).headers["location"] == "/dashboard"
    assert "Overview" in text_of(await first.get())
    late = await second.post(link, page="/sign-in")
    assert late.status_code == 404 and "has been used" in text_of(late)


async def test_opening_a_link_does_not_consume_it(app, browser):
    link = (await app.services.ledger.create_link("default")).partition("/dashboard")[2]
    for _ in range(3):
        assert (await browser().get(link)).status_code == 200


async def test_the_start_prints_a_sign_in_link(app):
    assert app.opened.sign_in.startswith("http://127.0.0.1:8787/dashboard/link/")


async def test_pages_redirect_to_the_sign_in_page_and_back(browser, app):
    person = browser()
    reply = await person.get("/keys?x=1")
    assert reply.status_code == 303 and reply.headers["location"] == "/dashboard/sign-in?next=%2Fkeys%3Fx%3D1"
    from tollgate import accounts

    await accounts.set_password(app.services.ledger, "default", PASSWORD)
    done = await person.post("/sign-in", page="/sign-in", account="default", password=PASSWORD, next="/keys?x=1")
    assert done.headers["location"] == "/dashboard/keys?x=1"


@pytest.mark.parametrize(
    ("page", "onward"),
    [
        ("http://127.0.0.1:8787/dashboard/keys/key_1?x=1", "&next=%2Fkeys%2Fkey_1%3Fx%3D1"),
        ("http://127.0.0.1:8787/dashboardx/keys", ""),
        ("https://evil.example/dashboard/keys", ""),
        ("", ""),
    ],
)
async def test_a_form_without_a_session_says_so_and_leads_back_to_its_page(browser, page, onward):
    person = browser()
    reply = await person.post("/keys/key_1/revoke?x=1", token="x", headers={"referer": page})
    assert (reply.status_code, reply.headers["location"]) == (303, "/dashboard/sign-in?done=ended" + onward)
    assert "session has ended, and nothing was changed" in text_of(await person.get("/sign-in?done=ended"))


@pytest.mark.parametrize(
    "target",
    [
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "/\tx",
        "/x\\y",
        "\\\\evil.example",
    ],
)
async def test_signing_in_never_redirects_to_another_site(app, browser, target):
    from tollgate import accounts

    await accounts.set_password(app.services.ledger, "default", PASSWORD)
    done = await browser().post("/sign-in", page="/sign-in", account="default", password=PASSWORD, next=target)
    assert done.headers["location"] == "/dashboard"


@pytest.mark.parametrize(
    ("account", "password"),
    [("default", "wrong password"), ("nobody", PASSWORD), ("default", ""), ("", "")],
    ids=["password", "account", "empty", "nothing"],
)
async def test_a_failed_sign_in_does_not_reveal_the_reason(app, browser, account, password):
    from tollgate import accounts

    await accounts.set_password(app.services.ledger, "default", PASSWORD)
    reply = await browser().post("/sign-in", page="/sign-in", account=account, password=password)
    assert reply.status_code == 403 and "That account and password do not fit." in text_of(reply)


async def test_an_account_without_a_password_cannot_sign_in_with_an_empty_one(browser):
    assert (await browser().post("/sign-in", page="/sign-in", account="default", password="")).status_code == 403


async def test_guessing_passwords_is_throttled(app, browser, monkeypatch):
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


async def test_the_session_id_changes_at_sign_in(app, browser):
    """A session cookie planted by an attacker does not become the signed-in session (session fixation)."""
    person = browser()
    link = (await app.services.ledger.create_link("default")).partition("/dashboard")[2]
    token = await person.token(link)
    planted = person.http.cookies["tollgate"]
    await person.post(link, token=token)
    assert person.http.cookies["tollgate"] != planted
    other = browser()
    other.http.cookies.set("tollgate", planted)
    assert (await other.get()).status_code == 303


async def test_a_visitor_s_form_is_invalid_after_sign_in(app, browser):
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
    assert "tollgate" not in operator.http.cookies, "the browser deletes it"
    assert done.headers["set-cookie"].startswith('tollgate=""; ') and "Max-Age=0" in done.headers["set-cookie"]
    assert (await operator.get()).status_code == 303
    assert (await copy.get()).status_code == 303


async def test_a_new_password_signs_out_every_other_browser(operator, browser):
    other = await browser().sign_in("default")
    done = await operator.post("/account/password", page="/account", new=PASSWORD, again=PASSWORD)
    assert done.headers["location"].endswith("done=password")
    assert (await operator.get()).status_code == 200
    assert (await other.get()).status_code == 303


async def test_a_removed_password_ends_sessions_and_revives_none(operator, browser, app):
    """Those from before the password had the same mark as those after its removal."""
    from tollgate import accounts

    early = await browser().sign_in()
    await operator.post("/account/password", page="/account", new=PASSWORD, again=PASSWORD)
    between = await browser().sign_in()
    done = await operator.post("/account/password", page="/account", current=PASSWORD, remove="yes")
    assert done.headers["location"].endswith("done=removed")
    found = [(await each.get("/keys")).status_code for each in (operator, early, between)]
    assert found == [200, 303, 303]
    assert "Set a password" in (await operator.get("/account")).text
    signing_in = await browser().post("/sign-in", page="/sign-in", account="default", password=PASSWORD)
    assert signing_in.status_code == 403
    await accounts.set_password(app.services.ledger, "default", None)  # there is none: also ends what is signed in
    assert (await operator.get("/keys")).status_code == 303


async def test_changing_a_password_requires_the_current_one(operator):
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


async def test_a_password_that_is_too_short_is_rejected_with_a_message(operator, app):
    reply = await operator.post("/account/password", page="/account", new="short", again="short")
    assert reply.status_code == 400
    assert "The password has 5 characters" in text_of(reply)
    assert not (await app.services.ledger.get_account("default")).password_hash


async def test_the_sign_in_page_redirects_a_signed_in_user(operator):
    reply = await operator.get("/sign-in?next=/keys")
    assert reply.status_code == 303 and reply.headers["location"].startswith("/dashboard")


async def test_a_forged_cookie_is_not_signed_in(browser):
    person = browser()
    person.http.cookies.set("tollgate", "W10.AAAA")
    assert (await person.get()).status_code == 303


async def test_the_cookie_is_http_only_and_same_site(browser, app):
    link = (await app.services.ledger.create_link("default")).partition("/dashboard")[2]
    person = browser()
    reply = await person.post(link, page=link)
    cookie = reply.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=lax" in cookie and "secure" not in cookie and "max-age" not in cookie


async def test_over_https_the_cookie_is_secure_and_bound_to_the_host(tmp_path):
    import httpx

    from support.inprocess import inprocess

    from .browser import Browser

    async with inprocess(tmp_path, settings="server: {base_url: 'https://gate.example/ai'}\n") as app:
        assert app.opened.sign_in.startswith("https://gate.example/ai/dashboard/link/")
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app.opened.app), base_url="https://gate.example"
        ) as client:
            person = Browser(app, client)
            link = app.opened.sign_in.partition("/dashboard")[2]
            reply = await person.post(link, page=link)
            cookie = reply.headers["set-cookie"]
            assert cookie.startswith("__Host-tollgate=") and "Secure" in cookie and "Path=/;" in cookie
            assert reply.headers["location"] == "/ai/dashboard"
            assert (await client.get("/ai/dashboard")).status_code == 200


async def test_the_theme_is_remembered_and_escaped(operator):
    assert 'data-theme="auto"' in (await operator.get()).text
    await operator.post("/theme", theme="dark", next="/keys")
    assert 'data-theme="dark"' in (await operator.get("/keys")).text
    operator.http.cookies.set("theme", '"><script>alert(1)</script>', path="/dashboard")
    assert "<script>alert" not in (await operator.get()).text


async def test_choosing_the_theme_leads_back_to_the_page_with_its_filters(operator):
    page = "/operator/usage?range=90d&model=a%26b&done=saved"
    onward = await operator.field(page, "next")
    assert onward == "/operator/usage?range=90d&model=a%26b"
    reply = await operator.post("/theme", theme="dark", next=onward)
    assert reply.headers["location"] == "/dashboard" + onward


@pytest.mark.parametrize(
    "form", ["/account/password", *(f"/operator/accounts/alice/{form}" for form in ("grant", "change", "link"))]
)
async def test_the_address_of_a_form_leads_to_its_page(operator, alice, form):
    """After a mistake the page has this address, which a restored tab or a choice of the theme opens."""
    reply = await operator.get(form)
    assert (reply.status_code, reply.headers["location"]) == (303, "/dashboard" + form.rpartition("/")[0])
