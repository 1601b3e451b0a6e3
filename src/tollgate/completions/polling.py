"""Answers that are not ready at once: the route is polled until they are, within the attempt's total time budget, or
they are streamed from an address given in the first answer.

The rules in the provider file are read by `mapping/provider/polling.py`. A job whose client left is cancelled if the
file says how: nobody would pay for it.
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
from tollgate.mapping.provider.error_details import retry_after
from tollgate.mapping.provider.polling import CallTarget, JobAnswer, NoAddress, Polling
from tollgate.upstream import Answer, Call, call_to

if TYPE_CHECKING:
    from tollgate.routing import Offer

log = logging.getLogger("tollgate.completions")

_MOST_MISSED = 4
"""Most polls in a row that may fail temporarily; the provider goes on working meanwhile."""


async def finished_answer(exchange: Exchange, offer: Offer, answer: Answer, raw: bytes) -> tuple[Answer, bytes]:
    """The finished answer of a polled route and its bytes; the first answer if there is nothing to wait for.

    Raises `AttemptFailed` when no answer is ready in time. Cancels the job then, and when the client leaves.
    """
    polling = offer.polling
    assert polling is not None
    first = await _job_answer(answer, raw)
    if first.body is None or not polling.waits(first):
        return answer, raw
    began = time.perf_counter()
    try:
        async with asyncio.timeout(offer.timeouts.total):
            finished = await _wait(exchange, offer, polling, first)
        # the first answer only said that the job was accepted
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
    """The call for the stream that a route's first answer refers to, and the call that cancels its job, if the file
    defines one. Raises `AttemptFailed` when the first answer reports a failure or has no address."""
    polling = offer.polling
    assert polling is not None and polling.stream is not None
    first = await _job_answer(answer, await read_answer(exchange, answer))
    verdict = offer.errors.judge(answer.status, answer.headers, first.body)
    if verdict is not None:
        raise AttemptFailed(verdict.error())
    call = _call(exchange, offer, polling.stream, first, stream=True)
    return call, _call(exchange, offer, polling.cancel, first) if polling.cancel is not None else None


async def referred_stream(exchange: Exchange, offer: Offer, call: Call) -> Answer:
    """The stream that a route's first answer refers to. Raises `AttemptFailed` when there is none."""
    began = time.perf_counter()
    try:
        answer = await exchange.services.client.open(call)
    except UpstreamError as error:
        raise AttemptFailed(error) from None
    exchange.first_byte(began)
    exchange.attempt.first_byte_ms = exchange.inbound.elapsed_ms()  # the first answer only held the address
    try:
        await check_head(answer, offer, stream=True)
    except AttemptFailed as failed:
        raise AttemptFailed(_after_acceptance(failed.error, answer)) from None
    return answer


def cancel_job(exchange: Exchange, offer: Offer, cancel: Call) -> None:
    """Cancel a job, in a task of its own."""
    exchange.services.settlements.spawn(_sent_cancel(exchange, offer, cancel))


async def cancelling(
    exchange: Exchange, offer: Offer, stream: AsyncIterator[bytes], cancel: Call
) -> AsyncIterator[bytes]:
    """A client's stream; its job is cancelled when the client leaves early or the time budget is over."""
    try:
        async for block in stream:
            yield block
    finally:
        await stream.aclose()  # type: ignore[attr-defined]
        if not exchange.settled or isinstance(exchange.attempt.failure, UpstreamTimeout):
            cancel_job(exchange, offer, cancel)


async def _wait(exchange: Exchange, offer: Offer, polling: Polling, first: JobAnswer) -> tuple[Answer, bytes]:
    assert polling.again is not None
    missed, latest = 0, first
    for pause in _pauses(polling):
        # a 202 may say how long the next poll should wait (RFC 9110, section 10.2.3)
        await asyncio.sleep(max(pause, retry_after(latest.http["headers"]) or 0))
        try:
            answer, raw = await _poll(exchange, offer, polling.again, first)
        except _Missed as miss:
            missed += 1
            if missed > _MOST_MISSED:
                raise AttemptFailed(miss.error) from None
            continue
        missed = 0
        last = latest = await _job_answer(answer, raw)
        if not polling.waits(last):
            break
    if polling.fetch is None:
        return answer, raw
    verdict = offer.errors.judge(answer.status, answer.headers, last.body)
    if verdict is not None:  # the document fetched next need not show the failure
        raise AttemptFailed(verdict.error(last.body))
    try:
        answer, raw = await _poll(exchange, offer, polling.fetch, first, last)
    except _Missed as miss:
        raise AttemptFailed(miss.error) from None
    fetched = await _parsed(raw) if polling.keep is not None else None
    whole = polling.with_kept_fields(last, fetched)
    return answer, raw if whole is fetched else orjson.dumps(whole)


