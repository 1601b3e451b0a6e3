"""`tollgate usage`: reports and free SQL over the published usage files, with or without a running gateway."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import duckdb

from tollgate.cli.books import config_option, fail, print_json, print_row, print_table, settings
from tollgate.config.files import shown
from tollgate.ledger.reports import REPORTS, Filters, damage, damaged_files, open_usage, report_query, too_many_open
from tollgate.ledger.usage_row import COLUMNS, base_type, sql_text
from tollgate.measures import ENDPOINTS, OUTCOME_FILTERS
from tollgate.notations import read_span
from tollgate.process import descriptors

_FILE_FORMS = ("json", "csv", "parquet")
"""Forms of the rows that a file's ending names."""


class _Report(click.Choice[str]):
    """The name of a report. The message for a query in its place names --sql."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if " " in value:
            self.fail(f'a query is given with --sql: tollgate usage --sql "{value}"', param, ctx)
        return super().convert(value, param, ctx)


@click.command(
    help=f"""Report on usage. REPORT is one of: {", ".join(REPORTS)}.
slow shows the slowest 20 rows, requests the newest 50; --sql "FROM usage" gives every row with every column.

With --sql any query over the view `usage` instead; --columns explains its columns. The filters bound the view, so they
hold for free SQL too. Other programs read the same files with
FROM read_duckdb('usage/**/*.duckdb', table_name = 'usage', union_by_name = true)."""
)
@click.argument("report", type=_Report(tuple(REPORTS)), required=False, metavar="[REPORT]")
@click.option(
    "--sql",
    help="A query of your own over `usage`; - reads it from stdin. Of several statements the last is shown.",
)
@click.option("--since", help="From here on: 24h, 7d, a day such as 2026-11-20, or a time (UTC).")
@click.option("--until", help="Up to here, exclusive: the same notations.")
@click.option("--account", help="Only this account.")
@click.option("--key", help="Only this key id.")
@click.option("--model", help="Only models that match this glob.")
@click.option("--provider", help="Only providers that match this glob.")
@click.option("--endpoint", type=click.Choice(ENDPOINTS), help="Only this endpoint.")
@click.option("--outcome", type=click.Choice(OUTCOME_FILTERS), help="Only rows that ended so; failed is all but ok.")
@click.option("--text", help="Only rows whose id begins so, or that have this text in a name or the error.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", *_FILE_FORMS]),
    help="How to print the rows; default: what --output ends in, else table. parquet needs --output or a pipe.",
)
@click.option("--json", "form", flag_value="json", help="The same as --format json.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="File to write instead of stdout.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of the usage files instead of the configured one.",
)
@click.option("--columns", is_flag=True, help="Explain the columns of `usage`.")
@config_option
def command(
    path: Path | None,
    report: str | None,
    sql: str | None,
    since: str | None,
    until: str | None,
    form: str | None,
    output: Path | None,
    directory: Path | None,
    columns: bool,
    **names: Any,
) -> None:
    if sum((report is not None, sql is not None, columns)) > 1:
        raise click.UsageError("a report, --sql and --columns each print something of their own; give one of them")
    if form is None:
        ending = output.suffix[1:].lower() if output is not None else ""
        form = ending if ending in _FILE_FORMS else "table"
    if form == "parquet" and output is None and sys.stdout.isatty():
        fail("parquet is no text for a terminal: name a file with --output, or pipe it")
    folder = directory or settings(path).store.usage_directory
    begin, end = _moment(since, "--since"), _moment(until, "--until")
    if begin is not None and end is not None and begin >= end:
        raise click.BadParameter(
            f'"{until}" is not later than "{since}" of --since, so nothing lies between', param_hint="--until"
        )
    filters = Filters(since=begin, until=end, **names)
    if columns:
        sql = "FROM columns"
    if sql is None:
        query, filters = report_query(report or "summary", filters)
    else:
        query = sys.stdin.read() if sql == "-" else sql
    if not columns and not any(folder.glob("*/*.duckdb")):
        click.echo(
            f"there are no usage files in {shown(folder)}; those of a gateway elsewhere: --config, or --directory",
            err=True,
        )
    descriptors.raise_limit()  # a query opens all its files; the usual limit of 1,024 is reached after six weeks
    try:
        connection = _columns() if columns else open_usage(folder, filters)
        _write(connection, _answering(connection, query), form, output, utc=sql is None)
    except duckdb.Error as error:
        if too_many_open(error):
            fail("the query has all its files open, more than may be: name less with --since, or raise ulimit -n")
        at_fault = not isinstance(error, (duckdb.ProgrammingError, duckdb.DataError))  # mistakes in the query
        damaged = damaged_files(folder, filters) if at_fault else []
        fail("\n".join(damage(folder, path) for path in damaged) or str(error))
    except OSError as error:
        fail(f"{error.filename or output or 'standard output'}: {error.strerror}")


def _columns() -> duckdb.DuckDBPyConnection:
    """A database with one table, `columns`: the meaning of each column of the usage files."""
    connection = duckdb.connect()
    connection.execute('CREATE TABLE columns ("column" VARCHAR, type VARCHAR, meaning VARCHAR)')
    connection.executemany(
        "INSERT INTO columns VALUES (?, ?, ?)", [(each.name, base_type(each), each.about) for each in COLUMNS]
    )
    return connection


def _moment(text: str | None, option: str) -> datetime | None:
    """A time in the past: a span back from now, the beginning of a day, or an ISO time; in UTC unless it has a zone."""
    if text is None:
        return None
    if (span := read_span(text)) is not None:
        try:
            return datetime.now(UTC) - span
        except OverflowError:
            raise click.BadParameter(f'"{text}" reaches back before the year 1', param_hint=option) from None
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (OverflowError, ValueError):  # its time in UTC may be before the year 1, or after 9999
        raise click.BadParameter(
            f'"{text}" is no time; wanted 24h, 7d, 2026-11-20 or 2026-11-20T08:00', param_hint=option
        ) from None


def _answering(connection: duckdb.DuckDBPyConnection, text: str) -> str:
    """The last statement, whose rows are shown, without the `;` at its end so that it can be put in brackets. Those
    before it (`SET`, `CREATE TEMP TABLE`) are run."""
    statements = connection.extract_statements(text)
    if not statements:
        fail("the query is empty")
    for statement in statements[:-1]:
        connection.execute(statement)
    query: bytes = statements[-1].query.strip().encode()
    for offset, kind in reversed(duckdb.tokenize(query.decode())):
        if kind != duckdb.token_type.comment:
            return (query[:offset] if query[offset:].startswith(b";") else query).decode()
    return query.decode()


def _write(connection: duckdb.DuckDBPyConnection, query: str, form: str, output: Path | None, *, utc: bool) -> None:
    """Write the rows of a query. `utc`: times without a zone are in UTC. In a user's own query they may be in any."""
    if form in ("csv", "parquet"):
        with tempfile.TemporaryDirectory() as folder:
            target = output or Path(folder) / "usage"
            connection.execute(f"COPY (\n{query}\n) TO {sql_text(str(target))} (FORMAT {form})")
            if output is None:
                click.echo(target.read_bytes(), nl=False)
        return
    result = connection.execute(query)
    zoned = [each[0] for each in result.description or () if str(each[1]) == "TIMESTAMP WITH TIME ZONE"]
    columns = [each[0] for each in result.description or ()]
    if zoned:  # for these DuckDB's Python API needs a package that we do not have
        as_text = ", ".join(
            f'CAST("{name}" AS VARCHAR) AS "{name}"' for name in (name.replace('"', '""') for name in zoned)
        )
        result = connection.execute(f"SELECT * REPLACE ({as_text}) FROM (\n{query}\n)")
    elif len(set(columns)) < len(columns):  # of columns with the same name JSON would keep only the last
        result = connection.execute(f"FROM (\n{query}\n)")
    columns = [each[0] for each in result.description or ()]
    rows = result.fetchall()
    if utc and form == "json":  # without a zone JavaScript reads local times, and DuckDB texts
        rows = [tuple(each.replace(tzinfo=UTC) if isinstance(each, datetime) else each for each in row) for row in rows]
    if output is None:
        _print(columns, rows, form)
        return
    with output.open("w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
        _print(columns, rows, form)


def _for_json(value: Any) -> Any:
    """A value of a query as JSON can hold it: an integer that most readers would round becomes text, and so does the
    name of a field."""
    if isinstance(value, dict):
        return {str(key): _for_json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_for_json(each) for each in value]
    return str(value) if isinstance(value, int) and value.bit_length() > 63 else value


def _print(columns: list[str], rows: list[tuple[Any, ...]], form: str) -> None:
    if form == "json":
        print_json([dict(zip(columns, map(_for_json, row), strict=True)) for row in rows])
        return
    numbers = frozenset(
        name
        for position, name in enumerate(columns)
        if any(isinstance(row[position], (int, float, Decimal)) for row in rows)
    )
    if len(rows) == 1 and len(columns) > 6:
        print_row(columns, rows[0])
    else:
        print_table(columns, rows, numbers=numbers)
