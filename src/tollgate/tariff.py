"""Compiles a price block once, and finds the prices that apply to a request.

All rules for that are here (DESIGN section 5 and the catalogue's notes on tiers), also which other price stands in for
an absent one. Nothing here depends on a provider. What usage costs at these prices is `charge.py`.

The prices of a request are found in these steps. Each step replaces only the prices it sets.
1. the base prices;
2. every time window that contains the moment of the request;
3. every `volumes` row whose conditions hold, in order, for the whole request: `min_prompt_tokens` is exclusive ("more
   than"), the other bounds are inclusive, all prompt tokens count (cached ones too), `thinking` is whether the model
   reasoned, `word` is a word of the request or of its usage;
4. the service tier: its price, scaled as steps 2 and 3 scaled the base price, so that "half price" stays half price
   for a long prompt. A tier that is named in `multipliers` multiplies all token prices. `fast` is the newer name of
   `priority`, where only that has a price;
5. every other name of `multipliers` that is a word of the request or of its usage (a faster mode, a region): it
   multiplies all token prices too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

from tollgate.config.pricing import FLAT_PRICES, PRICES, TOKEN_PRICES, Pricing, Volume
from tollgate.money import CONTEXT

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
"""(price, the price used where it is absent or empty). "0" is a price: free."""

_OLDER_NAMES: Mapping[str | None, str] = {"fast": "priority"}
"""Service tiers that price lists know by an older name: newer models report the new one, whichever was asked for."""


def tiers_with_a_price(pricing: Pricing) -> list[str]:
    """The service tiers that have a price of their own, also by their newer names: at any other tier a request costs
    as much as at none. {"flex", "priority"} -> ["fast", "flex", "priority"]"""
    named = {*pricing.service_tiers, *pricing.multipliers}
    return sorted({*named, *(newer for newer, older in _OLDER_NAMES.items() if newer and older in named)})


class Prices:
    """The prices of one request, as integers over a common divisor."""

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
        for name in PRICES:
            price = int(full.get(name, Decimal(0)).scaleb(places, CONTEXT))
            setattr(self, name, price * unit if name in FLAT_PRICES else price)
        self.dearest_in = max(
            self.prompt, self.input_cache_read, self.input_cache_write, self.audio, self.input_audio_cache
        )
        self.dearest_out = max(self.completion, self.internal_reasoning, self.audio_output, self.image_output_token)
        self.divisor = Decimal(unit).scaleb(places, CONTEXT)
        self.rule = rule


class Tariff:
    """A compiled price block; immutable except for its cache of price combinations. ValueError for an invalid unit
    or window."""

    __slots__ = ("_memo", "_windows", "base", "currency", "of_pictures", "pricing", "simple")

    def __init__(self, pricing: Pricing) -> None:
        if pricing.unit < 1:
            raise ValueError(f"unit is {pricing.unit}, wanted a whole number of tokens from 1 on")
        self.pricing = pricing
        self.currency = pricing.currency
        self.base = Prices(pricing.prices, pricing.unit, "base")
        self._windows = tuple((_minute(each.start), _minute(each.end), each.days) for each in pricing.windows)
        self.simple = not pricing.volumes and not pricing.windows
        rows = (
            pricing.prices,
            *(row.prices for row in pricing.volumes),
            *(window.prices for window in pricing.windows),
            *pricing.service_tiers.values(),
        )
        self.of_pictures = any(prices.get("image") for prices in rows)
        """Whether a picture in the prompt has a price."""
        self._memo: dict[tuple[tuple[int, ...], tuple[int, ...], str | None, tuple[str, ...]], Prices] = {}

    def prices(
        self,
        prompt: int,
        completion: int,
        thinking: bool,
        at: datetime,
        service_tier: str | None,
        words: Collection[str] = (),
    ) -> Prices:
        """The prices of a request of this size at this moment. `words` are those of the request and of its
        usage, which may name multipliers and `volumes` rows."""
        pricing = self.pricing
        tier = next((name for name in (service_tier, _OLDER_NAMES.get(service_tier)) if self._has_tier(name)), None)
        factors = tuple(name for name in pricing.multipliers if name in words and name != tier) if words else ()
        if self.simple and tier is None and not factors:
            return self.base
        rows = [i for i, row in enumerate(pricing.volumes) if _matches(row, prompt, completion, thinking, words)]
        windows: list[int] = []
        if self._windows:
            moment = at.astimezone(UTC) if at.tzinfo else at
            windows = [i for i, window in enumerate(self._windows) if _is_open(window, moment)]
        key = (tuple(rows), tuple(windows), tier, factors)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._combine(*key)
        return found

    def _has_tier(self, name: str | None) -> bool:
        return name in self.pricing.service_tiers or name in self.pricing.multipliers

    def _combine(
        self, rows: tuple[int, ...], windows: tuple[int, ...], tier: str | None, factors: tuple[str, ...]
    ) -> Prices:
        """The base prices, changed by windows, `volumes` rows, the service tier and factors, in this order."""
        pricing = self.pricing
        base = pricing.prices
        merged = dict(base)
        rule = [*(f"windows[{i}]" for i in windows), *(f"volumes[{i}]" for i in rows)]
        for i in windows:
            merged.update(pricing.windows[i].prices)
        for i in rows:
            merged.update(pricing.volumes[i].prices)
        if tier is not None:
            rule.append(tier)
            if tier in pricing.multipliers:
                merged |= _multiplied(merged, pricing.multipliers[tier])
            for name, price in pricing.service_tiers.get(tier, {}).items():
                merged[name] = _scaled(price, base.get(name), merged.get(name))
        for each in factors:
            rule.append(each)
            merged |= _multiplied(merged, pricing.multipliers[each])
        return Prices(merged, pricing.unit, " ".join(rule) or "base")


def _multiplied(prices: Mapping[str, Decimal], factor: Decimal) -> dict[str, Decimal]:
    """These prices with the token prices among them multiplied."""
    return {name: CONTEXT.multiply(prices[name], factor) for name in TOKEN_PRICES if name in prices}


def _matches(row: Volume, prompt: int, completion: int, thinking: bool, words: Collection[str]) -> bool:
    return (
        (row.min_prompt_tokens is None or prompt > row.min_prompt_tokens)
        and (row.max_prompt_tokens is None or prompt <= row.max_prompt_tokens)
        and (row.min_completion_tokens is None or completion >= row.min_completion_tokens)
        and (row.max_completion_tokens is None or completion <= row.max_completion_tokens)
        and (row.thinking is None or row.thinking == thinking)
        and (row.word is None or row.word in words)
    )


def _scaled(tier_price: Decimal, base: Decimal | None, scaled: Decimal | None) -> Decimal:
    """The tier's price, scaled as `base` was scaled to `scaled`. An infinite decimal is cut after 80 digits
    (`CONTEXT`)."""
    if not base or scaled is None or scaled == base:
        return tier_price
    exact = Fraction(tier_price) * Fraction(scaled) / Fraction(base)
    return CONTEXT.divide(Decimal(exact.numerator), Decimal(exact.denominator))


_TIME = re.compile(r"(\d+):([0-5]\d)")


def _minute(text: str) -> int:
    """The minute of the day: "16:30" -> 990; "24:00" is the next midnight, 0."""
    found = _TIME.fullmatch(text)
    minutes = int(found[1]) * 60 + int(found[2]) if found else None
    if minutes is None or minutes > 1440:
        raise ValueError(f'"{text}" is no hour and minute in UTC, wanted one such as "16:30"')
    return minutes % 1440


def _is_open(window: tuple[int, int, tuple[int, ...]], moment: datetime) -> bool:
    """Whether the moment is inside the window, which may include midnight; its part after midnight belongs to the
    day before."""
    start, end, days = window
    minute, day = moment.hour * 60 + moment.minute, moment.isoweekday()
    if start < end:
        return start <= minute < end and day in days
    if minute >= start:
        return day in days
    return minute < end and (day - 2) % 7 + 1 in days
