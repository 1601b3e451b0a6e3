"""Wrong passwords count for the address that our own proxies saw, whatever a visitor writes before it."""

from __future__ import annotations

import httpx

from support.inprocess import inprocess
from tollgate.dashboard import signin
from tollgate.dashboard.throttle import BY_ADDRESS

from .browser import Browser


async def guess(here, *forwarded, account, peer="127.0.0.1"):
    """A wrong password of a new visitor; the status."""
    transport = httpx.ASGITransport(app=here.opened.app, client=(peer, 4711))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://127.0.0.1:8787", headers=[("x-forwarded-for", each) for each in forwarded]
    ) as client:
        return (
            await Browser(here, client).post("/sign-in", page="/sign-in", account=account, password="x" * 12)
        ).status_code


async def test_a_guesser_behind_our_proxy_closes_the_own_address_only(tmp_path, monkeypatch):
    monkeypatch.setattr(signin, "check_password", lambda password, stored: False)
    async with inprocess(tmp_path, settings="server: {trusted_proxies: [127.0.0.1]}\n") as here:
        for number in range(BY_ADDRESS):
            assert await guess(here, f"6.6.6.{number}, 203.0.113.7", account=f"account-{number}") == 403
        assert await guess(here, "9.9.9.9", "203.0.113.7", account="fresh") == 429, "another lie is no other address"
        assert await guess(here, "203.0.113.8", account="fresh") == 403, "others behind the proxy may still try"
        for number in range(BY_ADDRESS):
            assert await guess(here, f"6.6.7.{number}", account=f"other-{number}", peer="198.51.100.1") == 403
        assert await guess(here, "6.6.8.8", account="fresh", peer="198.51.100.1") == 429, (
            "who is no proxy of ours is not believed"
        )


async def test_a_closed_address_may_still_sign_in_by_link(tmp_path, monkeypatch):
    monkeypatch.setattr(signin, "check_password", lambda password, stored: False)
    async with inprocess(tmp_path) as here:
        for number in range(BY_ADDRESS):
            await guess(here, account=f"account-{number}")
        assert await guess(here, account="fresh") == 429
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=here.opened.app), base_url="http://127.0.0.1:8787"
        ) as client:
            assert (await (await Browser(here, client).sign_in()).get("/keys")).status_code == 200


async def test_the_password_page_counts_wrong_ones_for_the_visitor_too_and_not_for_our_proxy(tmp_path, monkeypatch):
    monkeypatch.setattr(signin, "check_password", lambda password, stored: False)
    async with inprocess(tmp_path, settings="server: {trusted_proxies: [127.0.0.1]}\n") as here:
        await here.services.ledger.update_account("default", password_hash="some")
        for number in range(BY_ADDRESS):
            await guess(here, "203.0.113.7", account=f"account-{number}")
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=here.opened.app), base_url="http://127.0.0.1:8787"
        ) as client:
            operator = await Browser(here, client).sign_in()
            for visitor, status in (("203.0.113.7", 429), ("203.0.113.8", 403)):
                tried = await operator.post(
                    "/account/password",
                    page="/account",
                    headers={"x-forwarded-for": visitor},
                    current="x" * 12,
                    remove="yes",
                )
                assert tried.status_code == status
