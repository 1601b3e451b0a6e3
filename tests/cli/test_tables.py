"""What a table looks like in a terminal, wide or narrow, and on a pipe."""

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
    """Standard output, as a person has it."""

    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, width: int, rows: list[tuple[object, ...]] = ROWS) -> list[str]:
    """The lines that a terminal so wide gets, without its bold letters and the blanks at their ends."""
    out = Terminal()
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", out)
    print_table(COLUMNS, rows, numbers=frozenset({"requests", "cost"}))
    lines = re.sub("\x1b\\[[0-9;]*m", "", out.getvalue()).splitlines()
    assert max(map(len, lines)) <= width
    return [line.strip() for line in lines if line.strip()]


def test_a_terminal_that_is_wide_enough_has_a_row_on_each_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, 80)
    assert len(lines) == 4
    assert lines[2].split() == ["acme/large-2026", "1234567", "98765.432109876543", "of", "the", "first", "week"]


def test_a_terminal_that_is_a_little_narrow_breaks_texts_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, 64)
    assert [line.split()[:3] for line in lines if "/" in line] == [
        ["acme/large-2026", "1234567", "98765.432109876543"],
        ["acme/small", "89", "0.000000000001"],
    ]


def test_a_terminal_too_narrow_for_the_figures_has_one_row_below_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_table_without_rows_has_its_head_in_a_narrow_terminal_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, 20, [])


def test_a_pipe_gets_every_character_of_a_long_text_and_of_the_figure_behind_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(("lost", "requests"), [("x" * 1500 + " " + "y" * 500, 7777777)])
    assert [line.split() for line in capsys.readouterr().out.splitlines() if "7" in line] == [
        ["x" * 1500, "y" * 500, "7777777"]
    ]
