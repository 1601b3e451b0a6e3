"""Health of routes and providers: consecutive failures, cooldowns, alarms for the operator, counters.

It lives outside the runtime, so a reload forgets nothing, and is used on the event loop only. The caller decides what
counts as a failure (a `Verdict`); how long a failing route cools down is decided here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tollgate.config.settings import Retry
from tollgate.errors import AlarmKind, OutOfSockets, UpstreamError, UpstreamFailed, UpstreamRejected
from tollgate.wording import one_line

_SMOOTHING = 0.2
"""Weight of the newest latency in the moving average: the last ten or so requests count."""
_RATE_SMOOTHING = 0.05
"""The same for the share of failures, over the last forty."""
_LOG_SECONDS = 10.0
"""A failing route is logged at most this often: in an outage, logging every failure would be a line per request."""


@dataclass(slots=True)
class Alarm:
    """A problem that only the operator can fix: our balance at a provider is empty, or our key there is refused."""

    kind: AlarmKind
    message: str
    since: float
    """Unix time in seconds at which it was first seen."""
    count: int = 1


@dataclass(slots=True)
class RouteHealth:
    """Counters of one route."""

    route: str
    provider: str
    successes: int = 0
    failures: int = 0
    rejections: int = 0
    """Requests that the upstream refused as invalid, which is no failure of the route."""
    in_a_row: int = 0
    cooling_until: float = 0.0
    cooled_at: float = 0.0
    """Clock time of the last failure that made it cool down."""
    error_rate: float = 0.0
    latency: float | None = None
    """Moving average of seconds to the first byte."""
    last_error: str = ""
    last_error_at: float | None = None
    logged_at: float | None = None
    """Clock time at which a failure was last logged."""
    unlogged: int = 0
    """Failures since then."""


ALARMS: dict[AlarmKind, str] = {
    "balance": "our balance there is used up",
    "key": "our key there is refused",
    "proxy": "the proxy on the way there refuses us",
}
"""The text of each kind of alarm."""


def alarm_text(provider: str, alarm: AlarmKind, message: str) -> str:
    """A new alarm as one line of the log, with the provider's own message."""
    return f"provider {provider}: {ALARMS[alarm]} ({one_line(message[:200])})"


def record_failure(
    health: Health, log: logging.Logger, route: str, provider: str, error: UpstreamError, subject: str
) -> None:
    """Note a failure of a route in its health and in the log: a new alarm at once, other failures at most every ten
    seconds; at debug level the log has all of them. `subject` is what failed ("request req_1"). A rejected request is
    only counted, a failure of our own machine (`OutOfSockets`) only logged."""
    if isinstance(error, UpstreamRejected):
        health.rejected(route, provider)
        return
    if isinstance(error, OutOfSockets):
        failures = health.out_of_sockets()
        level = logging.ERROR if failures else logging.DEBUG
        more = f" ({failures} times since the last line)" if failures > 1 else ""
        log.log(level, "no sockets are left to connect with, for %s: %s%s", subject, error.message, more)
        return
    alarmed = health.failed(
        route, provider, error.code, error.message, retry_after=error.retry_after, alarm=error.alarm
    )
    failures = health.to_log(route)
    if alarmed and error.alarm is not None:
        log.error("%s", alarm_text(provider, error.alarm, error.message))
    status = f", HTTP {error.upstream_status}" if isinstance(error, UpstreamFailed) else ""
    more = f" ({failures} failures since the last line)" if failures > 1 else ""
    log.log(
        logging.WARNING if failures and not alarmed else logging.DEBUG,
        "route %s failed for %s: %s%s: %s%s",
        route,
        subject,
        error.code,
        status,
        one_line(error.message[:300]),
        more,
    )


def record_alarm(health: Health, log: logging.Logger, provider: str, error: UpstreamError) -> None:
    """Note the alarm of an error, if it has one, of a call beside the requests (a list of models, a token count). No
    route cools down: a provider may refuse such a call with a key that it accepts for requests."""
    if error.alarm is not None and health.alarmed(provider, error.alarm, error.message):
        log.error("%s", alarm_text(provider, error.alarm, error.message))


