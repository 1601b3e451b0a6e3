"""The facade: keys, balances, holds and rows, within a process and after a restart."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from support.stores import available_to, spent_by
from support.waiting import until
from tollgate.config.settings import Credits
from tollgate.errors import BadRequest, NotFound, QuotaExhausted, TollgateError, Unauthorized, Unavailable
from tollgate.ledger import KeyRecord, Ledger
from tollgate.ledger import keys as secrets_of_keys
from tollgate.ledger.memory import Memory, cap_days
from tollgate.ledger.store import BATCH

from .conftest import Alice, new_ledger, row


async def test_the_balance_is_grants_minus_costs_exactly(alice_in_either: Alice) -> None:
    for cost in ("0.000000000001", "0.3", "1.000000000009"):
        await alice_in_either.ledger.record(row(cost=cost))
    assert alice_in_either.ledger.balance("alice") == Decimal("8.699999999990")
    assert await spent_by(alice_in_either.ledger, "alice") == Decimal("1.300000000010")


async def test_cost_is_rounded_half_even_at_twelve_places_once(alice_in_either: Alice) -> None:
    for cost in ("0.0000000000005", "0.0000000000015", "0.0000000000025"):
        await alice_in_either.ledger.record(row(cost=cost))
    assert await spent_by(alice_in_either.ledger, "alice") == Decimal("0.000000000004")


async def test_a_request_id_is_charged_once(alice_in_either: Alice) -> None:
    one = row("req_same", cost="1")
    await asyncio.gather(*(alice_in_either.ledger.record(replace(one)) for _ in range(5)))
    assert alice_in_either.ledger.balance("alice") == Decimal(9)


async def test_a_request_id_is_charged_once_across_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        async with new_ledger(tmp_path) as ledger:
            await ledger.record(row("req_same", cost="1"))
            assert await spent_by(ledger, "alice") == 1


async def test_a_negative_cost_is_rejected(alice_in_either: Alice) -> None:
    with pytest.raises(ValueError, match="wanted 0 to"):
        await alice_in_either.ledger.record(row(cost="-1"))
    assert alice_in_either.ledger.balance("alice") == 10


@pytest.mark.parametrize(
    ("field", "value"),
    [("cost", Decimal("1e13")), ("cost", Decimal("NaN")), ("key_id", None), ("account_id", 7), ("metadata", object())],
)
async def test_a_row_that_cannot_be_stored_is_rejected_before_it_is_charged(
    alice_in_either: Alice, field: str, value: object
) -> None:
    bad = row(cost="1")
    setattr(bad, field, value)
    with pytest.raises((ValueError, ArithmeticError, TypeError)):
        await alice_in_either.ledger.record(bad)
    assert alice_in_either.ledger.balance("alice") == 10
    await alice_in_either.ledger.record(row(cost="1"))
    await alice_in_either.ledger.settle()


async def test_huge_counts_and_invalid_text_do_not_lose_the_row(alice: Alice, tmp_path: Path) -> None:
    await alice.ledger.record(
        row("req_odd", cost="1", input_tokens=10**30, end_user="half \ud83d a pair, nul \0", ttfb_ms=float("nan"))
    )
    await alice.ledger.settle()
    [found] = (
        duckdb.connect()
        .execute(
            f"SELECT input_tokens, end_user, ttfb_ms FROM read_duckdb('{tmp_path}/usage/*/*.duckdb', table_name = "
            "'usage')"
        )
        .fetchall()
    )
    assert found == (2**63 - 1, "half ? a pair, nul \0", None)


async def test_a_time_without_a_zone_is_utc_and_another_zone_is_converted(
    alice_in_either: Alice, tmp_path: Path
) -> None:
    plus_two = timezone(timedelta(hours=2))
    await alice_in_either.ledger.record(row("req_1", time=datetime(2026, 11, 21, 10)))
    await alice_in_either.ledger.record(row("req_2", time=datetime(2026, 11, 21, 10, tzinfo=plus_two)))
    await alice_in_either.ledger.settle()
    found = (
        duckdb.connect()
        .execute(
            f"SELECT time FROM read_duckdb('{tmp_path}/usage/*/*.duckdb', table_name = 'usage') ORDER BY request_id"
        )
        .fetchall()
    )
    assert [each[0].hour for each in found] == [10, 8]


async def test_a_restart_restores_accounts_keys_grants_and_balances(tmp_path: Path) -> None:
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3)
    async with new_ledger(tmp_path) as ledger:
        await ledger.create_account("alice", "Alice")
        await ledger.grant("alice", Decimal("5.5"), "gift")
        await ledger.grant("alice", Decimal("-0.5"), "correction")
        key, secret = await ledger.create_key(
            "alice",
            "laptop",
            allowed_models=["acme/*"],
            expires_at=expires,
            spend_cap=Decimal("2.5"),
            cap_window="month",
            rpm=60,
            tpm=1000,
            strict=True,
            max_concurrent=3,
            endpoints=["chat", "mcp"],
            allowed_addresses=["192.0.2.1", "10.0.0.0/8"],
        )
        none_key, _ = await ledger.create_key("alice", "nothing", allowed_models=[])
        await ledger.record(row(cost="1.25", key_id=key.id))
    async with new_ledger(tmp_path) as ledger:
        assert ledger.find_key(secret) == key
        assert key.restricted and ledger.find_key(secret).restricted and not none_key.restricted
        assert (await ledger.get_key(none_key.id)).allowed_models == ()
        assert ledger.balance("alice") == Decimal("3.75")
        assert [g.note for g in await ledger.list_grants("alice")] == ["correction", "gift"]
        assert (await ledger.keys_spent())[key.id] == Decimal("1.25")
        assert (await ledger.list_keys("alice"))[0].last_used is not None
        assert (await ledger.get_account("alice")).name == "Alice"


@pytest.mark.parametrize(
    ("secret", "reason"),
    [
        pytest.param(None, "missing", id="none"),
        pytest.param("", "missing", id="empty"),
        pytest.param("sk-other", "malformed", id="foreign"),
        pytest.param(secrets_of_keys.mint()[:-1] + "!", "malformed", id="typo"),
        pytest.param(secrets_of_keys.mint(), "unknown", id="well-formed"),
        pytest.param("sk-tg-\udcff", "malformed", id="not-utf8"),
    ],
)
async def test_an_invalid_key_is_rejected_with_its_reason(
    alice_in_either: Alice, secret: str | None, reason: str
) -> None:
    with pytest.raises(Unauthorized) as refused:
        alice_in_either.ledger.find_key(secret)
    assert refused.value.reason == reason


async def test_a_rejection_shows_only_the_end_of_the_secret(alice_in_either: Alice) -> None:
    secret = secrets_of_keys.mint()
    with pytest.raises(Unauthorized) as refused:
        alice_in_either.ledger.find_key(secret)
    assert refused.value.shown == f"sk-tg-...{secret[-4:]}"


async def test_an_expired_key_is_rejected(alice_in_either: Alice) -> None:
    await alice_in_either.ledger.update_key(alice_in_either.key.id, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    with pytest.raises(Unauthorized) as refused:
        alice_in_either.ledger.find_key(alice_in_either.secret)
    assert refused.value.reason == "expired"


def test_a_key_expires_exactly_at_its_time() -> None:
    now, memory = datetime.now(UTC), Memory(Credits())
    secret = secrets_of_keys.mint()
    memory.put_key(KeyRecord("key_1", "alice", expires_at=now), secrets_of_keys.digest(secret))
    assert memory.find_key(secret, now - timedelta(microseconds=1)).id == "key_1"
    with pytest.raises(Unauthorized):
        memory.find_key(secret, now)


async def test_a_revoked_key_is_rejected_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async with new_ledger(tmp_path) as ledger:
        await ledger.create_account("alice")
        key, secret = await ledger.create_key("alice")
        await ledger.revoke_key(key.id)
        with pytest.raises(Unauthorized, match="revoked"):
            ledger.find_key(secret)
    async with new_ledger(tmp_path) as ledger:
        with pytest.raises(Unauthorized, match="revoked"):
            ledger.find_key(secret)


async def test_a_secret_is_stored_nowhere(tmp_path: Path) -> None:
    async with new_ledger(tmp_path, apply_seconds=60) as ledger:
        await ledger.create_account("alice")
        _, secret = await ledger.create_key("alice", "laptop")
        contents = b"".join(path.read_bytes() for path in (tmp_path / "var").rglob("*") if path.is_file())
    contents += b"".join(path.read_bytes() for path in (tmp_path / "var").rglob("*") if path.is_file())
    assert secret.encode() not in contents
    assert secret[6:20].encode() not in contents


async def test_a_full_batch_is_stored_without_waiting(tmp_path: Path) -> None:
    async with new_ledger(tmp_path, apply_seconds=60, publish_seconds=60) as ledger:
        await ledger.create_account("alice")
        await asyncio.gather(*(ledger.record(row()) for _ in range(2 * BATCH)))
        await until(lambda: ledger._backend.store.progress("applied") >= BATCH)


async def test_a_balance_for_ten_admits_ten_of_two_hundred_parallel_calls(alice_in_either: Alice) -> None:
    async def call() -> bool:
        try:
            hold = await alice_in_either.ledger.hold(alice_in_either.key, Decimal(1))
        except QuotaExhausted:
            return False
        with hold:
            await asyncio.sleep(0.01)
            await alice_in_either.ledger.record(row(cost="0.9"), hold)
        return True

    admitted = await asyncio.gather(*(call() for _ in range(200)))
    assert sum(admitted) == 10
    assert alice_in_either.ledger.balance("alice") == 1
    assert await available_to(alice_in_either.ledger, "alice") == 1


async def test_a_hold_is_never_reduced_beside_others(alice_in_either: Alice) -> None:
    key = alice_in_either.key
    results = await asyncio.gather(
        *(alice_in_either.ledger.hold(key, Decimal(4)) for _ in range(12)), return_exceptions=True
    )
    held = [each for each in results if not isinstance(each, BaseException)]
    assert [each.amount for each in held] == [4, 4]
    assert {type(each) for each in results if isinstance(each, BaseException)} == {QuotaExhausted}
    smaller = await alice_in_either.ledger.hold(key, Decimal(2))
    assert smaller.amount == 2
    for each in (*held, smaller):
        each.release()


async def test_a_hold_without_others_is_reduced_to_the_balance(alice_in_either: Alice) -> None:
    for _ in range(2):  # released credits can be held again
        with await alice_in_either.ledger.hold(alice_in_either.key, Decimal(2)) as hold:
            assert hold.amount == 2
        await alice_in_either.ledger.record(row(cost="4.5"))
    with await alice_in_either.ledger.hold(alice_in_either.key, Decimal(2)) as hold:
        assert hold.amount == 1


async def test_tokens_are_corrected_by_the_limit_that_the_key_has_now(alice_in_either: Alice) -> None:
    ledger = alice_in_either.ledger
    before = await ledger.update_key(alice_in_either.key.id, tpm=1000)
    await ledger.admit(before, 500)
    now = await ledger.update_key(before.id, tpm=1_000_000)
    ledger.used_tokens(before, 900, 500)
    left = (await ledger.admit(now, 1)).tokens
    assert left is not None
    assert 499_000 < left.remaining < 600_000, "half of the minute, less 400 tokens"


async def test_the_minimum_balance_is_inclusive(alice_in_either: Alice) -> None:
    ledger = alice_in_either.ledger
    await ledger.record(row(cost="9.99"))
    ledger.require_balance("alice")
    ledger.require_credits(alice_in_either.key)
    hold = await ledger.hold(alice_in_either.key, Decimal(1))
    assert hold.amount == Decimal("0.01")
    await ledger.record(row(cost="0.000000000001"), hold)
    with pytest.raises(QuotaExhausted):
        ledger.require_balance("alice")
    with pytest.raises(QuotaExhausted):
        ledger.require_credits(alice_in_either.key)
    with pytest.raises(QuotaExhausted):
        await ledger.hold(alice_in_either.key, Decimal(0))


async def test_a_hold_is_limited_by_the_maximum_and_the_available_credits(alice: Alice) -> None:
    first = await alice.ledger.hold(alice.key, Decimal(1000))
    second = await alice.ledger.hold(alice.key, Decimal(1000))
    assert (first.amount, second.amount) == (5, 5)
    with pytest.raises(QuotaExhausted):
        await alice.ledger.hold(alice.key, Decimal(0))
    first.release()
    first.release()
    assert await available_to(alice.ledger, "alice") == 5
    third = await alice.ledger.hold(alice.key, Decimal("4.995"))
    with pytest.raises(QuotaExhausted):
        alice.ledger.require_credits(alice.key)
    third.release()
    second.release()
    assert await available_to(alice.ledger, "alice") == 10


async def test_a_negative_hold_adds_no_credits(alice_in_either: Alice) -> None:
    with await alice_in_either.ledger.hold(alice_in_either.key, Decimal(-5)) as hold:
        assert hold.amount == 0
        assert (await alice_in_either.ledger.sums("alice")).held == 0


async def test_credits_released_by_a_capped_key_can_be_held_again(alice_in_either: Alice) -> None:
    key = await alice_in_either.ledger.update_key(alice_in_either.key.id, spend_cap=Decimal(1))
    for _ in range(3):
        with await alice_in_either.ledger.hold(key, Decimal(5)) as hold:
            assert hold.amount == 1


async def test_requests_of_a_key_are_not_admitted_beside_others_beyond_its_cap(alice_in_either: Alice) -> None:
    """As with a balance: each would be admitted with the little that another's end gave back, and overdraw the cap."""
    key = await alice_in_either.ledger.update_key(alice_in_either.key.id, spend_cap=Decimal(1))
    other, _ = await alice_in_either.ledger.create_key("alice", "desk")
    with await alice_in_either.ledger.hold(key, Decimal("0.4")):
        with await alice_in_either.ledger.hold(key, Decimal("0.6")):
            pass
        with pytest.raises(QuotaExhausted, match="^insufficient quota$"):
            await alice_in_either.ledger.hold(key, Decimal("0.7"))
        with await alice_in_either.ledger.hold(other, Decimal(1)):
            pass
    with await alice_in_either.ledger.hold(other, Decimal(1)):
        assert (await alice_in_either.ledger.hold(key, Decimal(5))).amount == 1


