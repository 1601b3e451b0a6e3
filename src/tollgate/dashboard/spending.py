"""Spending by day, as the pages for credits, a key and an account show it."""

from __future__ import annotations

from datetime import timedelta

from tollgate.dashboard import charts
from tollgate.dashboard.formatting import MONEY
from tollgate.dashboard.visit import Visit
from tollgate.ledger.reports import Filters
from tollgate.measures import Report

_DAYS = 30


async def spent_by_day(visit: Visit, filters: Filters) -> tuple[Report, charts.Chart]:
    """The usage of the last 30 days that fits the filters, and its cost by day as a chart."""
    report = await visit.state.queries.report(filters, timedelta(days=1), _DAYS)
    series = [charts.Series("Spent", "s0", [float(bucket.all.cost) for bucket in report])]
    return report, charts.bars("spent", "Spent by day", MONEY, report, series)
