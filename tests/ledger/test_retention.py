"""Old rows, jobs and files are removed in whole days once they are published; the totals stay exact."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from support.stores import spent_by
from support.waiting import until
from tollgate.config.settings import Credits, Store
from tollgate.ledger import Ledger, embedded, ledger_of, publish
from tollgate.ledger.publish import remove_files
from tollgate.ledger.records import Generation, KeyRecord, columns_of
from tollgate.ledger.retention import LOOK_SECONDS
from tollgate.ledger.schema import VERSIONS
from tollgate.ledger.store import _TABLES

from .conftest import Alice, row, settings, with_alice
from .later import Clocks, days_ago, ten_minutes_later

pytestmark = pytest.mark.usefixtures("within_one_day")


def test_nothing_is_removed_by_default() -> None:
    clocks = Clocks()
    retention = clocks.retention(Store())
    clocks.wait()
    assert retention.look() is None


def test_retention_is_in_whole_days_and_starts_some_minutes_after_the_start() -> None:
    clocks = Clocks()
    retention = clocks.retention(Store(keep_rows_days=30, keep_files_days=90))
    clocks.wait(LOOK_SECONDS - 1)
    assert retention.look() is None
    clocks.wait(1)
    assert retention.look() == (days_ago(30).date(), days_ago(90).date(), None)
    assert retention.look() is None
    clocks.wait()
    assert Clocks.retention(clocks, Store(keep_rows_days=30)).look() is None


@pytest.mark.parametrize(
    "set_by",
    [timedelta(days=400), timedelta(days=-400), timedelta(minutes=2)],
    ids=["far ahead", "far back", "a little"],
)
def test_a_changed_system_clock_is_not_trusted_at_the_next_look(set_by: timedelta) -> None:
    clocks = Clocks()
    retention = clocks.retention(Store(keep_rows_days=30))
    clocks.wait()
    clocks.wall += set_by.total_seconds()
    assert retention.look() is None
    clocks.wall -= set_by.total_seconds()
    clocks.wait()
    assert retention.look() is None
    clocks.wait()
    assert retention.look() == (days_ago(30).date(), None, None)


def test_only_files_of_this_gateway_and_whole_days_are_removed(tmp_path: Path) -> None:
    for name in (
        "2026-01-01/13.duckdb",
        "2026-01-01/14-eu-1.duckdb",
        "2026-01-02/00.duckdb",
        "2026-01-02/notes.txt",
        "2026-01-03/00.duckdb",
        "other/00.duckdb",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert remove_files(tmp_path, "main", date(2026, 1, 3)) == 2
    assert remove_files(tmp_path, "eu-1", date(2026, 1, 2)) == 1
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*")) == [
        "2026-01-02/notes.txt",
        "2026-01-03/00.duckdb",
        "other/00.duckdb",
    ]
    assert not (tmp_path / "2026-01-01").exists()


@pytest.fixture(params=["embedded", "shared"])
async def kept(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Settings of a store of each kind that keeps rows for 30 days and files for 90."""
    monkeypatch.setattr(publish, "_TURN_SECONDS", 600.0)  # a busy machine would need several turns for dozens of files
    monkeypatch.setattr(embedded, "_REMOVE_SECONDS", 600.0)  # and of days
    async with contextlib.AsyncExitStack() as opened:
        url = (
            await opened.enter_async_context(request.getfixturevalue("postgres").database())
            if request.param == "shared"
            else ""
        )
        yield settings(tmp_path, url=url, keep_rows_days=30, keep_files_days=90)


async def stored(ledger: Ledger) -> list[str]:
    """The request ids in the store."""
    if ledger.store.url:
        return [
            each["request_id"]
            for each in await ledger._backend.connections.rows("SELECT request_id FROM tollgate.usage ORDER BY 1")
        ]
    return [
        each[0]
        for each in await asyncio.to_thread(ledger._backend.store.read, "SELECT request_id FROM usage ORDER BY 1")
    ]


def published(folder: Path) -> list[str]:
    files = sorted(str(path) for path in folder.glob("usage/*/*.duckdb"))
    return [
        each
        for [each] in duckdb.execute(
            "SELECT request_id FROM read_duckdb(?, table_name = 'usage', union_by_name = true) ORDER BY 1", [files]
        ).fetchall()
    ]


