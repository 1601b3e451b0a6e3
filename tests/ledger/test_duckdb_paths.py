"""Folders with marks that mean something to DuckDB: usage comes from one folder only, or the start says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tollgate.errors import TollgateError
from tollgate.ledger.duckdb_paths import literally
from tollgate.ledger.reports import open_usage

from .conftest import new_ledger, row


async def test_folders_whose_names_look_like_patterns_keep_their_usage_apart(tmp_path: Path) -> None:
    names = ("a*b", "a[x]b", "a['\"{}; %#]b", "axb")
    for number, name in enumerate(names, start=1):
        for _ in range(2):  # the second time adds to the file
            async with new_ledger(tmp_path / name) as ledger:
                for _ in range(number):
                    await ledger.record(row())
    for number, name in enumerate(names, start=1):
        with open_usage(tmp_path / name / "usage") as usage:
            assert usage.execute("SELECT count(*) FROM usage").fetchall() == [(2 * number,)]


def test_a_path_becomes_a_pattern_that_only_it_fits() -> None:
    assert literally(Path("/a*b/[x]?")) == "/a[*]b/[[]x][?]"


@pytest.mark.parametrize(
    ("name", "why"),
    [("a?b", "has a ?"), ("a\\b", r"has a \\"), ("caf\udce9", "is not UTF-8")],
    ids=["question-mark", "backslash", "not-utf-8"],
)
@pytest.mark.parametrize("setting", ["directory", "usage_directory"])
async def test_a_start_says_why_duckdb_cannot_use_a_folder(tmp_path: Path, setting: str, name: str, why: str) -> None:
    with pytest.raises(TollgateError, match=f"cannot be used: its path {why}"):
        await new_ledger(tmp_path, **{setting: tmp_path / name}).open()
