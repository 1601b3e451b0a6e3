"""Tables in wide and narrow terminals, and on a pipe."""

from __future__ import annotations

import io
import re
from decimal import Decimal

import pytest

from tollgate.cli.books import print_table

COLUMNS = ("model", "requests", "cost", "note")
ROWS = [
    ("acme/large-2026", 1234567, Decimal("98765.432109876543"), "of the first week"),
    ("acme/small", 89, Decimal("0.000000000001"), None),
]


class Terminal(io.StringIO):
    """Standard output that is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    rows: list[tuple[object, ...]] = ROWS,
    columns: tuple[str, ...] = COLUMNS,
) -> list[str]:
    """The lines in a terminal of this width, without bold codes and trailing blanks."""
    out = Terminal()
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", out)
    print_table(columns, rows, numbers=frozenset({"requests", "cost"}))
    lines = re.sub("\x1b\\[[0-9;]*m", "", out.getvalue()).splitlines()
    assert max(map(len, lines)) <= width
    return [line.strip() for line in lines if line.strip()]


def test_a_wide_terminal_has_a_row_on_each_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, 80)
    assert len(lines) == 4
    assert lines[2].split() == ["acme/large-2026", "1234567", "98765.432109876543", "of", "the", "first", "week"]


def test_a_slightly_narrow_terminal_wraps_texts_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, 64)
    assert [line.split()[:3] for line in lines if "/" in line] == [
        ["acme/large-2026", "1234567", "98765.432109876543"],
        ["acme/small", "89", "0.000000000001"],
    ]


def test_a_terminal_too_narrow_for_numbers_lists_the_cells_of_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [line.split(maxsplit=1) for line in shown(monkeypatch, 40) if "─" not in line]
    assert words == [
        ["model", "acme/large-2026"],
        ["requests", "1234567"],
        ["cost", "98765.432109876543"],
        ["note", "of the first week"],
        ["model", "acme/small"],
        ["requests", "89"],
        ["cost", "0.000000000001"],
        ["note", "-"],
    ]


def test_a_table_without_rows_has_its_header_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, 20, [])


def test_a_narrow_terminal_gets_a_long_word_and_the_cell_beside_it_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(shown(monkeypatch, 40, [("x" * 50, "first week")], ("lost", "of requests")))
    assert text.count("x") == 50
    assert "first week" in text


def test_a_pipe_gets_long_texts_and_numbers_in_full(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(("lost", "requests"), [("x" * 1500 + " " + "y" * 500, 7777777)])
    assert [line.split() for line in capsys.readouterr().out.splitlines() if "7" in line] == [
        ["x" * 1500, "y" * 500, "7777777"]
    ]


def test_a_pipe_gets_aligned_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "cost"), [("日本", Decimal("1.5")), ("Zürich AG", 20)], numbers=frozenset({"cost"}))
    assert capsys.readouterr().out.splitlines() == [
        "                  ",
        " name        cost ",
        " ──────────────── ",
        " 日本         1.5 ",
        " Zürich AG     20 ",
        "                  ",
    ]
