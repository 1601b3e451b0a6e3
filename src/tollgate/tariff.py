"""What usage costs: a price block compiled once, then a few integer multiplications a request.

Owns every pricing rule (DESIGN section 5 and the catalogue's notes on tiers): which prices hold for a request, what an
absent price falls back to, and the single rounding. Nothing here knows a provider.

Which prices hold, each step replacing only the prices it names:
1. the base prices;
2. every time window that contains the moment of the request;
3. every `volumes` row whose bounds match, in order, for the whole request: `min_prompt_tokens` is exclusive ("more
   than"), the other bounds inclusive, all prompt tokens count (cached ones too), `thinking` asks whether it reasoned,
   `word` whether the request or its usage says that word;
4. the service tier: its price, moved in the proportion in which steps 2 and 3 moved the base price, so that "half
   price" stays half price for a long prompt. A `multipliers` name used as a tier multiplies all token prices;
5. every other `multipliers` name that the answer's usage tells (a faster mode, a region) multiplies them too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING

from tollgate.config.pricing import FLAT_PRICES, PRICES, TOKEN_PRICES, PriceWindow, Pricing, Volume
from tollgate.money import CONTEXT, USD, round_cost

if TYPE_CHECKING:
    from tollgate.usage import Usage

_FALLBACKS = (
    ("input_cache_read", "prompt"),
    ("input_cache_write", "prompt"),
    ("input_cache_write_1h", "input_cache_write"),
    ("internal_reasoning", "completion"),
    ("audio", "prompt"),
    ("input_audio_cache", "input_cache_read"),
    ("audio_output", "completion"),
    ("image_output_token", "completion"),
)
"""An absent or empty price is the other one's; "0" is a price, and free."""


@dataclass(slots=True)
class Charge:
    """What a request costs: `cost` in USD rounded once, `native` in the price's own currency, `rule` the prices used.
    Treat it as frozen, as `Usage`."""

    cost: Decimal
    native: Decimal
    currency: str
    rate: Decimal
    rule: str = "base"


NO_CHARGE = Charge(round_cost(Decimal(0)), round_cost(Decimal(0)), USD, Decimal(1), "none")


def no_charge(tariff: Tariff | None, rates: Mapping[str, Decimal]) -> Charge:
    """What a request costs that got no answer: nothing, flat prices included, in the currency of its price list."""
    return (
        NO_CHARGE
        if tariff is None
        else replace(NO_CHARGE, currency=tariff.currency, rate=_rate(tariff.currency, rates))
    )


class _Prices:
    """Prices that hold together, as integers over one common divisor."""

    __slots__ = (*PRICES, "dearest_in", "dearest_out", "divisor", "rule")
    prompt: int
    completion: int
    input_cache_read: int
    input_cache_write: int
    input_cache_write_1h: int
    internal_reasoning: int
    audio: int
    input_audio_cache: int
    audio_output: int
    image_output_token: int
    request: int
    image: int
    web_search: int

    def __init__(self, prices: Mapping[str, Decimal], unit: int, rule: str) -> None:
        full = dict(prices)
        for name, other in _FALLBACKS:
            if name not in full and other in full:
                full[name] = full[other]
        places = max((max(0, -int(value.as_tuple().exponent)) for value in full.values()), default=0)
        for name in TOKEN_PRICES:
            setattr(self, name, int(full.get(name, Decimal(0)).scaleb(places, CONTEXT)))
        for name in FLAT_PRICES:
            setattr(self, name, int(full.get(name, Decimal(0)).scaleb(places, CONTEXT)) * unit)
        self.dearest_in = max(
            self.prompt, self.input_cache_read, self.input_cache_write, self.audio, self.input_audio_cache
        )
        self.dearest_out = max(self.completion, self.internal_reasoning, self.audio_output, self.image_output_token)
        self.divisor = Decimal(unit).scaleb(places, CONTEXT)
        self.rule = rule


