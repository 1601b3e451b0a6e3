"""The table of requests, newest first, and one row with all its values."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import orjson
from starlette.responses import Response

from tollgate.dashboard.formatting import TOKEN_KINDS
from tollgate.dashboard.pages.usage import RANGES, Scope, choices, read_selection
from tollgate.dashboard.usage_queries import OPERATORS_ONLY
from tollgate.dashboard.visit import Visit
from tollgate.errors import NotFound
from tollgate.ledger.reports import Filters
from tollgate.ledger.usage_row import COLUMNS

_PAGE = 50
_POSITION = re.compile(r"(\d{1,17})-(\d{1,18})", re.ASCII)


async def show(visit: Visit, scope: Scope) -> Response:
    """The table of requests."""
    selection = read_selection(visit.query)
    filters = selection.filters(scope, since=selection.since())
    rows = await visit.state.queries.rows(filters, _PAGE + 1, read_position(visit.query["before"]))
    whole = await visit.state.queries.report(Filters(account=scope.account), *selection.columns)
    names = visit.key_names(row["key_id"] for row in rows)
    labels = visit.key_labels((key for key, _ in whole.by("key_id")), scope.account)
    more = position(rows[_PAGE - 1]) if len(rows) > _PAGE else ""
    return visit.render(
        "requests.html",
        scope=scope.prefix,
        selection=selection,
        ranges=RANGES,
        rows=rows[:_PAGE],
        more=more,
        choices=choices(whole, labels),
        counts=whole.counts,
        names=names,
        paged=bool(visit.query["before"]),
    )


async def one(visit: Visit, scope: Scope) -> Response:
    """One request."""
    request_id = visit.argument("request_id")[:100]
    around = read_position(visit.query["at"])
    row = await visit.state.queries.row(Filters(account=scope.account), request_id, around[0] if around else None)
    if row is None:
        raise NotFound("there is no such request; a new one appears here some seconds after it ended")
    names = visit.key_names([row["key_id"]])
    hidden = () if visit.is_operator else OPERATORS_ONLY
    lost = [part.strip() for part in (row["lost"] or "").split(";") if part.strip()]
    return visit.render(
        "request.html",
        scope=scope.prefix,
        row=row,
        names=names,
        lost=lost,
        buckets=_buckets(row),
        prices=_prices(row["prices"]),
        columns=[column for column in COLUMNS if column.name not in hidden],
    )


def position(row: dict[str, Any]) -> str:
    """The position of a row in the order of the table, for links: microseconds and seq."""
    return f"{int(row['time'].timestamp() * 1_000_000)}-{row['seq']}"


def read_position(text: str) -> tuple[datetime, int] | None:
    """The time and seq of a link; None if it is invalid."""
    found = _POSITION.fullmatch(text)
    if found is None:
        return None
    seconds, micros = divmod(int(found[1]), 1_000_000)
    try:
        return datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros), int(found[2])
    except (OverflowError, ValueError):
        return None


def _buckets(row: dict[str, Any]) -> list[tuple[str, int]]:
    kinds = (*TOKEN_KINDS, ("Images", "images"), ("Web searches", "searches"))
    return [(label, row[name]) for label, name in kinds if row[name]]


def _prices(text: str | None) -> list[tuple[str, str]]:
    """The prices stored in the row."""
    try:
        prices = orjson.loads(text or "null")
    except orjson.JSONDecodeError:
        return []
    if not isinstance(prices, dict):
        return []
    return [
        (str(name).replace("_", " "), value if isinstance(value, str) else orjson.dumps(value, default=str).decode())
        for name, value in prices.items()
    ]
