"""`POST /v1/messages/count_tokens`: counted by a provider that offers it, else estimated here. It costs nothing and
leaves a usage row."""

from __future__ import annotations

import logging
from typing import Any

import orjson

from tollgate import tokens
from tollgate.addresses import with_query
from tollgate.completions.annotations import end_user, metadata_text
from tollgate.completions.body import check_fields, read_json
from tollgate.completions.estimate import own_tokens
from tollgate.completions.judging import reported_error
from tollgate.completions.models import model_of
from tollgate.completions.native import native_body, native_document
from tollgate.completions.off_loop import is_large, is_long, run_off_loop
from tollgate.completions.state_ids import referenced_ids
from tollgate.completions.stateful import provider_for
from tollgate.config.settings import Server
from tollgate.errors import TollgateError, UpstreamError
from tollgate.health import record_alarm
from tollgate.ledger import UsageRow
from tollgate.mapping import Context
from tollgate.routing import Needs, Offer, plan
from tollgate.services import Inbound, Reply, Services
from tollgate.upstream import call_to

log = logging.getLogger("tollgate.completions")

_MAX_ANSWER = 64 * 1024
_NATIVE = Needs(native=True)
"""Only routes for the messages format have an endpoint that counts."""


async def count_tokens(services: Services, inbound: Inbound) -> Reply:
    """The prompt tokens of a messages body.

    If no provider gives a count, it is estimated, which the header `x-tollgate-estimated` says. Raises `NotFound` for
    provider state that was not created by this account.
    """
    large = is_large(len(inbound.body))
    server = services.runtime.current.gateway.server
    body, references = await run_off_loop(_read, inbound, server) if large else _read(inbound, server)
    model = model_of(services, inbound, body["model"])
    keeper = await provider_for(services, inbound, references)
    row = UsageRow(
        inbound.request_id,
        inbound.key.account_id,
        inbound.key.id,
        "count_tokens",
        time=inbound.received_at,
        asked_model=body["model"][:200],
        model=model.id,
        client_protocol="messages",
        attempts=0,
        end_user=end_user(body, "messages"),
        metadata=metadata_text(body, "messages"),
    )
    attempts = services.runtime.current.gateway.retry.attempts
    # clients wait for the count before each turn: an estimate at once is better than waiting for a route that fails
    routes = plan(model, "messages", _NATIVE, services.health, attempts=attempts, pinned=keeper, cooling=False)
    for offer in routes.offers:
        if row.attempts == routes.calls:
            break
        if not (url := offer.address.count_tokens):
            continue
        row.attempts += 1
        counted = await _counted_by(services, inbound, body, offer, url)
        if counted is not None:
            row.provider, row.upstream_model, row.upstream_protocol = offer.provider, offer.model.upstream, "messages"
            await _record(services, inbound, row)
            headers = [
                (b"x-tollgate-provider", offer.provider.encode()),
                (b"x-tollgate-attempts", b"%d" % row.attempts),
            ]
            return Reply(200, headers, counted)
    counted_here = await tokens.count_request("messages", body, model.facts.encoding, large=large)
    estimated = own_tokens(counted_here, model.routes[0].offers[0].can) if model.routes else counted_here
    row.estimated = True
    await _record(services, inbound, row)
    return Reply(200, [(b"x-tollgate-estimated", b"true")], orjson.dumps({"input_tokens": estimated}))


def _read(inbound: Inbound, server: Server) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The body, checked, and the ids of provider state that it refers to."""
    body, outline = read_json(inbound.body, server)
    check_fields("count_tokens", body)
    return body, referenced_ids("messages", body, outline)


async def _record(services: Services, inbound: Inbound, row: UsageRow) -> None:
    """Record the row, without tokens and cost: no model ran."""
    row.total_ms = inbound.elapsed_ms()
    services.metrics.outcomes[row.outcome] += 1
    await services.ledger.record(row)


async def _counted_by(
    services: Services, inbound: Inbound, body: dict[str, Any], offer: Offer, url: str
) -> bytes | None:
    """The provider's answer with the count; None if it gives none."""
    long = is_long(inbound.body)
    raw = await run_off_loop(_request, inbound, body, offer) if long else _request(inbound, body, offer)
    call = call_to(offer, "POST", with_query(url, inbound.query), offer.headers(inbound.headers, native=True), raw)
    try:
        async with await services.client.open(call) as answer:
            if not 200 <= answer.status < 300:
                raise await reported_error(answer, offer.errors)
            counted = await answer.read(_MAX_ANSWER)
        number = orjson.loads(counted).get("input_tokens")
    except UpstreamError as error:
        record_alarm(services.health, log, offer.provider, error)
        return None
    except (TollgateError, orjson.JSONDecodeError, AttributeError):
        return None
    return counted if type(number) is int and number >= 0 else None


def _request(inbound: Inbound, body: dict[str, Any], offer: Offer) -> bytes:
    """The body for a provider: the client's bytes, or what the provider's edits make of it."""
    if offer.request_edits is None:
        return native_body(inbound.body, body, offer.model.upstream, ask_usage=False)
    context = Context(model=offer.model_facts, can=offer.can)
    context.set_headers(inbound.headers)
    return orjson.dumps(offer.request_edits(native_document(body, offer.model.upstream, ask_usage=False), context))
