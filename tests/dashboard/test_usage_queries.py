"""The queries of the usage pages: exact sums, the right rows, only changed files, off the event loop."""

from __future__ import annotations

import csv
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest

from support.few_descriptors import few_descriptors
from support.stores import open_ledger
from tollgate.config.settings import Store
from tollgate.dashboard.usage_queries import UsageQueries
from tollgate.dashboard.usage_report import bucket_starts
from tollgate.errors import BadRequest, Unavailable
from tollgate.ledger import Ledger, UsageRow
from tollgate.ledger.reports import Filters, damaged_files

NOW = datetime(2026, 11, 21, 14, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
async def books(tmp_path: Path):
    async with open_ledger(Store(directory=tmp_path / "var", usage_directory=tmp_path / "usage")) as ledger:
        await ledger.create_account("alice")
        await ledger.create_account("bob")
        yield ledger


@pytest.fixture
def queries(tmp_path: Path):
    made = UsageQueries(tmp_path / "usage", clock=lambda: NOW)
    yield made
    made.files.close()


async def write(books: Ledger, count: int, *, ago: timedelta = timedelta(0), **more) -> None:
    for number in range(count):
        values = {
            "account_id": "alice",
            "key_id": "key_1",
            "endpoint": "chat",
            "model": "acme/large",
            "provider": "acme",
            "cost": Decimal("0.01"),
            "input_tokens": 10,
            "output_tokens": 5,
            "ttfb_ms": 100.0,
            "total_ms": 900.0,
            "time": NOW - ago - timedelta(seconds=number),
        } | more
        await books.record(
            UsageRow(f"req_{ago.total_seconds():.0f}_{values['account_id']}_{values['model'][-5:]}_{number}", **values)
        )
    await books.settle()


async def test_sums_are_exact_by_time_and_dimension(books, queries):
    await write(books, 3)
    await write(
        books, 2, ago=HOUR, model="acme/small", outcome="upstream_error", status=500, cost=Decimal("0.000000000001")
    )
    await write(books, 4, account_id="bob")
    report = await queries.report(Filters(account="alice"), HOUR, 24)
    assert [bucket.all.requests for bucket in report][-3:] == [0, 2, 3]
    whole = report.all()
    assert (whole.requests, whole.failed, whole.cost, whole.input_tokens, whole.output_tokens) == (
        5,
        2,
        Decimal("0.030000000002"),
        50,
        25,
    )
    assert [(name, measures.requests) for name, measures in report.by("model")] == [
        ("acme/large", 3),
        ("acme/small", 2),
    ]
    assert whole.first_byte_ms(0.5) == pytest.approx(100, rel=0.1)
    everybody = await queries.report(Filters(), HOUR, 24)
    assert [(name, measures.requests) for name, measures in everybody.by("account_id")] == [("bob", 4), ("alice", 5)]


async def test_only_what_changed_is_read_again(books, queries, monkeypatch):
    await write(books, 2, ago=2 * HOUR)
    await write(books, 1)
    await queries.report(Filters(), HOUR, 24)
    queried = []
    query = queries.files.query
    monkeypatch.setattr(
        queries.files, "query", lambda filters, *rest, **more: queried.append(filters) or query(filters, *rest, **more)
    )
    assert (await queries.report(Filters(), HOUR, 24)).all().requests == 3 and queried == []
    await write(books, 1, ago=timedelta(minutes=1), model="acme/newer")
    assert (await queries.report(Filters(), HOUR, 24)).all().requests == 4
    assert {filters.since for filters in queried} == {NOW.replace(minute=0)}


async def test_late_rows_of_a_past_hour_are_counted(books, queries):
    await write(books, 1, ago=5 * HOUR)
    assert (await queries.report(Filters(), HOUR, 24)).all().requests == 1
    await write(books, 2, ago=5 * HOUR, model="acme/later")
    assert (await queries.report(Filters(), HOUR, 24)).all().requests == 3


async def test_the_cache_of_reports_is_bounded(books, queries, monkeypatch):
    kept = queries._reports._cache
    monkeypatch.setattr(kept, "_most", 20)
    await write(books, 5)
    for number in range(8):
        await queries.report(Filters(text=f"nothing like {number}"), HOUR, 24)
    assert 0 < kept._size <= 20


@pytest.mark.parametrize(
    ("width", "count"), [(timedelta(minutes=2), 30), (HOUR, 24), (timedelta(hours=6), 28), (timedelta(days=1), 90)]
)
def test_the_last_bucket_contains_now(width, count):
    starts = list(bucket_starts(NOW, width, count))
    assert len(starts) == count and starts[-1] <= NOW < starts[-1] + width
    assert all(later - earlier == width for earlier, later in pairwise(starts))
    if width >= timedelta(days=1):
        assert starts[0].hour == 0


async def test_rows_are_paged_newest_first(books, queries):
    await write(books, 5)
    await write(books, 5, ago=30 * HOUR)
    first = await queries.rows(Filters(account="alice"), 4)
    assert [row["time"] for row in first] == sorted((row["time"] for row in first), reverse=True)
    rest = await queries.rows(Filters(account="alice"), 20, (first[-1]["time"], first[-1]["seq"]))
    assert len(rest) == 6 and not {row["request_id"] for row in rest} & {row["request_id"] for row in first}


async def test_a_row_is_found_with_a_right_a_wrong_or_no_hint(books, queries):
    await write(books, 1, ago=50 * HOUR)
    id = (await queries.rows(Filters(), 1))[0]["request_id"]
    for hint in (NOW - 50 * HOUR, NOW, None):
        assert (await queries.row(Filters(account="alice"), id, hint))["request_id"] == id
    assert await queries.row(Filters(account="bob"), id) is None


async def test_without_files_reports_are_empty(tmp_path):
    queries = UsageQueries(tmp_path / "nowhere")
    assert (await queries.report(Filters(), HOUR, 24)).all().requests == 0
    assert await queries.rows(Filters(), 10) == [] and await queries.row(Filters(), "x") is None
    path = await queries.export(Filters(), "csv")
    assert len(path.read_text().splitlines()) == 1
    path.unlink()
    queries.files.close()


async def test_a_caller_s_text_is_no_formula_in_a_spreadsheet(books, queries):
    texts = ["=cmd()", "+1", "-1", "@sum", "\t=1", "\n=1", "＝1", "plain", "it's =1", "'plain", "'=1", "''-1", None]
    for place, end_user in enumerate(texts):
        await write(books, 1, ago=place * HOUR, end_user=end_user)
    path = await queries.export(Filters(), "csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    path.unlink()
    written = {row["end_user"] for row in rows}
    plain = {"plain", "it's =1", "'plain", ""}
    assert written == plain | {f"'{each}" for each in texts if each and each not in plain}
    assert {re.sub(r"^'('*[-=+@＝＋－＠\t\r\n])", r"\1", each) for each in written} == {each or "" for each in texts}
    assert rows[0]["cost"][0].isdigit()
    path = await queries.export(Filters(), "parquet")
    kept = duckdb.connect().execute(f"SELECT end_user FROM '{path}'").fetchall()
    path.unlink()
    assert {row[0] for row in kept} == set(texts)


async def test_a_spreadsheet_sees_that_a_download_is_utf_8(books, queries):
    await write(books, 1, end_user="Zoë")
    path = await queries.export(Filters(), "csv")
    written = path.read_bytes()
    path.unlink()
    assert written.startswith(b"\xef\xbb\xbfrequest_id,") and "Zoë".encode() in written


async def test_the_size_of_a_download_is_limited(books, queries, monkeypatch):
    from tollgate.dashboard import usage_queries as module

    await write(books, 3)
    monkeypatch.setattr(module, "MOST_ROWS_OUT", 2)
    with pytest.raises(BadRequest, match='tollgate usage --sql "FROM usage" --output usage.csv'):
        await queries.export(Filters(), "csv")


async def test_a_damaged_file_is_skipped_and_reported_until_it_is_replaced(books, queries, tmp_path, caplog):
    await write(books, 1)
    await write(books, 1, ago=timedelta(days=1))
    damaged = next((tmp_path / "usage").glob("2026-11-20/*.duckdb"))
    whole = damaged.read_bytes()
    damaged.write_bytes(b"the disk failed here")
    message = (
        f"the file usage/2026-11-20/{damaged.name} is damaged; when it is deleted, its gateway writes it anew at the "
        "next start"
    )
    assert queries.files.damaged == []
    assert (await queries.report(Filters(), HOUR, 48)).all().requests == 1
    assert len(await queries.rows(Filters(), 50)) == 1
    assert queries.files.damaged == [message] == [record.getMessage() for record in caplog.records]
    damaged.write_bytes(whole)
    assert (await queries.report(Filters(), HOUR, 48)).all().requests == 2
    assert queries.files.damaged == []


async def test_files_that_cannot_be_opened_for_lack_of_descriptors_are_not_damaged(books, queries, tmp_path):
    await write(books, 2)
    await write(books, 1, ago=HOUR)
    with few_descriptors(1):  # enough to list a folder
        with pytest.raises(Unavailable, match="more files than may be open"):
            await queries.report(Filters(), HOUR, 24)
        assert damaged_files(tmp_path / "usage", Filters()) == queries.files.damaged == []
    assert (await queries.report(Filters(), HOUR, 24)).all().requests == 3


async def test_sums_without_a_temporarily_unreadable_file_are_not_cached(books, queries, tmp_path):
    await write(books, 1)
    [path] = (tmp_path / "usage").glob("*/*.duckdb")
    queries.files._damaged[path] = path.stat().st_mtime_ns, float("inf")
    assert (await queries.report(Filters(), HOUR, 2)).all().requests == 0
    queries.files._damaged.clear()
    assert (await queries.report(Filters(), HOUR, 2)).all().requests == 1
