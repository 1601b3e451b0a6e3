"""Several gateways on one database: what one does applies to all, and what must happen once happens once."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import asyncpg
import duckdb
import pytest

from support.waiting import until
from tollgate.config.settings import Credits, Store
from tollgate.errors import BadRequest, QuotaExhausted, RateLimited, Unauthorized
from tollgate.ledger import Hold, JobRow, KeyRecord, Ledger, StoreInUse, ledger_of, records
from tollgate.ledger.admin_socket import open_books
from tollgate.ledger.memory import Memory

from ..conftest import DONE, Alice, job, row, with_alice

Gateway = Callable[[str], Awaitable[Ledger]]


@pytest.fixture
async def alice_and_other(gateway: Gateway) -> tuple[Alice, Ledger]:
    """Alice at one gateway with 10 credits, and another gateway."""
    alice, other = await with_alice(await gateway("a")), await gateway("b")
    other.find_key(alice.secret)
    return alice, other


async def test_a_change_is_not_undone_by_an_earlier_read(alice_and_other, monkeypatch) -> None:
    alice, _ = alice_and_other
    shared = alice.ledger._backend
    read, read_before, go_on = shared.records.keys, asyncio.Event(), asyncio.Event()

    async def read_slowly(*ids: str) -> object:
        found = await read(*ids)
        read_before.set()
        await go_on.wait()
        return found

    async def ignored(what: str, id: str) -> None:
        """The later notification of the change would repair the state."""

    monkeypatch.setattr(shared._listener, "_changed", ignored)
    monkeypatch.setattr(shared.records, "keys", read_slowly)
    before = asyncio.create_task(shared.reread("key", alice.key.id))
    await read_before.wait()
    monkeypatch.setattr(shared.records, "keys", read)
    revoked = asyncio.create_task(alice.ledger.revoke_key(alice.key.id))

    async def stored() -> bool:
        return (await read(alice.key.id))[0][0].revoked

    await until(stored)
    await asyncio.wait([revoked], timeout=0.2)
    go_on.set()
    await asyncio.gather(before, revoked)
    with pytest.raises(Unauthorized):
        alice.ledger.find_key(alice.secret)


async def test_the_holds_of_all_gateways_stay_within_the_balance(alice_and_other) -> None:
    alice, other = alice_and_other
    results = await asyncio.gather(
        *(ledger.hold(alice.key, Decimal("0.4")) for ledger in (alice.ledger, other) for _ in range(30)),
        return_exceptions=True,
    )
    held = [each for each in results if not isinstance(each, BaseException)]
    assert len(held) == 25
    assert {type(each) for each in results if isinstance(each, BaseException)} == {QuotaExhausted}
    for each in held:
        each.release()
    await alice.ledger.settle()
    await other.settle()
    assert (await other.sums("alice")).held == 0


@pytest.mark.parametrize("window", ["day", "total"])
async def test_a_cap_counts_spend_and_holds_of_all_gateways(alice_and_other, window: str) -> None:
    alice, other = alice_and_other
    key = await alice.ledger.update_key(alice.key.id, spend_cap=Decimal(2), cap_window=window)
    first = await alice.ledger.hold(key, Decimal("0.5"))
    await alice.ledger.record(row(key_id=key.id, cost="0.75"), first)
    second = await other.hold(key, Decimal(5))
    assert second.amount == Decimal("1.25")
    with pytest.raises(QuotaExhausted, match="spend cap"):
        await alice.ledger.hold(key, Decimal(1))
    assert (await other.keys_spent())[key.id] == Decimal("0.75")


async def test_rate_limits_are_shared_by_all_gateways(alice_and_other) -> None:
    alice, other = alice_and_other
    key = await alice.ledger.update_key(alice.key.id, rpm=3, tpm=1000)
    first = await alice.ledger.admit(key, 400)
    assert (first.requests.limit, first.requests.remaining, first.tokens.remaining) == (3, 2, 600)
    await until(lambda: other.find_key(alice.secret).tpm == key.tpm)  # it corrects by the limit that it knows
    other.used_tokens(key, 100, 400)
    assert (await other.admit(key, 100)).tokens.remaining >= 800, "300 were returned"
    assert (await alice.ledger.admit(key, 100)).requests.remaining == 0
    with pytest.raises(RateLimited) as rejected:
        await other.admit(key, 1)
    assert 0 < rejected.value.retry_after <= 20
    assert (rejected.value.limits.requests.remaining, rejected.value.limits.tokens) == (
        0,
        None,
    ) and 40 < rejected.value.limits.requests.reset_seconds <= 60
    key = await other.update_key(key.id, rpm=None, tpm=1000)
    with pytest.raises(RateLimited) as rejected:
        await other.admit(key, 950)
    assert rejected.value.limits.requests is None
    assert rejected.value.limits.tokens.limit == 1000
    assert 700 <= rejected.value.limits.tokens.remaining < 950
    assert (await other.admit(key, 100)).requests is None


async def test_holds_are_granted_and_refused_as_by_an_embedded_store(gateway: Gateway) -> None:
    """The rule is written twice: for one process in Python, for several in SQL."""
    draw = random.Random(2)
    gateways, alone = [await gateway("a"), await gateway("b")], Memory(Credits())
    await gateways[0].create_account("alice")
    await gateways[0].grant("alice", Decimal(1), "start")
    alone.granted["alice"] = Decimal(1)
    caps = [(None, "total"), (Decimal("0.3"), "total"), (Decimal("0.1"), "month")]
    keys = [(await gateways[0].create_key("alice", spend_cap=cap, cap_window=window))[0] for cap, window in caps]
    running: list[tuple[Ledger, KeyRecord, Hold, Hold]] = []
    refusals = 0
    for _ in range(24):
        ledger, key = draw.choice(gateways), draw.choice(keys)
        amounts = [Decimal(draw.choice(["0", "0.01", "0.05", "0.1", "0.4", "2"])) for _ in range(draw.choice([1, 3]))]
        # asked together, so in one round
        together = await asyncio.gather(*(ledger.hold(key, each) for each in amounts), return_exceptions=True)
        for amount, found in zip(amounts, together, strict=True):
            try:
                wanted = alone.hold(key, amount)
            except QuotaExhausted as refused:
                refusals += 1
                assert str(found) == str(refused)
            else:
                assert isinstance(found, Hold)
                assert found.amount == wanted.amount
                running.append((ledger, key, found, wanted))
        while len(running) > draw.randrange(5):
            ledger, key, one, other = running.pop(draw.randrange(len(running)))
            # 40 days ahead: from a time when the clock was wrong, so it does not count towards this month's cap
            when = datetime.now(UTC) + timedelta(days=draw.choice([0, 40]))
            charged = row(key_id=key.id, cost=draw.choice(["0", "0.01", "0.04"]), time=when)
            await ledger.record(charged, one)
            alone.charge(charged.request_id, "alice", key.id, charged.cost, charged.time)
            other.release()
            await ledger._backend.rounds.mark()
    assert refusals > 9


@pytest.mark.parametrize("limit", ["rpm", "tpm"])
async def test_nothing_remains_of_a_limit_of_zero(alice: Alice, limit: str) -> None:
    with pytest.raises(RateLimited) as rejected:
        await alice.ledger.admit(replace(alice.key, **{limit: 0}), 5)
    standing = rejected.value.limits.requests or rejected.value.limits.tokens
    assert (standing.limit, standing.remaining, standing.reset_seconds, rejected.value.retry_after) == (0, 0, 60, 60)


async def test_a_request_without_counted_tokens_waits_for_a_token_too(alice: Alice) -> None:
    key = replace(alice.key, tpm=2)
    await alice.ledger.admit(key, 2)
    with pytest.raises(RateLimited):
        await alice.ledger.admit(key, 0)


async def test_a_request_is_charged_once_by_any_gateway(alice_and_other) -> None:
    alice, other = alice_and_other
    await asyncio.gather(
        *(ledger.record(row("req_one", cost="1")) for ledger in (alice.ledger, other) for _ in range(3))
    )
    assert (await other.sums("alice")).spent == 1


async def test_changes_of_one_gateway_are_known_to_the_other(alice_and_other) -> None:
    alice, other = alice_and_other
    _, secret = await other.create_key("alice", "desk")
    await until(lambda: len(alice.ledger._memory.keys) == 2)
    assert alice.ledger.find_key(secret).name == "desk"
    await alice.ledger.revoke_key(alice.key.id)
    with pytest.raises(Unauthorized):
        alice.ledger.find_key(alice.secret)
    await until(lambda: other._memory.keys[alice.key.id].revoked)
    await other.update_account("alice", password_hash="scrypt$2")
    await alice.ledger.grant("alice", Decimal(5))
    await until(
        lambda: alice.ledger._memory.accounts["alice"].password_hash == "scrypt$2" and other.balance("alice") == 15
    )


async def test_simultaneous_changes_of_different_fields_are_both_kept(alice_and_other) -> None:
    alice, other = alice_and_other
    await asyncio.gather(
        alice.ledger.update_key(alice.key.id, revoked=True),
        other.update_key(alice.key.id, name="old laptop", allowed_models=["acme/*"]),
    )
    key = (await other.list_keys("alice"))[0]
    assert (key.revoked, key.name, key.allowed_models) == (True, "old laptop", ("acme/*",))


async def test_an_account_is_created_once(alice_and_other) -> None:
    alice, other = alice_and_other
    made = await asyncio.gather(alice.ledger.create_account("bob"), other.create_account("bob"), return_exceptions=True)
    assert sorted(type(each).__name__ for each in made) == ["Account", "BadRequest"]
    with pytest.raises(BadRequest, match='"bob" exists already'):
        await other.create_account("bob")


async def test_only_one_of_two_first_starts_creates_the_default_account(gateway: Gateway) -> None:
    ledgers = [await gateway("a"), await gateway("b")]
    secrets = await asyncio.gather(*(each.ensure_default_account() for each in ledgers))
    assert sum(secret is not None for secret in secrets) == 1
    assert [account.id for each in ledgers for account in await each.list_accounts()] == ["default", "default"]
    assert (await ledgers[0].sums("default")).granted == 100
    assert len(await ledgers[1].list_keys()) == 1


async def test_a_job_is_ended_once_by_any_gateway(alice_and_other) -> None:
    alice, other = alice_and_other
    made = job(
        input={"prompt": "a \u2603 \0"},
        upstream_state={"poll": ["x"]},
        row=JobRow(held=Decimal(1)),
        key_id=alice.key.id,
    )
    hold = await alice.ledger.hold(alice.key, Decimal(1))
    await alice.ledger.generations.create(made)
    assert await other.generations.get("alice", made.id) == made
    assert await other.generations.pending() == await other.generations.pending("alice") == [made]
    assert (await other.generations.pending("bob"), await other.generations.pending_ids()) == ([], [made.id])
    assert await other.generations.running(made.id) == made
    with pytest.raises(ValueError, match="exists already"):
        await other.generations.create(replace(made, account_id="bob"))
    won = await asyncio.gather(
        *(
            ledger.generations.update(
                made.id,
                DONE,
                row(f"req_{ledger.store.instance}", cost="0.04"),
                hold if ledger is alice.ledger else None,
            )
            for ledger in (alice.ledger, other)
            for _ in range(10)
        )
    )
    assert sum(won) == 1
    assert await other.generations.running(made.id) is None
    assert [each.status for each in await alice.ledger.generations.succeeded("alice", 100)] == ["succeeded"]
    hold.release()
    await alice.ledger.settle()
    sums = await other.sums("alice")
    assert (sums.spent, sums.held) == (Decimal("0.04"), 0)


async def test_a_job_of_a_gateway_that_is_gone_is_adopted_once(alice_and_other, store: Callable[[str], Store]) -> None:
    alice, other = alice_and_other
    async with ledger_of(store("c"), Credits()) as third:
        made = job(input={"prompt": "a nul \0"}, row=JobRow(instance="c", held=Decimal(1)), answer={"a": 1.0})
        await third.generations.create(made)
        assert await other.generations.gone({"a", "c", "d"}) == {"d"}
        assert await other.generations.adopt(made.id, "c", "b") is None
    await until(lambda: other.generations.gone({"a", "c"}))  # the database notices the end of a session with a delay
    assert await other.generations.gone({"a", "c"}) == {"c"}
    taken = await asyncio.gather(
        *(
            ledger.generations.adopt(made.id, "c", ledger.store.instance)
            for ledger in (alice.ledger, other)
            for _ in range(5)
        )
    )
    [adopted] = [each for each in taken if each is not None]
    assert adopted == replace(made, row=replace(made.row, instance=adopted.row.instance))
    assert await other.generations.pending() == [adopted]
    assert adopted.row.instance in ("a", "b")
    await other.generations.update(made.id, DONE)
    assert await alice.ledger.generations.adopt(made.id, adopted.row.instance, "a") is None
    async with ledger_of(store("c"), Credits()) as third:
        assert third.ready


async def test_a_list_of_jobs_reads_few_of_them_at_a_time(alice: Alice, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pictures of a hundred jobs are more than a gateway's memory."""
    monkeypatch.setattr(records, "LISTED_BYTES", 5000)
    for _ in range(9):
        await alice.ledger.generations.create(job(status="succeeded", images=({"data": "A" * 1000},)))
    connections, read = alice.ledger._backend.connections, []
    rows = connections.rows

    async def noting(*given: object) -> list[Any]:
        found = await rows(*given)
        read.append(sum(len(row.get("document") or "") for row in found))
        return found

    monkeypatch.setattr(connections, "rows", noting)
    assert len(await alice.ledger.generations.succeeded("alice", 100)) == 5
    assert max(read) <= 5000


