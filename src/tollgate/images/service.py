"""The image endpoints: the answer of each, in the envelope of SPEC. `runner.py` does the work.

Errors for the caller: `BadRequest` (its text follows `input validation failed: `), `ModelNotFound`, `QuotaExhausted`,
`NotFound` (this account has no job with this id), `UpstreamError`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Any

import orjson

from tollgate.errors import BadRequest, TollgateError
from tollgate.images.order import Order, Unsaved
from tollgate.images.refresher import Refresher
from tollgate.images.runner import Jobs
from tollgate.json_bounds import MAX_SMALL_BODY_VALUES, too_many
from tollgate.mapping import Refused
from tollgate.services import Reply, dropped_text

if TYPE_CHECKING:
    from tollgate.ledger import Generation, KeyRecord
    from tollgate.services import Headers, Inbound, Services

log = logging.getLogger("tollgate.images")

RECENT = 100
"""Generations listed (SPEC, limits)."""
_FIELDS = frozenset({"model", "input", "webhook"})
"""The fields of a request for a job (SPEC). Any other is dropped, and its name reported."""
_ADDRESS = re.compile(r"https?://[^\s/?#]+([/?#]\S*)?\Z", re.IGNORECASE)
"""What a webhook must look like. It is stored and never called (SPEC)."""
_TICK_SECONDS = 1.0
_AT_ONCE = 16
"""Jobs that the refresher polls in one tick. At the intervals in the provider files, hundreds of pending jobs need only
a few calls a second."""


def jobs_of(services: Services) -> Jobs:
    """The jobs of this gateway; made at first use."""
    jobs: Jobs | None = services.images
    if jobs is None:
        jobs = services.images = Jobs(services)
    return jobs


async def create_generation(services: Services, inbound: Inbound) -> Reply:
    """`POST /v1/images/generations`: check, submit, answer with id, model and status."""
    most_values = min(MAX_SMALL_BODY_VALUES, services.runtime.current.gateway.server.max_values)
    order = _order(inbound, _read(inbound.body, most_values))
    generation = await jobs_of(services).create(order)
    reply = _envelope({"id": generation.id, "model": generation.model, "status": generation.status})
    reply.headers = _headers(generation)
    if order.lost:
        reply.headers.append((b"x-tollgate-dropped", dropped_text(order.lost)))
    return reply


async def list_generations(services: Services, key: KeyRecord) -> Reply:
    """`GET /v1/images/generations`: the newest successful jobs of the account."""
    found = await services.ledger.generations.succeeded(key.account_id, RECENT)
    return _envelope([generation_entry(generation, listed=True) for generation in found])


async def get_generation(services: Services, key: KeyRecord, job_id: str) -> Reply:
    """`GET /v1/images/generations/{id}`: a pending job is first polled and stored."""
    try:
        generation = await jobs_of(services).refreshed(key.account_id, job_id)
    except Unsaved as error:
        error.billed = False  # another look costs nothing
        raise
    reply = _envelope(generation_entry(generation))
    reply.headers = _headers(generation)
    return reply


async def run_refresher(services: Services) -> None:
    """Finish the jobs that no client polls, as long as the gateway runs; begins with those of an earlier process."""
    refresher = Refresher(jobs_of(services))
    resumed = False
    while True:
        try:
            if not resumed:
                await refresher.resume()
                resumed = True
            await refresher.tick(_AT_ONCE)
        except TollgateError as error:
            log.warning("image jobs could not be refreshed: %s", error.message)
        except Exception:  # a mistake of ours must not leave all jobs and their holds as they are
            log.exception("image jobs could not be refreshed")
        await asyncio.sleep(_TICK_SECONDS)


def generation_entry(generation: Generation, *, listed: bool = False) -> dict[str, Any]:
    """A job as SPEC's Generation; `images`, `cost` and `error` only when there are any."""
    shown: dict[str, Any] = {"id": generation.id, "model": generation.model, "status": generation.status}
    if generation.images or listed or generation.status == "succeeded":
        shown["images"] = [dict(image) for image in generation.images]
    if generation.cost is not None:
        shown["cost"] = float(generation.cost)
    if generation.error:
        shown["error"] = generation.error
    return shown


def _headers(generation: Generation) -> Headers:
    """The headers of an answer about one job (CLIENTS 3c); the cost only once it is known."""
    headers: Headers = [
        (b"x-tollgate-provider", generation.provider.encode()),
        (b"x-tollgate-attempts", b"%d" % max(1, generation.row.attempts)),
    ]
    if generation.cost is not None:
        headers.append((b"x-tollgate-cost", format(generation.cost, "f").encode()))
    return headers


def _order(inbound: Inbound, body: dict[str, Any]) -> Order:
    model, webhook = body.get("model"), body.get("webhook")
    if not isinstance(model, str) or not model:
        raise BadRequest("model is required" if model is None else "model is required and must be text", "model")
    lost = tuple(name for name in body if name not in _FIELDS)
    if "input" not in body or body["input"] is None:
        where = f": an object that holds {', '.join(lost[:9])}" if lost else ""
        raise BadRequest(f"input is required{where}"[:500], "input")
    if webhook is not None and not isinstance(webhook, str):
        raise BadRequest("webhook is not text", "webhook")
    if webhook and not _ADDRESS.match(webhook):
        raise BadRequest(f'webhook is "{webhook[:100]}", wanted an address such as https://example.com/hook', "webhook")
    if lost and inbound.strict:
        raise Refused(
            f"strict mode: an image job has no {', '.join(lost)}; what a model takes stands in `input`", lost[0]
        )
    return Order(
        inbound.key, inbound.request_id, model, body["input"], webhook, "images", inbound.received_at, lost=lost
    )


def _read(raw: bytes, most_values: int) -> dict[str, Any]:
    if too_many(raw, most_values):
        raise BadRequest(f"the request body holds more than {most_values} values")
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRequest(
            f"the request body is not valid JSON: {error.msg} at line {error.lineno} column {error.colno}"
        ) from None
    if not isinstance(body, dict):
        raise BadRequest("the request body is no JSON object")
    return body


def _envelope(data: Any) -> Reply:
    return Reply(200, [], orjson.dumps({"success": True, "code": 200, "data": data}))
