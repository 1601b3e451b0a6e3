"""Reading the published usage files: one connection with a view `usage`, and ready-made reports on it.

Never touches the store, so it works beside a running gateway, on another machine, or on a copy of the files.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Container
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb

from tollgate.ledger.duckdb_paths import literally
from tollgate.ledger.usage_row import COLUMNS, TOKENS, base_type, sql_text

_HOUR_FILE = re.compile(r"(\d{4}-\d\d-\d\d)/(\d\d)(?:-[^/]*)?\.duckdb\Z")


@dataclass(frozen=True, slots=True)
class Filters:
    """Which rows the view `usage` has; times are UTC, `until` is exclusive, `model` and `provider` take globs.

    `outcome` is one of the outcomes, or `failed` for all but `ok`; `text` is the beginning of a request id, or stands
    anywhere in a name or an error, case aside.
    """

    since: datetime | None = None
    until: datetime | None = None
    account: str | None = None
    key: str | None = None
    model: str | None = None
    provider: str | None = None
    endpoint: str | None = None
    outcome: str | None = None
    text: str | None = None


_TEXTS = ("asked_model", "model", "provider", "upstream_model", "end_user", "error_code", "lost")
_TOKENS = ", ".join(f"coalesce(sum({name}), 0)::BIGINT AS {name.removesuffix('_tokens')}" for name in TOKENS)
_FAILED = "count(*) FILTER (WHERE outcome <> 'ok')"
_LATENCIES = (
    "round(quantile_cont(ttfb_ms, 0.5), 1) AS p50_first_byte_ms, "
    "round(quantile_cont(total_ms, 0.95), 1) AS p95_total_ms"
)


def _by(what: str, order: str = "cost DESC, requests DESC, 1") -> str:
    return f"""SELECT {what}, count(*) AS requests, {_FAILED} AS failed, sum(cost) AS cost,
       {_TOKENS},
       {_LATENCIES}
FROM usage GROUP BY ALL ORDER BY {order}"""


def _price(name: str, *otherwise: str) -> str:
    """A price of the row's price list, or the first of the others that the list has."""
    listed = [f"try_cast(nullif(prices, '')->>'{each}' AS DOUBLE)" for each in (name, *otherwise)]
    return f"coalesce({', '.join(listed)}, 0)"


_KINDS = (
    ("input", "input_tokens", _price("prompt")),
    ("cache read", "cache_read_tokens", _price("input_cache_read", "prompt")),
    ("cache write", "cache_write_tokens", _price("input_cache_write", "prompt")),
    ("output", "output_tokens", _price("completion")),
    ("reasoning", "reasoning_tokens", _price("internal_reasoning", "completion")),
    ("searches", "searches", f"{_price('web_search')} * {_price('unit')}"),
    ("images", "images", f"{_price('image')} * {_price('unit')}"),
    ("calls", "(cost > 0 AND price_calls > 0)::INTEGER", f"{_price('request')} * {_price('unit')}"),
)


def _of_kinds(written: str, separator: str = ", ") -> str:
    """A piece of SQL once for each kind."""
    return separator.join(
        written.format(place=place, kind=kind, name=kind.replace(" ", "_"), amount=amount, price=price)
        for place, (kind, amount, price) in enumerate(_KINDS, start=1)
    )


_BY_KIND = f"""WITH lists AS (SELECT prices AS list, {_of_kinds("{price} AS price_{name}")}
    FROM (SELECT DISTINCT prices FROM usage)),
listed AS (SELECT cost, coalesce(images > 0, false) AS drew,
    {_of_kinds("coalesce({amount}, 0) AS amount_{name}, amount_{name} * price_{name} AS due_{name}")}
    FROM usage JOIN lists ON prices IS NOT DISTINCT FROM list),
shared AS (SELECT *, {_of_kinds("due_{name}", " + ")} AS whole, if(whole > 0, cost / whole, 0) AS share FROM listed),
sums AS (SELECT {_of_kinds("sum(amount_{name}) AS amount_{name}")},
    {_of_kinds("sum(due_{name} * share)::DECIMAL(38, 12) AS cost_{name}")},
    sum(cost) FILTER (whole > 0) AS paid, sum(cost) FILTER (whole <= 0 AND drew) AS drawn,
    sum(cost) FILTER (whole <= 0 AND NOT drew) AS other FROM shared),
divided AS (SELECT *, [{_of_kinds("cost_{name}")}] AS parts, paid - list_sum(parts) AS rest,
    list_position(parts, list_max(parts)) AS most FROM sums),
each AS (SELECT unnest([
    {_of_kinds("{{'kind': '{kind}', 'amount': amount_{name}, 'cost': cost_{name} + if(most = {place}, rest, 0)}}")},
    {{'kind': 'images', 'amount': 0, 'cost': drawn}}, {{'kind': 'other', 'amount': 0, 'cost': other}}],
    recursive := true) FROM divided)
SELECT kind, sum(amount)::BIGINT AS amount, sum(cost)::DECIMAL(38, 12) AS cost,
    round(100 * sum(cost) / nullif(sum(sum(cost)) OVER (), 0), 1) AS percent
FROM each GROUP BY kind
HAVING sum(cost) > 0 OR sum(amount) > 0 ORDER BY sum(cost) DESC, sum(amount) DESC, kind"""
"""A row has one cost, not one for each kind, so its cost is divided in proportion to the list's base prices: a length,
an hour, a tier or a multiplier that changes all prices alike changes no share. Image jobs have no such list; their cost
counts as images. The most expensive kind gets the rounding difference, so that the sum is exactly what was paid.
"""

