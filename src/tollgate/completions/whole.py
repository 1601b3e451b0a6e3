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
    is_unanswered,
    missing_sides,
    plausible_usage,
    texts_of_parts,
)
from tollgate.completions.exchange import Exchange
from tollgate.completions.judging import (
    AttemptFailed,
    judged_answer,
    read_answer,
    reported_failure,
    unusable,
    without_secrets,
)
from tollgate.completions.kept_items import keep_items, keep_streamed_items
from tollgate.completions.kept_thoughts import keep_thoughts
from tollgate.completions.minters import encrypted_in
from tollgate.completions.missing_usage import written_usage
from tollgate.completions.naming import renamed
from tollgate.completions.off_loop import is_large, run_off_loop
from tollgate.completions.polling import finished_answer
from tollgate.completions.state_ids import keeps_thread, may_mint, minted_ids
from tollgate.completions.stateful import remember_state
from tollgate.errors import UpstreamError, UpstreamFailed
from tollgate.json_bounds import too_deep_to_write
from tollgate.mapping import Context, response_from_hub, response_to_hub, stream_from_hub, tap_response, tap_usage
from tollgate.mapping.json_value import with_digits
from tollgate.routing import Offer
from tollgate.services import LastBlock, Reply
from tollgate.upstream import Answer
from tollgate.wire import may_have_failed


async def whole_reply(exchange: Exchange, offer: Offer, answer: Answer) -> Reply:
    """Read, judge, convert and settle the answer. Raises `AttemptFailed` while another route may still be tried, and
    `MappingFailure` for an answer that the mapping cannot read (nothing is recorded then)."""
    raw = await read_answer(exchange, answer)
    if offer.polling is not None:
        answer, raw = await finished_answer(exchange, offer, answer, raw)
    if offer.usage.when is not None:
        offer = offer.for_request(exchange.body)
    out = await (_converted if exchange.attempt.converts else _passed)(exchange, offer, answer, raw)
    await exchange.settle_answer()
    if exchange.stream:
        return Reply(200, exchange.reply_headers(), stream=_at_once(out))
    return Reply(200, exchange.reply_headers(), out)


async def _passed(exchange: Exchange, offer: Offer, answer: Answer, raw: bytes) -> bytes:
    """The client's bytes for an answer in its own format. Notes the usage, and the state that the provider keeps."""
    attempt, dialect = exchange.attempt, exchange.inbound.dialect
    raw, body, edited = (
        await run_off_loop(_parsed, exchange, offer, answer, raw)
        if is_large(len(raw))
        else _parsed(exchange, offer, answer, raw)
    )
    read = offer.usage.read
    usage = plausible_usage(
        exchange, tap_usage(offer.mapping, edited) if read is None else read(edited, answer_headers=answer.headers)
    )
    lacking = missing_sides(usage)
    hub = _tapped(exchange, offer, edited, lacking=bool(lacking))
    if not lacking:
        exchange.note_usage(usage)
    else:
        await _note_completed(exchange, usage, lacking, _texts(offer, hub, edited))
    attempt.reported_tier = reported_tier(edited)
    out = _native_bytes(exchange, offer, raw, body, edited)
    if may_mint(dialect, exchange.body):
        ids = minted_ids(edited, thread=keeps_thread(dialect, exchange.body))
        await remember_state(exchange, offer, ids, encrypted_in(edited.get("output")))
    return out


async def _converted(exchange: Exchange, offer: Offer, answer: Answer, raw: bytes) -> bytes:
    """The client's bytes for an answer that is converted. Notes the usage."""
    large = is_large(len(raw))
    edited, hub = (
        await run_off_loop(_hub_of, exchange, offer, answer, raw) if large else _hub_of(exchange, offer, answer, raw)
    )
    read, parts = offer.usage.read, hub.get("parts") or []
    usage = plausible_usage(exchange, hub.get("usage") if read is None else read(edited, answer_headers=answer.headers))
    if lacking := missing_sides(usage):
        await _note_completed(exchange, usage, lacking, texts_of_parts(parts))
    else:
        exchange.note_usage(usage)
    exchange.attempt.reported_tier = reported_tier(hub)
    keep_thoughts(exchange, offer, parts)
    hub = {**hub, "usage": exchange.client_usage()}
    return await run_off_loop(written_answer, exchange, hub) if large else written_answer(exchange, hub)


