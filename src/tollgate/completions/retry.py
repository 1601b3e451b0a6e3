"""Trying routes in order until one answers, and how a request that got no answer is settled.

What an upstream's failure means for the next route is `mapping/provider/errors.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

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
    UpstreamTimeout,
)
from tollgate.ledger.usage_row import failed_attempt
from tollgate.public_errors import public_status
from tollgate.routing import Offer, Plan

Answered = TypeVar("Answered")


async def try_routes(
    exchange: Exchange, routes: Plan, once: Callable[[Exchange, Offer], Awaitable[Answered]]
) -> Answered:
    """What the first route gives that begins to answer. `once` tries one and raises `AttemptFailed` when it did not.

    A route that cannot carry the request (`once` raises `BadRequest` and has not called it) is passed over: another
    format may have a place for what it has none for, and it says nothing about a request that failed elsewhere.

    A route that could not read the encrypted reasoning of a conversation that began elsewhere is asked once more,
    without it.

    Raises the error to tell when none did: at once when the provider finds the request itself at fault, since no other
    route can help; else the worst failure of those that were called; the refusal where none was.
    """
    waiting, calls = [*routes.offers], routes.calls
    failures: list[UpstreamError] = []
    error: UpstreamError | None = None
    refusal: BadRequest | None = None
    about: Attempt | None = None  # whose error is told
    while waiting and exchange.attempts < calls:
        offer = waiting.pop(0)
        exchange.attempts += 1
        left = min(len(waiting), calls - exchange.attempts)
        exchange.attempt = attempt = Attempt(offer, offer.protocol == exchange.inbound.dialect, left)
        began = time.perf_counter()
        try:
            answered = await once(exchange, offer)
        except BadRequest as refused:
            if attempt.called:
                raise
            refusal = refusal or without_frames(refused)
            exchange.attempts -= 1
            about = about or attempt
            continue
        except AttemptFailed as failed:
            error = without_frames(failed.error)
        else:
            exchange.services.metrics.attempts[offer.provider, "ok"] += 1
            return answered
        about = attempt
        _note_failure(exchange, offer, error, (time.perf_counter() - began) * 1000)
        if not isinstance(error, UpstreamRejected):
            failures.append(error)
            continue
        most = exchange.services.runtime.current.gateway.retry.attempts
        if exchange.attempts >= most or not goes_without_unreadable(exchange, error):
            failures = [error]
            break
        waiting, calls = [offer, *waiting], min(max(calls, exchange.attempts + 1), most)
    assert about is not None
    exchange.attempt = about
    try:
        if refusal is not None and not failures:
            exchange.attempts = 1
            raise refusal
        raise _worst(failures)
    finally:
        error = refusal = None
        failures.clear()  # this frame is one of those that the error remembers


def _note_failure(exchange: Exchange, offer: Offer, error: UpstreamError, milliseconds: float) -> None:
    """Tell metrics, the health of the route and the row of an attempt that gave no answer; what it used nobody pays."""
    exchange.services.metrics.attempts[offer.provider, error.code] += 1
    if isinstance(error, UpstreamRejected):
        exchange.services.health.rejected(offer.route, offer.provider)
    else:
        exchange.route_failed(error)
    exchange.failed.append(failed_attempt(offer.provider, offer.model.upstream, error, milliseconds))
    exchange.note_usage(None)


async def settle_failure(
    exchange: Exchange, error: BaseException, used: Callable[[], Awaitable[dict[str, Any]]] | None = None
) -> None:
    """Record (or release) a request that ends in `error` before its answer began; the caller raises it afterwards.

    A caller who gets no answer pays nothing, even if a route gave one that could not be passed on. A client that left
    is billed for what was sent to the provider (DESIGN section 5): nothing if no route was called yet, else the prompt
    as estimated, or what `used` counts where only a part of it was sent; with what came of its answer where that is put
    together here; once its answer is there, what that told.
    The error also tells how the key's rate limits stand.
    """
    if isinstance(error, RateLimited) and error.limits is not None:
        exchange.limits = error.limits
    if isinstance(error, TollgateError):
        error.headers = exchange.limits_told()
    if exchange.settled:
        return
    if not exchange.attempts:
        exchange.release()
    elif isinstance(error, asyncio.CancelledError):
        count = partial(_count_cut, exchange, used or partial(estimate_usage, exchange, []))
        exchange.settle_cut(exchange.attempt.count_part or count)
    elif isinstance(error, Exception):
        public = error if isinstance(error, TollgateError) else InternalError()
        outcome = (
            "timeout"
            if isinstance(error, UpstreamTimeout)
            else "rejected"
            if public.status < 500
            else "upstream_error"
            if isinstance(error, TollgateError)
            else "error"
        )
        exchange.note_usage(None)
        await exchange.settle(
            outcome, status=200 if exchange.begun() else public_status(exchange.inbound.dialect, public), error=public
        )
    else:
        exchange.release()


async def _count_cut(exchange: Exchange, used: Callable[[], Awaitable[dict[str, Any]]]) -> None:
    if exchange.attempt.called and exchange.hub_usage is None:  # else the answer is there, and told it
        exchange.note_usage(await used(), estimated=True)


def _worst(errors: list[UpstreamError]) -> UpstreamError:
    """What to tell when every route failed: the last failure of a provider that answered, else the last of the network;
    the shortest wait any of them asked for."""
    answered = [error for error in errors if isinstance(error, UpstreamFailed)]
    error = (answered or errors)[-1]
    waits = [other.retry_after for other in errors if other.retry_after is not None]
    error.retry_after = min(waits) if waits else None
    return error
