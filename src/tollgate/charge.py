"""What usage costs at a tariff, and the most that a request may cost: a few integer multiplications, and the single
rounding (DESIGN section 5). Which prices apply is `tariff.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING

from tollgate.config.pricing import Volume
from tollgate.money import CONTEXT, USD, round_cost

if TYPE_CHECKING:
    from tollgate.tariff import Prices, Tariff
    from tollgate.usage import Usage


@dataclass(slots=True)
class Charge:
    """What a request costs: `cost` in USD, rounded once; `native` in the price's own currency; `rule` names the
    prices used. Not frozen for speed, but never change it (as `Usage`)."""

    cost: Decimal
    native: Decimal
    currency: str
    rate: Decimal
    rule: str = "base"


NO_CHARGE = Charge(round_cost(Decimal(0)), round_cost(Decimal(0)), USD, Decimal(1), "none")


def no_charge(tariff: Tariff | None, rates: Mapping[str, Decimal]) -> Charge:
    """The charge of a request that got no answer: zero, also for flat prices, in the currency of its tariff."""
    if tariff is None:
        return NO_CHARGE
    return replace(NO_CHARGE, currency=tariff.currency, rate=_rate(tariff.currency, rates))


def price_usage(
    usage: Usage,
    tariff: Tariff | None,
    rates: Mapping[str, Decimal],
    *,
    at: datetime,
    service_tier: str | None = None,
    multipliers: Collection[str] = (),
) -> Charge:
    """What `usage` costs at `tariff`: the sum of bucket x price / unit, and of calls, pictures and searches, in USD by
    `rates`.

    `at` is the moment of the request (in UTC where it has no zone). `multipliers` are words of the request and of its
    usage. Without a tariff it costs nothing. ValueError when `rates` has no rate for the currency.
    """
    if tariff is None:
        return NO_CHARGE
    if tariff.simple and service_tier is None and not multipliers:
        prices = tariff.base
    else:
        prices = tariff.prices(
            usage.prompt_tokens, usage.completion_tokens, usage.reasoning > 0, at, service_tier, multipliers
        )
    due = usage.input * prices.prompt + usage.output * prices.completion + prices.request
    if usage.cache_read:
        due += usage.cache_read * prices.input_cache_read
    if usage.cache_write:
        due += usage.cache_write * prices.input_cache_write
    if usage.cache_write_1h:
        due += usage.cache_write_1h * prices.input_cache_write_1h
    if usage.reasoning:
        due += usage.reasoning * prices.internal_reasoning
    if usage.audio_input:
        due += usage.audio_input * prices.audio
    if usage.audio_cache_read:
        due += usage.audio_cache_read * prices.input_audio_cache
    if usage.audio_output:
        due += usage.audio_output * prices.audio_output
    if usage.image_output:
        due += usage.image_output * prices.image_output_token
    if usage.images:
        due += usage.images * prices.image
    if usage.searches:
        due += usage.searches * prices.web_search
    native = CONTEXT.divide(Decimal(due), prices.divisor)
    rate = _rate(tariff.currency, rates)
    rounded = round_cost(native)
    cost = rounded if rate == 1 else round_cost(CONTEXT.multiply(native, rate))
    return Charge(cost, rounded, tariff.currency, rate, prices.rule)


def upper_bound(
    prompt_tokens: int,
    max_output: int,
    tariff: Tariff | None,
    rates: Mapping[str, Decimal],
    *,
    at: datetime,
    service_tier: str | None = None,
    hour_cache: bool = False,
    multipliers: Collection[str] = (),
    searches: int = 0,
    images: int = 0,
) -> Decimal:
    """The most a request can cost in USD, which its hold reserves: every prompt token and every output token at the
    highest price that may apply, and so many searches and pictures.

    `hour_cache`: the request has cache entries of one hour, for which some providers charge twice the prompt price.
    `service_tier` is the requested tier; the request may get the default instead. `multipliers` are words of it.
    What a smaller request would cost counts too, because the request may use less; so does each `volumes` row that has
    a `word`.
    """
    if tariff is None:
        return NO_CHARGE.cost
    rate = _rate(tariff.currency, rates)
    if tariff.simple and service_tier is None and not hour_cache and not multipliers:
        return _bound_at(tariff.base, prompt_tokens, tariff.base.dearest_in, max_output, searches, images, rate)
    dearer = [name for name in multipliers if tariff.pricing.multipliers.get(name, 0) > 1]
    words = {"", *(row.word for row in tariff.pricing.volumes if row.word is not None)}
    dearest = Decimal(0)
    for prompt, output, thinking in _sizes(tariff.pricing.volumes, prompt_tokens, max_output):
        for tier, word in product(dict.fromkeys((None, service_tier)), words):
            prices = tariff.prices(prompt, output, thinking, at, tier, [*dearer, word])
            prompt_price = max(prices.dearest_in, prices.input_cache_write_1h if hour_cache else 0)
            dearest = max(dearest, _bound_at(prices, prompt, prompt_price, output, searches, images, rate))
    return dearest


def _sizes(volumes: Collection[Volume], prompt_tokens: int, max_output: int) -> list[tuple[int, int, bool]]:
    """The sizes at which a request may cost most: the largest it can have, and smaller ones at which the prices change,
    because a smaller request may be more expensive. Each without and with thinking, where a row has that condition."""
    prompts, outputs = {prompt_tokens}, {max_output}
    for row in volumes:
        below = None if row.min_completion_tokens is None else row.min_completion_tokens - 1
        prompts.update(size for size in (row.max_prompt_tokens, row.min_prompt_tokens) if size is not None)
        outputs.update(size for size in (row.max_completion_tokens, below) if size is not None)
    thoughts = (False, True) if any(row.thinking is not None for row in volumes) else (False,)
    return [
        size for size in product(prompts, outputs, thoughts) if size[0] <= prompt_tokens and 0 <= size[1] <= max_output
    ]


def _bound_at(
    prices: Prices, prompt_tokens: int, prompt_price: int, max_output: int, searches: int, images: int, rate: Decimal
) -> Decimal:
    due = (
        prompt_tokens * prompt_price
        + max_output * prices.dearest_out
        + prices.request
        + searches * prices.web_search
        + images * prices.image
    )
    return round_cost(CONTEXT.multiply(CONTEXT.divide(Decimal(due), prices.divisor), rate))


def _rate(currency: str, rates: Mapping[str, Decimal]) -> Decimal:
    rate = rates.get(currency)
    if rate is None:
        if currency == USD:
            return Decimal(1)
        raise ValueError(f"no exchange rate for {currency}, known are {', '.join(sorted(rates))}")
    return rate