async def test_a_link_signs_in_once_at_any_gateway(alice_and_other) -> None:
    alice, other = alice_and_other
    token = await alice.ledger.links.make("alice")
    assert await other.links.look(token) == "alice"
    assert sorted(await asyncio.gather(other.links.take(token), alice.ledger.links.take(token)), key=str) == [
        None,
        "alice",
    ]


async def test_a_form_works_once_at_all_gateways(alice_and_other) -> None:
    alice, other = alice_and_other
    forms = [alice.ledger.forms, other.forms, alice.ledger.forms]
    assert sum(await asyncio.gather(*(each.is_new("form-1") for each in forms))) == 1
    assert await other.forms.is_new("form-2")


async def test_sessions_and_provider_ids_are_known_to_all(alice_and_other) -> None:
    alice, other = alice_and_other
    assert alice.ledger.sessions.secret == other.sessions.secret
    await asyncio.to_thread(alice.ledger.sessions.end, "session-1", 2_000_000_000)
    await until(lambda: "session-1" in other.sessions.ended)
    await alice.ledger.register.remember("alice", "acme", ["resp_1", "file_2", "file_2"])  # named twice
    assert [await other.register.provider_of(account, "file_2") for account in ("alice", "bob")] == ["acme", None]
    assert [await other.register.foreign(account, ["nobody's", "file_2"]) for account in ("alice", "bob")] == [
        None,
        "file_2",
    ]
    await alice.ledger.register.remember_minter("alice", "elsewhere", ["ENC"])
    assert [await other.register.minters_of(account, ["ENC", "x"]) for account in ("alice", "bob")] == [
        {"ENC": "elsewhere"},
        {},
    ]


