"""How image jobs use the health of routes: which route is asked first, and what a failure does to it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tollgate.errors import UpstreamError, UpstreamRejected
from tollgate.health import Health, tell_failure
from tollgate.images.state import route_of

if TYPE_CHECKING:
    from tollgate.mapping.images.offer import ImageOffer

log = logging.getLogger("tollgate.images")


def in_order(health: Health, offers: list[tuple[ImageOffer, dict[str, Any]]]) -> list[tuple[ImageOffer, dict[str, Any]]]:
    """(offer, input) pairs: routes that rest come last, otherwise as the catalog orders them."""
    now = health.now()
    return sorted(offers, key=lambda pair: health.cooling_until(route_of(pair[0]), pair[0].provider) > now)


def note_failure(health: Health, offer: ImageOffer, error: UpstreamError, job_id: str) -> None:
    """Tell the health of a route, and the log, that it failed."""
    if isinstance(error, UpstreamRejected):
        health.rejected(route_of(offer), offer.provider)
    else:
        tell_failure(health, log, route_of(offer), offer.provider, error, f"job {job_id}")
