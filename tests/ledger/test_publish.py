"""Usage files: readable while the gateway writes, never partial, complete after late rows and restarts."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import duckdb
import pytest

from support.few_descriptors import few_descriptors
from support.inprocess import inprocess
from support.usage_files import READ_STATEMENT, rows, usage_rows
from support.waiting import until
from tollgate.ledger import UsageRow
from tollgate.ledger import publish as publish_module
from tollgate.ledger.publish import Effort, Publisher
from tollgate.ledger.records import encode
from tollgate.ledger.segments import Entry, write_line
from tollgate.ledger.store import Store
from tollgate.ledger.usage_row import COLUMNS
from tollgate.ledger.usage_source import StoreSource

from .conftest import Alice, row

TEN = datetime(2026, 11, 21, 10, tzinfo=UTC)


class Setup:
    """A store and its publisher without threads: rows are added, files are published, at any time of day."""

    def __init__(self, folder: Path, instance: str = "main") -> None:
        self.usage = folder / "usage"
        self.store = Store(folder / "tollgate.duckdb")
        self.store.open()
        self.publisher = Publisher(StoreSource(self.store), self.usage, instance)
        self.seq = max(self.store.progress("applied"), self.publisher.highest_seq())

    def add(self, *rows: UsageRow) -> None:
        entries = []
        for each in rows:
            self.seq += 1
            entries.append(Entry(self.seq, "usage", write_line(self.seq, "usage", encode(each))[:-1]))
        self.store.apply(entries)

    def read(self, expression: str = "count(*)", where: str = "true") -> object:
        return read(self.usage, expression, where)


def read(usage: Path, expression: str, where: str = "true") -> object:
    statement = READ_STATEMENT.replace("usage/**", f"{usage}/**")
    return duckdb.connect().execute(f"SELECT {expression} {statement} WHERE {where}").fetchall()[0][0]


def bytes_in_memory(setup: Setup) -> int:
    """The bytes that DuckDB keeps in memory."""
    return int(setup.store.connection.execute("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchone()[0])


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[Setup]:
    made = Setup(tmp_path)
    yield made
    made.store.close()


async def test_another_process_can_run_the_documented_statement_while_the_ledger_is_open(
    alice_in_either: Alice, tmp_path: Path
) -> None:
    for n in range(5):
        await alice_in_either.ledger.record(row(f"req_{n}", cost="0.25"))
    await alice_in_either.ledger.settle()
    script = f'import duckdb; print(duckdb.connect().execute("SELECT count(*), sum(cost) {READ_STATEMENT}").fetchall())'
    reader = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await reader.communicate()
    assert output.decode().strip() == "[(5, Decimal('1.250000000000'))]"


async def test_files_are_published_automatically(alice_in_either: Alice, tmp_path: Path) -> None:
    await alice_in_either.ledger.record(row())
    await until(lambda: list((tmp_path / "usage").glob("*/*.duckdb")))
    assert read(tmp_path / "usage", "count(*)") == 1


def test_every_column_is_published_unchanged(setup: Setup) -> None:
    full = UsageRow(
        "req_1",
        "alice",
        "key_1",
        "chat",
        time=TEN.replace(microsecond=123456),
        asked_model="large",
        model="acme/large",
        provider="acme",
        upstream_model="large-1",
        client_protocol="chat",
        upstream_protocol="messages",
        attempts=2,
        status=200,
        outcome="client_gone",
        input_tokens=2**53 + 1,
        cache_read_tokens=2,
        cache_write_tokens=3,
        output_tokens=4,
        reasoning_tokens=5,
        searches=6,
        images=7,
        cost=Decimal("12345678901234.123456789012"),
        native_cost=Decimal("1E-12"),
        currency="CNY",
        rate=Decimal("0.14"),
        prices='{"prompt":"0.1"}',
        ttfb_ms=1.5,
        total_ms=2.5,
        stream=True,
        estimated=True,
        end_user="o'Neil \u2603",
        error_code="x",
        lost="top_k; seed",
        provider_cost=Decimal("0.5"),
    )
    setup.add(full)
    setup.publisher.publish(TEN)
    [found] = (
        duckdb.connect().execute(f"FROM read_duckdb('{setup.usage}/**/*.duckdb', table_name = 'usage')").fetchall()
    )
    by_name = dict(zip((column.name for column in COLUMNS), found, strict=True))
    assert by_name.pop("seq") == 1
    expected = {field.name: getattr(full, field.name) for field in fields(UsageRow)} | {
        "time": full.time.replace(tzinfo=None)
    }
    assert by_name == expected


async def test_what_other_tests_read_from_the_store_is_what_is_published(tmp_path: Path) -> None:
    async with inprocess(tmp_path) as here:
        for text in ("hi", "[[error=500]]"):
            messages = [{"role": "user", "content": text}]
            await here.post("/v1/messages", {"model": "sandbox/echo", "max_tokens": 9, "messages": messages})
        stored = await rows(here, tmp_path)
        await here.services.ledger.settle()
        assert len(stored) == 2 and usage_rows(tmp_path) == stored


def test_the_columns_are_the_fields_of_a_row_and_have_descriptions() -> None:
    assert [column.name for column in COLUMNS] == [field.name for field in fields(UsageRow)] + ["seq"]
    assert all(len(column.about) > 10 for column in COLUMNS)


def test_a_file_contains_comments_on_its_columns(setup: Setup) -> None:
    setup.add(row(time=TEN))
    setup.publisher.publish(TEN)
    reader = duckdb.connect()
    reader.execute(f"ATTACH '{setup.publisher.path(TEN)}' AS hour (READ_ONLY)")
    comments = dict(
        reader.execute("SELECT column_name, comment FROM duckdb_columns() WHERE database_name = 'hour'").fetchall()
    )
    assert comments == {column.name: column.about for column in COLUMNS}


def test_an_interrupted_publication_is_repeated(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    setup.add(row(time=TEN))
    with monkeypatch.context() as broken:
        broken.setattr(publish_module, "comments", lambda name: [f"COMMENT ON COLUMN {name}.no_such IS 'x'"])
        with pytest.raises(duckdb.Error, match="no_such"):
            setup.publisher.publish(TEN)
    assert setup.publisher.publish(TEN) == 1
    assert setup.read() == 1


def test_a_file_left_attached_does_not_prevent_other_publications(setup: Setup, tmp_path: Path) -> None:
    setup.add(row(time=TEN))
    setup.store.connection.execute(f"ATTACH '{tmp_path / 'half.duckdb'}' AS published")
    assert setup.publisher.publish(TEN) == 1
    assert setup.read() == 1


def test_a_start_restores_the_spend_of_the_newest_days_whatever_the_clock_says(setup: Setup) -> None:
    """The clock may be wrong at a start and be corrected later."""
    now = datetime(2026, 12, 31, 12, tzinfo=UTC)
    days = [now + timedelta(days=400), *(now - timedelta(days=days) for days in range(45))]
    setup.add(*(row(time=each, cost="1") for each in days), row(time=now, cost="2", key_id="key_2"))
    spent = setup.store.snapshot().spent_by_day
    assert spent["key_1"] == {each.date(): Decimal(1) for each in days[:40]}
    assert spent["key_2"] == {now.date(): Decimal(2)}


def test_nothing_is_written_if_nothing_changed(setup: Setup) -> None:
    setup.add(row(time=TEN))
    assert setup.publisher.publish(TEN) == 1
    before = setup.publisher.path(TEN).stat().st_ino
    assert setup.publisher.publish(TEN) == 0
    assert setup.publisher.path(TEN).stat().st_ino == before


def test_each_hour_has_its_own_file(setup: Setup) -> None:
    for minutes in (0, 59, 60, 119, 120, 24 * 60):
        setup.add(row(time=TEN + timedelta(minutes=minutes)))
        setup.publisher.publish(TEN + timedelta(minutes=minutes))
    names = sorted(str(path.relative_to(setup.usage)) for path in setup.usage.rglob("*.duckdb"))
    assert names == ["2026-11-21/10.duckdb", "2026-11-21/11.duckdb", "2026-11-21/12.duckdb", "2026-11-22/10.duckdb"]
    assert setup.read() == 6


def test_the_file_of_a_past_hour_and_its_name_are_synced_and_that_of_the_current_hour_is_not(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        publish_module.os,
        "fsync",
        lambda descriptor: synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name),
    )
    setup.add(row(time=TEN), row(time=TEN + timedelta(hours=1)))
    setup.publisher.publish(TEN + timedelta(hours=1, minutes=30))
    assert synced == [".10.tmp", "2026-11-21"]


def test_unpublished_rows_are_not_removed_from_the_store(setup: Setup) -> None:
    next_day = TEN.date() + timedelta(days=1)
    setup.add(row(time=TEN))
    assert setup.store.remove_day(next_day) == 0
    setup.publisher.publish(TEN)
    assert setup.store.remove_day(next_day) == 1


def test_a_late_row_is_added_to_the_file_of_its_hour(setup: Setup) -> None:
    setup.add(row(time=TEN), row(time=TEN + timedelta(hours=1)))
    setup.publisher.publish(TEN + timedelta(hours=1))
    setup.add(row("req_late", time=TEN + timedelta(minutes=59)))
    assert setup.publisher.publish(TEN + timedelta(hours=2)) == 1
    reader = duckdb.connect(str(setup.publisher.path(TEN)), read_only=True)
    assert reader.execute("SELECT count(*), count(*) FILTER (request_id = 'req_late') FROM usage").fetchall() == [
        (2, 1)
    ]


def test_a_reader_keeps_its_open_file_while_it_is_replaced(setup: Setup) -> None:
    setup.add(row(time=TEN))
    setup.publisher.publish(TEN)
    reader = duckdb.connect(str(setup.publisher.path(TEN)), read_only=True)
    for _ in range(3):
        setup.add(row(time=TEN))
        setup.publisher.publish(TEN)
        assert reader.execute("SELECT count(*) FROM usage").fetchall() == [(1,)]
    assert setup.read() == 4


def test_readers_never_see_a_partial_file(setup: Setup) -> None:
    setup.add(row(time=TEN))
    setup.publisher.publish(TEN)
    seen: list[int] = []
    done = threading.Event()

    def keep_reading() -> None:
        while not done.is_set():
            seen.append(read(setup.usage, "count(*)"))  # type: ignore[arg-type]

    reader = threading.Thread(target=keep_reading)
    reader.start()
    written = 0
    while written < 20 or (len(seen) <= 3 and reader.is_alive()):  # a busy machine may delay the reader
        setup.add(row(time=TEN))
        setup.publisher.publish(TEN)
        written += 1
    done.set()
    reader.join()
    assert seen == sorted(seen)
    assert len(seen) > 3
    assert setup.read() == written + 1


def test_a_deleted_or_damaged_file_is_written_again(setup: Setup) -> None:
    setup.add(row(time=TEN))
    setup.publisher.publish(TEN)
    setup.publisher.path(TEN).unlink()
    setup.add(row(time=TEN))
    setup.publisher.publish(TEN)
    assert setup.read() == 2
    setup.publisher.path(TEN).write_bytes(b"power was lost here")
    setup.add(row(time=TEN))
    setup.publisher.publish(TEN)
    assert setup.read() == 3


def test_a_full_disk_keeps_a_file_whose_rows_were_removed_because_of_their_age(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup.add(row(time=TEN))
    setup.publisher.publish(TEN)
    setup.store.remove_day(TEN.date() + timedelta(days=1))
    setup.add(row(time=TEN))
    with monkeypatch.context() as full:
        full.setattr(StoreSource, "copy", Mock(side_effect=[duckdb.IOException("No space left on device"), None]))
        with pytest.raises(duckdb.IOException):
            setup.publisher.publish(TEN)
    assert setup.publisher.publish(TEN) == 1
    assert setup.read() == 2
    assert [path.name for path in setup.publisher.path(TEN).parent.iterdir()] == ["10.duckdb"]


def test_a_start_rebuilds_a_recent_file_that_lacks_rows(setup: Setup) -> None:
    setup.add(row(time=TEN), row(time=TEN))
    setup.publisher.publish(TEN)
    setup.publisher.path(TEN).write_bytes(b"")
    setup.publisher.recheck()
    assert setup.publisher.publish(TEN) == 1
    assert setup.read() == 2
    setup.publisher.recheck()
    assert setup.publisher.publish(TEN) == 0


def test_recent_files_are_rechecked_even_if_a_start_takes_several_turns(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, early = TEN, TEN - timedelta(hours=1)
    setup.add(row("req_early", time=early), row("req_late", time=late))
    setup.publisher.publish(TEN)
    whole = [setup.publisher.path(hour).read_bytes() for hour in (early, late)]
    setup.add(row("req_early_2", time=early), row("req_late_2", time=late))
    setup.publisher.publish(TEN)
    for hour, content in zip((early, late), whole, strict=True):
        setup.publisher.path(hour).write_bytes(content)  # as after a power failure
    monkeypatch.setattr("tollgate.ledger.publish._TURN_SECONDS", -1.0)
    setup.publisher.recheck()
    assert [setup.publisher.publish(TEN) for _ in range(3)] == [1, 1, 0]


def test_a_row_from_the_future_does_not_prevent_rechecking_recent_files(setup: Setup) -> None:
    setup.add(row("req_1", time=TEN), row("req_far", time=TEN + timedelta(days=400)))
    setup.publisher.publish(TEN)
    short = setup.publisher.path(TEN).read_bytes()
    setup.add(row("req_2", time=TEN))
    setup.publisher.publish(TEN)
    setup.publisher.path(TEN).write_bytes(short)  # as after a power failure
    setup.publisher.recheck()
    assert setup.publisher.publish(TEN) == 1
    assert setup.read() == 3


def test_a_start_rebuilds_missing_files_newest_first(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, after `var/` was restored without `usage/`. A turn that takes too long is continued later."""
    days = [TEN - timedelta(days=back) for back in (2, 1, 0)]
    setup.add(*(row(time=day) for day in days))
    setup.publisher.publish(TEN)
    for day in days:
        setup.publisher.path(day).unlink()
    monkeypatch.setattr("tollgate.ledger.publish._TURN_SECONDS", -1.0)
    setup.publisher.recheck()
    assert setup.publisher.publish(TEN) == 1
    assert setup.publisher.path(TEN).exists()
    assert [setup.publisher.publish(TEN), setup.publisher.publish(TEN), setup.publisher.publish(TEN)] == [1, 1, 0]
    assert setup.read() == 3


