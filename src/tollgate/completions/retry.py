"""Trying routes in order until one answers, and settling a request that got no answer.

Whether a failure of an upstream is retriable is decided in `mapping/provider/errors.py`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple, TypeVar

from tollgate.completions.attempt import Attempt
from tollgate.completions.estimate import estimate_usage
from tollgate.completions.exchange import Exchange
from tollgate.completions.judging import AttemptFailed, without_frames
from tollgate.completions.minters import goes_without_unreadable
from tollgate.errors import (
    BadRequest,
    InternalError,
    RateLimited,
    TollgateError,
    UpstreamError,
    UpstreamFailed,
    UpstreamRejected,
)
from tollgate.ledger.usage_row import FailedAttempt, failed_attempt, outcome_without_answer
from tollgate.public_errors import public_status
from tollgate.routing import Offer, Plan

log = logging.getLogger("tollgate.completions")
Answered = TypeVar("Answered")


class _Failure(NamedTuple):
    """A failed attempt: its error, and what a row lists of it."""

    error: UpstreamError
    attempt: Attempt
    entry: FailedAttempt


async def try_routes(
    exchange: Exchange, routes: Plan, try_route: Callable[[Exchange, Offer], Awaitable[Answered]]
) -> Answered:
    """The answer of the first route that begins to answer. `try_route` tries one route, and raises `AttemptFailed` when
    it gave no answer.

    A route whose format cannot carry the request (`try_route` raises `BadRequest` before it calls the provider) is
    skipped, since another format may have a place for the field.

    A route that could not read encrypted reasoning which another provider made is called once more without it.

    Raises the error for the client when no route answered: a provider's verdict that the request itself is wrong, at
    once, since no other route can help; else the worst failure of the routes that were called; else the first refusal.
    """
    waiting, calls = [*routes.offers], routes.calls
    failures: list[_Failure] = []
    error: UpstreamError | None = None
    refusal: BadRequest | None = None
    refused_at: Attempt | None = None
    while waiting and exchange.attempts < calls:
        offer = waiting.pop(0)
        exchange.attempts += 1
        left = min(len(waiting), calls - exchange.attempts)
        exchange.attempt = attempt = Attempt(offer, left)
        began = time.perf_counter()
        try:
            answered = await try_route(exchange, offer)
        except BadRequest as refused:
            if attempt.called:
                raise
            # the text has the line of a mapping that cannot process the request, which the client does not see
            log.debug("route %s cannot take request %s: %s", offer.route, exchange.inbound.request_id, refused)
            refusal = refusal or without_frames(refused)
            exchange.attempts -= 1
            refused_at = refused_at or attempt
            continue
        except AttemptFailed as failed:
            error = without_frames(failed.error)
        else:
            exchange.services.metrics.attempts[offer.provider, "ok"] += 1
            return answered
        failures.append(_note_failure(exchange, offer, error, (time.perf_counter() - began) * 1000))
        if not isinstance(error, UpstreamRejected):
            continue
        most = exchange.runtime.gateway.retry.attempts
        if exchange.attempts >= most or not goes_without_unreadable(exchange, error):
            failures = failures[-1:]
            break
        waiting, calls = [offer, *waiting], min(max(calls, exchange.attempts + 1), most)
    try:
        if failures:
            error, exchange.attempt, entry = _worst(failures)
            exchange.failed.remove(entry)  # the row itself describes this attempt
            raise error
        assert refusal is not None
        assert refused_at is not None
        exchange.attempts, exchange.attempt = 1, refused_at
        raise refusal
    finally:
        error = refusal = None
        failures.clear()  # the error's traceback refers to this frame: break the reference cycle


def _note_failure(exchange: Exchange, offer: Offer, error: UpstreamError, milliseconds: float) -> _Failure:
    """Note the failure of the current attempt in the metrics, the route's health and the row; its usage is not
    billed."""
    exchange.services.metrics.attempts[offer.provider, error.code] += 1
    exchange.route_failed(error)
    entry = failed_attempt(offer.provider, offer.model.upstream, error, milliseconds)
    exchange.failed.append(entry)
    exchange.note_usage(None)
    return _Failure(error, exchange.attempt, entry)


async def settle_failure(exchange: Exchange, error: BaseException) -> None:
    """Record (or release) a request that ends in `error` before its answer began; the caller raises `error` afterwards.

    A caller who gets no answer pays nothing, even if a provider gave one that could not be passed on. A client that
    left is billed for what was sent to the provider (DESIGN section 5): nothing if no route was called yet; else the
    estimated prompt, or what `attempt.count_part` counts; the reported usage once the answer is complete. The error
    gets the headers about the key's rate limits.
    """
    if isinstance(error, RateLimited) and error.limits is not None:
        exchange.limits = error.limits
    if isinstance(error, TollgateError):
        error.headers = exchange.rate_limit_headers()
    if exchange.settled:
        return
    if not exchange.attempts:
        exchange.release()
    elif isinstance(error, asyncio.CancelledError):
        exchange.settle_cut(exchange.attempt.count_part or partial(_count_prompt, exchange))
    elif isinstance(error, Exception):
        public = error if isinstance(error, TollgateError) else InternalError()
        exchange.note_usage(None)
        status = 200 if exchange.status_sent() else public_status(exchange.inbound.dialect, public)
        await exchange.settle(outcome_without_answer(public), status=status, error=public)
    else:
        exchange.release()


async def _count_prompt(exchange: Exchange) -> None:
    if exchange.attempt.called and exchange.hub_usage is None:  # else the complete answer reported its usage
        exchange.note_usage(await estimate_usage(exchange, []), estimated=True)


def _worst(failures: list[_Failure]) -> _Failure:
    """The one whose error the client gets when every route failed: the last failure of a provider that answered, else
    the last network failure; with the shortest `retry_after` of all."""
    answered = [failure for failure in failures if isinstance(failure.error, UpstreamFailed)]
    worst = (answered or failures)[-1]
    waits = [each.error.retry_after for each in failures if each.error.retry_after is not None]
    worst.error.retry_after = min(waits) if waits else None
    return worst
