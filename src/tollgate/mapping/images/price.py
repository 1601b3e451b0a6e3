"""What a job costs: a price per picture, by table, per megapixel, by counted lines, or as reported by the provider's
answer.

Exact decimals only. If a figure cannot be found, the declared `price` is used, or the job is refused where the file
says `miss: refuse`; it is never zero by accident (PITFALLS 29).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Any, Literal

from tollgate.mapping.http_calls import CallRead, Values
from tollgate.mapping.values import text_of
from tollgate.money import CONTEXT

_MOST = Decimal(1_000_000)
"""More pictures, megapixels, steps or dollars than any job has; a larger figure is a mistake in the answer."""


class PriceMissing(Exception):
    """No price applies, and the file refuses such jobs; the message says what was looked up."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a bill: a price per `unit` of what `count` reads."""

    count: CallRead
    price: Decimal
    unit: int


@dataclass(frozen=True, slots=True)
class ReportedCost:
    """A cost that the answer reports, in `unit`s of the currency (100 for cents)."""

    amount: CallRead
    unit: Decimal


@dataclass(frozen=True, slots=True)
class Factor:
    """A multiplier from the request, such as steps beyond the usual four."""

    count: CallRead
    unit: Decimal


@dataclass(frozen=True, slots=True)
class ImagePrice:
    """The compiled `price:` block of an image model. `price` is shown in the catalog, and used if no other price is
    found."""

    price: Decimal
    currency: str = "USD"
    unit: int = 1
    per: Literal["image", "megapixel"] = "image"
    pixels: int = 1_000_000
    """The pixels of a megapixel at this provider."""
    whole: bool = False
    """The megapixels of each picture are rounded up to an integer."""
    further: Decimal | None = None
    """The price of each further megapixel of a picture, if the first one is more expensive."""
    cases: tuple[tuple[CallRead, Decimal], ...] = ()
    """Other prices under a condition; the first that is true applies."""
    by: tuple[CallRead, ...] = ()
    table: Mapping[str, Any] | None = None
    lines: tuple[Line, ...] = ()
    reported: ReportedCost | None = None
    times: tuple[Factor, ...] = ()
    asked: CallRead | None = None
    """The number of pictures that the request asks for; used until there are any."""
    bill: CallRead | None = None
    """What is counted instead of the delivered pictures."""
    size: tuple[CallRead, CallRead] | None = None
    """Requested width and height, for pictures without their own."""
    refuse: bool = False

    def expected(self, values: Values) -> Decimal:
        """The most that a job should cost according to its request, in the price's currency. Raises `PriceMissing`."""
        count = _number(self.asked(values)) if self.asked else None
        pictures: list[Mapping[str, Any]] = [{}] * int(min(max(count or 1, Decimal(1)), Decimal(1000)))
        return self._by_count(values, pictures, None)

    def charge(self, values: Values, images: tuple[Mapping[str, Any], ...]) -> Decimal:
        """What a finished job costs, in the price's currency. Raises `PriceMissing`."""
        if self.reported is not None:
            amount = _sum(self.reported.amount(values), CONTEXT.multiply(_MOST, self.reported.unit))
            if amount is not None:
                return CONTEXT.divide(amount, self.reported.unit)
        if self.lines:
            counts = [(_number(line.count(values)), line) for line in self.lines]
            if any(count for count, _ in counts):
                return sum(
                    (
                        CONTEXT.divide(CONTEXT.multiply(count, line.price), Decimal(line.unit))
                        for count, line in counts
                        if count
                    ),
                    Decimal(0),
                )
        billed = _number(self.bill(values)) if self.bill else None
        return self._by_count(values, list(images), billed)

    def _by_count(self, values: Values, images: list[Mapping[str, Any]], billed: Decimal | None) -> Decimal:
        each = self._each(values)
        if self.per == "megapixel":
            total = sum((self._picture(each, values, image) for image in images), Decimal(0))
            if billed is not None:
                total = CONTEXT.multiply(each, billed)
        else:
            total = CONTEXT.multiply(each, billed if billed is not None else Decimal(len(images)))
        for factor in self.times:
            count = _number(factor.count(values))
            if count:
                total = CONTEXT.multiply(total, CONTEXT.divide(count, factor.unit))
        return CONTEXT.divide(total, Decimal(self.unit))

    def _each(self, values: Values) -> Decimal:
        """The price of one picture: of the first case that is true, from the table, or the declared one."""
        for holds, price in self.cases:
            if holds(values):
                return price
        if self.table is None:
            if self.cases and self.refuse:
                raise PriceMissing("what was asked")
            return self.price
        found: Any = self.table
        words = []
        for read in self.by:
            word = read(values)
            words.append("" if word is None else text_of(word))
            found = found.get(words[-1]) if isinstance(found, Mapping) else None
        if isinstance(found, Decimal):
            return found
        if self.refuse:
            raise PriceMissing(" / ".join(words))
        return self.price

    def _picture(self, each: Decimal, values: Values, image: Mapping[str, Any]) -> Decimal:
        width, height = image.get("width"), image.get("height")
        if (width is None or height is None) and self.size is not None:
            width, height = (_number(read(values)) for read in self.size)
        if width is None or height is None:
            megapixels = Decimal(1)
        else:
            megapixels = CONTEXT.divide(Decimal(width) * Decimal(height), Decimal(self.pixels))
        if self.whole:
            megapixels = max(Decimal(1), megapixels.to_integral_value(rounding=ROUND_CEILING))
        if self.further is None:
            return CONTEXT.multiply(each, megapixels)
        return each + CONTEXT.multiply(self.further, max(Decimal(0), megapixels - 1))


def _sum(value: object, most: Decimal) -> Decimal | None:
    """One figure, or the exact sum of several (the mapping language would add floats)."""
    if not isinstance(value, list):
        return _number(value, most)
    numbers = [number for item in value if (number := _number(item, most)) is not None]
    return sum(numbers, Decimal(0)) if numbers else None


def _number(value: object, most: Decimal = _MOST) -> Decimal | None:
    """A figure from an answer or request as a decimal; None if it is no valid amount or above `most`.

    JSON has made floats of decimals; their shortest notation is the figure that was written.
    """
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, float):
        value = repr(value)
    try:
        number = Decimal(value) if isinstance(value, (int, str, Decimal)) else None
    except ArithmeticError:
        return None
    if number is None or not number.is_finite() or number < 0 or number > most:
        return None
    return number
