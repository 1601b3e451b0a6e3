"""Image jobs: a gallery of results, running jobs, one job, and the pictures themselves.

Pictures are served from here, so that pages load nothing from other hosts: inline data is decoded, a provider's address
is fetched by the guarded download, and only known raster types are shown.
"""

from __future__ import annotations

import base64
import binascii
from contextlib import nullcontext
from typing import Any

import orjson
from starlette.responses import PlainTextResponse, Response

from tollgate.dashboard.key_list import key_list
from tollgate.dashboard.visit import Visit
from tollgate.errors import BadRequest, NotFound, TollgateError
from tollgate.fetch import fetch_inline, media_type
from tollgate.images.catalog import image_models
from tollgate.images.order import Order
from tollgate.images.service import jobs_of
from tollgate.ledger import Generation, KeyRecord
from tollgate.public_errors import public_message

_SHOWN = 30
_RASTER = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif", "image/avif", "image/bmp"})


async def show(visit: Visit) -> Response:
    """The gallery, the running jobs, and a form for a new one."""
    return await _page(visit)


async def create(visit: Visit) -> Response:
    """Start a job with one of the account's keys."""
    form = visit.form
    if await visit.sent_again():
        return visit.to("/images", done="again")
    try:
        key = await visit.chosen_key("images")
        if key is None:
            raise BadRequest("choose one of your active keys")
        visit.require_ready()  # a provider must not make a picture whose cost cannot be written
        visit.ledger.require_credits(key)
        with visit.ledger.occupy(key) or nullcontext():
            job = await jobs_of(visit.services).create(
                Order(key, visit.request_id, form["model"], _input(form["input"], form["prompt"]))
            )
    except TollgateError as error:
        return await _page(visit, error)
    return visit.to(f"/images/{job.id}")


async def one(visit: Visit) -> Response:
    """One job of this account; a running one is polled first."""
    jobs = jobs_of(visit.services)
    try:
        job = await jobs.refreshed(visit.me.id, visit.argument("job"))
    except NotFound:
        raise NotFound("there is no such job") from None
    except TollgateError:
        job = await jobs.tracked.stored(visit.me.id, visit.argument("job"))
    job_input = orjson.dumps(job.input, option=orjson.OPT_INDENT_2, default=str).decode()
    names = visit.key_names([job.key_id])
    return visit.render("image.html", job=job, job_input=job_input, key=names.get(job.key_id, job.key_id))


async def picture(visit: Visit) -> Response:
    """One picture of a job of this account."""
    job = await jobs_of(visit.services).tracked.stored(visit.me.id, visit.argument("job"))
    numbered = {str(number): image for number, image in enumerate(job.images)}
    image = numbered.get(visit.argument("number"))
    if image is None:
        raise NotFound("there is no such picture")
    try:
        async with visit.state.pictures:
            kind, data = await _bytes(visit, dict(image))
    except (BadRequest, binascii.Error):
        return PlainTextResponse("this picture is no longer to be had", 404)
    if kind not in _RASTER:
        return PlainTextResponse(f"this is no picture that can be shown: {kind}", 415)
    return Response(data, media_type=kind, headers={"cache-control": "private, max-age=3600"})


async def _bytes(visit: Visit, image: dict[str, Any]) -> tuple[str, bytes]:
    if image.get("data"):
        data = base64.b64decode(image["data"])
        return media_type(str(image.get("context_type") or ""), data), data
    kind, data = await fetch_inline(str(image.get("url") or ""), visit.runtime.gateway.fetch)
    return media_type(kind, data), data


async def _page(visit: Visit, error: TollgateError | None = None) -> Response:
    made = await visit.ledger.generations.succeeded(visit.me.id, _SHOWN)
    running = await visit.ledger.generations.pending(visit.me.id)
    active = await visit.active_keys()
    keys: list[KeyRecord | None] = [view.key for view in active]
    usable = {offer.model.id: offer.price for key in keys or [None] for offer in image_models(visit.runtime, key)}
    return visit.render(
        "images.html",
        status=error.status if error else 200,
        made=made,
        running=running,
        models=sorted(usable.items()),
        keys=key_list(active, chosen=visit.form["key"]).views,
        error=error,
        problem=public_message(error) if error else "",
        form=visit.form,
        prompt_of=_prompt_of,
    )


def _input(written: str, prompt: str) -> Any:
    """The job's input: the JSON of the form, with the prompt in it."""
    try:
        settings = orjson.loads(written) if written.strip() else {}
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the settings are not valid JSON: {error.msg}", "input") from None
    if not isinstance(settings, dict):
        raise BadRequest("the settings are no JSON object", "input")
    return settings | ({"prompt": prompt} if prompt.strip() else {})


def _prompt_of(job: Generation) -> str:
    prompt = job.input.get("prompt") if isinstance(job.input, dict) else None
    return prompt if isinstance(prompt, str) else ""
