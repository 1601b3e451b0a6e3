"""Warnings about models that their provider withdraws: dates in `retires:` that have passed or are near.

These are only warnings: providers postpone dates, and calls to a withdrawn model are retried over its other routes like
any that fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime

from tollgate.config.load import Problem
from tollgate.config.model import Model, Provider
from tollgate.config.price_warnings import first_names

_NEAR_DAYS = 30
"""Enough time to move callers to another model; providers announce withdrawals months before."""


def retirement_warnings(providers: Iterable[Provider], today: date | None = None) -> list[Problem]:
    """Warnings about models of providers that are on, withdrawn before `today` (UTC) or within 30 days of it."""
    now = today or datetime.now(UTC).date()
    return [problem for provider in providers if not provider.off for problem in _of(provider, now)]


def _of(provider: Provider, today: date) -> Iterator[Problem]:
    """One warning, at the model that is withdrawn first, which names some of the others: a start prints one line per
    provider."""
    found = [(days, model) for model in provider.models if (days := _days_left(model, today)) is not None]
    if not found:
        return
    [(days, first), *others] = sorted(found, key=lambda each: each[0])
    when = "which has passed" if days < 0 else "which is today" if days == 0 else f"in {days} day{'s' * (days > 1)}"
    more = "; soon also " + first_names(f"{model.id} ({model.retires})" for _, model in others) if others else ""
    yield provider.document.warning(
        first.mark,
        f"found {first.retires}, {when}: {provider.name} withdraws this model{more}",
        path=f"models.{first.id}.retires",
        hint="move its callers, then take it out; or write the new date",
    )


def _days_left(model: Model, today: date) -> int | None:
    """Days until the withdrawal of a model, negative after it; None if it has no date, or a distant one."""
    if not model.retires:
        return None
    days = (date.fromisoformat(model.retires) - today).days
    return days if days <= _NEAR_DAYS else None
