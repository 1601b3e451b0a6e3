"""Moving an embedded store into a shared one: all or nothing, with exact sums."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg
import duckdb
import pytest

from support.waiting import until
from tollgate.config.settings import Credits, Store
from tollgate.errors import TollgateError
from tollgate.ledger import Ledger, StoreInUse, ledger_of
from tollgate.ledger.shared import moving
from tollgate.remembered.minted import Minted

from ..conftest import DONE, job, row, settings, with_alice
from ..later import ten_minutes_later

OLD = datetime.now(UTC) - timedelta(days=40)
MOVED = moving.MOVED_NAME


async def facts(ledger: Ledger) -> Any:
    """What must be equal before and after."""
    accounts, jobs = await ledger.list_accounts(), ledger.generations
    keys = await ledger.list_keys()
    return {
        "accounts": accounts,
        "keys": keys,
        "sums": [await ledger.sums(each.id) for each in accounts],
        "windows": await ledger.keys_spent(),
        "grants": [await ledger.list_grants(each.id) for each in accounts],
        "pending": await jobs.pending(),
        "jobs": sorted(
            [await jobs.get("alice", each.id) for each in await jobs.succeeded("alice", 100)],
            key=lambda each: each.id,
        ),
    }


@pytest.fixture
async def source(tmp_path: Path) -> Store:
    """A closed store with some of every kind of data. Alice's secret is in `secret.txt`."""
    store = settings(tmp_path, keep_rows_days=30)
    async with Ledger(store, Credits()) as ledger:
        alice = await with_alice(ledger)
        (tmp_path / "secret.txt").write_text(alice.secret)
        await ledger.update_account("alice", password_hash="scrypt$x", role="operator")
        await ledger.create_account("bob", "Bob \0 \u2603")
        await ledger.grant("alice", Decimal("-0.000000000007"), "taken back")
        capped, _ = await ledger.create_key(
            "alice",
            "capped",
            allowed_models=["acme/*"],
            expires_at=OLD,
            spend_cap=Decimal("2.5"),
            cap_window="month",
            rpm=3,
            tpm=4,
            strict=True,
            max_concurrent=5,
            endpoints=["chat", "images"],
            allowed_addresses=["192.0.2.1", "2001:db8::/32"],
        )
        await ledger.revoke_key(capped.id)
        for number in range(40):
            await ledger.record(
                row(
                    f"req_{number}",
                    key_id=(alice.key, capped)[number % 2].id,
                    cost=f"0.{number:012d}",
                    end_user="nul \0 \u2603" if number else None,
                    ttfb_ms=0.5,
                    time=OLD if number < 10 else datetime.now(UTC),
                )
            )
        await ten_minutes_later(ledger)
        for made, changes in (
            (job(id="11111111-1111-1111-1111-111111111111", input={"p": "\0"}), None),
            (job(id="22222222-2222-2222-2222-222222222222"), DONE | {"cost": Decimal("0.04")}),
            (
                job(id="33333333-3333-3333-3333-333333333333"),
                DONE | {"images": ({"data": "A" * 100_000},), "answer": {"big": True}},
            ),
        ):
            await ledger.generations.create(made)
            if changes:
                await ledger.generations.update(
                    made.id, changes, row(f"req_{made.id[0]}_job", key_id=alice.key.id, cost="0.04")
                )
        await ledger.settle()
    minted = Minted(store.directory / "minted.sqlite")
    await minted.remember("alice", "acme", ["resp_1"])
    minted.close()
    return replace(store, keep_rows_days=0)


async def before(source: Store) -> Any:
    async with Ledger(source, Credits()) as ledger:
        return await facts(ledger)


async def empty(observer: asyncpg.Connection) -> bool:
    tables = (
        "accounts",
        "keys",
        "grants",
        "generations",
        "usage",
        "balances",
        "key_sums",
        "key_days",
        "minted",
        "moved",
        "instances",
    )
    return not any([await observer.fetchval(f"SELECT EXISTS (SELECT 1 FROM tollgate.{each})") for each in tables])


def without_null_bytes(found: Any) -> Any:
    """PostgreSQL text cannot contain them."""
    return found | {"accounts": [replace(each, name=each.name.replace("\0", "\ufffd")) for each in found["accounts"]]}


