"""Makes the calls that a route needs before a request, such as uploads whose ids the request refers to.

`mapping/provider/prepares.py` compiles them from the provider file. Places with the same value share a call.
"""

from __future__ import annotations

import copy
import time
from typing import Any

import orjson

from tollgate.addresses import with_query
from tollgate.completions.exchange import Exchange
from tollgate.completions.judging import AttemptFailed, unfit_answer, unusable
from tollgate.completions.off_loop import run_off_loop
from tollgate.errors import BadRequest, UpstreamError
from tollgate.mapping import MappingFailure
from tollgate.mapping.provider.prepares import Place, Prepare
from tollgate.process.concurrency import few_at_once
from tollgate.routing import Offer
from tollgate.upstream import call_to

_AT_ONCE = 4
_MOST = 100
"""Maximum calls of one kind for one request: the same as the limit for URLs to download."""
_MAX_ANSWER_BYTES = 1024 * 1024


async def prepared(exchange: Exchange, offer: Offer, document: Any) -> Any:
    """A copy of the finished request with the values that the calls returned. Raises `AttemptFailed`, or `BadRequest`
    if the calls cannot be made for this request."""
    began = time.perf_counter()
    document = copy.deepcopy(document)
    for prepare in offer.prepares:
        same: dict[bytes, list[Place]] = {}
        for place in prepare.places(document):
            same.setdefault(orjson.dumps(place[0][place[1]]), []).append(place)
        if len(same) > _MOST:
            raise BadRequest(f"the request needs more than {_MOST} calls before it, such as uploads")

        async def one(places: list[Place], prepare: Prepare = prepare) -> None:
            holder, key = places[0]
            value = await _value(exchange, offer, prepare, document, holder[key])
            for holder, key in places:
                holder[key] = value

        await few_at_once(_AT_ONCE, one, same.values())
    exchange.upstream_ms += (time.perf_counter() - began) * 1000
    return document


async def _value(exchange: Exchange, offer: Offer, prepare: Prepare, document: Any, old: Any) -> Any:
    method, url, fields = prepare.call(document, old, offer.model_facts)
    url = with_query(url, offer.address.query)
    headers = {name: value for name, value in offer.headers(exchange.inbound.headers).items() if name != "content-type"}
    body = b""
    if fields is not None:
        long = exchange.is_long()  # an upload is decoded from base64
        body, headers["content-type"] = (
            await run_off_loop(offer.written, fields, prepare.encoding)
            if long
            else offer.written(fields, prepare.encoding)
        )
    try:
        async with await exchange.services.client.open(call_to(offer, method, url, headers, body)) as answer:
            raw = await answer.read(_MAX_ANSWER_BYTES)
    except UpstreamError as error:
        raise AttemptFailed(error) from None
    try:
        content = orjson.loads(raw) if raw.strip() else {}
    except orjson.JSONDecodeError:
        content = raw.decode("utf-8", "replace")
    verdict = offer.errors.judge(answer.status, answer.headers, content)
    if verdict is not None:
        raise AttemptFailed(verdict.error())
    try:
        value = prepare.value(content, http={"status": answer.status, "headers": answer.headers})
    except MappingFailure as failure:
        raise AttemptFailed(unfit_answer(offer, failure)) from None
    if value is None:
        raise unusable("a call before the request returned no value for it", answer.status)
    return value