def test_a_start_under_another_instance_name_does_not_copy_old_hours(setup: Setup) -> None:
    setup.add(row(time=TEN - timedelta(days=1)), row(time=TEN - timedelta(days=2)))
    setup.publisher.publish(TEN)
    setup.publisher = Publisher(StoreSource(setup.store), setup.publisher._directory, "eu-1")
    setup.publisher.recheck()
    setup.publisher.publish(TEN)
    assert not setup.publisher.path(TEN - timedelta(days=2)).exists()


def test_no_row_is_in_files_of_two_names_after_the_instance_was_renamed(setup: Setup) -> None:
    hours = [TEN, TEN - timedelta(hours=1), TEN - timedelta(days=2)]
    for number, name in enumerate(("main", "eu-1", "main", "eu-2"), start=1):
        setup.publisher = Publisher(StoreSource(setup.store), setup.usage, name)
        setup.publisher.recheck()
        setup.publisher.publish(TEN)
        setup.add(*(row(time=hour) for hour in hours))
        setup.publisher.publish(TEN)
        assert setup.read() == setup.read("count(DISTINCT request_id)") == number * len(hours)


def test_a_new_name_alone_makes_no_file(setup: Setup) -> None:
    setup.add(row(time=TEN))
    setup.publisher.publish(TEN)
    setup.publisher = Publisher(StoreSource(setup.store), setup.usage, "eu-1")
    setup.publisher.recheck()
    assert setup.publisher.publish(TEN) == 0
    assert not setup.publisher.path(TEN).exists()


