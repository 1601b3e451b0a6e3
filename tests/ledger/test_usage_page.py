"""docs/usage.md matches the code."""

from __future__ import annotations

from support.places import ROOT
from support.usage_files import READ_STATEMENT
from tollgate.ledger.reports import REPORTS
from tollgate.ledger.usage_row import COLUMNS, base_type

PAGE = (ROOT / "docs" / "usage.md").read_text()


def test_the_table_of_columns_matches_the_code() -> None:
    lines = [f"| `{column.name}` | {base_type(column)} | {column.about} |" for column in COLUMNS]
    assert "\n".join(["| column | type | meaning |", "|---|---|---|", *lines]) in PAGE


def test_the_documented_statement_is_the_tested_one() -> None:
    assert READ_STATEMENT in PAGE


def test_every_report_is_documented() -> None:
    assert [name for name in REPORTS if name not in PAGE and name != "summary"] == []