class Health:
    """The state of every route that has been tried. `settings` may be replaced at a reload."""

    def __init__(
        self,
        settings: Retry | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings or Retry()
        self.now = clock
        self._wall = wall
        self._routes: dict[str, RouteHealth] = {}
        self._providers: dict[str, float] = {}
        self._alarms: dict[tuple[str, AlarmKind], Alarm] = {}
        self._alarmed_at: dict[str, float] = {}
        """Clock time of each provider's last alarm."""
        self._configured: Collection[str] | None = None
        """The providers since the last reload; None before the first."""
        self._own = RouteHealth("", "")
        """Failures to connect that are due to our own machine."""

    def cooling_until(self, route: str, provider: str) -> float:
        """The clock time until which the route cools down; 0 if it does not."""
        known = self._routes.get(route)
        until = known.cooling_until if known is not None else 0.0
        return max(until, self._providers.get(provider, 0.0)) if self._providers else until

    def succeeded(self, route: str, provider: str, latency: float | None = None, took: float = 0.0) -> None:
        """The route answered a request that was sent `took` seconds ago; `latency` is seconds to the first byte. Ends
        its cooldown and the provider's alarms, but not those that began after the request was sent: while a provider
        refuses new requests, the streams that it had accepted before still end well."""
        health = self._of(route, provider)
        health.successes += 1
        health.in_a_row = 0
        health.error_rate -= _RATE_SMOOTHING * health.error_rate
        if latency is not None:
            health.latency = (
                latency if health.latency is None else health.latency + _SMOOTHING * (latency - health.latency)
            )
        if health.cooling_until or self._providers or self._alarms:
            self._recovered(health, self.now() - took)

    def _recovered(self, health: RouteHealth, sent_at: float) -> None:
        """End what began before a request that was answered was sent."""
        if health.cooled_at <= sent_at:
            health.cooling_until = 0.0
        if self._alarmed_at.get(health.provider, sent_at) <= sent_at:
            self._providers.pop(health.provider, None)
            for kind in ALARMS:
                self._alarms.pop((health.provider, kind), None)

    def rejected(self, route: str, provider: str) -> None:
        """The upstream refused the request as invalid, which is only counted."""
        self._of(route, provider).rejections += 1

    def failed(
        self,
        route: str,
        provider: str,
        code: str,
        message: str = "",
        *,
        retry_after: float | None = None,
        alarm: AlarmKind | None = None,
    ) -> bool:
        """The route failed. It cools down for `retry_after` seconds if that is given, or after several failures in a
        row. An `alarm` cools down the whole provider at once, since all its routes share the key, the balance and the
        proxy. Returns True if the alarm is new."""
        if self._is_removed(provider):
            return False
        settings, now = self.settings, self.now()
        health = self._of(route, provider)
        health.failures += 1
        health.unlogged += 1
        health.in_a_row += 1
        health.error_rate += _RATE_SMOOTHING * (1.0 - health.error_rate)
        health.last_error, health.last_error_at = f"{code}: {message}"[:300] if message else code, self._wall()
        rest = min(retry_after or 0.0, settings.max_retry_after_seconds)
        if health.in_a_row >= settings.cooldown_failures:
            rest = max(rest, settings.cooldown_seconds)
        if rest:
            health.cooling_until, health.cooled_at = max(health.cooling_until, now + rest), now
        if alarm is None:
            return False
        until = now + max(rest, settings.cooldown_seconds)
        self._providers[provider] = max(until, self._providers.get(provider, 0.0))
        return self.alarmed(provider, alarm, message)

    def alarmed(self, provider: str, alarm: AlarmKind, message: str) -> bool:
        """A call to the provider failed for a reason that only the operator can fix. Returns True if that is new. A
        provider that a reload removed gets no alarm any more: no request could end it."""
        if self._is_removed(provider):
            return False
        self._alarmed_at[provider] = self.now()
        known = self._alarms.get((provider, alarm))
        if known is None:
            self._alarms[provider, alarm] = Alarm(alarm, message[:300], self._wall())
            return True
        known.count += 1
        known.message = message[:300]
        return False

    def end_alarm(self, provider: str, alarm: AlarmKind) -> None:
        """A call for which the alarm was raised is successful again."""
        self._alarms.pop((provider, alarm), None)

    def to_log(self, route: str) -> int:
        """The number of unlogged failures of the route if one may be logged now, else 0. They then count as logged."""
        known = self._routes.get(route)
        return 0 if known is None else self._to_log(known)

    def out_of_sockets(self) -> int:
        """No sockets were left to connect with, which is no failure of the route. Returns the same as `to_log`."""
        self._own.unlogged += 1
        return self._to_log(self._own)

    def _to_log(self, known: RouteHealth) -> int:
        if known.logged_at is not None and self.now() < known.logged_at + _LOG_SECONDS:
            return 0
        failures, known.unlogged, known.logged_at = known.unlogged, 0, self.now()
        return failures

    def alarms(self) -> list[tuple[str, Alarm]]:
        """(provider, alarm) of every open alarm, oldest first."""
        return sorted(
            ((provider, alarm) for (provider, _), alarm in self._alarms.items()), key=lambda entry: entry[1].since
        )

    def routes(self) -> list[RouteHealth]:
        """Every route tried so far, by name."""
        return [self._routes[name] for name in sorted(self._routes)]

    def cooling(self) -> dict[str, float]:
        """The seconds left, for each route that cools down."""
        now = self.now()
        left = {name: self.cooling_until(name, health.provider) - now for name, health in self._routes.items()}
        return {name: seconds for name, seconds in sorted(left.items()) if seconds > 0}

    def keep(self, routes: Collection[str], providers: Collection[str]) -> None:
        """Forget routes and providers that a reload removed. Requests that began before it may still fail there."""
        self._configured = frozenset(providers)
        self._routes = {name: health for name, health in self._routes.items() if name in routes}
        self._providers = {name: until for name, until in self._providers.items() if name in providers}
        self._alarms = {key: alarm for key, alarm in self._alarms.items() if key[0] in providers}
        self._alarmed_at = {name: at for name, at in self._alarmed_at.items() if name in providers}

    def _is_removed(self, provider: str) -> bool:
        return self._configured is not None and provider not in self._configured

    def _of(self, route: str, provider: str) -> RouteHealth:
        known = self._routes.get(route)
        if known is None:
            known = self._routes[route] = RouteHealth(route, provider)
        return known
