"""Usage over time: cost, requests, tokens, failures and latency, by model, key, provider and endpoint; downloads.

The same pages serve an account (always its own rows) and an operator (all rows, under /operator).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from starlette import types
from starlette.responses import FileResponse, Response

from tollgate.dashboard import charts
from tollgate.dashboard.charts import OTHERS, Series
from tollgate.dashboard.formatting import COUNT, MONEY, TIME, TOKEN_KINDS
from tollgate.dashboard.usage_report import bucket_starts
from tollgate.dashboard.usage_sums import MOST_SHOWN
from tollgate.dashboard.visit import Form, Visit
from tollgate.errors import NotFound
from tollgate.ledger.reports import Filters
from tollgate.measures import ENDPOINTS, OUTCOME_FILTERS, Measures, Report

RANGES: dict[str, tuple[str, timedelta, int]] = {
    "1h": ("Last hour", timedelta(minutes=2), 30),
    "24h": ("24 hours", timedelta(hours=1), 24),
    "7d": ("7 days", timedelta(hours=6), 28),
    "30d": ("30 days", timedelta(days=1), 30),
    "90d": ("90 days", timedelta(days=1), 90),
}
"""Name -> label, width of a column, number of columns."""
DEFAULT_RANGE = "7d"
GROUPS = {"model": "Model", "key_id": "Key", "provider": "Provider", "endpoint": "Endpoint", "account_id": "Account"}
_SHOWN_SERIES = 6


@dataclass(frozen=True, slots=True)
class Scope:
    """Which rows: those of an account, or all for an operator; `prefix` is the path of the pages."""

    account: str | None
    prefix: str = ""


ScopedPage = Callable[[Visit, Scope], Awaitable[Response]]


def own(page: ScopedPage) -> Callable[[Visit], Awaitable[Response]]:
    """The page over the rows of the signed-in account."""
    return lambda visit: page(visit, Scope(visit.me.id))


def everybodys(page: ScopedPage) -> Callable[[Visit], Awaitable[Response]]:
    """The page over the rows of all accounts, for operators."""
    return lambda visit: page(visit, Scope(None, "/operator"))


@dataclass(frozen=True, slots=True)
class Selection:
    """The values of the filter form; an empty one does not filter."""

    range: str = DEFAULT_RANGE
    model: str = ""
    key: str = ""
    provider: str = ""
    endpoint: str = ""
    outcome: str = ""
    account: str = ""
    text: str = ""

    @property
    def columns(self) -> tuple[timedelta, int]:
        """Width and number of the columns of the charts."""
        return RANGES[self.range][1:]

    def since(self) -> datetime:
        """The start of the first column of the charts: rows and downloads from then on add up to what the charts
        show."""
        return next(bucket_starts(datetime.now(UTC), *self.columns))

    def filters(self, scope: Scope, *, since: datetime | None = None) -> Filters:
        """The selected rows, only of those in the scope."""
        return Filters(
            since=since,
            account=scope.account or self.account or None,
            key=self.key or None,
            model=_exactly(self.model),
            provider=_exactly(self.provider),
            endpoint=self.endpoint or None,
            outcome=self.outcome or None,
            text=self.text or None,
        )

    def query(self, **changes: str) -> dict[str, str]:
        """The form as fields of a query string, for links that keep it."""
        return {name: value for name, value in asdict(self).items() if value} | changes


def read_selection(query: Form) -> Selection:
    """The filter form from a query string; unknown values are left at their default."""
    return Selection(
        range=query["range"] if query["range"] in RANGES else DEFAULT_RANGE,
        model=query["model"][:200],
        key=query["key"][:60],
        provider=query["provider"][:100],
        endpoint=query["endpoint"] if query["endpoint"] in ENDPOINTS else "",
        outcome=query["outcome"] if query["outcome"] in OUTCOME_FILTERS else "",
        account=query["account"][:63],
        text=query["text"].strip()[:200],
    )


async def show(visit: Visit, scope: Scope) -> Response:
    """Charts and tables of usage."""
    selection = read_selection(visit.query)
    report = await visit.state.queries.report(selection.filters(scope), *selection.columns)
    whole = (
        report
        if not set(selection.query()) - {"range"}
        else await visit.state.queries.report(Filters(account=scope.account), *selection.columns)
    )
    groups = {name: title for name, title in GROUPS.items() if scope.account is None or name != "account_id"}
    by = visit.query["by"] if visit.query["by"] in groups else "model"
    names = visit.key_labels((key for each in (report, whole) for key, _ in each.by("key_id")), scope.account)
    drawn = (
        charts.bars("cost", f"Cost by {groups[by].lower()}", MONEY, report, costs_by(report, by, names)),
        charts.bars("requests", "Requests", COUNT, report, _requests(report)),
        charts.bars("tokens", "Tokens", COUNT, report, _tokens(report)),
        charts.lines("latency", "Latency", TIME, report, _latency(report)),
    )
    tables = [(title, name, *_table(report, name, names)) for name, title in groups.items()]
    return visit.render(
        "usage.html",
        scope=scope.prefix,
        selection=selection,
        ranges=RANGES,
        by=by,
        groups=groups,
        sums=report.all(),
        charts=drawn,
        tables=tables,
        choices=choices(whole, names),
        counts=whole.counts,
        kinds=_kinds(report.all()),
    )


async def download(visit: Visit, scope: Scope) -> Response:
    """The rows as a file. Its name says when a damaged usage file was left out, as the pages do."""
    form = visit.argument("form")
    if form not in ("csv", "parquet"):
        raise NotFound("there is no such download")
    selection = read_selection(visit.query)
    filters = selection.filters(scope, since=selection.since())
    path = await visit.state.queries.export(filters, form, all_columns=visit.is_operator)  # type: ignore[arg-type]
    left_out = "-incomplete" if visit.state.queries.files.damaged else ""
    named = f"tollgate-usage-{scope.account or 'all'}-{selection.range}{left_out}.{form}"
    media = "text/csv; charset=utf-8" if form == "csv" else "application/vnd.apache.parquet"
    return Download(path, media_type=media, filename=named)


class Download(FileResponse):
    """A file that is deleted after it was sent, also if sending fails: the browser left, or asks for a part that
    does not exist."""

    async def __call__(self, scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await asyncio.to_thread(Path(self.path).unlink, missing_ok=True)


def choices(report: Report, names: Mapping[str, str]) -> dict[str, list[tuple[str, str]]]:
    """The options of the filter form: values that occur, with their names; if there are very many, the most
    expensive."""
    return {
        name: sorted(
            ((value, _named(name, value, names)) for value, _ in report.by(name) if value),
            key=lambda entry: entry[1].lower(),
        )
        for name in GROUPS
    }


def costs_by(report: Report, by: str, names: Mapping[str, str]) -> list[Series]:
    """The cost of the most expensive values of a dimension, and of all others together."""
    values = report.by(by)
    shown = [value for value, _ in values[:_SHOWN_SERIES]]
    series = [
        Series(_named(by, value, names), f"s{place}", [float(bucket.of(by, value).cost) for bucket in report])
        for place, value in enumerate(shown)
    ]
    others = report.count(by) - len(shown)
    if others > 0:
        rest = [
            float(bucket.all.cost - sum((bucket.of(by, value).cost for value in shown), start=Decimal(0)))
            for bucket in report
        ]
        series.append(Series(f"{others} others" if others > 1 else "1 other", OTHERS, rest))
    return series


def _kinds(sums: Measures) -> Sequence[tuple[str, str]]:
    """The columns of the tables. Cache writes have one only if there are any, because few providers charge for them."""
    return [kind for kind in TOKEN_KINDS if kind[1] != "cache_write_tokens" or sums.cache_write_tokens]


def _requests(report: Report) -> Sequence[Series]:
    return [
        Series("Answered", "s0", [bucket.all.requests - bucket.all.failed for bucket in report]),
        Series("Failed", "bad", [bucket.all.failed for bucket in report]),
    ]


def _tokens(report: Report) -> Sequence[Series]:
    return [
        Series(label, f"s{place}", [getattr(bucket.all, name) for bucket in report])
        for place, (label, name) in enumerate(TOKEN_KINDS)
    ]


def _latency(report: Report) -> Sequence[Series]:
    return [
        Series("First byte, p50", "s1", [bucket.all.first_byte_ms(0.5) for bucket in report]),
        Series("First byte, p95", "s1 thin", [bucket.all.first_byte_ms(0.95) for bucket in report]),
        Series("Whole answer, p50", "s2", [bucket.all.total_ms(0.5) for bucket in report]),
        Series("Whole answer, p95", "s2 thin", [bucket.all.total_ms(0.95) for bucket in report]),
    ]


def _table(
    report: Report, name: str, names: Mapping[str, str]
) -> tuple[list[tuple[str, str, Measures]], tuple[int, Measures] | None]:
    """The most expensive values of a dimension, and the number and the sums of the others."""
    rows = [(value, _named(name, value, names), measures) for value, measures in report.by(name)[:MOST_SHOWN]]
    others = report.count(name) - len(rows)
    return rows, (others, report.all().without(measures for _, _, measures in rows)) if others > 0 else None


def _named(dimension: str, value: str, names: Mapping[str, str]) -> str:
    return names.get(value, value) if dimension == "key_id" else value or "none"


def _exactly(value: str) -> str | None:
    """A glob that matches this text only."""
    if not value:
        return None
    return "".join(f"[{char}]" if char in "*?[" else char for char in value)