class _Missed(Exception):
    """A poll that failed temporarily, with `error`."""

    def __init__(self, error: UpstreamError) -> None:
        super().__init__(error.message)
        self.error = error


async def _poll(
    exchange: Exchange, offer: Offer, target: CallTarget, first: JobAnswer, last: JobAnswer | None = None
) -> tuple[Answer, bytes]:
    """One call and its successful answer. Raises `_Missed` for a temporary failure, else `AttemptFailed`."""
    try:
        async with await exchange.services.client.open(_call(exchange, offer, target, first, last)) as answer:
            raw = await answer.read(MAX_ANSWER_BYTES)
    except UpstreamError as error:
        raise (AttemptFailed if error.alarm is not None else _Missed)(error) from None
    if 200 <= answer.status < 300:
        return answer, raw
    body = await _parsed(raw)
    content = raw.decode("utf-8", "replace") if body is None else body
    verdict = offer.errors.judge(answer.status, answer.headers, content)
    assert verdict is not None
    failure = _after_acceptance(verdict.error(body), answer)
    raise (_Missed if verdict.kind == "later" else AttemptFailed)(failure)


def _after_acceptance(failure: UpstreamError, answer: Answer) -> UpstreamError:
    """A failure of a later call. The provider has accepted the request, so that this is not the caller's mistake."""
    if isinstance(failure, UpstreamRejected):
        return UpstreamFailed(failure.message, upstream_status=answer.status)
    return failure


def _call(
    exchange: Exchange,
    offer: Offer,
    target: CallTarget,
    first: JobAnswer,
    last: JobAnswer | None = None,
    *,
    stream: bool = False,
) -> Call:
    assert offer.polling is not None
    try:
        url = target.address(first, offer.model_facts, offer.polling.variables, last)
    except (NoAddress, MappingFailure) as error:
        log.error("provider %s: %s", offer.provider, error)
        message = "the provider's answer does not say where the rest is"
        raise AttemptFailed(UpstreamFailed(message)) from None
    sent = offer.headers(exchange.inbound.headers, stream=stream)
    headers = {name: value for name, value in sent.items() if name != "content-type"}
    return call_to(offer, target.method, url, headers, stream=stream)


async def _cancel(exchange: Exchange, offer: Offer, target: CallTarget, first: JobAnswer) -> None:
    try:
        call = _call(exchange, offer, target, first)
    except AttemptFailed as error:
        log.warning("provider %s: a job could not be cancelled: %s", offer.provider, error)
        return
    await _sent_cancel(exchange, offer, call)


async def _sent_cancel(exchange: Exchange, offer: Offer, call: Call) -> None:
    """Ask the provider to stop a job. A failure is only logged."""
    try:
        async with await exchange.services.client.open(call) as answer:
            if answer.status >= 400:
                log.warning("provider %s: cancelling a job was answered with %s", offer.provider, answer.status)
    except UpstreamError as error:
        log.warning("provider %s: a job could not be cancelled: %s", offer.provider, error)


async def _job_answer(answer: Answer, raw: bytes) -> JobAnswer:
    """An answer as the provider file's rules read it; an empty body becomes `{}`, one that is not JSON None."""
    body = await _parsed(raw) if raw.strip() else {}
    return JobAnswer(body, {"status": answer.status, "headers": answer.headers})


async def _parsed(raw: bytes) -> Any:
    """An answer parsed; None if it is not JSON, or has more values than a whole answer may have."""
    return await run_off_loop(_read, raw) if is_large(len(raw)) else _read(raw)


def _read(raw: bytes) -> Any:
    try:
        return None if holds_too_much(raw) else orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None


def _pauses(polling: Polling) -> Iterator[float]:
    return chain(polling.every, repeat(polling.every[-1]))
