"""The calls that a route needs before a request, such as uploads whose ids the request refers to.

What they are is read from the provider file by `mapping/provider/prepares.py`. Places with the same value share a call.
"""

from __future__ import annotations

import copy
import time
from typing import Any

import orjson

from tollgate.completions.exchange import Exchange
from tollgate.completions.judging import AttemptFailed, unfit_answer, unusable
from tollgate.errors import BadRequest, UpstreamError
from tollgate.mapping import MappingFailure
from tollgate.mapping.provider.prepares import Place, Prepare
from tollgate.process.concurrency import few_at_once
from tollgate.routing import Offer
from tollgate.upstream import call_to

_AT_ONCE = 4
_MOST = 100
"""Calls of one kind for one request: as many as URLs that one request may name."""
_MAX_ANSWER_BYTES = 1024 * 1024


async def prepared(exchange: Exchange, offer: Offer, document: Any) -> Any:
    """The finished request with the values that the calls return; `document` is not changed. Raises `AttemptFailed`,
    or `BadRequest` if the calls cannot be made for this request."""
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
    method, url, content = prepare.call(document, old, offer.model_facts)
    headers = {**offer.headers(exchange.inbound.headers)}
    headers.pop("content-type", None)
    body, kind = offer.written(content, prepare.encoding) if content is not None else (b"", "")
    if kind:
        headers["content-type"] = kind
    try:
        async with await exchange.services.client.open(call_to(offer, method, url, headers, body)) as answer:
            raw = await answer.read(_MAX_ANSWER_BYTES)
    except UpstreamError as error:
        raise AttemptFailed(error) from None
    try:
        told = orjson.loads(raw) if raw.strip() else {}
    except orjson.JSONDecodeError:
        told = raw.decode("utf-8", "replace")
    verdict = offer.errors.judge(answer.status, answer.headers, told)
    if verdict is not None:
        raise AttemptFailed(verdict.error(told))
    try:
        value = prepare.value(told, http={"status": answer.status, "headers": answer.headers})
    except MappingFailure as failure:
        raise AttemptFailed(unfit_answer(offer, failure)) from None
    if value is None:
        raise unusable("a call before the request returned nothing that the request could refer to", answer.status)
    return value