def _parsed(exchange: Exchange, offer: Offer, answer: Answer, raw: bytes) -> tuple[bytes, Any, Any]:
    """The answer as bytes, parsed, and with the provider's edits applied. Raises `AttemptFailed` when it is no
    answer."""
    raw, body = judged_answer(exchange, offer, answer, raw)
    if exchange.attempt.converts or offer.response_edits is not None:
        body = with_digits(body, raw)
    edited = body
    if offer.response_edits is not None:  # what they drop the provider meant to be dropped: no loss to report
        edited = offer.response_edits(body, Context(model=offer.model_facts, can=offer.can))
    return raw, body, edited


def _hub_of(exchange: Exchange, offer: Offer, answer: Answer, raw: bytes) -> tuple[Any, dict[str, Any]]:
    """The answer after the provider's edits, and the hub answer. Raises `AttemptFailed` when it is no answer."""
    context = exchange.attempt.context
    assert context is not None
    raw, body, edited = _parsed(exchange, offer, answer, raw)
    if too_deep_to_write(raw, body):
        raise unusable("the answer is nested too deeply", answer.status)
    hub = response_to_hub(offer.mapping, edited, context, offer.in_text)
    if failure := _failure_in(offer, hub):
        raise AttemptFailed(failure)
    _check_content(hub, listed=isinstance(body, list))
    return edited, hub


async def _note_completed(exchange: Exchange, usage: dict[str, Any], lacking: list[str], texts: list[str]) -> None:
    """Note the usage of an answer with these texts, with an estimate for the sides that it lacks; nothing for one that
    failed before any output."""
    counted = await estimate_usage(exchange, texts)
    if exchange.attempt.failure is not None and is_unanswered(lacking, counted):
        exchange.note_usage(usage if any(usage.values()) else None)
        return
    usage, estimated = completed(usage, lacking, counted)
    exchange.note_usage(usage, estimated=estimated)


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
        if isinstance(failure, UpstreamFailed) and unusual and exchange.attempt.routes_left:
            raise AttemptFailed(failure)
        exchange.attempt.failure = failure
    return read


def _failure_in(offer: Offer, hub: dict[str, Any]) -> UpstreamError | None:
    """The failure that an answer reports in itself; None where it reports none."""
    if hub.get("stop") != "error":
        return None
    error = hub.get("error")
    return reported_failure(offer, error if isinstance(error, dict) and error.get("message") else None)


def _texts(offer: Offer, hub: dict[str, Any], answer: dict[str, Any]) -> list[str]:
    """The texts that count as output: of the parts in `hub`, or of every choice if the answer has several."""
    several = choices_apart([answer])
    if len(several) < 2:
        return texts_of_parts(hub.get("parts", []))
    answers = (tap_response(offer.mapping, each) for (each,) in several)
    return [text for each in answers for text in texts_of_parts(each.get("parts", []))]


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
    try:
        out = raw if answer is body else orjson.dumps(answer)
    except orjson.JSONEncodeError:  # orjson reads 1024 levels and writes 254
        raise unusable("the answer is nested too deeply", 200) from None
    return without_secrets(out, offer) if answer.get("error") or exchange.attempt.failure is not None else out


def written_answer(exchange: Exchange, hub: dict[str, Any]) -> bytes:
    """The client's bytes for a hub answer: a whole answer, or the events of a stream. Remembers its items."""
    context = exchange.attempt.context
    assert context is not None
    if exchange.stream:
        events = stream_from_hub(exchange.client_format, hub, context)
        keep_streamed_items(exchange, events)
        return encode_events(events)
    answer = response_from_hub(exchange.client_format, hub, context)
    keep_items(exchange, answer)
    return orjson.dumps(answer)


async def _at_once(events: bytes) -> AsyncIterator[bytes]:
    yield LastBlock(events)


def reported_tier(answer: dict[str, Any]) -> str | None:
    """The service tier that an answer reports, at its top level or in its usage."""
    usage = answer.get("usage")
    tier = answer.get("service_tier") or (usage.get("service_tier") if isinstance(usage, dict) else None)
    return tier if isinstance(tier, str) else None
