"""`tollgate usage`: reports, SQL, filters and formats, over published files only."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
import pytest_asyncio

from support.few_descriptors import few_descriptors
from support.stores import open_ledger
from tollgate.config.settings import Store
from tollgate.ledger import UsageRow
from tollgate.ledger.reports import REPORTS
from tollgate.ledger.usage_row import COLUMNS

from .tollgate import Tollgate

NOW = datetime.now(UTC)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Usage files of six requests of two accounts over three days."""
    folder = tmp_path_factory.mktemp("published")
    async with open_ledger(Store(directory=folder / "var", usage_directory=folder / "usage")) as ledger:
        for number, (account, model, days, outcome, cost) in enumerate(
            (
                ("alice", "acme/large", 0, "ok", "0.10"),
                ("alice", "acme/large", 1, "ok", "0.20"),
                ("alice", "acme/small", 1, "ok", "0.01"),
                ("bob", "acme/large", 2, "ok", "0.30"),
                ("bob", "other/large", 0, "upstream_error", "0"),
                ("bob", "other/large", 0, "client_gone", "0.05"),
            )
        ):
            await ledger.record(
                UsageRow(
                    f"req_{number}",
                    account,
                    f"key_{account}",
                    "chat",
                    time=NOW - timedelta(days=days),
                    model=model,
                    provider=model.split("/")[0],
                    cost=Decimal(cost),
                    input_tokens=100,
                    output_tokens=10,
                    outcome=outcome,
                    status=200 if outcome == "ok" else 500,
                    error_code=None if outcome == "ok" else "upstream_failed",
                    ttfb_ms=50.0,
                    total_ms=100.0 * number,
                )
            )
    return folder / "usage"


@pytest.fixture
def used(tollgate: Tollgate, published: Path) -> Tollgate:
    """A folder with only these usage files, without the store they come from."""
    shutil.copytree(published, tollgate.folder / "usage")
    return tollgate


def test_a_missing_folder_is_an_error_and_an_empty_one_is_not(used: Tollgate, tmp_path: Path) -> None:
    done = used("usage", "--directory", "nowhere")
    assert (done.code, done.out) == (2, "") and "'--directory'" in done.err and "'nowhere' does not exist" in done.err
    (tmp_path / "empty").mkdir()
    empty = used("usage", "--directory", "empty")
    assert (
        empty.code == 0
        and empty.err == "there are no usage files in empty; those of a gateway elsewhere: --config, or --directory\n"
    )
    assert used("usage", "--since", "1m").err == "", "there are files, but no such rows"
    assert used("usage", "by-model", "--directory", "usage", "--format", "csv").out.count("\n") == 4


def test_the_summary_is_the_default_report(used: Tollgate) -> None:
    done = used("usage")
    assert done.code == 0
    assert "0.66" in done.out
    [row] = json.loads(used("usage", "--json").out)
    assert (row["requests"], row["failed"], row["cost"], row["input"], row["accounts"]) == (6, 2, "0.66", 600, 2)


def test_a_query_in_place_of_a_report_is_told_where_it_belongs(used: Tollgate) -> None:
    done = used("usage", "FROM usage")
    assert done.code == 2 and 'a query is given with --sql: tollgate usage --sql "FROM usage"' in done.err
    done = used("usage", "by-model", "--sql", "FROM usage")
    assert done.code == 2 and "a report, --sql and --columns each print something of their own" in done.err


@pytest.mark.parametrize("report", sorted(REPORTS))
def test_every_report_runs_in_every_format(used: Tollgate, report: str) -> None:
    for form in ("table", "json", "csv", "parquet"):
        done = used("usage", report, "--format", form)
        assert done.code == 0, done.err
        assert done.raw


def test_times_in_json_are_utc_except_those_computed_by_the_query(used: Tollgate, tmp_path: Path) -> None:
    rows = json.loads(used("usage", "requests", "--json").out)
    times = [datetime.fromisoformat(row["time"]) for row in rows]
    assert all(row["time"].endswith("Z") for row in rows) and max(times) == NOW
    hours = json.loads(used("usage", "by-hour", "--json").out)
    assert datetime.fromisoformat(hours[-1]["hour"]) == NOW.replace(minute=0, second=0, microsecond=0)
    query = "SELECT max(time) AT TIME ZONE 'UTC' AT TIME ZONE 'Asia/Tokyo' AS there, max(time)::DATE AS day FROM usage"
    [row] = json.loads(used("usage", "--sql", query, "--json").out)
    assert datetime.fromisoformat(row["there"]) == NOW.replace(tzinfo=None) + timedelta(hours=9)
    assert row["day"] == str(NOW.date())
    used("usage", "requests", "--json", "--output", str(tmp_path / "rows.json"))
    read = duckdb.sql(f"SELECT typeof(time) FROM read_json('{tmp_path / 'rows.json'}')").fetchall()
    assert set(read) == {("TIMESTAMP WITH TIME ZONE",)}