async def test_a_cancelled_record_charges_and_releases_once(alice_in_either: Alice) -> None:
    hold = await alice_in_either.ledger.hold(alice_in_either.key, Decimal(1))

    async def record() -> None:
        await alice_in_either.ledger.record(row("req_gone", cost="0.5"), hold)

    task = asyncio.create_task(record())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await alice_in_either.ledger.record(row("req_gone", cost="0.5"), hold)
    assert await available_to(alice_in_either.ledger, "alice") == Decimal("9.5")


@pytest.mark.parametrize(
    ("window", "today", "first", "next_first"),
    [
        ("day", "2026-12-31", "2026-12-31", "2027-01-01"),
        ("week", "2026-11-22", "2026-11-16", "2026-11-23"),
        ("week", "2026-11-23", "2026-11-23", "2026-11-30"),
        ("month", "2026-01-31", "2026-01-01", "2026-02-01"),
        ("month", "2026-12-05", "2026-12-01", "2027-01-01"),
    ],
)
def test_the_days_of_a_spend_cap_window(window, today: str, first: str, next_first: str) -> None:
    assert cap_days(window, date.fromisoformat(today)) == (date.fromisoformat(first), date.fromisoformat(next_first))


@pytest.mark.parametrize("window", ["day", "week", "month", "total"])
async def test_a_spend_cap_stops_the_key_but_not_the_account(alice: Alice, window: str) -> None:
    key = await alice.ledger.update_key(alice.key.id, spend_cap=Decimal(1), cap_window=window)
    held = await alice.ledger.hold(key, Decimal(5))
    assert held.amount == 1
    with pytest.raises(QuotaExhausted, match="spend cap"):
        await alice.ledger.hold(key, Decimal(5))
    await alice.ledger.record(row(cost="1", key_id=key.id), held)
    reset = "" if window == "total" else r"; it starts anew on \d{4}-\d\d-\d\d \(UTC\)"
    with pytest.raises(QuotaExhausted, match=f"^insufficient quota: the key's spend cap is reached{reset}$"):
        alice.ledger.require_credits(key)
    other, _ = await alice.ledger.create_key("alice", "desk")
    alice.ledger.require_credits(other)


