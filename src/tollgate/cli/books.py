"""What the commands about money and keys share: finding the store, opening its ledger, printing tables or JSON, exit
codes.

Exit codes: 0 done · 1 refused or not possible, the reason on stderr · 2 the command line itself is wrong (click). A
`TollgateError` or `OSError` that a command does not catch is printed by `tollgate.cli`, and gives exit code 1.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from tollgate.money import decimal_text

if TYPE_CHECKING:
    from tollgate.config.model import Gateway
    from tollgate.ledger.administration import Administration
    from tollgate.runtime import Runtime

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])

_NO_WIDTH = 1_000_000
"""Characters of a line: wider than any table."""


def config_option(command: Command) -> Command:
    """The option `--config` of every command."""
    return click.option(
        "--config",
        "path",
        type=click.Path(path_type=Path),
        help="gateway.yaml, or a folder with one; default: the one in this folder, else the built-in one.",
    )(command)


def json_option(command: Command) -> Command:
    """The option `--json`, for scripts."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON; amounts are exact, as text.")(command)


def settings(path: Path | None) -> Gateway:
    """The gateway file's settings. Raises `ConfigErrors`."""
    from tollgate.config.build import load_settings

    return load_settings(path, environ=os.environ)


def compiled(path: Path | None, *, everything: bool = False) -> Runtime:
    """The compiled configuration; `everything`: with the providers that are off. Raises `ConfigErrors`."""
    from tollgate.config.build import load_gateway
    from tollgate.runtime import build_runtime

    return build_runtime(load_gateway(path, environ=os.environ, everything=everything), everything=everything)


def with_books(path: Path | None, work: Callable[[Administration], Awaitable[T]]) -> T:
    """Run `work` with the ledger of the configured store, through the running gateway if there is one. Raises
    `TollgateError`."""
    from tollgate.config.files import shown
    from tollgate.ledger.admin_socket import open_books

    gateway = settings(path)
    if not gateway.store.url and not gateway.store.directory.exists():
        click.echo(
            f"there was no store in {shown(gateway.store.directory)}, so this is a new one; the one of a gateway "
            "elsewhere: --config",
            err=True,
        )
    elif not gateway.store.url:
        _warn_of_owner(gateway.store.directory)

    async def run() -> T:
        async with open_books(gateway.store, gateway.credits) as books:
            return await work(books)

    return asyncio.run(run())


def _warn_of_owner(directory: Path) -> None:
    """Warn a user who does not own the store before writing to it: a gateway that runs as its owner could not open
    files that root creates there, and would not start."""
    from tollgate.config.files import shown
    from tollgate.ledger.admin_socket import SOCKET_NAME

    owner, user = directory.stat().st_uid, os.geteuid()
    if user == owner or user == 0 and (directory / SOCKET_NAME).exists():  # root's changes go through the gateway
        return
    click.echo(
        f"warning: {shown(directory)} is {_user_name(owner)}'s, and this runs as {_user_name(user)}: a gateway cannot "
        f"open what others write there; wanted sudo -u {_user_name(owner)} tollgate ...",
        err=True,
    )


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"#{number}"


def fail(message: str) -> NoReturn:
    """Print a message on stderr and end with exit code 1."""
    click.echo(message, err=True)
    sys.exit(1)


def print_json(value: object) -> None:
    """Indented JSON in UTF-8, whatever the locale: amounts as plain decimal text, times as ISO 8601."""
    click.echo(json_text(value).encode())


def json_text(value: object) -> str:
    """What `print_json` prints."""
    import orjson

    return orjson.dumps(value, default=_plain, option=orjson.OPT_INDENT_2 | orjson.OPT_UTC_Z).decode()


def _plain(value: object) -> object:
    if isinstance(value, Decimal):
        return decimal_text(value)
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, numbers: frozenset[str] = frozenset()
) -> None:
    """A table for people. On a pipe it is as wide as it needs to be. If the terminal is too narrow for its words and
    figures, each row is printed as lines, because a figure must not be broken."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table

    console = Console(markup=False, highlight=False, emoji=False)
    cells = [[_cell(value) for value in row] for row in rows]
    if not console.is_terminal:
        click.echo(_whole_table(columns, cells, numbers))
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for place, column in enumerate(columns):
        whole = not any(" " in text for text in (column, *(row[place] for row in cells)))
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold", no_wrap=whole)
    for each in cells:
        table.add_row(*each)
    least = Measurement.get(console, console.options.update_width(_NO_WIDTH), table).minimum
    if rows and least > console.width:
        if len(columns) > 2:
            for row in rows:
                print_row(columns, row)
            return
        for made in table.columns:
            made.no_wrap = False  # else rich leaves out the cells beside a long word
    console.print(table)


def _whole_table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: frozenset[str]) -> str:
    """The text of a table in which no cell is wrapped. It looks like rich's, which takes two milliseconds a row."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, texts)) for texts in zip(columns, *rows, strict=True)]
    right = [column in numbers for column in columns]

    def line(texts: Sequence[str]) -> str:
        cells = []
        for text, width, to_right in zip(texts, widths, right, strict=True):
            blanks = " " * (width - cell_len(text))
            cells.append(blanks + text if to_right else text + blanks)
        return f" {'   '.join(cells)} "

    empty = line([""] * len(columns))
    rule = f" {'─' * (len(empty) - 2)} "
    return "\n".join([empty, line(columns), rule, *map(line, rows), empty])


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


def confirm_or_stop(question: str, sure: bool) -> None:
    """Ask before something that cannot be undone; without a terminal `--yes` is required."""
    if not sure and not (sys.stdin.isatty() and click.confirm(question)):
        fail("nothing was changed; say --yes to do it without being asked")
