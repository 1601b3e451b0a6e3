"""Answers that are not ready at once: the route is polled until they are, within the attempt's total time budget, or
they are streamed from an address given in the first answer.

The rules in the provider file are read by `mapping/provider/polling.py`. A job whose client left is cancelled if the
file says how: nobody would pay for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import orjson

from tollgate.addresses import with_query
from tollgate.completions.exchange import Exchange
from tollgate.completions.judging import MAX_ANSWER_BYTES, AttemptFailed, check_head, holds_too_much, read_answer
from tollgate.completions.off_loop import is_large, run_off_loop
from tollgate.errors import UpstreamError, UpstreamFailed, UpstreamRejected, UpstreamTimeout
from tollgate.mapping import MappingFailure
from tollgate.mapping.provider.error_details import retry_after
from tollgate.mapping.provider.polling import CallTarget, JobAnswer, NoAddress
from tollgate.upstream import Answer, Call, call_to, error_body

if TYPE_CHECKING:
    from tollgate.routing import Offer

log = logging.getLogger("tollgate.completions")

_MOST_MISSED = 4
"""Most polls in a row that may fail temporarily; the provider goes on working meanwhile."""


async def finished_answer(exchange: Exchange, offer: Offer, answer: Answer, raw: bytes) -> tuple[Answer, bytes]:
    """The finished answer of a polled route and its bytes; the first answer if there is nothing to wait for.

    Raises `AttemptFailed` when no answer is ready in time. Cancels the job then, and when the client leaves.
    """
    job = Job(exchange, offer, await _job_answer(answer, raw))
    if job.first.body is None or not job.polling.waits(job.first):
        return answer, raw
    began = time.perf_counter()
    try:
        async with asyncio.timeout(offer.timeouts.total):
            finished = await job.finished()
        # the first answer only said that the job was accepted
        exchange.attempt.first_byte_ms = exchange.inbound.elapsed_ms()
        return finished
    except BaseException as error:
        job.cancel()
        if isinstance(error, TimeoutError):
            raise AttemptFailed(UpstreamTimeout("total", offer.timeouts.total)) from None
        raise
    finally:
        exchange.upstream_ms += (time.perf_counter() - began) * 1000


async def streamed_job(exchange: Exchange, offer: Offer, answer: Answer) -> Job:
    """The job whose stream a route's first answer refers to. Raises `AttemptFailed` when that answer reports a
    failure."""
    job = Job(exchange, offer, await _job_answer(answer, await read_answer(exchange, answer)))
    verdict = offer.errors.judge(answer.status, answer.headers, job.first.body)
    if verdict is not None:
        raise AttemptFailed(verdict.error())
    return job


class Job:
    """The job that a request began at a provider: the calls whose addresses follow from its first answer."""

    def __init__(self, exchange: Exchange, offer: Offer, first: JobAnswer) -> None:
        assert offer.polling is not None
        self.polling = offer.polling
        self.first = first
        self._exchange = exchange
        self._offer = offer

    async def stream(self) -> Answer:
        """The stream of the answer. Raises `AttemptFailed` when there is none."""
        exchange, polling = self._exchange, self.polling
        assert polling.stream is not None
        call = self._call(polling.stream, stream=True)
        began = time.perf_counter()
        try:
            answer = await exchange.services.client.open(call)
        except UpstreamError as error:
            raise AttemptFailed(error) from None
        exchange.first_byte(began)
        exchange.attempt.first_byte_ms = exchange.inbound.elapsed_ms()  # the first answer only held the address
        try:
            await check_head(answer, self._offer, stream=True)
        except AttemptFailed as failed:
            raise AttemptFailed(_after_acceptance(failed.error, answer)) from None
        return answer

    async def finished(self) -> tuple[Answer, bytes]:
        """The finished answer and its bytes. Raises `AttemptFailed` when the job fails."""
        polling, offer = self.polling, self._offer
        assert polling.again is not None
        missed, latest = 0, self.first
        # a 202 may say how long the next poll should wait (RFC 9110, section 10.2.3), and so may a 429
        wait = retry_after(latest.http["headers"])
        for pause in chain(polling.every, repeat(polling.every[-1])):
            await asyncio.sleep(max(pause, wait or 0))
            try:
                answer, raw = await self._poll(polling.again)
            except _Missed as miss:
                missed += 1
                if missed > _MOST_MISSED:
                    raise AttemptFailed(miss.error) from None
                wait = miss.error.retry_after
                continue
            missed, wait = 0, retry_after(answer.headers)
            latest = await _job_answer(answer, raw)
            if not polling.waits(latest):
                break
        if polling.fetch is None:
            return answer, self._with_kept_fields(raw, latest, latest.body)
        verdict = offer.errors.judge(answer.status, answer.headers, latest.body)
        if verdict is not None:  # the document fetched next need not show the failure
            raise AttemptFailed(verdict.error())
        try:
            answer, raw = await self._poll(polling.fetch, latest)
        except _Missed as miss:
            raise AttemptFailed(miss.error) from None
        return answer, self._with_kept_fields(raw, latest, await _parsed(raw) if polling.keep is not None else None)

    def _with_kept_fields(self, raw: bytes, last: JobAnswer, body: Any) -> bytes:
        """The bytes of the finished answer, whose value is `body`, with the fields that the file keeps of others."""
        whole = self.polling.with_kept_fields(self.first, last, body)
        return raw if whole is body else orjson.dumps(whole)

    def cancel(self) -> None:
        """Cancel the job, in a task of its own, if the file says how."""
        if self.polling.cancel is not None:
            self._exchange.services.settlements.spawn(self._cancel(self.polling.cancel))

    async def cancelled_early(self, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """A client's stream; the job is cancelled when the client leaves early or the time budget is over."""
        exchange = self._exchange
        try:
            async for block in stream:
                yield block
        finally:
            await stream.aclose()  # type: ignore[attr-defined]
            if not exchange.settled or isinstance(exchange.attempt.failure, UpstreamTimeout):
                self.cancel()

    async def _poll(self, target: CallTarget, last: JobAnswer | None = None) -> tuple[Answer, bytes]:
        """One call and its successful answer. Raises `_Missed` for a temporary failure, else `AttemptFailed`."""
        try:
            async with await self._exchange.services.client.open(self._call(target, last)) as answer:
                raw = await (answer.read(MAX_ANSWER_BYTES) if answer.status < 400 else error_body(answer))
        except UpstreamError as error:
            raise (AttemptFailed if error.alarm is not None else _Missed)(error) from None
        if 200 <= answer.status < 300:
            return answer, raw
        body = await _parsed(raw)
        content = raw.decode("utf-8", "replace") if body is None else body
        verdict = self._offer.errors.judge(answer.status, answer.headers, content)
        assert verdict is not None
        failure = _after_acceptance(verdict.error(), answer)
        raise (_Missed if verdict.kind == "later" else AttemptFailed)(failure)

    async def _cancel(self, target: CallTarget) -> None:
        """Ask the provider to stop the job. A failure is only logged."""
        provider = self._offer.provider
        try:
            async with await self._exchange.services.client.open(self._call(target)) as answer:
                if answer.status >= 400:
                    log.warning("provider %s: cancelling a job was answered with %s", provider, answer.status)
        except (AttemptFailed, UpstreamError) as error:
            log.warning("provider %s: a job could not be cancelled: %s", provider, error)

    def _call(self, target: CallTarget, last: JobAnswer | None = None, *, stream: bool = False) -> Call:
        """Raises `AttemptFailed` when the answers have no address for the call."""
        offer = self._offer
        try:
            url = target.address(self.first, offer.model_facts, self.polling.variables, last)
            if target.hosts is None:
                url = with_query(url, offer.address.query)
            content = target.content(self.first, offer.model_facts, self.polling.variables, last)
            body, kind = (b"", None) if content is None else offer.written(content, "json")
        except (NoAddress, MappingFailure) as error:
            log.error("provider %s: %s", offer.provider, error)
            message = "the provider's answer does not say where the rest is"
            raise AttemptFailed(UpstreamFailed(message)) from None
        sent = offer.headers(self._exchange.inbound.headers, stream=stream)
        headers = {name: value for name, value in sent.items() if name != "content-type"}
        if kind is not None:
            headers["content-type"] = kind
        return call_to(offer, target.method, url, headers, body)


class _Missed(Exception):
    """A poll that failed temporarily, with `error`."""

    def __init__(self, error: UpstreamError) -> None:
        super().__init__(error.message)
        self.error = error


def _after_acceptance(failure: UpstreamError, answer: Answer) -> UpstreamError:
    """A failure of a later call. The provider has accepted the request, so that this is not the caller's mistake."""
    if isinstance(failure, UpstreamRejected):
        return UpstreamFailed(failure.message, upstream_status=answer.status)
    return failure


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
