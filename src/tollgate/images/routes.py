"""How image jobs use the health of routes: which route is asked first, and what a failure does to it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tollgate.health import Health, record_failure
from tollgate.images.state import route_of

if TYPE_CHECKING:
    from tollgate.errors import UpstreamError
    from tollgate.images.calls import Calls
    from tollgate.mapping.images.offer import ImageOffer
    from tollgate.services import Services

log = logging.getLogger("tollgate.images")


def in_order(health: Health, candidates: list[Calls]) -> list[Calls]:
    """The routes in the catalog's order, but those that are resting come last."""
    now = health.now()
    return sorted(candidates, key=lambda calls: health.cooling_until(route_of(calls.offer), calls.offer.provider) > now)


def note_failure(services: Services, offer: ImageOffer, error: UpstreamError, job_id: str) -> None:
    """Note in the health of a route, and in the log, that it failed."""
    if error.alarm == "key" and offer.auth is not None:  # some report a bad token in a 200, or by a 403
        services.client.invalidate(offer.auth)
    record_failure(services.health, log, route_of(offer), offer.provider, error, f"job {job_id}")
