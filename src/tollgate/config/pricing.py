"""What a `price:` block is, once read: the names of prices, and frozen dataclasses. `prices.py` reads it, `tariff.py`
says what is due by it."""

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

VOLUME_BOUNDS = ("min_prompt_tokens", "max_prompt_tokens", "min_completion_tokens", "max_completion_tokens")
VOLUME_CONDITIONS = (*VOLUME_BOUNDS, "thinking", "word")
"""What a row of `volumes` may ask of a request."""


@dataclass(frozen=True, slots=True)
class Volume:
    """A price tier: when its bounds match, its prices replace the base ones (`min_prompt_tokens` is exclusive)."""

    prices: Mapping[str, Decimal]
    written: Mapping[str, str]
    min_prompt_tokens: int | None = None
    max_prompt_tokens: int | None = None
    min_completion_tokens: int | None = None
    max_completion_tokens: int | None = None
    thinking: bool | None = None
    word: str | None = None
    """Only where the request or its usage says this word (`usage.words` of a provider file)."""


@dataclass(frozen=True, slots=True)
class PriceWindow:
    """Prices that hold in some UTC hours and on some ISO weekdays (1..7).

    The hours are those with `start` <= hour:minute < `end`, which may wrap midnight.
    """

    prices: Mapping[str, Decimal]
    start: str
    end: str
    days: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7)


@dataclass(frozen=True, slots=True)
class Pricing:
    """Prices of one offer. `prices` has the exact decimals by field name, `written` the same fields as typed.

    A field absent here falls back as DESIGN section 5 says; "0" is free.
    """

    prices: Mapping[str, Decimal]
    written: Mapping[str, str]
    unit: int = 1
    currency: str = "USD"
    volumes: tuple[Volume, ...] = ()
    service_tiers: Mapping[str, Mapping[str, Decimal]] = field(default_factory=lambda: MappingProxyType({}))
    windows: tuple[PriceWindow, ...] = ()
    multipliers: Mapping[str, Decimal] = field(default_factory=lambda: MappingProxyType({}))
    """Named factors a provider file may switch on (residency and the like)."""
    why: str = ""
    """What is unusual about these prices, in the file's words; they are then not warned of."""
    source: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    """The whole `price:` block as plain values, for the catalog's `volumes` and for reports."""

    def per_million(self, name: str) -> Decimal | None:
        """A token price per million tokens, in its own currency; None where the block does not say it."""
        price = self.prices.get(name)
        return None if price is None else CONTEXT.divide(CONTEXT.multiply(price, _MILLION), Decimal(self.unit))