def test_a_damaged_file_of_another_name_keeps_no_row_from_being_published(setup: Setup) -> None:
    setup.add(row(time=TEN))
    setup.publisher.publish(TEN)
    damaged = setup.publisher.path(TEN)
    damaged.write_bytes(b"nonsense")
    setup.publisher = Publisher(StoreSource(setup.store), setup.usage, "eu-1")
    setup.publisher.recheck()
    setup.publisher.publish(TEN)
    damaged.unlink()
    assert setup.read() == 1


def test_a_file_of_another_name_that_cannot_be_opened_just_now_is_waited_for(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup.add(row(time=TEN))
    setup.publisher.publish(TEN)
    other = setup.publisher.path(TEN)
    content = other.read_bytes()
    other.write_bytes(b"nonsense")
    setup.publisher = Publisher(StoreSource(setup.store), setup.usage, "eu-1")
    setup.publisher.recheck()
    with monkeypatch.context() as patch, pytest.raises(duckdb.Error):
        patch.setattr(publish_module, "too_many_open", lambda _: True)
        setup.publisher.publish(TEN)
    other.write_bytes(content)
    setup.publisher.publish(TEN)
    assert setup.read() == 1


def test_a_new_store_beside_old_files_adds_to_them(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        setup = Setup(tmp_path / folder)
        setup.publisher = Publisher(StoreSource(setup.store), tmp_path / "usage")
        setup.seq = setup.publisher.highest_seq()
        setup.add(row(time=TEN), row(time=TEN))
        setup.publisher.publish(TEN)
        setup.store.close()
    assert read(tmp_path / "usage", "count(*)") == 4
    assert read(tmp_path / "usage", "count(DISTINCT seq)") == 4


def test_an_older_file_gains_new_columns(setup: Setup) -> None:
    setup.add(row(time=TEN))
    setup.publisher.publish(TEN)
    old = duckdb.connect(str(setup.publisher.path(TEN)))
    old.execute("ALTER TABLE usage DROP COLUMN provider_cost")
    old.close()
    setup.add(row(time=TEN, provider_cost=Decimal("0.5")))
    setup.publisher.publish(TEN)
    assert setup.read("sum(provider_cost)") == Decimal("0.5")
    assert setup.read() == 2


def test_an_instance_publishes_under_its_own_name(tmp_path: Path) -> None:
    for instance in ("main", "eu-1"):
        (tmp_path / instance).mkdir()
        setup = Setup(tmp_path / instance)
        setup.publisher = Publisher(StoreSource(setup.store), tmp_path / "usage", instance)
        setup.add(row(time=TEN))
        setup.publisher.publish(TEN)
        setup.store.close()
    assert sorted(path.name for path in (tmp_path / "usage").rglob("*")) == [
        "10-eu-1.duckdb",
        "10.duckdb",
        "2026-11-21",
    ]
    assert read(tmp_path / "usage", "count(*)") == 2


async def test_an_unwritable_folder_and_its_recovery_are_logged_once(
    alice_in_either: Alice, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    day = tmp_path / "usage" / TEN.date().isoformat()
    day.write_text("in the way")
    await alice_in_either.ledger.record(row(time=TEN))
    for _ in range(5):
        await alice_in_either.ledger.settle()
    assert not alice_in_either.ledger.published and alice_in_either.ledger.ready
    day.unlink()
    await alice_in_either.ledger.settle()
    assert alice_in_either.ledger.published
    messages = [record.getMessage() for record in caplog.records if "publish" in record.getMessage()]
    assert (
        len(messages) == 2
        and messages[0].startswith("usage files could not be published, tried again every few seconds: ")
        and messages[1] == "usage files are published again"
    )
    assert read(tmp_path / "usage", "count(*)") == 1


def test_leftovers_of_a_killed_process_are_removed(setup: Setup) -> None:
    setup.add(row(time=TEN))
    setup.publisher.publish(TEN)
    leftover = setup.publisher.path(TEN).with_name(".10.tmp")
    leftover.write_bytes(b"half")
    setup.publisher.remove_leftovers()
    assert not leftover.exists()
    assert setup.publisher.path(TEN).exists()


def test_a_busy_store_gives_cached_pages_back_without_a_publication(setup: Setup) -> None:
    setup.store.connection.execute("CREATE TABLE filler AS SELECT uuid()::VARCHAR AS text FROM range(300000)")
    setup.store.connection.execute("CHECKPOINT")
    setup.store.connection.execute("SELECT max(text) FROM filler").fetchall()
    setup.add(*[row() for _ in range(3_999)])
    before = bytes_in_memory(setup)
    setup.add(row())
    assert before > 6_000_000
    assert bytes_in_memory(setup) <= 2_000_000


def test_cached_pages_are_given_back(setup: Setup) -> None:
    """DuckDB keeps what it has read, up to its limit; the limit needed for large sums would be used permanently."""
    setup.store.connection.execute("CREATE TABLE filler AS SELECT uuid()::VARCHAR || range AS text FROM range(700000)")
    setup.store.connection.execute("CHECKPOINT")
    setup.store.connection.execute("SELECT max(text), min(length(text)) FROM filler").fetchall()
    before = bytes_in_memory(setup)
    setup.store.let_go()
    assert before > 17_000_000
    assert bytes_in_memory(setup) <= 2_000_000
    assert setup.store.connection.execute(
        "SELECT count(*), current_setting('memory_limit') FROM filler"
    ).fetchone() == (
        700_000,
        "91.5 MiB",
    )
    setup.add(row(time=TEN))
    assert setup.publisher.publish(TEN) == 1


def row_groups(setup: Setup) -> tuple[int, int]:
    """How many row groups the store's rows have in its file, and those of the hour's published file."""
    count = "SELECT count(DISTINCT row_group_id) FROM pragma_storage_info('{}')"
    [[stored]] = setup.store.connection.execute(count.format("usage")).fetchall()
    with duckdb.connect(setup.publisher.path(TEN), read_only=True) as file:
        [[published]] = file.execute(count.format("usage")).fetchall()
    return stored, published


@pytest.mark.parametrize(("seq", "rows"), [(24_000, 1), (250_000, 1000)], ids=["few rows", "every 250,000 rows"])
def test_row_groups_are_merged_only_now_and_then(setup: Setup, seq: int, rows: int) -> None:
    """DuckDB would merge small ones at every commit, which costs more than adding the rows."""

    def add(rows: int) -> None:
        setup.add(*[row(time=TEN) for _ in range(rows)])
        setup.store.connection.execute("CHECKPOINT")  # done by DuckDB for every 2 MB
        setup.publisher.publish(TEN)

    setup.seq = 20_000
    for _ in range(4):
        add(1000)
    assert row_groups(setup) == (4, 4)
    setup.seq = seq
    add(rows)
    assert row_groups(setup) == (1, 1)


@pytest.mark.parametrize(
    ("cpu", "wall", "pause"), [(0.1, 0.1, 2.0), (0.05, 2.5, 10.0)], ids=["computing", "waiting for CPU or disk"]
)
def test_publishing_pauses_by_its_own_cost(monkeypatch, cpu, wall, pause):
    clock = SimpleNamespace(monotonic=iter([10.0, 10.0 + wall]).__next__, thread_time=iter([1.0, 1.0 + cpu]).__next__)
    monkeypatch.setattr(publish_module, "time", clock)
    with Effort() as effort:
        pass
    assert effort.pause == pytest.approx(pause)


def test_a_file_that_cannot_be_opened_for_lack_of_descriptors_is_not_rewritten(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    setup.add(row("req_1", time=TEN))
    setup.publisher.publish(TEN)
    setup.add(row("req_2", time=TEN))
    with few_descriptors(0), pytest.raises(duckdb.Error):
        setup.publisher.publish(TEN)
    assert caplog.messages == [] and setup.read() == 1
    assert setup.publisher.publish(TEN) == 1 and setup.read() == 2
