"""Of very many keys and accounts only the most expensive have their own sums, and all sums add up to the rows."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace

import pytest

from support.stores import open_ledger
from tollgate.config.settings import Store
from tollgate.dashboard import usage_report as module
from tollgate.dashboard import usage_sums
from tollgate.dashboard.usage_queries import UsageQueries
from tollgate.dashboard.usage_sums import EVERY_VALUE, Leading, in_groups, read_leading
from tollgate.ledger import UsageRow
from tollgate.ledger.reports import Filters

NOW = datetime(2026, 11, 21, 14, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
async def rows(tmp_path, monkeypatch):
    """Rows of 40 keys of 20 accounts over some hours. Reports separate five keys and five accounts."""
    monkeypatch.setattr(module, "_BYTES_A_ROW", 1)
    monkeypatch.setattr(module, "_MEASURED_ROWS", 1_000_000_000)
    monkeypatch.setattr(usage_sums, "MOST", 5)
    monkeypatch.setattr(usage_sums, "MOST_SHOWN", 2)
    rng = random.Random(7)
    made = [
        UsageRow(
            f"req_{number}",
            f"account-{number % 20}",
            f"key_{number % 40}",
            "chat",
            model=f"acme/m{number % 3}",
            provider="acme",
            cost=Decimal(rng.randrange(10**15)).scaleb(-12),
            input_tokens=rng.randrange(5000),
            outcome=rng.choice(("ok", "ok", "timeout")),
            ttfb_ms=rng.uniform(1, 900),
            total_ms=rng.uniform(900, 9000),
            time=NOW - timedelta(minutes=rng.randrange(600)),
        )
        for number in range(400)
    ]
    async with open_ledger(Store(directory=tmp_path / "var", usage_directory=tmp_path / "usage")) as ledger:
        for row in made:
            await ledger.record(row)
        await ledger.settle()
        yield made, ledger


@pytest.fixture
def reports(tmp_path):
    made = UsageQueries(tmp_path / "usage", clock=lambda: NOW)
    yield made
    made.files.close()


def expire_leading_values(monkeypatch) -> None:
    """Ends the time for which the list of the most expensive values is cached."""
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 3600))


def spent(rows, name: str) -> list[tuple[str, Decimal]]:
    """The values of a column with the cost of their rows, most expensive first."""
    found: dict[str, Decimal] = defaultdict(Decimal)
    for row in rows:
        found[getattr(row, name)] += row.cost
    return sorted(found.items(), key=lambda entry: -entry[1])


@pytest.mark.parametrize(("most", "exact"), [(500, True), (100, False)])
async def test_latencies_are_counted_from_every_row_unless_there_are_very_many(
    rows, reports, tmp_path, monkeypatch, most, exact
):
    """However large the files are: one with ten rows may be as large as one with thousands."""
    of_all = [measures.total for _, measures in (await reports.report(Filters(), HOUR, 24)).by("model")]
    monkeypatch.setattr(module, "_MEASURED_ROWS", most)
    others = UsageQueries(tmp_path / "usage", clock=lambda: NOW)
    found = [measures.total for _, measures in (await others.report(Filters(), HOUR, 24)).by("model")]
    others.files.close()
    assert (found == of_all) is exact and all(found)


async def test_the_most_expensive_are_separate_and_the_rest_is_exact(rows, reports):
    made, _ = rows
    report = await reports.report(Filters(), HOUR, 24)
    for name, count in (("key_id", 40), ("account_id", 20)):
        separate = report.by(name)
        assert [(value, measures.cost) for value, measures in separate] == spent(made, name)[:5]
        assert report.count(name) == count
        rest = report.all().without(measures for _, measures in separate)
        others = [row for row in made if getattr(row, name) not in dict(separate)]
        assert (rest.cost, rest.requests, rest.input_tokens, rest.failed) == (
            sum(row.cost for row in others),
            len(others),
            sum(row.input_tokens for row in others),
            sum(row.outcome != "ok" for row in others),
        )
        slow = sorted(row.total_ms for row in others)
        assert rest.total_ms(0.5) == pytest.approx(slow[len(slow) // 2], rel=0.1)
    assert [value for value, _ in report.by("model")] == [value for value, _ in spent(made, "model")]
    for bucket in report:
        mine = [row for row in made if bucket.start <= row.time < bucket.start + HOUR]
        assert bucket.all.cost == sum((row.cost for row in mine), Decimal(0))
        for key, _ in report.by("key_id"):
            assert bucket.of("key_id", key).cost == sum((row.cost for row in mine if row.key_id == key), Decimal(0))


async def test_a_new_most_expensive_key_is_listed_after_the_cache_expires(rows, reports, monkeypatch):
    made, ledger = rows
    await reports.report(Filters(), HOUR, 24)
    cheapest = spent(made, "key_id")[-1][0]
    row = UsageRow("req_dear", "account-3", cheapest, "chat", cost=Decimal(99999), time=NOW - 5 * HOUR)
    await ledger.record(row)
    await ledger.settle()
    made = [*made, row]
    report = await reports.report(Filters(), HOUR, 24)
    assert report.all().cost == sum(row.cost for row in made)
    assert [(key, each.cost) for key, each in report.by("key_id")] == spent(made, "key_id")[1:6], "still cached"
    expire_leading_values(monkeypatch)
    report = await reports.report(Filters(), HOUR, 24)
    assert [(key, each.cost) for key, each in report.by("key_id")] == spent(made, "key_id")[:5]


async def test_cached_sums_stay_when_the_most_expensive_change_order(rows, reports, monkeypatch):
    made, ledger = rows
    await reports.report(Filters(), HOUR, 24)
    dear = {account for account, _ in spent(made, "account_id")[:5]}
    owner = {row.key_id: row.account_id for row in made}
    second = next(key for key, _ in spent(made, "key_id")[1:5] if owner[key] in dear)
    await ledger.record(UsageRow("req_more", owner[second], second, "chat", cost=Decimal(99999), time=NOW))
    await ledger.settle()
    expire_leading_values(monkeypatch)
    summed_since = []
    sums = reports._reports
    summed = sums._sum
    monkeypatch.setattr(
        sums, "_sum", lambda filters, *rest: summed_since.append(filters.since) or summed(filters, *rest)
    )
    report = await reports.report(Filters(), HOUR, 24)
    assert report.by("key_id")[0][0] == second and report.count("key_id") == 40
    assert summed_since == [NOW.replace(minute=0)], "the hour with a new row"


async def test_a_few_keys_are_all_separate_however_many_rows_there_are(rows, reports):
    report = await reports.report(Filters(account="account-3"), HOUR, 24)
    assert report.counts == {} and len(report.by("key_id")) == report.count("key_id") == 2


def test_the_most_expensive_of_several_periods_are_those_of_their_sum(monkeypatch):
    monkeypatch.setattr(usage_sums, "MOST", 2)
    one, two = Decimal(1), Decimal(2)
    rows = [
        ("key_id", "a", two, 1),
        ("key_id", "b", one, 5),
        ("key_id", "c", one, 1),
        ("key_id", "b", one, 1),
        ("key_id", "c", two, 1),
        ("account_id", "x", one, 1),
    ]
    assert read_leading(rows) == Leading({"key_id": ("c", "b")}, {"key_id": 3})
    assert read_leading([row for row in rows if row[1] != "c"]) == EVERY_VALUE


def test_new_leading_values_replace_the_old_only_if_a_page_would_show_them(monkeypatch):
    monkeypatch.setattr(usage_sums, "MOST_SHOWN", 1)
    before = Leading({"key_id": ("a", "b", "c")}, {"key_id": 4})
    assert before.or_newer(Leading({"key_id": ("b", "d", "a")}, {"key_id": 5})) == Leading(before.values, {"key_id": 5})
    newer = Leading({"key_id": ("d", "b", "a")}, {"key_id": 5})
    assert before.or_newer(newer) is newer
    assert before.or_newer(EVERY_VALUE) is EVERY_VALUE and EVERY_VALUE.or_newer(newer) is newer


def test_buckets_are_grouped_by_number_of_files():
    starts = [NOW + HOUR * number for number in range(5)]
    files = dict(zip(starts, ("aa", "a", "aaa", "", "a"), strict=True))
    assert in_groups(starts, files, 3) == [starts[:2], starts[2:4], starts[4:]]
    assert in_groups([], files, 3) == []