async def test_a_command_changes_what_gateways_know(alice_and_other, store: Callable[[str], Store]) -> None:
    alice, _ = alice_and_other
    async with open_books(store("command"), Credits()) as administration:
        await administration.revoke_key(alice.key.id)
        await administration.grant("alice", Decimal("2.5"))
        alice.ledger.links.address = "https://gateway.example/dashboard/link/"
        await alice.ledger.create_link("alice")
        assert (await administration.create_link("alice")).startswith("https://gateway.example/dashboard/link/")
    await until(
        lambda: alice.ledger._memory.keys[alice.key.id].revoked and alice.ledger.balance("alice") == Decimal("12.5")
    )


async def test_each_gateway_publishes_its_own_rows(alice_and_other, tmp_path) -> None:
    alice, other = alice_and_other
    for number in range(3):
        await alice.ledger.record(row(f"req_a{number}", cost="0.000000000001", end_user="a nul \0 and \\u0000"))
    await other.record(row("req_b", cost="0.5"))
    await alice.ledger.settle()
    await other.settle()
    found = duckdb.sql(
        f"SELECT parse_filename(filename), count(*), sum(cost) FROM read_duckdb('{tmp_path}/usage/**/*.duckdb', "
        "table_name = 'usage', union_by_name = true, filename = true) GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert [(name[2:], count, cost) for name, count, cost in found] == [
        ("-a.duckdb", 3, Decimal("0.000000000003")),
        ("-b.duckdb", 1, Decimal("0.5")),
    ]


