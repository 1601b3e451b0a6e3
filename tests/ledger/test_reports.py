"""The built-in usage reports and the files they read."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from tollgate.ledger.reports import REPORTS, Filters, open_usage, report_query
from tollgate.ledger.usage_row import COLUMNS, create_table

EARLIER = (
    '[{"provider":"a","upstream_model":"x","error":"upstream_failed","status":503,"ms":20.0},'
    '{"provider":"b","upstream_model":"x","error":"upstream_timeout","status":null,"ms":40.0}]'
)


def write(folder: Path, hour: int, *rows: dict[str, object], lacking: tuple[str, ...] = ()) -> None:
    """Writes an hour's file with these rows, as a program would that does not know the columns in `lacking`."""
    path = folder / "2026-11-21" / f"{hour:02}.duckdb"
    path.parent.mkdir(exist_ok=True)
    with duckdb.connect(path) as file:
        file.execute(create_table("usage"))
        for number, row in enumerate(rows):
            values = {
                "request_id": f"req_{hour}_{number}",
                "account_id": "alice",
                "key_id": "key_1",
                "endpoint": "chat",
                "time": datetime(2026, 11, 21, hour),
                "cost": Decimal("0.5"),
                "seq": 100 * hour + number,
                "attempts": 1,
                "outcome": "ok",
                **row,
            }
            file.execute(
                f"INSERT INTO usage ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})",
                list(values.values()),
            )
        for name in lacking:
            file.execute(f"ALTER TABLE usage DROP COLUMN {name}")


def test_attempts_are_counted_at_the_provider_that_made_them(tmp_path: Path) -> None:
    write(
        tmp_path,
        10,
        {"provider": "c", "attempts": 3, "earlier_attempts": EARLIER, "total_ms": 90.0},
        {"provider": "a", "total_ms": 10.0},
        {"provider": "a", "outcome": "upstream_error", "error_code": "upstream_failed", "total_ms": 30.0},
        {"provider": "a", "outcome": "client_gone"},
        {"provider": "", "attempts": 0},
        {"provider": "a", "outcome": "rejected", "error_code": "cannot_convert"},  # no provider was called
    )
    assert open_usage(tmp_path).execute(REPORTS["by-attempt"][1]).fetchall() == [
        ("a", 4, 2, "upstream_failed", 25.0),
        ("b", 1, 1, "upstream_timeout", 40.0),
        ("c", 1, 0, None, None),
    ]
    query, filters = report_query("by-attempt", Filters(provider="[ab]"))
    assert open_usage(tmp_path, filters).execute(query).fetchall() == [
        ("a", 4, 2, "upstream_failed", 25.0),
        ("b", 1, 1, "upstream_timeout", 40.0),
    ]
    assert report_query("by-provider", Filters(provider="a"))[1] == Filters(provider="a")


def test_the_cost_by_kind_of_token_follows_the_price_list(tmp_path: Path) -> None:
    prices = '{"prompt":"2","completion":"10","input_cache_read":"0.5","request":"0.001","unit":1000000}'
    used = {"input_tokens": 1000, "cache_read_tokens": 3000, "output_tokens": 250, "reasoning_tokens": 300}
    write(
        tmp_path,
        10,
        {**used, "prices": prices, "price_rule": "base", "cost": Decimal("0.01")},
        {**used, "prices": prices, "price_rule": "flex", "cost": Decimal("0.005")},
        {**used, "prices": prices, "cost": 0, "outcome": "upstream_error"},
        {"prices": '{"price":"0.04","per":"image","unit":1}', "images": 2, "cost": Decimal("0.08")},
        {"cost": Decimal("0.3")},
    )
    assert open_usage(tmp_path).execute(REPORTS["by-kind"][1]).fetchall() == [
        ("other", 0, Decimal("0.3"), 75.9),
        ("images", 2, Decimal("0.08"), 20.3),
        ("reasoning", 900, Decimal("0.0045"), 1.1),
        ("output", 750, Decimal("0.00375"), 0.9),
        ("input", 3000, Decimal("0.003"), 0.8),
        ("cache read", 9000, Decimal("0.00225"), 0.6),
        ("calls", 2, Decimal("0.0015"), 0.4),  # only those that are billed by the request
    ]
    assert open_usage(tmp_path / "none").execute(REPORTS["by-kind"][1]).fetchall() == []


def test_the_report_of_requests_has_every_kind_of_token(tmp_path: Path) -> None:
    kinds = ("input", "cache_read", "cache_write", "output", "reasoning")
    write(tmp_path, 10, {f"{kind}_tokens": number for number, kind in enumerate(kinds, 1)})
    found = open_usage(tmp_path).execute(f"SELECT {', '.join(kinds)} FROM ({REPORTS['requests'][1]})").fetchall()
    assert found == [(1, 2, 3, 4, 5)]


def test_costs_by_kind_add_up_exactly_to_the_total(tmp_path: Path) -> None:
    prices = '{"prompt":"3","completion":"7","unit":1000000}'
    paid = [Decimal("0.000000000001"), Decimal("0.123456789012"), Decimal("987.654321098765")]
    used = {"prices": prices, "input_tokens": 11, "output_tokens": 13}
    write(tmp_path, 10, *({**used, "cost": cost} for cost in paid))
    shares = {kind: cost for kind, _, cost, _ in open_usage(tmp_path).execute(REPORTS["by-kind"][1]).fetchall()}
    assert sum(shares.values()) == sum(paid)
    assert abs(shares["output"] - sum(paid) * 91 / 124) < Decimal("1e-11")


@pytest.mark.parametrize("newer", [False, True], ids=["older files only", "beside newer ones"])
def test_older_files_have_null_in_newer_columns(tmp_path: Path, newer: bool) -> None:
    write(tmp_path, 10, {"provider": "a"}, lacking=("metadata", "earlier_attempts", "price_rule"))
    if newer:
        write(tmp_path, 11, {"provider": "a", "metadata": '{"feature":"search"}'})
    usage = open_usage(tmp_path)
    assert {row[0] for row in usage.execute("DESCRIBE usage").fetchall()} == {column.name for column in COLUMNS}
    found = usage.execute("SELECT metadata->>'feature', sum(cost) FROM usage GROUP BY ALL ORDER BY ALL").fetchall()
    assert found == [("search", Decimal("0.5"))] * newer + [(None, Decimal("0.5"))]
    early = open_usage(tmp_path, Filters(until=datetime(2026, 11, 21, 11, tzinfo=UTC)))
    assert early.execute(REPORTS["by-attempt"][1]).fetchall() == [("a", 1, 0, None, None)]