ROWS = {"req_0": 0, "req_29": 29, "req_30": 30, "req_31": 31, "req_60": 60, "req_89": 89, "req_91": 91, "req_400": 400}


async def facts(alice: Alice) -> Any:
    ledger = alice.ledger
    return (
        await ledger.sums("alice"),
        (await ledger.keys_spent())[alice.key.id],
        [each.last_used for each in await ledger.list_keys()],
    )


async def with_rows(ledger: Ledger) -> Alice:
    alice = await with_alice(ledger)
    for number, (name, days) in enumerate(ROWS.items()):
        await ledger.record(row(name, key_id=alice.key.id, cost=f"0.{number + 1:012d}", time=days_ago(days)))
        await ledger.record(row(f"{name}b", key_id="key_2", cost="0.1", time=days_ago(days)))
    return alice


async def test_old_rows_are_removed_and_totals_stay_exact(kept: Store, tmp_path: Path) -> None:
    async with ledger_of(kept, Credits()) as ledger:
        alice = await with_rows(ledger)
        before = await facts(alice)
        await ten_minutes_later(ledger)
        assert await stored(ledger) == ["req_0", "req_0b", "req_29", "req_29b", "req_30", "req_30b"]
        assert await facts(alice) == before
    async with ledger_of(kept, Credits()) as ledger:
        assert await facts(replace(alice, ledger=ledger)) == before
        assert await spent_by(ledger, "alice") == Decimal("0.800000000036")
        for window in ("day", "week", "month", "total"):
            await ledger.update_key(alice.key.id, spend_cap=Decimal(1), cap_window=window)
            spent = (await ledger.keys_spent())[alice.key.id]
            await ten_minutes_later(ledger)
            assert (await ledger.keys_spent())[alice.key.id] == spent
        assert published(tmp_path) == sorted(name + b for name in ROWS for b in ("", "b") if ROWS[name] < 91), (
            "files are kept longer"
        )


async def test_a_monthly_cap_counts_removed_rows(kept: Store) -> None:
    kept = replace(kept, keep_rows_days=1, keep_files_days=0)
    async with ledger_of(kept, Credits()) as ledger:
        alice = await with_alice(ledger)
        await ledger.update_key(alice.key.id, cap_window="month")
        for days in range(40):
            await ledger.record(row(key_id=alice.key.id, cost="0.1", time=days_ago(days)))
        spent = (await ledger.keys_spent())[alice.key.id]
        assert spent == Decimal("0.1") * days_ago(0).day
        await ten_minutes_later(ledger)
        assert len(await stored(ledger)) == 2
    async with ledger_of(kept, Credits()) as ledger:
        assert (await ledger.keys_spent())[alice.key.id] == spent


async def test_last_used_is_kept_when_all_rows_of_a_key_are_removed(kept: Store) -> None:
    async with ledger_of(kept, Credits()) as ledger:
        alice = await with_alice(ledger)
        day = days_ago(100).replace(hour=0, minute=0)
        for hour in (9, 17, 12):
            await ledger.record(row(key_id=alice.key.id, time=day.replace(hour=hour)))
        await ten_minutes_later(ledger)
        assert await stored(ledger) == []
    async with ledger_of(kept, Credits()) as ledger:
        assert [key.last_used for key in await ledger.list_keys()] == [day.replace(hour=17)]


async def test_new_rows_are_published_after_all_rows_and_files_were_removed(kept: Store, tmp_path: Path) -> None:
    async with ledger_of(kept, Credits()) as ledger:
        await with_alice(ledger)
        for number in range(5):
            await ledger.record(row(f"req_{number}", time=days_ago(100 + number)))
        await ten_minutes_later(ledger)
        assert (await stored(ledger), list(tmp_path.glob("usage/*/*.duckdb"))) == ([], [])
    async with ledger_of(kept, Credits()) as ledger:
        await ledger.record(row("req_new"))
        await ledger.settle()
        assert published(tmp_path) == ["req_new"]