async def test_an_instance_name_is_used_by_one_gateway_at_a_time(gateway: Gateway, store, tmp_path) -> None:
    await gateway("a")
    with pytest.raises(StoreInUse, match='another gateway named "a" uses this store; give each a `store.instance`'):
        await ledger_of(replace(store("a"), usage_directory=tmp_path / "elsewhere"), Credits()).open(patience=0)


async def test_the_sum_of_all_rows_equals_the_spend_in_any_order_of_requests(alice_and_other, address: str) -> None:
    alice, other = alice_and_other
    rng = random.Random(5)

    async def request(ledger: Ledger, number: int) -> None:
        with contextlib.suppress(QuotaExhausted), await ledger.hold(alice.key, Decimal("0.1")) as hold:
            await asyncio.sleep(rng.random() / 50)
            if rng.random() < 0.9:
                await ledger.record(
                    row(f"req_{number % 350}", key_id=alice.key.id, cost=str(Decimal(rng.randrange(1, 101)) / 1000)),
                    hold,
                )

    tasks = [asyncio.create_task(request(rng.choice((alice.ledger, other)), number)) for number in range(400)]
    for task in rng.sample(tasks, 60):
        asyncio.get_running_loop().call_later(rng.random() / 20, task.cancel)
    await asyncio.gather(*tasks, return_exceptions=True)
    await alice.ledger.settle()
    await other.settle()
    connection = await asyncpg.connect(address)
    rows = await connection.fetchval("SELECT sum(cost) FROM tollgate.usage")
    days = await connection.fetchval("SELECT sum(spent) FROM tollgate.key_days")
    left = await connection.fetchval("SELECT coalesce(sum(amount), 0) FROM tollgate.holds")
    await connection.close()
    sums = await other.sums("alice")
    assert (sums.spent, days, sums.held, left) == (rows, rows, 0, 0)
    assert 2 < rows <= 10