REPORTS: dict[str, tuple[str, str]] = {
    "summary": (
        "everything in one row",
        f"""SELECT
       count(*) AS requests, {_FAILED} AS failed, coalesce(sum(cost), 0) AS cost,
       {_TOKENS}, coalesce(sum(images), 0)::BIGINT AS images, count(*) FILTER (WHERE estimated) AS estimated,
       count(DISTINCT account_id) AS accounts, count(DISTINCT key_id) AS keys, count(DISTINCT model) AS models,
       {_LATENCIES},
       min(time) AS first, max(time) AS last
FROM usage""",
    ),
    "by-model": ("cost, tokens and latency of each model", _by("model")),
    "by-key": ("the same for each key", _by("account_id AS account, key_id AS key")),
    "by-account": ("the same for each account", _by("account_id AS account")),
    "by-provider": ("the same for each provider", _by("provider")),
    "by-attempt": (
        "attempts and failures of each provider, also where another one answered instead",
        """SELECT provider, count(*) AS attempts, count(error) AS failed, mode(error) AS mostly,
       round(median(ms) FILTER (WHERE error IS NOT NULL), 1) AS p50_failed_ms
FROM (SELECT provider, total_ms AS ms, CASE WHEN outcome IN ('upstream_error', 'timeout') THEN error_code END AS error
      FROM usage WHERE attempts > 0 AND error_code IS DISTINCT FROM 'cannot_convert'
      UNION ALL
      SELECT attempt->>'provider', (attempt->>'ms')::DOUBLE, attempt->>'error'
      FROM (SELECT unnest(from_json(earlier_attempts, '["JSON"]')) AS attempt FROM usage))
GROUP BY ALL ORDER BY failed DESC, attempts DESC, provider""",
    ),
    "by-kind": ("cost of prompts, caches, output, searches, pictures and calls, by base prices", _BY_KIND),
    "by-endpoint": (
        "the same for each endpoint and pair of protocols",
        _by("endpoint, client_protocol AS client, upstream_protocol AS upstream"),
    ),
    "by-day": ("the same for each UTC day", _by("CAST(time AS DATE) AS day", "day")),
    "by-hour": ("the same for each UTC hour", _by("date_trunc('hour', time) AS hour", "hour")),
    "errors": (
        "what went wrong, how often, and when last",
        """SELECT
       provider, model, endpoint, status, outcome, error_code,
       count(*) AS requests, sum(cost) AS cost, max(time) AS last
FROM usage WHERE outcome <> 'ok' GROUP BY ALL ORDER BY requests DESC, last DESC""",
    ),
    "slow": (
        "the slowest answers",
        """SELECT time, request_id, model, provider, endpoint, stream, attempts, outcome,
       round(ttfb_ms, 1) AS first_byte_ms, round(total_ms, 1) AS total_ms, output_tokens + reasoning_tokens AS output
FROM usage ORDER BY total_ms DESC NULLS LAST LIMIT 20""",
    ),
    "requests": (
        "the newest rows",
        """SELECT
       time, request_id, account_id AS account, key_id AS key, endpoint, model, provider,
       status, outcome, input_tokens AS input, cache_read_tokens AS cache_read, cache_write_tokens AS cache_write,
       output_tokens AS output, reasoning_tokens AS reasoning, cost, round(total_ms, 1) AS total_ms, lost
FROM usage ORDER BY time DESC, seq DESC LIMIT 50""",
    ),
}
"""Name -> what it shows, and its SQL on the view `usage`."""


def report_query(name: str, filters: Filters) -> tuple[str, Filters]:
    """The SQL of a report, and the filters of the view that it needs. Attempts are filtered by provider one by one: in
    a row's `provider` is only one of them, and the row of another provider tells of the others."""
    sql = REPORTS[name][1]
    if name != "by-attempt" or filters.provider is None:
        return sql, filters
    asked = f"provider GLOB {sql_text(filters.provider)} ORDER BY failed DESC, attempts DESC, provider"
    return f"FROM ({sql}) WHERE {asked}", replace(filters, provider=None)


def usage_files(directory: Path, since: datetime | None, until: datetime | None) -> list[Path]:
    """The published files that can have rows of this time. An hour's file has only rows of that hour."""
    files = []
    for path in sorted(directory.glob("*/*.duckdb")):
        if _HOUR_FILE.search(path.as_posix()) is None:
            continue
        hour = hour_of(path)
        if (since is None or since - hour < timedelta(hours=1)) and (until is None or hour < until):
            files.append(path)
    return files