def test_reports_group_and_sum(used: Tollgate) -> None:
    rows = json.loads(used("usage", "by-model", "--format", "json").out)
    assert [(row["model"], row["requests"], row["failed"], row["cost"]) for row in rows] == [
        ("acme/large", 3, 0, "0.6"),
        ("other/large", 2, 2, "0.05"),
        ("acme/small", 1, 0, "0.01"),
    ]
    assert [row["day"] for row in json.loads(used("usage", "by-day", "--format", "json").out)] == sorted(
        str((NOW - timedelta(days=days)).date()) for days in range(3)
    )
    assert {row["outcome"] for row in json.loads(used("usage", "errors", "--format", "json").out)} == {
        "upstream_error",
        "client_gone",
    }
    assert json.loads(used("usage", "slow", "--format", "json").out)[0]["request_id"] == "req_5"


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        (("--account", "alice"), "012"),
        (("--key", "key_bob"), "345"),
        (("--model", "acme/*"), "0123"),
        (("--provider", "other"), "45"),
        (("--since", "36h"), "01245"),
        (("--until", "36h"), "3"),
        (("--since", "36h", "--until", "12h"), "12"),
        (("--since", (NOW + timedelta(days=1)).date().isoformat()), ""),
        (("--account", "o'neil"), ""),
    ],
)
def test_filters_apply_to_reports_and_sql(used: Tollgate, filters: tuple[str, ...], ids: str) -> None:
    rows = json.loads(
        used("usage", "--sql", "SELECT request_id FROM usage ORDER BY 1;", "--format", "json", *filters).out
    )
    assert [row["request_id"] for row in rows] == [f"req_{each}" for each in ids]
    assert json.loads(used("usage", "--format", "json", *filters).out)[0]["requests"] == len(ids)


def test_csv_and_parquet_keep_exact_amounts(used: Tollgate, tmp_path: Path) -> None:
    query = "SELECT request_id, cost FROM usage ORDER BY 1"
    rows = list(csv.DictReader(io.StringIO(used("usage", "--sql", query, "--format", "csv").out)))
    assert Decimal(rows[0]["cost"]) == Decimal("0.1")
    assert used("usage", "--sql", query, "--format", "parquet", "--output", str(tmp_path / "out.parquet")).out == ""
    found = duckdb.connect().execute(f"SELECT sum(cost) FROM '{tmp_path}/out.parquet'").fetchall()
    assert found == [(Decimal("0.66"),)]
    used("usage", "by-key", "--format", "json", "--output", str(tmp_path / "out.json"))
    assert len(json.loads((tmp_path / "out.json").read_text())) == 2


def test_a_file_is_written_as_its_ending_says_where_no_format_is_named(used: Tollgate, tmp_path: Path) -> None:
    """It was the table drawn for a terminal, whatever the file was called."""
    query = "SELECT request_id, cost FROM usage"
    for name in ("out.parquet", "out.csv", "OUT.JSON", "out.txt"):
        assert used("usage", "--sql", query, "--output", str(tmp_path / name)).out == ""
    assert duckdb.connect().execute(f"SELECT count(*) FROM read_parquet('{tmp_path}/out.parquet')").fetchall() == [(6,)]
    assert (tmp_path / "out.csv").read_text().startswith("request_id,cost\n")
    assert len(json.loads((tmp_path / "OUT.JSON").read_text())) == 6
    assert "───" in (tmp_path / "out.txt").read_text()
    used("usage", "--sql", query, "--format", "csv", "--output", str(tmp_path / "out.json"))
    assert (tmp_path / "out.json").read_text().startswith("request_id,cost\n"), "a named format counts"


@pytest.mark.parametrize(
    ("query", "row"),
    [
        ("SELECT 1 AS one -- what an editor leaves", {"one": "1"}),
        ("SELECT '日本; --' AS one; /* a note; */ -- and one more", {"one": "日本; --"}),
        ("SET TimeZone = 'Asia/Tokyo'; SELECT count(*) AS n FROM usage -- all", {"n": "6"}),
        ("SELECT now() IS NULL AS t, 1 AS a, 2 AS a;", {"t": "False", "a": "1", "a_1": "2"}),
        ("SELECT 2::HUGEINT ** 70 > 0 AS t, 1180591620717411303424 AS n", {"t": "True", "n": "1180591620717411303424"}),
        ("SELECT MAP {1: 0.5} AS prices", {"prices": "{'1': '0.5'}"}),
    ],
    ids=["comment", "semicolons", "two-statements", "one-name-twice", "large-number", "map-of-numbers"],
)
def test_any_query_that_duckdb_runs_can_be_shown(used: Tollgate, query: str, row: dict[str, str]) -> None:
    [found] = json.loads(used("usage", "--sql", query, "--json").out)
    assert {name: str(value) for name, value in found.items()} == row
    [header, *_] = used("usage", "--sql", query, "--format", "csv").out.splitlines()
    assert header.split(",") == list(row)


