"""Trying routes in order until one answers, and how a request that got no answer is settled.

What an upstream's failure means for the next route is `mapping/provider/errors.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from tollgate.completions.attempt import AttemptFailed, without_frames
from tollgate.completions.estimate import estimate_usage
from tollgate.completions.exchange import Exchange
from tollgate.completions.minters import goes_without_unreadable
from tollgate.errors import (
    BadRequest,
    InternalError,
    RateLimited,
    TollgateError,
    UpstreamError,
    UpstreamFailed,
    UpstreamTimeout,
)
from tollgate.ledger.usage_row import failed_attempt
from tollgate.public_errors import public_status
from tollgate.routing import Offer

Answered = TypeVar("Answered")


async def try_routes(
    exchange: Exchange, offers: list[Offer], once: Callable[[Exchange, Offer], Awaitable[Answered]]
) -> Answered:
    """What the first route gives that begins to answer. `once` tries one and raises `AttemptFailed` when it did not.

    A route that cannot carry the request (`once` raises `BadRequest` and has not called it) is passed over: another
    format may have a place for what it has none for, and it says nothing about a request that failed elsewhere.

    A route that could not read the encrypted reasoning of a conversation that began elsewhere is asked once more,
    without it.

    Raises the error to tell when none did: at once when the provider finds the request itself at fault, since no other
    route can help; else the worst failure of those that were called; the refusal where none was.
    """
    metrics = exchange.services.metrics
    waiting = deque(offers)
    errors: list[UpstreamError] = []
    error: UpstreamError | None = None
    refusal: BadRequest | None = None
    called = offers[0]
    while waiting:
        offer = waiting.popleft()
        exchange.attempts += 1
        exchange.first_byte_ms = None  # an attempt that failed is not what the client waited for
        began = exchange.inbound.elapsed_ms()
        try:
            answered = await once(exchange, offer)
        except BadRequest as refused:
            if exchange.called:
                raise
            refusal = refusal or without_frames(refused)
            exchange.pass_over()
            continue
        except AttemptFailed as failure:
            error, final = without_frames(failure.error), failure.final
        else:
            metrics.attempts[offer.provider, "ok"] += 1
            return answered
        called = offer
        metrics.attempts[offer.provider, error.code] += 1
        most = exchange.services.runtime.current.gateway.retry.attempts
        again = final and exchange.attempts < most and goes_without_unreadable(exchange, error)
        if final:
            exchange.services.health.rejected(offer.route, offer.provider)
            if not again:
                errors = [error]
                break
        else:
            exchange.route_failed(error)
            errors.append(error)
        exchange.failed.append(
            failed_attempt(offer.provider, offer.model.upstream, error, exchange.inbound.elapsed_ms() - began)
        )
        if again:
            waiting.appendleft(offer)
            while len(waiting) > most - exchange.attempts:
                waiting.pop()
            exchange.last_attempt = exchange.attempts + len(waiting)
    if exchange.offer is not called:
        exchange.attempt(called)  # the row is about the route whose error is told
    try:
        if refusal is not None and not errors:
            exchange.attempts = 1
            raise refusal
        raise _worst(errors)
    finally:
        error = refusal = None
        errors.clear()  # this frame is one of those that the error remembers


async def settle_failure(
    exchange: Exchange, error: BaseException, used: Callable[[], Awaitable[dict[str, Any]]] | None = None
) -> None:
    """Record (or release) a request that ends in `error` before its answer began; the caller raises it afterwards.

    A caller who gets no answer pays nothing, even if a route gave one that could not be passed on. A client that left
    is billed for what was sent to the provider: nothing if no route was called yet, else the prompt as estimated
    (DESIGN section 5), or what `used` counts where only a part of it was sent. The error also tells how the key's rate
    limits stand.
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
        exchange.settle_cut(partial(_count_cut, exchange, used or partial(estimate_usage, exchange, [])))
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
    if exchange.called:
        exchange.note_usage(await used(), estimated=True)


def _worst(errors: list[UpstreamError]) -> UpstreamError:
    """What to tell when every route failed: the last failure of a provider that answered, else the last of the network;
    the shortest wait any of them asked for."""
    answered = [error for error in errors if isinstance(error, UpstreamFailed)]
    error = (answered or errors)[-1]
    waits = [other.retry_after for other in errors if other.retry_after is not None]
    error.retry_after = min(waits) if waits else None
    return error
