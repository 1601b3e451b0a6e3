"""Tables for people. On a pipe a table is as wide as it needs to be; in a terminal its texts are wrapped to fit."""

from __future__ import annotations

import shutil
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import accumulate, zip_longest
from operator import attrgetter
from typing import Any
from unicodedata import combining, east_asian_width

import click

from tollgate.money import decimal_text

_GAP = "   "


def print_views(
    columns: Mapping[str, str | Callable[[Any], object]],
    views: Sequence[object],
    *,
    numbers: frozenset[str] = frozenset(),
) -> None:
    """A table of values, one per row; a column is an attribute of a value, such as `account.id`, or a function of
    it."""
    makers = [attrgetter(each) if isinstance(each, str) else each for each in columns.values()]
    print_table(tuple(columns), [[make(view) for make in makers] for view in views], numbers=numbers)


def print_row(columns: Sequence[str], row: Sequence[object]) -> None:
    """One row for people, one line per column."""
    print_table((columns[0], _cell(row[0])), list(zip(columns[1:], row[1:], strict=True)))


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, numbers: frozenset[str] = frozenset()
) -> None:
    """A table for people; the columns in `numbers` are aligned at the right. If the terminal is too narrow for its
    words and figures, each row is printed as lines, because a figure must not be broken."""
    table = [columns, *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(_width, texts)) for texts in zip(*table, strict=True)]
    in_terminal = sys.stdout.isatty()
    if in_terminal:
        room = shutil.get_terminal_size().columns - len(_GAP) * (len(columns) - 1) - 2
        words = [max(_width(word) for text in texts for word in text.split(" ")) for texts in zip(*table, strict=True)]
        widths = _narrowed(widths, words, room)
        if sum(widths) > room and len(columns) > 2 and rows:
            for row in rows:
                print_row(columns, row)
            return
        widths = _narrowed(widths, [1] * len(columns), room)
    right = [column in numbers for column in columns]
    head, *body = ["\n".join(_lines(texts, widths, right)) for texts in table]
    rule = f" {'─' * (sum(widths) + len(_GAP) * (len(columns) - 1))} "
    blank = " " * len(rule)
    click.echo("\n".join([blank, click.style(head, bold=True) if in_terminal else head, rule, *body, blank]))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Decimal):
        return decimal_text(value)
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return "".join(char if char.isprintable() else "�" for char in str(value))


def _narrowed(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """The widths with the widest ones made smaller, until they fit or none is above its least."""
    narrow = [max(low, min(width, room)) for width, low in zip(widths, least, strict=True)]
    while sum(narrow) > room and (loose := [place for place, low in enumerate(least) if narrow[place] > low]):
        narrow[max(loose, key=narrow.__getitem__)] -= 1
    return narrow


def _lines(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> Iterator[str]:
    """The lines of one row of a table."""
    for pieces in zip_longest(*map(_wrapped, texts, widths), fillvalue=""):
        cells = []
        for text, width, to_right in zip(pieces, widths, right, strict=True):
            blanks = " " * (width - _width(text))
            cells.append(blanks + text if to_right else text + blanks)
        yield f" {_GAP.join(cells)} "


def _wrapped(text: str, width: int) -> list[str]:
    """A text in lines, broken at blanks, and inside a word only if the word is longer than a line."""
    lines = []
    while _width(text) > width:
        end = max(1, bisect_right(list(accumulate(map(_width, text))), width))
        blank = text.rfind(" ", 0, end + 1)
        lines.append(text[: blank if blank > 0 else end].rstrip())
        text = text[blank if blank > 0 else end :].lstrip()
    return [*lines, text]


def _width(text: str) -> int:
    """How many places a text takes in a line of a terminal: two for a wide character, such as a Chinese one."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(char) in "WF" else not combining(char) for char in text)
