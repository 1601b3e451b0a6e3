"""Usage files: readable by others while the gateway writes, whole at every moment, right after late rows and
restarts."""

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

import duckdb
import pytest

from support.few_descriptors import few_descriptors
from support.usage_files import READ_STATEMENT
from tollgate.ledger import COLUMNS, UsageRow
from tollgate.ledger import publish as publish_module
from tollgate.ledger.publish import Effort, Publisher
from tollgate.ledger.records import encode
from tollgate.ledger.segments import Entry, write_line
from tollgate.ledger.store import Store
from tollgate.ledger.usage_source import StoreSource

from .conftest import Alice, row

TEN = datetime(2026, 11, 21, 10, tzinfo=UTC)


class Desk:
    """A store and its publisher without threads: rows go in, files come out, at any time of day."""

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

    def read(self, what: str = "count(*)", where: str = "true") -> object:
        return read(self.usage, what, where)


def read(usage: Path, what: str, where: str = "true") -> object:
    statement = READ_STATEMENT.replace("usage/**", f"{usage}/**")
    return duckdb.connect().execute(f"SELECT {what} {statement} WHERE {where}").fetchall()[0][0]


def held(desk: Desk) -> int:
    """Bytes DuckDB keeps in memory now."""
    return int(desk.store.connection.execute("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchone()[0])


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.store.close()


async def test_another_process_reads_the_documented_statement_while_the_ledger_is_open(
    anywhere: Alice, tmp_path: Path
) -> None:
    for n in range(5):
        await anywhere.ledger.record(row(f"req_{n}", cost="0.25"))
    await anywhere.ledger.settle()
    script = f'import duckdb; print(duckdb.connect().execute("SELECT count(*), sum(cost) {READ_STATEMENT}").fetchall())'
    reader = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await reader.communicate()
    assert said.decode().strip() == "[(5, Decimal('1.250000000000'))]"


async def test_files_follow_by_themselves_without_being_asked(anywhere: Alice, tmp_path: Path) -> None:
    await anywhere.ledger.record(row())
    async with asyncio.timeout(30):
        while not list((tmp_path / "usage").glob("*/*.duckdb")):
            await asyncio.sleep(0.02)
    assert read(tmp_path / "usage", "count(*)") == 1


def test_every_column_arrives_as_it_was_recorded(desk: Desk) -> None:
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
    desk.add(full)
    desk.publisher.publish(TEN)
    [found] = duckdb.connect().execute(f"FROM read_duckdb('{desk.usage}/**/*.duckdb', table_name = 'usage')").fetchall()
    by_name = dict(zip((column.name for column in COLUMNS), found, strict=True))
    assert by_name.pop("seq") == 1
    expected = {field.name: getattr(full, field.name) for field in fields(UsageRow)} | {
        "time": full.time.replace(tzinfo=None)
    }
    assert by_name == expected


def test_columns_are_the_fields_of_a_row_and_each_is_explained() -> None:
    assert [column.name for column in COLUMNS] == [field.name for field in fields(UsageRow)] + ["seq"]
    assert all(len(column.about) > 10 for column in COLUMNS)


def test_a_file_explains_its_own_columns_to_an_older_reader(desk: Desk) -> None:
    desk.add(row(time=TEN))
    desk.publisher.publish(TEN)
    reader = duckdb.connect()
    reader.execute(f"ATTACH '{desk.publisher.path(TEN)}' AS hour (READ_ONLY)")
    comments = dict(
        reader.execute("SELECT column_name, comment FROM duckdb_columns() WHERE database_name = 'hour'").fetchall()
    )
    assert comments == {column.name: column.about for column in COLUMNS}


def test_a_file_whose_making_broke_off_is_made_at_the_next_publication(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.add(row(time=TEN))
    with monkeypatch.context() as broken:
        broken.setattr(publish_module, "comments", lambda name: [f"COMMENT ON COLUMN {name}.no_such IS 'x'"])
        with pytest.raises(duckdb.Error, match="no_such"):
            desk.publisher.publish(TEN)
    assert desk.publisher.publish(TEN) == 1
    assert desk.read() == 1


def test_a_file_that_a_full_disk_left_attached_does_not_keep_others_from_being_written(
    desk: Desk, tmp_path: Path
) -> None:
    desk.add(row(time=TEN))
    desk.store.connection.execute(f"ATTACH '{tmp_path / 'half.duckdb'}' AS published")
    assert desk.publisher.publish(TEN) == 1
    assert desk.read() == 1


@pytest.mark.parametrize("day", [2, 24])
def test_a_start_knows_what_a_key_spent_in_its_week_and_month(desk: Desk, day: int) -> None:
    """The week may have begun in the month before."""
    now = datetime(2026, 12, day, 12, tzinfo=UTC)
    times = [now, now - timedelta(days=2), now.replace(day=1), now - timedelta(days=40)]
    desk.add(*(row(time=each, cost="1") for each in times))
    spent = desk.store.snapshot(now).spent_by_day["key_1"]
    assert spent.keys() == {each.date() for each in times[:3]}
    assert set(spent.values()) == {Decimal(1)}


def test_nothing_is_written_when_nothing_changed(desk: Desk) -> None:
    desk.add(row(time=TEN))
    assert desk.publisher.publish(TEN) == 1
    before = desk.publisher.path(TEN).stat().st_ino
    assert desk.publisher.publish(TEN) == 0
    assert desk.publisher.path(TEN).stat().st_ino == before


def test_hours_roll_over_into_files_of_their_own(desk: Desk) -> None:
    for minutes in (0, 59, 60, 119, 120, 24 * 60):
        desk.add(row(time=TEN + timedelta(minutes=minutes)))
        desk.publisher.publish(TEN + timedelta(minutes=minutes))
    names = sorted(str(path.relative_to(desk.usage)) for path in desk.usage.rglob("*.duckdb"))
    assert names == ["2026-11-21/10.duckdb", "2026-11-21/11.duckdb", "2026-11-21/12.duckdb", "2026-11-22/10.duckdb"]
    assert desk.read() == 6


def test_a_late_row_joins_the_file_of_its_hour(desk: Desk) -> None:
    desk.add(row(time=TEN), row(time=TEN + timedelta(hours=1)))
    desk.publisher.publish(TEN + timedelta(hours=1))
    desk.add(row("req_late", time=TEN + timedelta(minutes=59)))
    assert desk.publisher.publish(TEN + timedelta(hours=2)) == 1
    reader = duckdb.connect(str(desk.publisher.path(TEN)), read_only=True)
    assert reader.execute("SELECT count(*), count(*) FILTER (request_id = 'req_late') FROM usage").fetchall() == [
        (2, 1)
    ]


def test_a_reader_keeps_the_file_it_opened_while_it_is_replaced(desk: Desk) -> None:
    desk.add(row(time=TEN))
    desk.publisher.publish(TEN)
    reader = duckdb.connect(str(desk.publisher.path(TEN)), read_only=True)
    for _ in range(3):
        desk.add(row(time=TEN))
        desk.publisher.publish(TEN)
        assert reader.execute("SELECT count(*) FROM usage").fetchall() == [(1,)]
    assert desk.read() == 4


def test_readers_never_see_half_a_file_while_it_is_replaced_over_and_over(desk: Desk) -> None:
    desk.add(row(time=TEN))
    desk.publisher.publish(TEN)
    seen: list[int] = []
    done = threading.Event()

    def keep_reading() -> None:
        while not done.is_set():
            seen.append(read(desk.usage, "count(*)"))  # type: ignore[arg-type]

    reader = threading.Thread(target=keep_reading)
    reader.start()
    written = 0
    while written < 40 or (len(seen) <= 3 and reader.is_alive()):  # a busy machine may let the reader wait
        desk.add(row(time=TEN))
        desk.publisher.publish(TEN)
        written += 1
    done.set()
    reader.join()
    assert seen == sorted(seen)
    assert len(seen) > 3
    assert desk.read() == written + 1


def test_a_deleted_or_broken_file_is_written_anew(desk: Desk) -> None:
    desk.add(row(time=TEN))
    desk.publisher.publish(TEN)
    desk.publisher.path(TEN).unlink()
    desk.add(row(time=TEN))
    desk.publisher.publish(TEN)
    assert desk.read() == 2
    desk.publisher.path(TEN).write_bytes(b"power was lost here")
    desk.add(row(time=TEN))
    desk.publisher.publish(TEN)
    assert desk.read() == 3


def test_a_start_rebuilds_a_recent_file_that_lacks_rows(desk: Desk) -> None:
    desk.add(row(time=TEN), row(time=TEN))
    desk.publisher.publish(TEN)
    desk.publisher.path(TEN).write_bytes(b"")
    assert desk.publisher.publish(TEN, recheck=True) == 1
    assert desk.read() == 2
    assert desk.publisher.publish(TEN, recheck=True) == 0


def test_files_that_may_be_short_of_rows_are_looked_at_also_when_a_start_takes_several_turns(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, early = TEN, TEN - timedelta(hours=1)
    desk.add(row("req_early", time=early), row("req_late", time=late))
    desk.publisher.publish(TEN)
    whole = [desk.publisher.path(hour).read_bytes() for hour in (early, late)]
    desk.add(row("req_early_2", time=early), row("req_late_2", time=late))
    desk.publisher.publish(TEN)
    for hour, content in zip((early, late), whole, strict=True):
        desk.publisher.path(hour).write_bytes(content)  # as after a loss of power
    monkeypatch.setattr("tollgate.ledger.publish._TURN_SECONDS", -1.0)
    assert [desk.publisher.publish(TEN, recheck=turn == 0) for turn in range(3)] == [1, 1, 0]


def test_a_row_of_a_clock_that_was_set_ahead_keeps_no_young_file_from_being_looked_at(desk: Desk) -> None:
    desk.add(row("req_1", time=TEN), row("req_far", time=TEN + timedelta(days=400)))
    desk.publisher.publish(TEN)
    short = desk.publisher.path(TEN).read_bytes()
    desk.add(row("req_2", time=TEN))
    desk.publisher.publish(TEN)
    desk.publisher.path(TEN).write_bytes(short)  # as after a loss of power
    assert desk.publisher.publish(TEN, recheck=True) == 1
    assert desk.read() == 3


def test_a_start_rebuilds_every_file_that_is_gone(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a restore of `var/` without `usage/`; the newest hours come first, and a turn that takes too long goes
    on later."""
    days = [TEN - timedelta(days=back) for back in (2, 1, 0)]
    desk.add(*(row(time=day) for day in days))
    desk.publisher.publish(TEN)
    for day in days:
        desk.publisher.path(day).unlink()
    monkeypatch.setattr("tollgate.ledger.publish._TURN_SECONDS", -1.0)
    assert desk.publisher.publish(TEN, recheck=True) == 1
    assert desk.publisher.path(TEN).exists()
    assert [desk.publisher.publish(TEN), desk.publisher.publish(TEN), desk.publisher.publish(TEN)] == [1, 1, 0]
    assert desk.read() == 3


def test_a_start_under_another_instance_name_copies_no_old_hours(desk: Desk) -> None:
    desk.add(row(time=TEN - timedelta(days=1)), row(time=TEN - timedelta(days=2)))
    desk.publisher.publish(TEN)
    desk.publisher = Publisher(StoreSource(desk.store), desk.publisher._directory, "eu-1")
    desk.publisher.publish(TEN, recheck=True)
    assert not desk.publisher.path(TEN - timedelta(days=2)).exists()


def test_a_new_store_beside_old_files_adds_to_them(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        desk = Desk(tmp_path / folder)
        desk.publisher = Publisher(StoreSource(desk.store), tmp_path / "usage")
        desk.seq = desk.publisher.highest_seq()
        desk.add(row(time=TEN), row(time=TEN))
        desk.publisher.publish(TEN)
        desk.store.close()
    assert read(tmp_path / "usage", "count(*)") == 4
    assert read(tmp_path / "usage", "count(DISTINCT seq)") == 4


def test_an_older_file_gains_new_columns(desk: Desk) -> None:
    desk.add(row(time=TEN))
    desk.publisher.publish(TEN)
    old = duckdb.connect(str(desk.publisher.path(TEN)))
    old.execute("ALTER TABLE usage DROP COLUMN provider_cost")
    old.close()
    desk.add(row(time=TEN, provider_cost=Decimal("0.5")))
    desk.publisher.publish(TEN)
    assert desk.read("sum(provider_cost)") == Decimal("0.5")
    assert desk.read() == 2


def test_an_instance_publishes_under_its_own_name(tmp_path: Path) -> None:
    for instance in ("main", "eu-1"):
        (tmp_path / instance).mkdir()
        desk = Desk(tmp_path / instance)
        desk.publisher = Publisher(StoreSource(desk.store), tmp_path / "usage", instance)
        desk.add(row(time=TEN))
        desk.publisher.publish(TEN)
        desk.store.close()
    assert sorted(path.name for path in (tmp_path / "usage").rglob("*")) == [
        "10-eu-1.duckdb",
        "10.duckdb",
        "2026-11-21",
    ]
    assert read(tmp_path / "usage", "count(*)") == 2


async def test_a_folder_that_cannot_be_written_is_told_once_and_so_is_its_return(
    anywhere: Alice, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    day = tmp_path / "usage" / TEN.date().isoformat()
    day.write_text("in the way")
    await anywhere.ledger.record(row(time=TEN))
    for _ in range(5):
        await anywhere.ledger.settle()
    assert not anywhere.ledger.published and anywhere.ledger.ready
    day.unlink()
    await anywhere.ledger.settle()
    assert anywhere.ledger.published
    said = [record.getMessage() for record in caplog.records if "publish" in record.getMessage()]
    assert (
        len(said) == 2
        and said[0].startswith("usage files could not be published, tried again every few seconds: ")
        and said[1] == "usage files are published again"
    )
    assert read(tmp_path / "usage", "count(*)") == 1


def test_leftovers_of_a_killed_process_go(desk: Desk) -> None:
    desk.add(row(time=TEN))
    desk.publisher.publish(TEN)
    leftover = desk.publisher.path(TEN).with_name(".10.tmp")
    leftover.write_bytes(b"half")
    desk.publisher.remove_leftovers()
    assert not leftover.exists()
    assert desk.publisher.path(TEN).exists()


def test_a_busy_store_gives_cached_pages_back_without_waiting_for_a_publication(desk: Desk) -> None:
    desk.store.connection.execute("CREATE TABLE filler AS SELECT uuid()::VARCHAR AS text FROM range(300000)")
    desk.store.connection.execute("CHECKPOINT")
    desk.store.connection.execute("SELECT max(text) FROM filler").fetchall()
    desk.add(*[row() for _ in range(3_999)])
    before = held(desk)
    desk.add(row())
    assert before > 6_000_000
    assert held(desk) <= 2_000_000


def test_cached_pages_are_given_back(desk: Desk) -> None:
    """DuckDB keeps what it has read up to its limit, and the limit that large sums need would be held for good."""
    desk.store.connection.execute("CREATE TABLE filler AS SELECT uuid()::VARCHAR || range AS text FROM range(1500000)")
    desk.store.connection.execute("CHECKPOINT")
    desk.store.connection.execute("SELECT max(text), min(length(text)) FROM filler").fetchall()
    before = held(desk)
    desk.store.let_go()
    assert before > 17_000_000
    assert held(desk) <= 2_000_000
    assert desk.store.connection.execute("SELECT count(*), current_setting('memory_limit') FROM filler").fetchone() == (
        1_500_000,
        "91.5 MiB",
    )
    desk.add(row(time=TEN))
    assert desk.publisher.publish(TEN) == 1


@pytest.mark.parametrize(
    ("cpu", "wall", "pause"), [(0.1, 0.1, 2.0), (0.05, 2.5, 10.0)], ids=["work", "waiting for a busy machine or disk"]
)
def test_publishing_pauses_by_what_it_takes_not_by_how_busy_others_are(monkeypatch, cpu, wall, pause):
    clock = SimpleNamespace(monotonic=iter([10.0, 10.0 + wall]).__next__, thread_time=iter([1.0, 1.0 + cpu]).__next__)
    monkeypatch.setattr(publish_module, "time", clock)
    with Effort() as effort:
        pass
    assert effort.pause == pytest.approx(pause)


def test_a_file_that_cannot_be_opened_for_want_of_descriptors_is_not_written_anew(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.add(row("req_1", time=TEN))
    desk.publisher.publish(TEN)
    desk.add(row("req_2", time=TEN))
    with few_descriptors(0), pytest.raises(duckdb.Error):
        desk.publisher.publish(TEN)
    assert caplog.messages == [] and desk.read() == 1
    assert desk.publisher.publish(TEN) == 1 and desk.read() == 2
