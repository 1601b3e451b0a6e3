"""Accounts, keys and credits, as commands and pages change and show them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from support.stores import open_ledger
from tollgate import accounts
from tollgate.accounts import KeyForm
from tollgate.config.settings import Store
from tollgate.errors import BadRequest, NotFound
from tollgate.ledger import Ledger, UsageRow

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
async def books(tmp_path: Path) -> AsyncIterator[Ledger]:
    async with open_ledger(
        Store(directory=tmp_path / "var", usage_directory=tmp_path / "usage", apply_seconds=0.05)
    ) as ledger:
        await accounts.create_account(ledger, "alice", "Alice")
        yield ledger


async def test_the_initial_account_is_an_operator_or_else_the_oldest_account(books: Ledger) -> None:
    assert await accounts.initial_account(books) == "alice"
    await accounts.create_account(books, "carol", role="operator")
    assert await accounts.initial_account(books) == "carol"
    await accounts.create_account(books, "default", role="operator")
    assert await accounts.initial_account(books) == "default"


@pytest.mark.parametrize("id", ["", "Alice", "-a", "a b", "a/b", "ä", "a" * 64, "../x"])
async def test_an_account_id_with_other_characters_is_rejected(books: Ledger, id: str) -> None:
    with pytest.raises(BadRequest, match="wanted lower-case letters"):
        await accounts.create_account(books, id)


@pytest.mark.parametrize("credits", ["x", "-1", "0", "1e-13", "1e13"])
async def test_an_account_with_invalid_credits_is_not_created(books: Ledger, credits: str) -> None:
    with pytest.raises(BadRequest, match="credits"):
        await accounts.create_account(books, "bob", credits=credits)
    assert [account.id for account in await books.list_accounts()] == ["alice"]


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (KeyForm(cap="x"), "cap: "),
        (KeyForm(cap="-1"), "cap is -1, wanted 0 to 1000000000000"),
        (KeyForm(cap="9" * 27), "cap is 9{27}, wanted 0 to"),
        (KeyForm(cap="1e-13"), "cap is 0.0000000000001, which has 13 decimal places"),
        (KeyForm(window="year"), 'window is "year"'),
        (KeyForm(models="acme/*, ! acme/old"), "wanted the excluded model directly after its !"),
        (KeyForm(models=" ".join(f"{i}*" for i in range(501))), "models has 501 entries, wanted at most 500"),
        (KeyForm(models="a" * 201), "of at most 200 characters"),
        (KeyForm(rpm="0"), 'rpm is "0"'),
        (KeyForm(tpm="1.5"), 'tpm is "1.5"'),
        (KeyForm(rpm="²"), "rpm"),
        (KeyForm(name="x" * 101), "101 characters"),
        (KeyForm(concurrent="0"), 'concurrent is "0", wanted a whole number from 1'),
        (KeyForm(endpoints="chat, completions"), 'endpoints has "completions", wanted all, or some of chat, responses'),
        (KeyForm(endpoints=" , "), 'endpoints is ",", wanted a list, or all'),
        (KeyForm(addresses="home"), 'addresses has "home", wanted addresses and networks like 192.0.2.1'),
        (KeyForm(addresses="192.0.2.256"), 'addresses has "192.0.2.256"'),
        (KeyForm(addresses="10.1.2.3/8"), "that network is 10.0.0.0/8"),
        (KeyForm(addresses=" ".join(f"10.0.{i // 256}.{i % 256}" for i in range(501))), "501 entries, wanted at most"),
    ],
)
async def test_an_invalid_value_names_its_field_and_creates_no_key(books: Ledger, form: KeyForm, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        await accounts.create_key(books, "alice", form)
    assert await books.list_keys() == []


async def test_a_key_has_the_requested_limits(books: Ledger) -> None:
    form = KeyForm("lap\n top", "acme/*", "30d", "5", "month", "60", "1_000", True, "3", "mcp,chat", "10.0.0.0/8")
    key, secret = await accounts.create_key(books, "alice", form)
    assert books.find_key(secret) == key
    assert (key.name, key.allowed_models, key.spend_cap, key.cap_window, key.rpm, key.tpm, key.strict) == (
        "lap top",
        ("acme/*",),
        Decimal(5),
        "month",
        60,
        1000,
        True,
    )
    assert (key.max_concurrent, key.endpoints, key.allowed_addresses) == (3, ("chat", "mcp"), ("10.0.0.0/8",))
    only = await accounts.change_key(books, key.id, KeyForm(addresses="192.0.2.1"), only=["addresses"])
    assert (only.max_concurrent, only.allowed_addresses) == (3, ("192.0.2.1",))
    changed = await accounts.change_key(books, key.id, KeyForm("new"))
    assert not changed.restricted
    assert (changed.name, changed.allowed_models, changed.expires_at, changed.spend_cap) == ("new", None, None, None)
    assert books.find_key(secret) == changed


async def test_a_key_is_found_by_id_name_or_end(books: Ledger) -> None:
    one, _ = await accounts.create_key(books, "alice", KeyForm("laptop"))
    two, _ = await accounts.create_key(books, "alice", KeyForm("phone"))
    for hint in (one.id, "laptop", one.last_four):
        assert (await accounts.find_key(books, hint)).id == one.id
    await accounts.create_key(books, "alice", KeyForm("phone"))
    with pytest.raises(BadRequest, match='"phone" fits 2 keys'):
        await accounts.find_key(books, "phone")
    with pytest.raises(NotFound):
        await accounts.find_key(books, "desk")
    assert two.name == "phone"


class CountingLedger:
    """A ledger that records which of its methods are called."""

    def __init__(self, books: Ledger) -> None:
        self.books = books
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> object:
        self.calls.append(name)
        return getattr(self.books, name)


async def test_listing_many_accounts_and_keys_takes_a_constant_number_of_ledger_calls(books: Ledger) -> None:
    """With calls for each account, 100,000 accounts took minutes, on the event loop when a page showed them."""
    for number in range(20):
        await books.create_account(f"account{number}")
        await books.create_key(f"account{number}")
    counted = CountingLedger(books)
    assert len(await accounts.account_views(counted)) == 21
    assert len(await accounts.key_views(counted)) == 20
    assert len(counted.calls) == 5


async def test_views_show_states_and_sums(books: Ledger) -> None:
    key, _ = await accounts.create_key(books, "alice", KeyForm("laptop", cap="5", window="day"))
    old, _ = await accounts.create_key(books, "alice", KeyForm("old"))
    late, _ = await accounts.create_key(books, "alice", KeyForm("late"))
    await books.revoke_key(old.id)
    await books.update_key(late.id, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    await accounts.grant(books, "alice", "10", "gift")
    await books.record(UsageRow("req_1", "alice", key.id, "chat", cost=Decimal("1.5")))
    hold = await books.hold(key, Decimal(2))
    [view] = await accounts.account_views(books)
    assert (view.sums.balance, view.sums.spent, view.sums.granted, view.sums.held, view.active_keys) == (
        Decimal("8.5"),
        Decimal("1.5"),
        10,
        2,
        1,
    )
    hold.release()
    states = {each.key.name: (each.state, each.spent) for each in await accounts.key_views(books, "alice")}
    assert states == {"laptop": ("active", Decimal("1.5")), "old": ("revoked", 0), "late": ("expired", 0)}
