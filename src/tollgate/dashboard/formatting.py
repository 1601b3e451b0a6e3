"""Formats numbers, money and times for the pages. Pure functions from values to text or safe markup.

Money always has all its digits: two decimals in full colour, further ones dimmed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from markupsafe import Markup, escape

from tollgate.ledger import KeyRecord
from tollgate.money import decimal_text

TOKEN_KINDS = (
    ("Input", "input_tokens"),
    ("Cache read", "cache_read_tokens"),
    ("Cache write", "cache_write_tokens"),
    ("Output", "output_tokens"),
    ("Reasoning", "reasoning_tokens"),
)
"""The names of the kinds of tokens on the pages, and their columns in a row."""
DASH = Markup('<span class="none">–</span>')


def money(amount: Decimal | None) -> Markup:
    """Exact credits: 12.3456 -> $12.34 with a dimmed 56; None -> a dash."""
    if amount is None:
        return DASH
    whole, _, decimals = decimal_text(abs(amount)).partition(".")
    decimals = decimals.ljust(2, "0")
    sign = "−" if amount < 0 else ""
    fine = Markup('<span class="fine">{}</span>').format(decimals[2:])
    return Markup('<span class="money">{}${}.{}{}</span>').format(sign, f"{int(whole):,}", decimals[:2], fine)


def exact(value: object) -> object:
    """A value of a row as it is; a decimal in plain notation.

    0E-12 -> 0, 0.140000000000 -> 0.14, no value -> a dash
    """
    if value is None:
        return DASH
    return decimal_text(value) if isinstance(value, Decimal) else value


def plain_money(amount: Decimal | float) -> str:
    """Money for titles and axes, with only as many digits as are needed to distinguish values."""
    value = Decimal(amount)
    if value == 0:
        return "$0"
    if abs(value) >= Decimal("0.1"):
        return f"${value:,.2f}"
    return "$" + (f"{value:.2g}" if abs(value) >= Decimal("0.0001") else decimal_text(Decimal(f"{value:.2g}")))


def money_axis(value: float, step: float) -> str:
    """Money beside an axis, with the decimals the step needs."""
    decimals = (
        max(0, -math.floor(math.log10(step))) + (1 if f"{step:e}".startswith("2.5") else 0)
        if step < 1 or step == 2.5
        else 0
    )
    return f"${value:,.{max(2, decimals) if decimals else 0}f}" if value else "$0"


def time_axis(value: float, step: float) -> str:
    """Milliseconds beside an axis."""
    if not value:
        return "0"
    return f"{value:g} ms" if step < 500 else f"{value / 1000:g} s"


def number(value: float | None) -> Markup | str:
    """1234567 -> 1,234,567."""
    return DASH if value is None else f"{value:,}"


def compact(value: float) -> str:
    """About four characters: 950, 1.2k, 34k, 5.6M."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.9995:
            scaled = value / size
            return f"{scaled:.1f}".removesuffix(".0") + unit if abs(scaled) < 9.95 else f"{scaled:.0f}{unit}"
    return f"{value:.0f}" if value == int(value) else f"{value:.2g}"


def share(value: float) -> str:
    """0.0123 -> 1.2%; a small share is never shown as 0%."""
    if not value:
        return "0%"
    if value < 0.001:
        return "<0.1%"
    return f"{value * 100:.1f}".removesuffix(".0") + "%"


def milliseconds(value: float | None) -> Markup | str:
    """842.3 -> 842 ms, 12345 -> 12.3 s, 3 minutes -> 3 min 0 s."""
    if value is None:
        return DASH
    if value < 999.5:
        return f"{value:.0f} ms" if value >= 9.95 else f"{value:.1f} ms"
    if value < 99_950:
        return f"{value / 1000:.1f} s" if value < 9_950 else f"{value / 1000:.0f} s"
    minutes, seconds = divmod(round(value / 1000), 60)
    return f"{minutes} min {seconds} s"


@dataclass(frozen=True, slots=True)
class Unit:
    """The notation of a chart's values."""

    show: Callable[[float], str]
    axis: Callable[[float, float], str]
    """For a value beside an axis, given the step between two of them, which decides the decimals."""


MONEY = Unit(plain_money, money_axis)
COUNT = Unit(lambda value: f"{value:,.0f}", lambda value, _: compact(value))
TIME = Unit(lambda value: str(milliseconds(value)), time_axis)


def exact_time(moment: datetime) -> str:
    """The time for a title: 2026-11-21 14:03:07 UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def when(moment: datetime | None, now: datetime | None = None) -> Markup:
    """A relative time, with the exact one as its title: 5 minutes ago."""
    if moment is None:
        return DASH
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        moment.astimezone(UTC).isoformat(timespec="seconds"),
        exact_time(moment),
        relative(moment, now or datetime.now(UTC)),
    )


def relative(moment: datetime, now: datetime) -> str:
    """just now, 5 minutes ago, yesterday, in 3 days, 12 Mar 2026."""
    ahead = moment > now
    gap = abs(moment - now)
    if gap < timedelta(seconds=10):
        return "in a moment" if ahead else "just now"
    if gap > timedelta(days=60):
        return f"{moment.day} {moment:%b %Y}"
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        count = int(gap.total_seconds() / size)
        if count and ahead:
            count = round(gap.total_seconds() / size)  # a key made for 30 days must not show 29 a moment later
        if count:
            shown = f"{count} {unit}{'s' if count > 1 else ''}"
            break
    if shown == "1 day":
        return "tomorrow" if ahead else "yesterday"
    return f"in {shown}" if ahead else f"{shown} ago"


def clock(moment: datetime) -> str:
    """The time of day with seconds, for tables that are sorted by time."""
    return f"{moment.astimezone(UTC):%H:%M:%S}"


def span(seconds: float) -> str:
    """A duration: 42 s, 3 min, 5 h, 2 days."""
    for size, unit in ((172_800, "days"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / (86_400 if unit == 'days' else size):.0f} {unit}"
    return f"{seconds:.0f} s"


def price(amount: Decimal | None, currency: str = "USD") -> Markup:
    """A price per million, exact: $0.3 or 2 CNY."""
    if amount is None:
        return DASH
    if amount == 0:
        return Markup('<span class="free">free</span>')
    shown = decimal_text(amount)
    if "." in shown and len(shown.partition(".")[2]) == 1:
        shown += "0"
    return escape(f"${shown}" if currency == "USD" else f"{shown} {currency}")


def limits(key: KeyRecord) -> Markup | str:
    """A key's limits, except models, time and money, in a few words."""
    words = []
    if key.rpm is not None:
        words.append(f"{key.rpm:,} requests/min")
    if key.tpm is not None:
        words.append(f"{compact(key.tpm)} tokens/min")
    if key.max_concurrent is not None:
        words.append(f"{key.max_concurrent:,} at once")
    if key.endpoints:
        words.append(f"{' and '.join(key.endpoints)} only")
    if key.allowed_addresses:
        more = len(key.allowed_addresses) - 1
        words.append(f"from {key.allowed_addresses[0]}{f' and {more} more' if more else ''}")
    if key.strict:
        words.append("strict")
    return ", ".join(words) or DASH
