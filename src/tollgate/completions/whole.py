"""A whole (not streamed) answer: the native bytes unchanged, or converted; recorded before it is sent.

Streaming clients of an upstream that cannot stream (its mapping has no `stream.to_hub`) are answered here too: their
events are made from the whole answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson

from tollgate.completions.converted_stream import encode_events
from tollgate.completions.estimate import (
    choices_apart,
    completed,
    estimate_usage,
    missing_sides,
    plausible_usage,
    texts_of_parts,
)
from tollgate.completions.exchange import Exchange
from tollgate.completions.judging import AttemptFailed, judged_answer, read_answer, reported_failure, without_secrets
from tollgate.completions.kept_items import keep_items, keep_streamed_items
from tollgate.completions.kept_thoughts import keep_thoughts
from tollgate.completions.minters import encrypted_in
from tollgate.completions.missing_usage import written_usage
from tollgate.completions.naming import renamed
from tollgate.completions.off_loop import is_large, run_off_loop
from tollgate.completions.polling import finished_answer
from tollgate.completions.state_ids import keeps_thread, may_mint, minted_ids
from tollgate.completions.stateful import remember_state
from tollgate.errors import UpstreamFailed
from tollgate.mapping import Context, response_from_hub, response_to_hub, stream_from_hub, tap_response, tap_usage
from tollgate.routing import Offer
from tollgate.services import LastBlock, Reply
from tollgate.upstream import Answer
from tollgate.wire import may_have_failed


async def whole_reply(exchange: Exchange, offer: Offer, answer: Answer) -> Reply:
    """Read, judge, convert and settle the answer. Raises `AttemptFailed` while another route may still be tried, and
    `MappingFailure` for an answer that the mapping cannot read (nothing is recorded then)."""
    attempt = exchange.attempt
    raw = await read_answer(exchange, answer)
    if offer.polling is not None:
        answer, raw = await finished_answer(exchange, offer, answer, raw)
    large = is_large(len(raw))
    raw, body, edited, hub = (
        await run_off_loop(_parsed, exchange, offer, answer, raw) if large else _parsed(exchange, offer, answer, raw)
    )
    if offer.usage.when is not None:
        offer = offer.for_request(exchange.body)
    if offer.usage.read is not None:
        reported = offer.usage.read(body, answer_headers=answer.headers)
    else:
        reported = tap_usage(offer.mapping, edited) if hub is None else hub.get("usage")
    usage = plausible_usage(exchange, reported)
    lacking = missing_sides(usage)
    read = _tapped(exchange, offer, edited, lacking=bool(lacking)) if hub is None else hub
    if not lacking:
        exchange.note_usage(usage)
    elif attempt.failure is None:
        counted = await estimate_usage(exchange, _texts(offer, read, edited if hub is None else None))
        usage, estimated = completed(usage, lacking, counted)
        exchange.note_usage(usage, estimated=estimated)
    attempt.reported_tier = reported_tier(edited if hub is None else hub)
    if hub is None:
        out = _native_bytes(exchange, offer, raw, body, edited)
    else:
        write = _events if exchange.stream else _converted_bytes
        keep_thoughts(exchange, offer, hub.get("parts") or ())
        hub = {**hub, "usage": exchange.client_usage()}
        out = await run_off_loop(write, exchange, hub) if large else write(exchange, hub)
    if not attempt.converts and may_mint(exchange.inbound.dialect, exchange.body):
        ids = minted_ids(edited, thread=keeps_thread(exchange.inbound.dialect, exchange.body))
        await remember_state(exchange, offer, ids, encrypted_in(edited.get("output")))
    await exchange.settle_answer()
    if exchange.stream:
        return Reply(200, exchange.reply_headers(), stream=_at_once(out))
    return Reply(200, exchange.reply_headers(), out)


def _parsed(
    exchange: Exchange, offer: Offer, answer: Answer, raw: bytes
) -> tuple[bytes, Any, Any, dict[str, Any] | None]:
    """The answer as bytes, parsed, with the provider's edits applied, and as a hub answer if it is to be converted.
    Raises `AttemptFailed` when it is no answer."""
    raw, body = judged_answer(exchange, offer, answer, raw)
    edited = body
    if offer.response_edits is not None:  # what they drop the provider meant to be dropped: no loss to report
        edited = offer.response_edits(body, Context(model=offer.model_facts, can=offer.can))
    hub: dict[str, Any] | None = None
    attempt = exchange.attempt
    if attempt.converts:
        assert attempt.context is not None
        hub = response_to_hub(offer.mapping, edited, attempt.context, offer.in_text)
        if failure := _failure_in(offer, hub):
            raise AttemptFailed(failure)
        _check_content(hub, listed=isinstance(body, list))
    return raw, body, edited, hub


def _tapped(exchange: Exchange, offer: Offer, answer: dict[str, Any], *, lacking: bool) -> dict[str, Any]:
    """What the mapping reads in an answer that passes unchanged.

    Only an answer without complete usage, or one that may report its own failure, is read at all; most are not, and
    give {}. A failure found is noted in `attempt.failure`, or raised as `AttemptFailed` if another route is left.
    """
    unusual = may_have_failed(answer)
    if not lacking and not unusual:
        return {}
    read = tap_response(offer.mapping, answer)
    if lacking:
        _check_content(read)
    if unusual or read.get("error"):
        failure = _failure_in(offer, read)
        if failure is not None and unusual and exchange.attempt.routes_left:
            raise AttemptFailed(failure)
        exchange.attempt.failure = failure
    return read


def _failure_in(offer: Offer, hub: dict[str, Any]) -> UpstreamFailed | None:
    """The failure that an answer reports in itself; None where it reports none."""
    if hub.get("stop") != "error":
        return None
    error = hub.get("error")
    return reported_failure(offer, error if isinstance(error, dict) and error.get("message") else None)


def _texts(offer: Offer, read: dict[str, Any], native: Any) -> list[str]:
    """The texts that count as output: of the parts in `read`, or of all choices of a `native` answer."""
    several = choices_apart([native]) if native is not None else []
    if len(several) < 2:
        return texts_of_parts(read.get("parts", []))
    answers = (tap_response(offer.mapping, answer) for (answer,) in several)
    return [text for answer in answers for text in texts_of_parts(answer.get("parts", []))]


def _check_content(hub: dict[str, Any], *, listed: bool = False) -> None:
    """Raises `AttemptFailed` for an empty answer, so that another route is tried."""
    if not hub.get("parts") and (not hub.get("stop") or listed):
        raise AttemptFailed(UpstreamFailed("the answer has neither content nor a stop reason"))


def _native_bytes(exchange: Exchange, offer: Offer, raw: bytes, body: Any, edited: Any) -> bytes:
    """The upstream's bytes, untouched unless something has to change. Usage is added when the answer has none in its
    usual place and it is known otherwise: estimated, or read by the provider's own usage rule."""
    answer = renamed(edited, exchange.asked_model)
    if (exchange.estimated or offer.usage.read is not None) and not answer.get("usage"):
        answer = {**answer, "usage": written_usage(exchange, exchange.client_usage())}
    out = raw if answer is body else orjson.dumps(answer)
    return without_secrets(out, offer) if answer.get("error") or exchange.attempt.failure is not None else out


def _converted_bytes(exchange: Exchange, hub: dict[str, Any]) -> bytes:
    context = exchange.attempt.context
    assert context is not None
    answer = response_from_hub(exchange.client_format, hub, context)
    keep_items(exchange, answer)
    return orjson.dumps(answer)


def _events(exchange: Exchange, hub: dict[str, Any]) -> bytes:
    context = exchange.attempt.context
    assert context is not None
    events = stream_from_hub(exchange.client_format, hub, context)
    keep_streamed_items(exchange, events)
    return encode_events(events)


async def _at_once(events: bytes) -> AsyncIterator[bytes]:
    yield LastBlock(events)


def reported_tier(answer: dict[str, Any]) -> str | None:
    """The service tier that an answer reports, at its top level or in its usage."""
    usage = answer.get("usage")
    tier = answer.get("service_tier") or (usage.get("service_tier") if isinstance(usage, dict) else None)
    return tier if isinstance(tier, str) else None
