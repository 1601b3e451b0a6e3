"""The state of providers: routes, failures, cooldowns, latency, and alarms that only an operator can resolve."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from starlette.responses import Response

from tollgate.dashboard import charts
from tollgate.dashboard.visit import Visit
from tollgate.health import ALARMS, RouteHealth
from tollgate.ledger.reports import Filters
from tollgate.measures import Measures


@dataclass(frozen=True, slots=True)
class ProviderView:
    """One provider: its configuration, what its routes did since the start, its cost of one day."""

    name: str
    about: str
    off: str
    models: int
    protocols: tuple[str, ...]
    routes: tuple[tuple[RouteHealth, float], ...]
    """With the remaining seconds of each cooldown."""
    day: Measures
    spark: str
    alarmed: bool
    """It has an open alarm, which only a request that succeeds ends: longer than the cooldown that begins with it."""

    @property
    def state(self) -> str:
        """off · idle · cooling down · failing · healthy."""
        if self.off:
            return "off"
        if not self.routes:
            return "idle"
        if all(rest > 0 for _, rest in self.routes):
            return "cooling down"
        failing = self.alarmed or any(rest > 0 or health.error_rate > 0.2 for health, rest in self.routes)
        return "failing" if failing else "healthy"


async def show(visit: Visit) -> Response:
    """Every provider of the configuration; those in use first."""
    services = visit.services
    runtime, health = services.runtime.current, services.health
    width = timedelta(hours=1)
    report = await visit.state.queries.report(Filters(), width, 24)
    days = dict(report.by("provider"))
    resting = health.cooling()
    alarms = [(name, alarm, datetime.fromtimestamp(alarm.since, UTC)) for name, alarm in health.alarms()]
    alarmed = {name for name, _, _ in alarms}
    views = []
    for name, provider in runtime.gateway.providers.items():
        routes = tuple((route, resting.get(route.route, 0.0)) for route in health.routes() if route.provider == name)
        spark = charts.spark([bucket.of("provider", name).requests for bucket in report])
        compiled = runtime.providers.get(name)
        models = len(compiled.config.models if compiled is not None else provider.models)
        views.append(
            ProviderView(
                name,
                provider.about,
                provider.off,
                models,
                tuple(provider.endpoints),
                routes,
                days.get(name, Measures()),
                spark,
                name in alarmed,
            )
        )
    order = {"failing": 0, "cooling down": 0, "healthy": 1, "idle": 2, "off": 3}
    views.sort(key=lambda view: (order[view.state], -view.day.requests, view.name))
    return visit.render(
        "providers.html",
        views=views,
        alarms=alarms,
        alarm_words=ALARMS,
        moment=lambda seconds: datetime.fromtimestamp(seconds, UTC),
        spark_width=24,
    )