@pytest.mark.usefixtures("within_one_day")
@pytest.mark.parametrize(
    ("window", "days_ago", "counts"),
    [("day", 0, True), ("day", 1, False), ("week", 8, False), ("month", 32, False), ("total", 400, True)],
)
async def test_a_spend_cap_window_excludes_older_costs(
    tmp_path: Path, window: str, days_ago: int, counts: bool
) -> None:
    when = datetime.now(UTC) - timedelta(days=days_ago)
    async with new_ledger(tmp_path) as ledger:
        await ledger.create_account("alice")
        key, _ = await ledger.create_key("alice", spend_cap=Decimal(1), cap_window=window)
        await ledger.record(row(cost="1", key_id=key.id, time=when))
        assert (await ledger.keys_spent())[key.id] == (1 if counts else 0)
    async with new_ledger(tmp_path) as ledger:
        assert (await ledger.keys_spent())[key.id] == (1 if counts else 0)


@pytest.mark.usefixtures("within_one_day")
@pytest.mark.parametrize("window", ["day", "week", "month"])
async def test_costs_from_a_time_when_the_clock_was_set_ahead_do_not_reach_todays_cap(
    alice_in_either: Alice, window: str
) -> None:
    ledger = alice_in_either.ledger
    key = await ledger.update_key(alice_in_either.key.id, spend_cap=Decimal(1), cap_window=window)
    await ledger.record(row(cost="0.3", key_id=key.id))
    await ledger.record(row(cost="1", key_id=key.id, time=datetime.now(UTC) + timedelta(days=40)))
    assert (await ledger.keys_spent())[key.id] == Decimal("0.3")
    assert (await ledger.hold(key, Decimal(5))).amount == Decimal("0.7")