def test_sql_is_read_from_stdin(used: Tollgate) -> None:
    assert json.loads(used("usage", "--sql", "-", "--format", "json", stdin="SELECT 1 AS one").out) == [{"one": 1}]


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("--sql", "SELECT nothing_like_this FROM usage"), 1, "nothing_like_this"),
        (("--sql", "DELETE FROM usage"), 1, "base table"),
        (("--since", "yesterday"), 2, "yesterday"),
        (("nonsense",), 2, "nonsense"),
        (("--since", "99999y"), 2, "before the year 1"),
        (
            ("--since", "2026-11-20", "--until", "2026-11-19"),
            2,
            '"2026-11-19" is not later than "2026-11-20" of --since',
        ),
        (("--since", "1h", "--until", "2h"), 2, "--until"),
        (("--endpoint", "chats"), 2, "chats"),
        (("--outcome", "okay"), 2, "okay"),
        (("--output", "/nowhere/at/all", "--format", "csv"), 1, "nowhere"),
    ],
)
def test_mistakes_are_named_on_stderr(used: Tollgate, words: tuple[str, ...], code: int, reason: str) -> None:
    done = used("usage", *words)
    assert (done.code, done.out) == (code, "")
    assert reason in done.err


def test_a_damaged_file_is_named_without_showing_internal_sql(used: Tollgate) -> None:
    damaged = min((used.folder / "usage").glob("*/*.duckdb"))
    damaged.write_bytes(b"the disk failed here")
    done = used("usage", "by-model")
    assert done.code == 1 and "VIEW" not in done.err
    assert done.err.startswith(f"the file usage/{damaged.parent.name}/{damaged.name} is damaged; when it is deleted, ")


@pytest.mark.parametrize("form", ["table", "json", "csv", "parquet"])
def test_reports_without_any_usage_are_empty(tollgate: Tollgate, form: str) -> None:
    for report in ("summary", "by-model"):
        assert tollgate("usage", report, "--format", form).code == 0


def test_columns_are_explained(tollgate: Tollgate) -> None:
    text = tollgate("usage", "--columns").out
    assert all(column.name in text and column.about in text for column in COLUMNS)
    listed = json.loads(tollgate("usage", "--columns", "--json").out)
    assert [(row["column"], row["meaning"]) for row in listed] == [(column.name, column.about) for column in COLUMNS]


async def test_usage_of_a_running_gateway_is_reported(running: Tollgate) -> None:
    await running.ledger.record(UsageRow("req_live", "alice", "key_1", "chat", cost=Decimal("0.5")))
    await running.ledger.settle()
    assert (
        json.loads((await running.in_thread("usage", "requests", "--format", "json")).out)[0]["request_id"]
        == "req_live"
    )


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Asia/Tokyo"])
def test_now_is_utc_in_any_time_zone(used: Tollgate, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    query = """SELECT count(*) AS n, now() AS "the ""time\""" FROM usage WHERE time > now() - INTERVAL 2 HOURS"""
    [row] = json.loads(used("usage", "--sql", query, "--format", "json").out)
    assert row["n"] == 3 and row['the "time"'].endswith("+00")
    assert used("usage", "--sql", "SELECT now() AS t").code == 0


def test_an_empty_query_is_rejected(used: Tollgate) -> None:
    done = used("usage", "--sql", " ; ")
    assert (done.code, done.err) == (1, "the query is empty\n")


@pytest.fixture
def many_hours(published: Path, tmp_path: Path) -> str:
    """A folder with the usage files of three days."""
    one = next(published.glob("*/*.duckdb"))
    for hour in range(72):
        path = tmp_path / "usage" / f"2026-11-{1 + hour // 24:02}" / f"{hour % 24:02}.duckdb"
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link(one, path)
    return str(tmp_path / "usage")


def test_more_files_are_read_than_may_be_open(tollgate: Tollgate, many_hours: str) -> None:
    with few_descriptors(40):
        done = tollgate(
            "usage", "--directory", many_hours, "--sql", "SELECT count(*) >= 72 AS all FROM usage", "--json"
        )
    assert (done.code, done.err, json.loads(done.out)) == (0, "", [{"all": True}])


def test_a_limit_of_open_files_that_cannot_be_raised_is_reported_with_remedies(
    tollgate: Tollgate, many_hours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tollgate.process.descriptors.raise_limit", lambda: None)
    with few_descriptors(40):
        done = tollgate("usage", "--directory", many_hours)
        assert (done.code, done.out) == (1, "")
        assert "--since" in done.err and "ulimit -n" in done.err
        assert tollgate("usage", "--directory", many_hours, "--since", "2026-11-03").code == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("form", ["table", "csv"])
def test_a_full_disk_is_reported_with_the_name_of_the_output(published: Path, form: str) -> None:
    words = [sys.executable, "-m", "tollgate", "usage", "--directory", str(published), "--format", form]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "standard output: No space left on device\n")


def test_closed_output_is_no_error(published: Path) -> None:
    words = [sys.executable, "-m", "tollgate", "usage", "--directory", str(published), "--format", "csv"]
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *words], stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")
