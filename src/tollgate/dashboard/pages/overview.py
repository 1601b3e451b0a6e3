"""The first page: the balance, the cost of the last days, the newest requests, and how to begin."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from starlette.responses import Response

from tollgate.dashboard import charts
from tollgate.dashboard.formatting import MONEY
from tollgate.dashboard.key_list import key_list
from tollgate.dashboard.pages.usage import Selection, costs_by
from tollgate.dashboard.visit import Visit
from tollgate.ledger.reports import Filters

_NEWEST = 8


async def show(visit: Visit) -> Response:
    """The start page of the signed-in account."""
    name = visit.me.id
    filters = Filters(account=name)
    report = await visit.state.queries.report(filters, *Selection("7d").columns)
    newest = await visit.state.queries.rows(Filters(account=name, since=datetime.now(UTC) - timedelta(days=7)), _NEWEST)
    today = await visit.state.queries.report(filters, timedelta(days=1), 2)
    return visit.render(
        "overview.html",
        sums=await visit.ledger.sums(name),
        week=report.all(),
        today=today.buckets[-1].all,
        yesterday=today.buckets[0].all,
        chart=charts.bars("cost", "Cost", MONEY, report, costs_by(report, "model", {})),
        models=report.by("model")[:5],
        rows=newest,
        names=visit.key_names(row["key_id"] for row in newest),
        active=key_list(await visit.active_keys()).views,
        example=visit.runtime.catalog.example(),
        minimum=visit.runtime.gateway.credits.minimum,
    )
