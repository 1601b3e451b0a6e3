"""Exact decimals: parsing, rounding and formatting amounts and prices.

Defines the arithmetic context for all calculations with money. A float in place of a decimal raises an error. Charging
is in `charge.py`; exchange rates come from `gateway.yaml`.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal, DivisionByZero, FloatOperation, InvalidOperation, Overflow

CONTEXT = Context(prec=80, rounding=ROUND_HALF_EVEN, traps=[InvalidOperation, DivisionByZero, Overflow, FloatOperation])
"""80 digits, so that the product of the longest price, count and rate that `decimal_of` accepts is exact."""

PLACES = 12
"""Decimal places of a stored cost: a hundredth of the price of the cheapest token (1e-10 USD)."""

USD = "USD"
"""The currency of credits."""

_QUANTUM = Decimal(1).scaleb(-PLACES)
_WRITTEN = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?\Z")
_CURRENCY = re.compile(r"[A-Z]{3}\Z")
_MAX_DIGITS = 30
_MAX_EXPONENT = 24
"""No price or balance needs more digits, and the limit keeps all sums exact."""


def decimal_of(text: str | int | Decimal) -> Decimal:
    """The exact decimal written as `text`: "0.30" -> Decimal("0.30").

    Raises ValueError for floats, NaN, infinities and numbers out of range.
    """
    if isinstance(text, bool) or not isinstance(text, (str, int, Decimal)):
        raise ValueError(f'{text!r} is a {type(text).__name__}, wanted an exact decimal such as "0.30"')
    if isinstance(text, str):
        stripped = text.strip()
        if len(stripped) > 2 * _MAX_DIGITS or not _WRITTEN.match(stripped):
            raise ValueError(f'"{text[:60]}" is no exact decimal, wanted one such as "0.30"')
        value = Decimal(stripped)
    elif isinstance(text, int):
        if abs(text) >= 10**_MAX_DIGITS:
            raise ValueError(f"a number of more than {_MAX_DIGITS} digits is too large")
        value = Decimal(text)
    else:
        value = text
    if not value.is_finite():
        raise ValueError(f'{value} is no amount, wanted an exact decimal such as "0.30"')
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or len(digits) > _MAX_DIGITS or not -_MAX_EXPONENT <= exponent <= _MAX_EXPONENT:
        raise ValueError(f"{str(value)[:60]} has more than {_MAX_DIGITS} digits or an exponent beyond {_MAX_EXPONENT}")
    return value


def round_cost(amount: Decimal) -> Decimal:
    """Round half-even to 12 places, once per usage row: Decimal("0.0000000000005") -> Decimal("0E-12")."""
    return amount.quantize(_QUANTUM, None, CONTEXT)


def decimal_text(amount: Decimal) -> str:
    """Format without exponent or trailing zeros: Decimal("1E-7") -> "0.0000001", Decimal("2.50") -> "2.5"."""
    text = format(amount, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def is_currency(word: str) -> bool:
    """Whether `word` looks like an ISO 4217 code: three capital letters."""
    return bool(_CURRENCY.match(word))