class Tariff:
    """A price block, compiled; immutable but for its memo of price combinations. ValueError for a unit,
    window or currency that cannot be meant."""

    __slots__ = ("_memo", "_windows", "base", "currency", "of_pictures", "pricing", "simple", "unit")

    def __init__(self, pricing: Pricing) -> None:
        if pricing.unit < 1:
            raise ValueError(f"unit is {pricing.unit}, wanted a whole number of tokens from 1 on")
        self.pricing = pricing
        self.currency = pricing.currency
        self.unit = pricing.unit
        self.base = _Prices(pricing.prices, pricing.unit, "base")
        self._windows = tuple(_minutes(window) for window in pricing.windows)
        self.simple = not pricing.volumes and not pricing.windows
        rows = (
            pricing.prices,
            *(row.prices for row in pricing.volumes),
            *(window.prices for window in pricing.windows),
            *pricing.service_tiers.values(),
        )
        self.of_pictures = any(prices.get("image") for prices in rows)
        """Whether each picture of a prompt has a price."""
        self._memo: dict[tuple[int, int, str | None, tuple[str, ...]], _Prices] = {}

    def prices(
        self,
        prompt: int,
        completion: int,
        thinking: bool,
        at: datetime,
        service_tier: str | None,
        named: Collection[str] = (),
    ) -> _Prices:
        """The prices that hold for a request of this size at this moment; `named` may name multipliers and rows."""
        pricing = self.pricing
        tier = service_tier if service_tier in pricing.service_tiers or service_tier in pricing.multipliers else None
        factors = tuple(name for name in pricing.multipliers if name in named and name != tier) if named else ()
        if self.simple and tier is None and not factors:
            return self.base
        rows = 0
        for place, row in enumerate(pricing.volumes):
            if _matches(row, prompt, completion, thinking, named):
                rows |= 1 << place
        open_windows = 0
        if self._windows:
            moment = at.astimezone(UTC) if at.tzinfo else at
            for place, window in enumerate(self._windows):
                if _is_open(window, moment):
                    open_windows |= 1 << place
        key = (rows, open_windows, tier, factors)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._combine(*key)
        return found

    def _combine(self, rows: int, open_windows: int, tier: str | None, factors: tuple[str, ...]) -> _Prices:
        pricing, rule = self.pricing, []
        base = dict(pricing.prices)
        merged = dict(base)
        for place, window in enumerate(pricing.windows):
            if open_windows >> place & 1:
                merged.update(window.prices)
                rule.append(f"windows[{place}]")
        for place, row in enumerate(pricing.volumes):
            if rows >> place & 1:
                merged.update(row.prices)
                rule.append(f"volumes[{place}]")
        if tier is not None:
            rule.append(tier)
            if tier in pricing.multipliers:
                merged |= _times(merged, pricing.multipliers[tier])
            for name, price in pricing.service_tiers.get(tier, {}).items():
                merged[name] = _moved(price, base.get(name), merged.get(name))
        for each in factors:
            rule.append(each)
            merged |= _times(merged, pricing.multipliers[each])
        return _Prices(merged, pricing.unit, " ".join(rule) or "base")


def _times(prices: Mapping[str, Decimal], factor: Decimal) -> dict[str, Decimal]:
    """The token prices among these, multiplied."""
    return {name: CONTEXT.multiply(prices[name], factor) for name in TOKEN_PRICES if name in prices}