async def test_unpublished_rows_are_not_removed(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ledger_of(kept, Credits()) as ledger:
        await with_alice(ledger)
        await ledger.settle()  # or the publication of the start may still be running, and include the row

        def refuse(*_: object, **__: object) -> int:
            raise duckdb.IOException("the disk of the usage files is full")

        with monkeypatch.context() as patched:
            patched.setattr("tollgate.ledger.publish.Publisher.publish", refuse)
            await ledger.record(row("req_old", time=days_ago(100)))
            await ten_minutes_later(ledger)
            assert (await stored(ledger), list(kept.usage_directory.glob("*/*.duckdb"))) == (["req_old"], [])
        await ten_minutes_later(ledger)
        assert await stored(ledger) == []


async def test_rows_whose_file_is_missing_are_kept_until_it_is_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = settings(tmp_path, keep_rows_days=30, keep_files_days=90)
    names = [f"req_{days}" for days in (40, 50, 60)]
    async with ledger_of(kept, Credits()) as ledger:
        await with_alice(ledger)
        for name in names:
            await ledger.record(row(name, time=days_ago(int(name[4:]))))
    shutil.rmtree(kept.usage_directory)
    monkeypatch.setattr(publish, "_TURN_SECONDS", -1.0)  # one hour in each turn
    async with ledger_of(kept, Credits()) as ledger:
        for _ in range(4):
            await ten_minutes_later(ledger)
        assert (await stored(ledger), published(tmp_path)) == ([], names)


async def test_between_two_days_that_take_long_to_remove_the_store_takes_new_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_REMOVE_SECONDS", -1.0)  # one day in each turn
    async with ledger_of(settings(tmp_path, keep_rows_days=30, keep_files_days=90), Credits()) as ledger:
        alice = await with_alice(ledger)
        for days in (40, 50, 60):
            await ledger.record(row(f"req_{days}", key_id=alice.key.id, time=days_ago(days)))
        await ledger.settle()
        events: list[str] = []
        backend: Any = ledger._backend
        store_waiting, remove_day = backend._store_waiting, backend.store.remove_day
        monkeypatch.setattr(backend, "_store_waiting", lambda: events.append("store") or store_waiting())

        def remove(first: date) -> int:
            removed: int = remove_day(first)
            events.extend(["remove"] if removed else [])
            return removed

        monkeypatch.setattr(backend.store, "remove_day", remove)
        await ten_minutes_later(ledger)
        await until(lambda: events.count("remove") == 3)
        first, last = events.index("remove"), len(events) - events[::-1].index("remove")
        assert "remove remove" not in " ".join(events[first:last])
        assert (await stored(ledger), published(tmp_path)) == ([], ["req_40", "req_50", "req_60"])


async def test_a_late_row_of_a_removed_day_is_added_to_its_file(kept: Store, tmp_path: Path) -> None:
    async with ledger_of(kept, Credits()) as ledger:
        await with_alice(ledger)
        await ledger.record(row("req_1", time=days_ago(40), cost="1"))
        await ten_minutes_later(ledger)
        await ledger.record(row("req_2", time=days_ago(40), cost="2"))
        await ledger.settle()
        assert (await stored(ledger), published(tmp_path)) == (["req_2"], ["req_1", "req_2"])
        await ten_minutes_later(ledger)
        assert (await stored(ledger), published(tmp_path)) == ([], ["req_1", "req_2"])
        assert (await ledger.sums("alice")).spent == 3


async def test_a_damaged_file_of_a_removed_day_is_kept_aside(
    kept: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with ledger_of(kept, Credits()) as ledger:
        await with_alice(ledger)
        await ledger.record(row("req_1", time=days_ago(40)))
        await ten_minutes_later(ledger)
        [path] = tmp_path.glob("usage/*/*.duckdb")
        path.write_bytes(b"damaged")
        await ledger.record(row("req_2", time=days_ago(40)))
        await ledger.settle()
        assert published(tmp_path) == ["req_2"]
        assert path.with_suffix(".damaged").read_bytes() == b"damaged"
        assert "it had rows that the store no longer has" in caplog.text
        path.write_bytes(b"damaged again")
        await ledger.record(row("req_3", time=days_ago(40)))
        await ledger.settle()
        assert published(tmp_path) == ["req_2", "req_3"]
        assert path.with_suffix(".damaged").read_bytes() == b"damaged", "the first one has the most rows"


async def test_a_damaged_file_whose_rows_are_stored_is_not_kept(tmp_path: Path) -> None:
    async with Ledger(settings(tmp_path), Credits()) as ledger:
        await with_alice(ledger)
        await ledger.record(row("req_1", time=days_ago(1)))
        await ledger.settle()
        [path] = tmp_path.glob("usage/*/*.duckdb")
        path.write_bytes(b"not what it was")
        await ledger.record(row("req_2", time=days_ago(1)))
        await ledger.settle()
        assert published(tmp_path) == ["req_1", "req_2"] and not path.with_suffix(".damaged").exists()


async def test_a_failed_removal_removes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = settings(tmp_path, keep_rows_days=30)
    async with Ledger(store, Credits()) as ledger:
        await with_rows(ledger)
        await ledger.settle()
        opened = ledger._backend.store

        class Breaking:
            """A connection whose DELETE fails."""

            def __init__(self, connection: Any) -> None:
                self.connection = connection

            def execute(self, statement: str, *values: Any) -> Any:
                if statement.startswith("DELETE FROM usage"):
                    raise duckdb.IOException("the disk is full")
                return self.connection.execute(statement, *values)

            def __getattr__(self, name: str) -> Any:
                return getattr(self.connection, name)

        connection, opened._connection = opened._connection, Breaking(opened._connection)
        await ten_minutes_later(ledger)
        opened._connection = connection
        assert (
            "old rows, image jobs and usage files could not be removed, tried again in some minutes: the disk is full"
            in caplog.text
        )
        assert len(await stored(ledger)) == 2 * len(ROWS)
        await ten_minutes_later(ledger)
        assert len(await stored(ledger)) == 6
    async with Ledger(store, Credits()) as ledger:
        assert await spent_by(ledger, "alice") == Decimal("0.800000000036")


@pytest.mark.parametrize("version", [1, 2])
async def test_an_older_store_is_upgraded_with_its_balances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    def columns_then(kind: type[Any]) -> tuple[str, ...]:
        newer = ("max_concurrent", "endpoints", "allowed_addresses")
        return tuple(each for each in columns_of(kind) if each not in newer)

    with monkeypatch.context() as older:
        older.setattr("tollgate.ledger.schema.VERSIONS", VERSIONS[:version])
        older.setattr("tollgate.ledger.store.columns_of", columns_then)
        older.setitem(_TABLES, "key", ("keys", (*columns_then(KeyRecord), "digest")))
        if version == 1:
            older.setattr("tollgate.ledger.store._SPENT", "usage")
        async with Ledger(settings(tmp_path), Credits()) as ledger:
            await with_rows(ledger)
    restrictions = {"max_concurrent": 3, "endpoints": ("chat", "mcp"), "allowed_addresses": ("10.0.0.0/8",)}
    async with Ledger(settings(tmp_path), Credits()) as ledger:
        [key] = await ledger.list_keys()
        assert not key.restricted
        await ledger.update_key(key.id, **restrictions)
    async with Ledger(settings(tmp_path, keep_rows_days=30), Credits()) as ledger:
        [key] = await ledger.list_keys()
        assert key.restricted and {name: getattr(key, name) for name in restrictions} == restrictions
        assert await spent_by(ledger, "alice") == Decimal("0.800000000036")
        await ten_minutes_later(ledger)
        assert len(await stored(ledger)) == 6


JOBS = {"new": 0, "recent": 29, "of the last day": 30, "old": 31, "older": 400}
IMAGE = "A" * 200_000
"""Large enough that the embedded store keeps the job in a file."""


def job_of(name: str, days: int, **more: Any) -> Generation:
    return Generation(name, "alice", model="acme/draw", status="starting", created_at=days_ago(days), **more)


async def with_jobs(ledger: Ledger) -> Alice:
    """Creates small and large jobs of these ages that have ended and were charged, and an old one that is running."""
    alice = await with_alice(ledger)
    for number, (name, days) in enumerate(JOBS.items()):
        await ledger.generations.create(job_of(name, days))
        images = [{"data": IMAGE if number % 2 else "AAAA", "context_type": "image/png"}]
        ended = {"status": "failed" if name == "older" else "succeeded", "images": images, "answer": {"id": name}}
        charge = row(f"req_{name}", key_id=alice.key.id, cost="0.25", time=days_ago(days))
        assert await ledger.generations.update(name, ended, charge)
    await ledger.generations.create(job_of("running", 400))
    await ledger.settle()
    return alice


async def test_old_jobs_are_removed_with_their_images_and_their_cost_is_kept(kept: Store) -> None:
    kept = replace(kept, keep_rows_days=0, keep_files_days=0, keep_jobs_days=30)
    async with ledger_of(kept, Credits()) as ledger:
        alice = await with_jobs(ledger)
        before = await facts(alice)
        await ten_minutes_later(ledger)
        left = {name for name in [*JOBS, "running"] if await ledger.generations.get("alice", name)}
        assert left == {"new", "recent", "of the last day", "running"}
        assert {job.id for job in await ledger.generations.succeeded("alice", 100)} == {
            "new",
            "recent",
            "of the last day",
        }
        assert [job.id for job in await ledger.generations.pending()] == ["running"]
        files = {path.stem for path in (kept.directory / "generations").glob("*")}
        assert files == (set() if kept.url else {"recent"})
        assert len(await stored(ledger)) == len(JOBS), "rows have their own retention"
        assert await facts(alice) == before
        assert await ledger.generations.update("running", {"status": "failed"}, None)
        await ten_minutes_later(ledger)
        assert await ledger.generations.get("alice", "running") is None
    async with ledger_of(kept, Credits()) as ledger:
        assert await facts(replace(alice, ledger=ledger)) == before
        assert await spent_by(ledger, "alice") == Decimal("1.25")
        assert {job.id for job in await ledger.generations.succeeded("alice", 100)} == {
            "new",
            "recent",
            "of the last day",
        }


async def test_an_old_running_job_is_still_there_after_a_restart(kept: Store) -> None:
    kept = replace(kept, keep_jobs_days=30)
    async with ledger_of(kept, Credits()) as ledger:
        await with_jobs(ledger)
        await ten_minutes_later(ledger)
        assert await ledger.generations.get("alice", "old") is None
    async with ledger_of(kept, Credits()) as ledger:
        assert [job.id for job in await ledger.generations.pending()] == ["running"]


async def test_jobs_are_kept_if_only_rows_have_a_retention(kept: Store) -> None:
    async with ledger_of(kept, Credits()) as ledger:
        await with_jobs(ledger)
        await ten_minutes_later(ledger)
        assert len(await stored(ledger)) == 3
        assert all([await ledger.generations.get("alice", name) for name in JOBS])


async def test_many_old_jobs_are_removed_in_batches(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tollgate.ledger.embedded._REMOVE_SECONDS", 0.0)  # one batch in each turn
    monkeypatch.setattr("tollgate.ledger.store._JOBS", 150)
    kept = replace(kept, keep_rows_days=0, keep_files_days=0, keep_jobs_days=30)
    async with ledger_of(kept, Credits()) as ledger:
        await with_alice(ledger)
        names = [f"job {number}" for number in range(410)]  # three batches of either store
        await asyncio.gather(*(ledger.generations.create(job_of(name, 50)) for name in names))
        ended = {"status": "failed", "error": "no"}
        await asyncio.gather(*(ledger.generations.update(name, ended, None) for name in names))
        await ten_minutes_later(ledger)
        await ledger.settle()
        await ledger.settle()
        assert not any([await ledger.generations.get("alice", name) for name in names[::100]])
        if not kept.url:
            assert ledger._backend.store.read("SELECT count(*) FROM generations") == [(0,)]


async def test_an_interrupted_removal_of_jobs_is_completed_by_the_next(tmp_path: Path) -> None:
    store = settings(tmp_path, keep_jobs_days=30)
    async with Ledger(store, Credits()) as ledger:
        await with_jobs(ledger)
        (store.directory / "generations" / "old.json").unlink()  # as if the process had been killed here
        await ten_minutes_later(ledger)
        assert await ledger.generations.get("alice", "old") is None
