"""Waiting for an answer that is not there at once: its route is asked again until it is, within the attempt's total
budget, or is streamed from the address that the first answer tells.

What the file says of it is `mapping/provider/polling.py`. A job that nobody waits for any more is cancelled, where the
file says how: it would cost the operator what no caller pays for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import orjson

from tollgate.completions.exchange import Exchange
from tollgate.completions.judging import MAX_ANSWER_BYTES, AttemptFailed, check_head, holds_too_much, read_answer
from tollgate.completions.off_loop import is_large, run_off_loop
from tollgate.errors import UpstreamError, UpstreamFailed, UpstreamRejected, UpstreamTimeout
from tollgate.mapping import MappingFailure
from tollgate.mapping.provider.polling import NoAddress, Place, Polling, Told
from tollgate.upstream import Answer, Call, call_to

if TYPE_CHECKING:
    from tollgate.routing import Offer

log = logging.getLogger("tollgate.completions")

_MOST_MISSED = 4
"""Polls in a row that may fail in a way that passes; the work at the provider goes on meanwhile."""


async def finished_answer(exchange: Exchange, offer: Offer, answer: Answer, raw: bytes) -> tuple[Answer, bytes]:
    """The answer of a polled route once it is finished, and its bytes; what came first where nothing is to be waited
    for.

    Raises `AttemptFailed` when it does not come; cancels the job then, and when the client leaves.
    """
    polling = offer.polling
    assert polling is not None
    first = await _told(answer, raw)
    if first.body is None or not polling.waits(first):
        return answer, raw
    began = time.perf_counter()
    try:
        async with asyncio.timeout(offer.timeouts.total):
            finished = await _waited(exchange, offer, polling, first)
        # what came first only said that the work was taken
        exchange.attempt.first_byte_ms = exchange.inbound.elapsed_ms()
        return finished
    except BaseException as error:
        if polling.cancel is not None:
            exchange.services.settlements.spawn(_cancel(exchange, offer, polling.cancel, first))
        if isinstance(error, TimeoutError):
            raise AttemptFailed(UpstreamTimeout("total", offer.timeouts.total)) from None
        raise
    finally:
        exchange.upstream_ms += (time.perf_counter() - began) * 1000


async def stream_calls(exchange: Exchange, offer: Offer, answer: Answer) -> tuple[Call, Call | None]:
    """The call for the stream that the first answer of a route leads to, and the one that ends its job where the file
    says one. Raises `AttemptFailed` when that answer tells a failure or no address."""
    polling = offer.polling
    assert polling is not None and polling.stream is not None
    first = await _told(answer, await read_answer(exchange, answer))
    verdict = offer.errors.judge(answer.status, answer.headers, first.body)
    if verdict is not None:
        raise AttemptFailed(verdict.error())
    call = _call(exchange, offer, polling.stream, first, stream=True)
    return call, _call(exchange, offer, polling.cancel, first) if polling.cancel is not None else None


async def led_stream(exchange: Exchange, offer: Offer, call: Call) -> Answer:
    """The stream that the first answer of a route led to. Raises `AttemptFailed` when there is none."""
    began = time.perf_counter()
    try:
        led = await exchange.services.client.open(call)
    except UpstreamError as error:
        raise AttemptFailed(error) from None
    exchange.first_byte(began)
    exchange.attempt.first_byte_ms = exchange.inbound.elapsed_ms()  # what came first only said where it is
    try:
        await check_head(led, offer, stream=True)
    except AttemptFailed as failed:
        raise AttemptFailed(_taken_before(failed.error, led)) from None
    return led


def cancel_job(exchange: Exchange, offer: Offer, cancel: Call) -> None:
    """Have a job ended that nobody waits for."""
    exchange.services.settlements.spawn(_sent_cancel(exchange, offer, cancel))


async def cancelling(
    exchange: Exchange, offer: Offer, stream: AsyncIterator[bytes], cancel: Call
) -> AsyncIterator[bytes]:
    """A client's stream; the job it is told of is ended when its client leaves before it does, or the time is over."""
    try:
        async for block in stream:
            yield block
    finally:
        await stream.aclose()  # type: ignore[attr-defined]
        if not exchange.settled or isinstance(exchange.attempt.failure, UpstreamTimeout):
            cancel_job(exchange, offer, cancel)


