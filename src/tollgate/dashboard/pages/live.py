"""What is running now: completions and image jobs of all accounts."""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.responses import Response

from tollgate.dashboard.visit import Visit
from tollgate.images.state import seconds_since

_MOST = 200


async def show(visit: Visit) -> Response:
    """The list, longest first; refreshed every few seconds on request."""
    running = sorted(visit.services.live, key=lambda exchange: exchange.inbound.started)
    jobs = await visit.ledger.generations.pending()
    return visit.render(
        "live.html",
        running=running[:_MOST],
        count=len(running),
        jobs=[(job, seconds_since(job.created_at)) for job in jobs[:_MOST]],
        keys=visit.key_names(each.inbound.key.id for each in running[:_MOST]),
        renew=visit.query["renew"] == "on",
        metrics=visit.services.metrics,
        now=datetime.now(UTC),
    )
