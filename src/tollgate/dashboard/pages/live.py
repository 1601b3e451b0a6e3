"""What is running now: completions and image jobs of all accounts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from starlette.responses import Response

from tollgate.dashboard.visit import Visit
from tollgate.images.state import seconds_since

_MOST = 200


async def show(visit: Visit) -> Response:
    """The list, longest first; refreshed every few seconds on request."""
    running = sorted(visit.services.live, key=lambda exchange: exchange.inbound.started)
    jobs = []
    for job_id in (await visit.ledger.generations.pending_ids())[:_MOST]:  # all at once may not fit into memory
        if (job := await visit.ledger.generations.running(job_id)) is not None:
            jobs.append(replace(job, input=None, answer=None))
    return visit.render(
        "live.html",
        running=running[:_MOST],
        count=len(running),
        jobs=[(job, seconds_since(job.created_at)) for job in jobs],
        keys=visit.key_names(each.inbound.key.id for each in running[:_MOST]),
        renew=visit.query["renew"] == "on",
        metrics=visit.services.metrics,
        now=datetime.now(UTC),
    )
