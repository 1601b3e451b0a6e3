"""The SQL of a report over usage rows: sums and latencies by time bucket, in total and by every dimension.

There may be tens of thousands of keys and accounts, more than a page shows or memory holds for every bucket. If there
are too many, `Leading` names the most expensive ones, which get their own sums. The sum of the others is the total
minus these, exactly, whichever are named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from tollgate.ledger.reports import Filters
from tollgate.ledger.usage_row import TOKENS, sql_text
from tollgate.measures import ALL, DIMENSIONS, Measures

COUNTED = ("requests", "failed", "cost", *TOKENS, "images", "estimated")
MOST_SHOWN = 12
"""Values of a dimension that a page shows by themselves."""
MOST = 100
"""Keys, or accounts, that have their own sums in a report. More than a page shows, so that they stay the same while
the most expensive ones change places, and so that many can be selected."""
MANY = ("key_id", "account_id")
"""The dimensions that can have any number of values; the values of others are in configuration files."""


@dataclass(frozen=True, slots=True)
class Leading:
    """The values that have their own sums, by dimension, for dimensions with too many values."""

    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    """The number of all values, for the dimensions in `values`."""

    @property
    def key(self) -> tuple[tuple[str, ...], ...]:
        """The cache key for their sums."""
        return tuple(self.values.get(name, ()) for name in MANY)

    def has_own_sums(self, name: str, value: str | None) -> bool:
        """Whether a row of the sums is about a value with its own sums, and not about the others."""
        return value is not None or name not in self.values

    def or_newer(self, newer: Leading) -> Leading:
        """The newer ones; or these with the new counts, if they still have all values that a page shows, so that
        cached sums stay valid."""
        enough = self.values.keys() == newer.values.keys() and all(
            set(values[:MOST_SHOWN]) <= set(self.values[name]) for name, values in newer.values.items()
        )
        if not newer.values:
            return EVERY_VALUE
        return Leading(self.values, newer.counts) if enough else newer


EVERY_VALUE = Leading()


def dimensions_of(filters: Filters) -> tuple[str, ...]:
    """The dimensions of a report with these filters."""
    return DIMENSIONS if filters.account is None else tuple(name for name in DIMENSIONS if name != "account_id")


def in_groups(starts: Iterable[datetime], files: Mapping[datetime, Sized], most: int) -> list[list[datetime]]:
    """Consecutive buckets in groups of at most so many files."""
    groups: list[list[datetime]] = []
    room = 0
    for start in starts:
        if not groups or len(files[start]) > room:
            groups.append([])
            room = most
        groups[-1].append(start)
        room -= len(files[start])
    return groups


def leading_sql(dimensions: Sequence[str]) -> str:
    """SQL for cost and requests of every value of `MANY`."""
    names = [name for name in MANY if name in dimensions]
    each = " UNION ALL ".join(
        f"SELECT '{name}', {name}, sum(cost), sum(requests)::BIGINT FROM each GROUP BY {name}" for name in names
    )
    return f""", each AS MATERIALIZED (SELECT {", ".join(names)}, sum(cost) AS cost, count(*) AS requests
    FROM usage GROUP BY ALL)
{each}"""


def read_leading(rows: Iterable[tuple[str, str, Decimal, int]]) -> Leading:
    """The most expensive values, from the rows of `leading_sql` for one or several time spans."""
    found: dict[str, dict[str, tuple[Decimal, int]]] = {}
    for name, value, cost, requests in rows:
        values = found.setdefault(name, {})
        before = values.get(value, (0, 0))
        values[value] = before[0] + cost, before[1] + requests
    many = {name: values for name, values in found.items() if len(values) > MOST}
    return Leading(
        {
            name: tuple(sorted(values, key=lambda value: (-values[value][0], -values[value][1], value))[:MOST])
            for name, values in many.items()
        },
        {name: len(values) for name, values in many.items()},
    )


def sums_sql(width: timedelta, dimensions: Sequence[str], leading: Leading = EVERY_VALUE) -> str:
    """SQL for counts, money and tokens of each bucket, in total and by every dimension: grouped once by all of them,
    then added up."""
    dims = ", ".join(dimensions)
    inner = ", ".join(f"coalesce(sum({name}), 0) AS {name}" for name in ("cost", *TOKENS, "images"))
    outer = ", ".join(f"sum({name})" + ("" if name == "cost" else "::BIGINT") for name in COUNTED)
    return f""", each AS MATERIALIZED (SELECT {_bucket(width)} AS bucket, {_columns(dimensions, leading)},
    count(*) AS requests, count(*) FILTER (WHERE outcome <> 'ok') AS failed, {inner},
    count(*) FILTER (WHERE estimated) AS estimated FROM usage GROUP BY ALL)
SELECT bucket, grouping_id({dims}), {dims}, {outer} FROM each GROUP BY GROUPING SETS ({_sets(dimensions, "")})"""


def times_sql(width: timedelta, dimensions: Sequence[str], every: int, leading: Leading = EVERY_VALUE) -> str:
    """SQL for counts of latencies by logarithmic step (four to a doubling), as lists for each bucket and value, from
    one row in `every`."""
    dims = ", ".join(dimensions)
    step = f"CAST(least(greatest(floor(log2(ms) * 4), 0), {Measures.STEPS - 1}) AS TINYINT)"
    sample = f" AND seq % {every} = 0" if every > 1 else ""
    return f""", timed AS (SELECT {_bucket(width)} AS bucket, {_columns(dimensions, leading)},
    unnest([ttfb_ms, total_ms]) AS ms, unnest([0, 1]) AS kind FROM usage WHERE true{sample}),
stepped AS (SELECT bucket, {dims}, kind, {step} AS step FROM timed WHERE ms > 0),
counted AS (SELECT bucket, grouping_id({dims}) AS which, {dims}, kind, step, count(*) * {every} AS n FROM stepped
    GROUP BY GROUPING SETS ({_sets(dimensions, ", kind, step")}))
SELECT bucket, which, {dims}, kind, list(step), list(n) FROM counted GROUP BY ALL"""


def place(which: int, dimensions: Sequence[str], values: tuple[Any, ...]) -> tuple[str, str | None]:
    """The dimension and value that a row of the grouping sets is about, by the bits of its `grouping_id` (0: grouped
    by it)."""
    for position, name in enumerate(dimensions):
        if not which >> (len(dimensions) - 1 - position) & 1:
            return name, values[position]
    return ALL, ""


def _columns(dimensions: Sequence[str], leading: Leading) -> str:
    """The dimensions; NULL for a value without its own sums."""
    return ", ".join(
        f"CASE WHEN {name} IN ({', '.join(map(sql_text, leading.values[name]))}) THEN {name} END AS {name}"
        if name in leading.values
        else name
        for name in dimensions
    )


def _sets(dimensions: Sequence[str], more: str) -> str:
    return ", ".join([f"(bucket{more})", *(f"(bucket, {name}{more})" for name in dimensions)])


def _bucket(width: timedelta) -> str:
    return f"time_bucket(INTERVAL '{int(width.total_seconds())} seconds', time)"