async def _waited(exchange: Exchange, offer: Offer, polling: Polling, first: Told) -> tuple[Answer, bytes]:
    assert polling.again is not None
    missed = 0
    for pause in _pauses(polling):
        await asyncio.sleep(pause)
        try:
            answer, raw = await _asked(exchange, offer, polling.again, first)
        except _Missed as miss:
            missed += 1
            if missed > _MOST_MISSED:
                raise AttemptFailed(miss.error) from None
            continue
        missed = 0
        last = await _told(answer, raw)
        if not polling.waits(last):
            break
    if polling.fetch is None:
        return answer, raw
    verdict = offer.errors.judge(answer.status, answer.headers, last.body)
    if verdict is not None:  # what is fetched of a job that failed need not say so
        raise AttemptFailed(verdict.error(last.body))
    try:
        answer, raw = await _asked(exchange, offer, polling.fetch, first, last)
    except _Missed as miss:
        raise AttemptFailed(miss.error) from None
    fetched = await _parsed(raw) if polling.keep is not None else None
    whole = polling.kept(last, fetched)
    return answer, raw if whole is fetched else orjson.dumps(whole)


class _Missed(Exception):
    """A poll that failed in a way that may pass: `error` says how."""

    def __init__(self, error: UpstreamError) -> None:
        super().__init__(error.message)
        self.error = error


async def _asked(
    exchange: Exchange, offer: Offer, place: Place, first: Told, last: Told | None = None
) -> tuple[Answer, bytes]:
    """One call and its good answer. Raises `_Missed` where another may fare better, else `AttemptFailed`."""
    try:
        async with await exchange.services.client.open(_call(exchange, offer, place, first, last)) as answer:
            raw = await answer.read(MAX_ANSWER_BYTES)
    except UpstreamError as error:
        raise (AttemptFailed if error.alarm is not None else _Missed)(error) from None
    if 200 <= answer.status < 300:
        return answer, raw
    body = await _parsed(raw)
    content = raw.decode("utf-8", "replace") if body is None else body
    verdict = offer.errors.judge(answer.status, answer.headers, content)
    assert verdict is not None
    failure = _taken_before(verdict.error(body), answer)
    raise (_Missed if verdict.kind == "later" else AttemptFailed)(failure)


def _taken_before(failure: UpstreamError, answer: Answer) -> UpstreamError:
    """A failure of a later call: the request was taken before, and its caller has no part in this."""
    if isinstance(failure, UpstreamRejected):
        return UpstreamFailed(failure.message, upstream_status=answer.status)
    return failure


def _call(
    exchange: Exchange, offer: Offer, place: Place, first: Told, last: Told | None = None, *, stream: bool = False
) -> Call:
    assert offer.polling is not None
    try:
        url = place.address(first, offer.model_facts, offer.polling.variables, last)
    except (NoAddress, MappingFailure) as error:
        log.error("provider %s: %s", offer.provider, error)
        message = "the provider's answer does not say where the rest is"
        raise AttemptFailed(UpstreamFailed(message)) from None
    sent = offer.headers(exchange.inbound.headers, stream=stream)
    headers = {name: value for name, value in sent.items() if name != "content-type"}
    return call_to(offer, place.method, url, headers, stream=stream)


async def _cancel(exchange: Exchange, offer: Offer, place: Place, first: Told) -> None:
    try:
        call = _call(exchange, offer, place, first)
    except AttemptFailed as error:
        log.warning("provider %s: a job could not be cancelled: %s", offer.provider, error)
        return
    await _sent_cancel(exchange, offer, call)


async def _sent_cancel(exchange: Exchange, offer: Offer, call: Call) -> None:
    """Ask the provider to stop a job whose answer nobody waits for. That it fails is logged, and changes nothing."""
    try:
        async with await exchange.services.client.open(call) as answer:
            if answer.status >= 400:
                log.warning("provider %s: a job was to be cancelled, and it said %s", offer.provider, answer.status)
    except UpstreamError as error:
        log.warning("provider %s: a job could not be cancelled: %s", offer.provider, error)


async def _told(answer: Answer, raw: bytes) -> Told:
    """An answer as its file reads it: an empty body is `{}`, one that is no JSON None."""
    body = await _parsed(raw) if raw.strip() else {}
    return Told(body, {"status": answer.status, "headers": answer.headers})


async def _parsed(raw: bytes) -> Any:
    """An answer as JSON; None for what is none, and for more values than a whole answer may have."""
    return await run_off_loop(_read, raw) if is_large(len(raw)) else _read(raw)


def _read(raw: bytes) -> Any:
    try:
        return None if holds_too_much(raw) else orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None


def _pauses(polling: Polling) -> Iterator[float]:
    return chain(polling.every, repeat(polling.every[-1]))