async def test_everything_is_moved_and_every_sum_is_exact(
    source: Store, address: str, tmp_path: Path, observer: asyncpg.Connection
) -> None:
    expected = await before(source)
    moved = await moving.move(source, address)
    assert (moved.accounts, moved.keys, moved.grants, moved.rows, moved.jobs, moved.again) == (2, 2, 2, 32, 3, False)
    async with ledger_of(replace(source, url=address, instance="eu-1"), Credits()) as ledger:
        assert await facts(ledger) == without_null_bytes(expected)
        assert ledger.find_key((tmp_path / "secret.txt").read_text()).name == "laptop"
        assert (
            moved.balance
            == ledger.balance("alice")
            == Decimal("9.919999999993") - sum(Decimal(f"0.{n:012d}") for n in range(40))
        )
        assert await ledger.register.provider_of("alice", "resp_1") == "acme"
        await ledger.record(row("req_new"))
        await ledger.settle()
    assert (
        await observer.fetchval("SELECT end_user FROM tollgate.usage WHERE request_id = 'req_39'")
        == "nul \ufffd \u2603"
    )
    assert (
        await observer.fetchrow("SELECT sum(spent), (SELECT sum(spent) FROM tollgate.balances) FROM tollgate.key_days")
        == (sum(each.spent for each in expected["sums"]) + Decimal("0.01"),) * 2
    )
    found = duckdb.sql(
        f"SELECT parse_filename(filename)[3:], count(*) FROM read_duckdb('{tmp_path}/usage/**/*.duckdb', table_name = "
        "'usage', union_by_name = true, filename = true) GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert found == [("-eu-1.duckdb", 1), (".duckdb", 42)], "published files stay and are not published again"


async def test_times_are_moved_unchanged_in_any_time_zone(
    source: Store, address: str, observer: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = await before(source)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "America/New_York")
        time.tzset()
        await moving.move(source, address)
    time.tzset()
    async with ledger_of(replace(source, url=address, instance="eu-1"), Credits()) as ledger:
        assert await facts(ledger) == without_null_bytes(expected)
    assert await observer.fetchval("SELECT count(*) FROM tollgate.usage WHERE time > now()") == 0


async def test_a_gateway_of_the_same_name_continues_the_numbering(source: Store, address: str, tmp_path: Path) -> None:
    await moving.move(source, address)
    async with ledger_of(replace(source, url=address), Credits()) as ledger:
        await ledger.record(row("req_new"))
        await ledger.settle()
    [[count, numbers]] = duckdb.sql(
        f"SELECT count(*), count(DISTINCT seq) FROM read_duckdb('{tmp_path}/usage/**/*.duckdb', table_name = 'usage')"
    ).fetchall()
    assert count == numbers == 43


async def test_a_repeated_move_does_nothing(source: Store, address: str, observer: asyncpg.Connection) -> None:
    moved = await moving.move(source, address)
    await observer.execute("UPDATE tollgate.keys SET revoked = true")
    again = await moving.move(source, address)
    assert (again.again, again.rows, again.balance) == (True, moved.rows, moved.balance)
    assert await observer.fetchval("SELECT count(*) FROM tollgate.keys WHERE revoked") == 2
    with pytest.raises(TollgateError, match="this store was moved into a shared one"):
        await Ledger(source, Credits()).open()
    (source.directory / MOVED).unlink()  # as if the process had ended before recording the success
    assert (await moving.move(source, address)).again
    assert (source.directory / MOVED).exists()


async def test_a_store_is_moved_into_one_database_only(source: Store, address: str, postgres: Any) -> None:
    await moving.move(source, address)
    async with postgres.database() as other:
        with pytest.raises(TollgateError, match="was moved into another shared one"):
            await moving.move(source, other)


async def test_a_dry_run_changes_nothing(source: Store, address: str, observer: asyncpg.Connection) -> None:
    expected = await before(source)
    assert (await moving.move(source, address, dry_run=True)).rows == 32
    assert await empty(observer)
    assert await before(source) == expected


async def test_a_move_is_rejected_while_a_gateway_uses_the_store(source: Store, address: str) -> None:
    async with Ledger(source, Credits()):
        with pytest.raises(StoreInUse, match="in use by another process"):
            await moving.move(source, address)


async def test_a_move_is_rejected_if_names_exist_already(source: Store, address: str) -> None:
    async with ledger_of(
        Store(url=address, directory=source.directory / "x", usage_directory=source.directory / "y", instance="main"),
        Credits(),
    ) as other:
        with pytest.raises(TollgateError, match='a gateway named "main" runs on the shared store'):
            await moving.move(source, address)
        await other.create_account("bob")
        await other.record(row("req_theirs", account_id="bob"))
    with pytest.raises(
        TollgateError, match='has rows of a gateway named "main" already: move these under another name'
    ):
        await moving.move(source, address)
    with pytest.raises(TollgateError, match=r"has accounts of the same names already \(bob\)"):
        await moving.move(replace(source, instance="old"), address)
    assert not (source.directory / MOVED).exists()


async def test_running_gateways_learn_of_moved_data(source: Store, address: str, tmp_path: Path) -> None:
    async with ledger_of(
        Store(url=address, directory=tmp_path / "b", usage_directory=tmp_path / "b", instance="b"), Credits()
    ) as running:
        await moving.move(source, address)
        await until(lambda: len(running._memory.keys) >= 2)
        assert running.find_key((tmp_path / "secret.txt").read_text()).account_id == "alice"


@pytest.mark.parametrize("what", ["granted", "spent", "spent_by_key"])
async def test_nothing_is_moved_if_a_sum_would_differ(
    source: Store, address: str, observer: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    read = moving.EmbeddedStore.snapshot

    def other(*values: Any) -> Any:
        snapshot = read(*values)
        sums = getattr(snapshot, what)
        sums[next(iter(sums))] += Decimal("0.000000000001")
        return snapshot

    monkeypatch.setattr(moving.EmbeddedStore, "snapshot", other)
    with pytest.raises(TollgateError, match=r"nothing was moved: .* was .*, would be"):
        await moving.move(source, address)
    assert await empty(observer)
    assert not (source.directory / MOVED).exists()


async def test_nothing_is_moved_if_the_connection_is_lost(
    source: Store, address: str, observer: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = moving._Move._add_sums

    async def cut(move: Any) -> None:
        await observer.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tollgate store move'"
        )
        await sums(move)

    with monkeypatch.context() as patched:
        patched.setattr(moving._Move, "_add_sums", cut)
        with pytest.raises(TollgateError, match="the database cannot be used"):
            await moving.move(source, address)
    assert await empty(observer)
    assert not (source.directory / MOVED).exists()
    assert not (await moving.move(source, address)).again


@pytest.mark.parametrize("committed", [False, True])
async def test_a_store_with_an_unfinished_move_cannot_be_opened(
    source: Store, address: str, observer: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    run, mark = moving._Move.run, moving._mark

    async def run_and_end(move: Any, *, dry_run: bool) -> Any:
        await run(move, dry_run=dry_run)
        raise OSError("killed after the commit")

    def mark_and_end(directory: Path, text: str) -> None:
        mark(directory, text)
        raise OSError("killed before the commit")

    with monkeypatch.context() as patched:
        patched.setattr(*((moving._Move, "run", run_and_end) if committed else (moving, "_mark", mark_and_end)))
        with pytest.raises((OSError, TollgateError), match="killed"):
            await moving.move(source, address)
    assert await empty(observer) is not committed
    with pytest.raises(
        TollgateError, match="a move into a shared store was begun and not ended: run `tollgate store move` again"
    ):
        await Ledger(source, Credits()).open()
    assert (await moving.move(source, address)).again is committed
    assert not await empty(observer)


async def test_unreadable_and_unwritable_files_are_reported(
    source: Store, address: str, observer: asyncpg.Connection
) -> None:
    minted = source.directory / "minted.sqlite"
    contents = minted.read_bytes()
    minted.write_bytes(b"not what it was, not what it was")
    with pytest.raises(TollgateError, match="the store cannot be read, and nothing was moved: file is not a database"):
        await moving.move(source, address)
    minted.write_bytes(contents)
    (source.directory / "moved.txt.new").mkdir()
    with pytest.raises(
        TollgateError,
        match=r"moved\.txt cannot be written: Is a directory; run `tollgate store move` again when it can",
    ):
        await moving.move(source, address)
    assert await empty(observer)
    (source.directory / "moved.txt.new").rmdir()
    assert not (await moving.move(source, address)).again


async def test_a_folder_without_a_store_is_reported(address: str, tmp_path: Path) -> None:
    with pytest.raises(TollgateError, match="nothing here: no embedded store is here"):
        await moving.move(Store(directory=tmp_path / "nothing here"), address)


async def test_a_move_under_another_name_publishes_no_row_twice(source: Store, address: str, tmp_path: Path) -> None:
    await before(source)
    renamed = replace(source, instance="eu-2")
    await moving.move(renamed, address)
    async with ledger_of(replace(renamed, url=address), Credits()) as ledger:
        await ledger.record(row("req_new"))
        await ledger.settle()
    found = duckdb.sql(
        f"SELECT count(*), count(DISTINCT request_id) FROM read_duckdb('{tmp_path}/usage/**/*.duckdb', table_name = "
        "'usage', union_by_name = true)"
    ).fetchall()
    assert found == [(43, 43)]