@pytest.mark.usefixtures("within_one_day")
async def test_sums_of_all_keys_and_accounts_are_read_at_once(alice_in_either: Alice) -> None:
    ledger = alice_in_either.ledger
    await ledger.create_account("bob")
    keys = [alice_in_either.key] + [
        (await ledger.create_key(account, cap_window=window))[0]
        for account, window in (("alice", "day"), ("alice", "week"), ("bob", "month"), ("bob", "day"))
    ]
    for days in (0, 1, 8, 32, 400):
        for key in keys[:4]:
            await ledger.record(
                row(account_id=key.account_id, key_id=key.id, cost="0.1", time=datetime.now(UTC) - timedelta(days=days))
            )
    spent = await ledger.keys_spent()
    assert (spent[keys[0].id], spent[keys[1].id], spent[keys[4].id]) == (Decimal("0.5"), Decimal("0.1"), 0)
    assert await ledger.keys_spent("bob") == {key.id: spent[key.id] for key in keys[3:]}
    assert await ledger.list_sums() == [await ledger.sums("alice"), await ledger.sums("bob")]
    assert [key.id for key in await ledger.list_keys("bob")] == [key.id for key in keys[3:]]


async def test_the_hold_of_a_repeated_row_is_released(alice: Alice) -> None:
    for _ in range(2):
        await alice.ledger.record(row("req_1", cost="1"), await alice.ledger.hold(alice.key, Decimal(4)))
        assert alice.ledger.balance("alice") == await available_to(alice.ledger, "alice") == 9