def price_usage(
    usage: Usage,
    tariff: Tariff | None,
    rates: Mapping[str, Decimal],
    *,
    at: datetime,
    service_tier: str | None = None,
    multipliers: Collection[str] = (),
) -> Charge:
    """What `usage` costs at `tariff`: sum of bucket x price / unit, plus call, pictures and searches,
    in USD by `rates`.

    `at` is the moment of the request (UTC where it names no zone), `multipliers` are words of the request and of the
    answer's usage that may be those of the price list. No price known costs nothing. ValueError when `rates` lacks the
    currency.
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
    at: datetime | None = None,
    service_tier: str | None = None,
    hour_cache: bool = False,
    multipliers: Collection[str] = (),
    searches: int = 0,
    images: int = 0,
) -> Decimal:
    """The most a request can cost in USD, for its hold: every prompt token and every output token at its dearest price,
    and so many searches and pictures.

    `hour_cache`: the request asks for hour-long cache entries, which some providers sell at twice the prompt price.
    `service_tier` is what it asks for: it may get that one or the usual one. `multipliers` are words of the request
    that may be those of the price list. A row of `volumes` that ends below these sizes counts too, as what is used may
    be less, and so does each that asks for a word.
    """
    if tariff is None:
        return NO_CHARGE.cost
    rate = _rate(tariff.currency, rates)
    if tariff.simple and service_tier is None and not hour_cache and not multipliers:
        return _bound_at(tariff.base, prompt_tokens, tariff.base.dearest_in, max_output, searches, images, rate)
    at = at or datetime.now(UTC)
    dearer = [name for name in multipliers if tariff.pricing.multipliers.get(name, 0) > 1]
    words = {"", *(row.word for row in tariff.pricing.volumes if row.word is not None)}
    dearest = Decimal(0)
    for prompt, output, thinking in _sizes(tariff.pricing.volumes, prompt_tokens, max_output):
        for tier, word in product(dict.fromkeys((None, service_tier)), words):
            prices = tariff.prices(prompt, output, thinking, at, tier, [*dearer, word])
            a_token = max(prices.dearest_in, prices.input_cache_write_1h if hour_cache else 0)
            dearest = max(dearest, _bound_at(prices, prompt, a_token, output, searches, images, rate))
    return dearest


def _sizes(volumes: Collection[Volume], prompt_tokens: int, max_output: int) -> list[tuple[int, int, bool]]:
    """The sizes at which a request may cost most: the largest it can have, and the last size of each row that ends
    below it, because a shorter request may be in a dearer row. Each with and without thinking, where a row asks for
    that."""
    prompts, outputs = {prompt_tokens}, {max_output}
    for row in volumes:
        if row.max_prompt_tokens is not None and row.max_prompt_tokens < prompt_tokens:
            prompts.add(row.max_prompt_tokens)
        if row.max_completion_tokens is not None and row.max_completion_tokens < max_output:
            outputs.add(row.max_completion_tokens)
    thoughts = (False, True) if any(row.thinking is not None for row in volumes) else (False,)
    return list(product(prompts, outputs, thoughts))


def _bound_at(
    prices: _Prices, prompt_tokens: int, a_token: int, max_output: int, searches: int, images: int, rate: Decimal
) -> Decimal:
    due = (
        prompt_tokens * a_token
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


def _matches(row: Volume, prompt: int, completion: int, thinking: bool, named: Collection[str]) -> bool:
    return (
        (row.min_prompt_tokens is None or prompt > row.min_prompt_tokens)
        and (row.max_prompt_tokens is None or prompt <= row.max_prompt_tokens)
        and (row.min_completion_tokens is None or completion >= row.min_completion_tokens)
        and (row.max_completion_tokens is None or completion <= row.max_completion_tokens)
        and (row.thinking is None or row.thinking == thinking)
        and (row.word is None or row.word in named)
    )


def _moved(tier_price: Decimal, base: Decimal | None, moved: Decimal | None) -> Decimal:
    """The tier's price, changed in the proportion in which `base` became `moved`. A proportion without an end is cut
    after 80 digits (`CONTEXT`)."""
    if not base or moved is None or moved == base:
        return tier_price
    exact = Fraction(tier_price) * Fraction(moved) / Fraction(base)
    return CONTEXT.divide(Decimal(exact.numerator), Decimal(exact.denominator))


def _minutes(window: PriceWindow) -> tuple[int, int, tuple[int, ...]]:
    start, end = (_minute(text) for text in (window.start, window.end))
    return start, end, window.days


def _minute(text: str) -> int:
    hours, _, minutes = text.partition(":")
    if (
        not (hours.isdecimal() and minutes.isdecimal() and len(minutes) == 2)
        or int(minutes) > 59
        or int(hours) * 60 + int(minutes) > 1440
    ):
        raise ValueError(f'"{text}" is no hour and minute in UTC, wanted one such as "16:30"')
    return (int(hours) * 60 + int(minutes)) % 1440


def _is_open(window: tuple[int, int, tuple[int, ...]], moment: datetime) -> bool:
    """Inside the window, which may wrap midnight; a wrapped part belongs to the day on which it began."""
    start, end, days = window
    minute, day = moment.hour * 60 + moment.minute, moment.isoweekday()
    if start < end:
        return start <= minute < end and day in days
    if minute >= start:
        return day in days
    return minute < end and (day - 2) % 7 + 1 in days
