"""Wrong passwords are counted for the address that our own proxies saw, whatever the client sends."""

from __future__ import annotations

import httpx

from support.inprocess import inprocess
from tollgate.dashboard import signin
from tollgate.dashboard.throttle import BY_ADDRESS

from .browser import Browser


async def wrong_password(app, *forwarded, account, peer="127.0.0.1"):
    """Sends a wrong password with a new browser; returns the status."""
    transport = httpx.ASGITransport(app=app.opened.app, client=(peer, 4711))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://127.0.0.1:8787", headers=[("x-forwarded-for", each) for each in forwarded]
    ) as client:
        return (
            await Browser(app, client).post("/sign-in", page="/sign-in", account=account, password="x" * 12)
        ).status_code


async def test_an_address_behind_a_trusted_proxy_is_throttled_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(signin, "check_password", lambda password, stored: False)
    async with inprocess(tmp_path, settings="server: {trusted_proxies: [127.0.0.1]}\n") as app:
        for number in range(BY_ADDRESS):
            assert await wrong_password(app, f"6.6.6.{number}, 203.0.113.7", account=f"account-{number}") == 403
        assert await wrong_password(app, "9.9.9.9", "203.0.113.7", account="fresh") == 429, "a forged entry is ignored"
        assert await wrong_password(app, "203.0.113.8", account="fresh") == 403, "another address is not throttled"
        for number in range(BY_ADDRESS):
            assert await wrong_password(app, f"6.6.7.{number}", account=f"other-{number}", peer="198.51.100.1") == 403
        assert await wrong_password(app, "6.6.8.8", account="fresh", peer="198.51.100.1") == 429, (
            "the header of an untrusted peer is ignored"
        )


async def test_a_throttled_address_may_still_sign_in_by_link(tmp_path, monkeypatch):
    monkeypatch.setattr(signin, "check_password", lambda password, stored: False)
    async with inprocess(tmp_path) as app:
        for number in range(BY_ADDRESS):
            await wrong_password(app, account=f"account-{number}")
        assert await wrong_password(app, account="fresh") == 429
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app.opened.app), base_url="http://127.0.0.1:8787"
        ) as client:
            assert (await (await Browser(app, client).sign_in()).get("/keys")).status_code == 200


async def test_the_password_page_throttles_by_the_client_s_address(tmp_path, monkeypatch):
    monkeypatch.setattr(signin, "check_password", lambda password, stored: False)
    async with inprocess(tmp_path, settings="server: {trusted_proxies: [127.0.0.1]}\n") as app:
        await app.services.ledger.update_account("default", password_hash="some")
        for number in range(BY_ADDRESS):
            await wrong_password(app, "203.0.113.7", account=f"account-{number}")
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app.opened.app), base_url="http://127.0.0.1:8787"
        ) as client:
            operator = await Browser(app, client).sign_in()
            for visitor, status in (("203.0.113.7", 429), ("203.0.113.8", 403)):
                reply = await operator.post(
                    "/account/password",
                    page="/account",
                    headers={"x-forwarded-for": visitor},
                    current="x" * 12,
                    remove="yes",
                )
                assert reply.status_code == status
