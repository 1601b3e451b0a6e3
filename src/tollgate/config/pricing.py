"""The `price:` block once it is read: the names of prices, and frozen dataclasses. `prices.py` reads it, `tariff.py`
applies it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType

from tollgate.money import CONTEXT

_MILLION = Decimal(1_000_000)
TOKEN_PRICES = (
    "prompt",
    "completion",
    "input_cache_read",
    "input_cache_write",
    "input_cache_write_1h",
    "internal_reasoning",
    "audio",
    "input_audio_cache",
    "audio_output",
    "image_output_token",
)
"""Per `unit` tokens."""
FLAT_PRICES = ("request", "image", "web_search")
"""Per call, per picture, per search: `unit` does not apply."""
PRICES = TOKEN_PRICES + FLAT_PRICES

_BOUNDS = ("min_prompt_tokens", "max_prompt_tokens", "min_completion_tokens", "max_completion_tokens")
VOLUME_CONDITIONS = (*_BOUNDS, "thinking", "word")
"""The conditions that a row of `volumes` may set."""


@dataclass(frozen=True, slots=True)
class Volume:
    """A price tier: while its conditions hold, its prices replace the base prices (`min_prompt_tokens` is
    exclusive)."""

    prices: Mapping[str, Decimal]
    written: Mapping[str, str]
    min_prompt_tokens: int | None = None
    max_prompt_tokens: int | None = None
    min_completion_tokens: int | None = None
    max_completion_tokens: int | None = None
    thinking: bool | None = None
    word: str | None = None
    """Only if this word is among those of the request or its usage (`usage.words` of a provider file)."""


@dataclass(frozen=True, slots=True)
class PriceWindow:
    """Prices for some UTC hours and some ISO weekdays (1..7).

    The hours are those with `start` <= hour:minute < `end`, and may include midnight.
    """

    prices: Mapping[str, Decimal]
    start: str
    end: str
    days: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7)


@dataclass(frozen=True, slots=True)
class Pricing:
    """The prices of one offer. `prices` has exact decimals by field name, `written` the same fields as typed.

    For a field that is absent another price is used, as DESIGN section 5 has it; "0" is free.
    """

    prices: Mapping[str, Decimal]
    written: Mapping[str, str]
    unit: int = 1
    currency: str = "USD"
    volumes: tuple[Volume, ...] = ()
    service_tiers: Mapping[str, Mapping[str, Decimal]] = field(default_factory=lambda: MappingProxyType({}))
    windows: tuple[PriceWindow, ...] = ()
    multipliers: Mapping[str, Decimal] = field(default_factory=lambda: MappingProxyType({}))
    """Named factors that a request or its usage can switch on (data residency, for example)."""
    why: str = ""
    """The file's explanation of unusual prices; with one there are no warnings about them."""
    source: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    """The whole `price:` block as plain values, for the catalog's `volumes` and for reports."""

    def per_million(self, name: str) -> Decimal | None:
        """A token price per million tokens, in its own currency; None if the block does not set it."""
        price = self.prices.get(name)
        return None if price is None else CONTEXT.divide(CONTEXT.multiply(price, _MILLION), Decimal(self.unit))