def hour_of(path: Path) -> datetime:
    """The hour of a published file: `usage/2026-11-22/14-main.duckdb`."""
    return datetime.fromisoformat(f"{path.parent.name}T{path.name[:2]}:00:00+00:00")


def in_memory(**config: Any) -> duckdb.DuckDBPyConnection:
    """A database in memory, with these settings of DuckDB. What does not fit into its memory goes to the system's
    temporary folder: DuckDB's own choice is the working directory, which a service may not be allowed to write to."""
    return duckdb.connect(config={"temp_directory": tempfile.gettempdir(), **config})


def open_usage(directory: Path, filters: Filters | None = None) -> duckdb.DuckDBPyConnection:
    """A connection with a view `usage` over the files; without any files the view is empty, with the same columns."""
    connection = in_memory(threads=2)
    connection.execute("SET TimeZone = 'UTC'")  # so that now() means what the times in the files mean
    connection.execute(f"CREATE VIEW usage AS {select_usage(directory, filters or Filters())}")
    return connection


def damaged_files(directory: Path, filters: Filters, without: Container[Path] = ()) -> list[Path]:
    """The files for these filters that cannot be read. It opens all of them, so call it after a query failed. A file
    that is gone by now was just being replaced."""
    damaged = []
    with closing(duckdb.connect(config={"threads": 1})) as connection:
        for path in usage_files(directory, filters.since, filters.until):
            if path in without:
                continue
            try:
                connection.execute("SELECT max(seq) FROM read_duckdb(?, table_name = 'usage')", [literally(path)])
            except duckdb.Error as error:
                damaged += [path] if path.exists() and not too_many_open(error) else []
    return damaged


def too_many_open(error: duckdb.Error) -> bool:
    """Whether a query failed because too many files are open: it has all its files open at once."""
    return any(os.strerror(number) in str(error) for number in (errno.EMFILE, errno.ENFILE))


def damage(directory: Path, path: Path) -> str:
    """The message about a damaged file: its name, and what to do."""
    return (
        f"the file {directory.name}/{path.parent.name}/{path.name} is damaged; when it is deleted, its gateway writes "
        "it anew at the next start"
    )


def select_usage(directory: Path, filters: Filters, without: Container[Path] = ()) -> str:
    """The SELECT behind the view `usage`, for queries that need no view; leaves the files of `without` out."""
    files = [path for path in usage_files(directory, filters.since, filters.until) if path not in without]
    empty = ", ".join(f"CAST(NULL AS {base_type(column)}) AS {column.name}" for column in COLUMNS)
    source = f"(SELECT {empty} WHERE false)"
    if files:
        names = ", ".join(sql_text(literally(path)) for path in files)
        rows = f"read_duckdb([{names}], table_name = 'usage', union_by_name = true)"
        # adds columns that are newer than all files; only if needed, as it doubles the time to read the newest rows
        source = rows if _has_all_columns(files[-1]) else f"({source} UNION ALL BY NAME FROM {rows})"
    return f"SELECT * FROM {source}{_where(filters)}"


def _has_all_columns(path: Path) -> bool:
    """Whether this file was written by a program that knew every column."""
    try:
        return _columns(literally(path), path.stat().st_mtime_ns) >= {column.name for column in COLUMNS}
    except (duckdb.Error, OSError):  # the query itself will raise it again
        return False


@lru_cache(maxsize=256)
def _columns(path: str, _written: int) -> frozenset[str]:
    with duckdb.connect(config={"threads": 1}) as connection:
        described = connection.execute("DESCRIBE SELECT * FROM read_duckdb(?, table_name = 'usage')", [path])
        return frozenset(row[0] for row in described.fetchall())


def _where(filters: Filters) -> str:
    terms = []
    if filters.since is not None:
        terms.append(f"time >= {_moment(filters.since)}")
    if filters.until is not None:
        terms.append(f"time < {_moment(filters.until)}")
    for column, operator, wanted in (
        ("account_id", "=", filters.account),
        ("key_id", "=", filters.key),
        ("model", "GLOB", filters.model),
        ("provider", "GLOB", filters.provider),
        ("endpoint", "=", filters.endpoint),
    ):
        if wanted is not None:
            terms.append(f"{column} {operator} {sql_text(wanted)}")
    if filters.outcome is not None:
        terms.append("outcome <> 'ok'" if filters.outcome == "failed" else f"outcome = {sql_text(filters.outcome)}")
    if filters.text is not None:
        # column by column: repeated values are looked at once, which a joined text would prevent
        found = " OR ".join(f"contains(lower({name}), lower({sql_text(filters.text)}))" for name in _TEXTS)
        terms.append(f"(starts_with(request_id, {sql_text(filters.text)}) OR {found})")
    return f" WHERE {' AND '.join(terms)}" if terms else ""


def _moment(value: datetime) -> str:
    return f"TIMESTAMP '{value.astimezone(UTC).replace(tzinfo=None).isoformat(sep=' ')}'"