async def test_a_changed_account_is_restored_after_a_restart(tmp_path: Path) -> None:
    async with new_ledger(tmp_path) as ledger:
        await ledger.create_account("alice", "Alice")
        await ledger.update_account("alice", name="Alice B.", role="operator", password_hash="scrypt$x")
    async with new_ledger(tmp_path) as ledger:
        found = await ledger.get_account("alice")
        assert (found.name, found.role, found.password_hash) == ("Alice B.", "operator", "scrypt$x")


async def test_a_change_that_cannot_be_encoded_is_not_made(alice: Alice) -> None:
    for change in (
        alice.ledger.update_account("alice", name=object()),
        alice.ledger.update_key(alice.key.id, name=object()),
        alice.ledger.grant("alice", Decimal(1), object()),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError):
            await change
    account, key = await alice.ledger.get_account("alice"), await alice.ledger.get_key(alice.key.id)
    assert (account.name, key.name, alice.ledger.balance("alice")) == ("Alice", "laptop", 10)


async def test_the_default_account_is_created_once(tmp_path: Path) -> None:
    async with new_ledger(tmp_path) as ledger:
        secret = await ledger.ensure_default_account()
        assert secret is not None
        assert ledger.find_key(secret).account_id == "default"
        assert ledger.balance("default") == 100
        assert await ledger.ensure_default_account() is None
    async with new_ledger(tmp_path) as ledger:
        assert await ledger.ensure_default_account() is None


async def test_a_store_is_used_by_one_process_at_a_time(alice: Alice) -> None:
    other = Ledger(alice.ledger.store, Credits())
    with pytest.raises(TollgateError, match="in use by another process"):
        await other.open(patience=0)
    assert not other.ready


async def test_a_closed_ledger_rejects_rows_and_changes(tmp_path: Path) -> None:
    ledger = new_ledger(tmp_path)
    assert not ledger.ready
    await ledger.open()
    assert ledger.ready
    await ledger.close()
    assert "shutting down" in ledger.not_ready_reason
    with pytest.raises(Unavailable):
        await ledger.record(row())
    with pytest.raises(Unavailable):
        await ledger.create_account("late")


async def test_a_folder_that_cannot_be_used_is_reported(tmp_path: Path) -> None:
    (tmp_path / "var").write_text("a file where a folder should be")
    with pytest.raises(TollgateError, match="the ledger cannot be kept here"):
        await new_ledger(tmp_path).open()


async def test_mistakes_of_an_operator_are_reported(alice_in_either: Alice) -> None:
    with pytest.raises(BadRequest, match="exists already"):
        await alice_in_either.ledger.create_account("alice")
    with pytest.raises(NotFound, match='no account "bob"'):
        await alice_in_either.ledger.grant("bob", Decimal(1))
    with pytest.raises(BadRequest, match="non-zero"):
        await alice_in_either.ledger.grant("alice", Decimal(0))
    with pytest.raises(BadRequest, match="cap is 1000000000001, wanted 0 to"):
        await alice_in_either.ledger.update_key(alice_in_either.key.id, spend_cap=Decimal(10) ** 12 + 1)
    with pytest.raises(BadRequest, match="last_four cannot be changed"):
        await alice_in_either.ledger.update_key(alice_in_either.key.id, last_four="0000")
