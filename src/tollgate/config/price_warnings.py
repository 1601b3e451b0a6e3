"""Warnings about prices that load and would probably bill wrongly.

They cover the kinds of mistakes found in public price lists: a price per million entered per token, a cache hit that
costs more than the prompt, rounding noise of binary fractions, no price at all (which is billed as zero). The offers of
one model are compared in USD per token, so that units and currencies do not hide a mistake.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from statistics import median
from typing import TypeVar

from tollgate.config.load import Problem, find
from tollgate.config.model import Gateway, Model, Provider, Rank, rank_of
from tollgate.config.pricing import VOLUME_CONDITIONS, Pricing
from tollgate.money import CONTEXT, decimal_text
from tollgate.wording import path_text

_MILLION = Decimal(1_000_000)
_UNITS = (1, 1000, 1_000_000)
"""The units that price lists use for tokens; any other is probably a mistyped zero."""
_MEASURE = re.compile(r"(models\..+\.price)\.(unit|currency)\Z")
"""The path of a key that gives the numbers of a price their meaning."""
_DEAR = Decimal(1000)
"""USD per million tokens that no model costs (the most expensive on sale is 600): a higher price has a wrong unit."""
_APART = Decimal(10)
"""The factor by which an offer may differ from the others of its model."""
_DUST = 15
"""Significant digits that no price list has, and sums of binary fractions do."""
_MIDNIGHT = "00:00"
"""No time is after the end of a day, so a window of a whole day has this as `start` and `end`."""
_BESIDE_LENGTH = tuple(name for name in VOLUME_CONDITIONS if not name.endswith("_prompt_tokens"))
"""The conditions of a tier other than the length of the prompt."""
_LINES = ("prompt", "completion")
_WANTED = {"chat": _LINES, "embedding": ("prompt",)}
"""The prices without which the tokens of a type of model cost nothing."""
_MOST_SINGLY = 5
"""Models of one provider that get a warning each; if there are more, they get one together."""
_MOST_NAMED = 3


_Value = TypeVar("_Value")
_Steps = tuple[str | int, ...]
_Finding = tuple[_Steps, str, str]
"""A suspicious price: the path below the price, what was found there, and a hint."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """A provider's price for a model."""

    provider: Provider
    model: Model
    price: Pricing
    rate: Decimal | None
    """USD for one unit of the price's currency, if known."""

    def usd_per_million(self, name: str) -> Decimal | None:
        """A token price in USD per million tokens; None if it or the rate is not known."""
        value = self.price.per_million(name)
        return None if value is None or self.rate is None else CONTEXT.multiply(value, self.rate)

    def warning(self, steps: _Steps, message: str, hint: str) -> Problem:
        path, document = ("models", self.model.id, "price", *steps), self.provider.document
        return document.warning(find(document.root, path), message, path=path_text(path), hint=hint)


def price_warnings(gateway: Gateway, only: Container[str], wrong: Iterable[Problem]) -> list[Problem]:
    """All warnings about the prices of the providers in `only`, which are compared with those of all providers. A
    price whose unit or currency is among the `wrong` problems is left out: it would be judged with the default."""
    broken = {(problem.mark.file, found[1]) for problem in wrong if (found := _MEASURE.match(problem.path))}
    offers = [
        _Offer(provider, model, model.price, gateway.credits.rates.get(model.price.currency))
        for provider in gateway.providers.values()
        for model in provider.models
        if model.price and (model.mark.file, f"models.{model.id}.price") not in broken
    ]
    problems = [
        offer.warning(*finding)
        for offer in offers
        if offer.provider.name in only and not offer.price.why
        for finding in _findings(offer)
    ]
    problems += _unlike_beside(offer for offer in offers if offer.provider.name in only and not offer.price.why)
    warned = {problem.path for problem in problems}
    return problems + [problem for problem in _siblings(offers, only) if problem.path not in warned]


def unpriced_warnings(gateway: Gateway) -> list[Problem]:
    """Warnings about models whose tokens cost nothing because they have no price. An offer that is only a fallback
    for another provider's needs none: the price of the first offer that is on is billed (`catalog.make_model`)."""
    first: dict[str, Rank] = {}
    for provider in gateway.providers.values():
        if not provider.off:
            for model in provider.models:
                rank = _rank(provider, model)
                first[model.id] = min(first.get(model.id, rank), rank)
    return [
        problem
        for provider in gateway.providers.values()
        for problem in _unpriced(
            provider,
            [model for model in provider.models if model.id not in first or first[model.id] >= _rank(provider, model)],
        )
    ]


def _rank(provider: Provider, model: Model) -> Rank:
    return rank_of(model.priority, model.weight, provider.name)


def lacking(model: Model) -> tuple[str, ...]:
    """The token prices that a model does not set, so that these tokens cost nothing; "0" is a price."""
    wanted = _WANTED.get(model.type, ())
    if model.price is None:
        return wanted
    return () if model.price.why else tuple(name for name in wanted if name not in model.price.prices)


def first_names(names: Iterable[str]) -> str:
    """Names for a line of text: the first ones, and how many more there are."""
    every = list(names)
    more = len(every) - _MOST_NAMED
    return ", ".join(every[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _unpriced(provider: Provider, models: Iterable[Model]) -> Iterator[Problem]:
    """Warnings about those of a provider's models that have no price; many models get one warning, at the first."""
    found = [(model, names) for model in models if (names := lacking(model))]
    hint = '"0" says that it is free'
    if len(found) > _MOST_SINGLY:
        yield provider.document.warning(
            found[0][0].mark,
            f"found {len(found)} models without a price for all their tokens, wanted one for each: "
            f"{first_names(model.id for model, _ in found)}",
            path="models",
            hint=hint,
        )
        return
    for model, names in found:
        yield provider.document.warning(
            model.mark,
            f"found no {' and no '.join(names)} price, so these tokens cost nothing",
            path=f"models.{model.id}.price",
            hint=hint,
        )


def _findings(offer: _Offer) -> Iterator[_Finding]:
    """Suspicious values in one price by itself."""
    price = offer.price
    if price.unit not in _UNITS:
        message = f"found {price.unit}, wanted 1, 1000 or 1000000, the numbers of tokens that price lists are for"
        yield ("unit",), message, ""
    yield from _dear(offer)
    for name, written in price.written.items():
        if name in price.prices and len(written.replace(".", "").strip("0")) >= _DUST:
            message = f"found {written}, which has the digits of a binary fraction"
            yield (name,), message, "write the price as the provider does"
    yield from _disorder(price.prices, price.prices, ())
    for index, volume in enumerate(price.volumes):
        yield from _disorder({**price.prices, **volume.prices}, volume.prices, ("volumes", index))
    yield from _falling(price)
    for index, window in enumerate(price.windows):
        if window.start == window.end != _MIDNIGHT:
            message = f"found {window.end}, which is also the start: these prices hold for a whole day"
            yield ("windows", index, "end"), message, 'a whole day is "00:00" to "00:00"'


def _dear(offer: _Offer) -> Iterator[_Finding]:
    """Token prices that are higher than those of any model."""
    price = offer.price
    for name in _LINES:
        value = offer.usd_per_million(name)
        if value is not None and value > _DEAR:
            unit = "unit" if price.unit > 1 else "unit: 1" if "unit" in price.source else "no unit is written"
            per = f"{price.unit} tokens" if price.unit > 1 else "one token"
            message = (
                f"found {price.written[name]} for {per} ({unit}), which is {_amount(value)} USD per million tokens"
            )
            hint = "" if price.unit == _MILLION else "is it a price per million? then write unit: 1000000"
            yield (name,), message, hint


def _disorder(row: Mapping[str, Decimal], own: Mapping[str, Decimal], at: _Steps) -> Iterator[_Finding]:
    """Within one row, generated tokens cost at least as much as prompt tokens, and cached ones at most as much.
    `own` has the prices that the row itself sets."""
    prompt = row.get("prompt")
    if prompt is None or prompt == 0:
        return
    completion, read = row.get("completion"), row.get("input_cache_read")
    if completion is not None and completion < prompt and "completion" in own:
        message = f"found {decimal_text(completion)}, which is below the prompt price {decimal_text(prompt)}"
        yield (*at, "completion"), message, ""
    if read is not None and read > prompt and "input_cache_read" in own:
        message = f"found {decimal_text(read)}, which is above the prompt price {decimal_text(prompt)}"
        yield (*at, "input_cache_read"), message, "a cache hit is cheaper everywhere"


def _falling(price: Pricing) -> Iterator[_Finding]:
    """Tiers that depend on prompt length alone and whose bounds or prices do not rise."""
    mark_before, prompt_before, written = -1, price.prices.get("prompt"), set[str]()
    for index, volume in enumerate(price.volumes):
        mark, prompt = volume.min_prompt_tokens, volume.prices.get("prompt")
        if mark is None or any(getattr(volume, name) is not None for name in _BESIDE_LENGTH):
            continue
        # Two rows may have the same bound if they set different prices.
        if mark < mark_before or mark == mark_before and written & volume.written.keys():
            message = f"found {mark}, which is not above the tier before ({mark_before})"
            yield ("volumes", index, "min_prompt_tokens"), message, "all matching tiers apply, the last one wins"
        elif prompt is not None and prompt_before is not None and prompt < prompt_before:
            message = f"found {decimal_text(prompt)}, which is below the tier before ({decimal_text(prompt_before)})"
            yield ("volumes", index, "prompt"), message, ""
        written = {*volume.written} | (written if mark == mark_before else set())
        mark_before, prompt_before = mark, prompt if prompt is not None else prompt_before


def _unlike_beside(offers: Iterable[_Offer]) -> Iterator[Problem]:
    """Warnings about a price without a currency, or for another number of tokens, where most prices of the same
    provider say the one, or have the other."""
    by_provider: dict[str, list[_Offer]] = {}
    for offer in offers:
        by_provider.setdefault(offer.provider.name, []).append(offer)
    for group in by_provider.values():
        currencies = Counter(offer.price.currency for offer in group if "currency" in offer.price.source)
        units = Counter(offer.price.unit for offer in group if offer.price.unit in _UNITS[1:])
        for offer in group:
            price = offer.price
            usual = _most(currencies, len(group))
            if usual and "currency" not in price.source and price.currency != usual:
                message = f"found no currency, which is {price.currency}; the other prices here are in {usual}"
                yield offer.warning((), message, f"currency: {usual}")
            unit = _most(units, len(group))
            if unit and price.unit in _UNITS[1:] and price.unit != unit and "unit" in price.source:
                message = f"found {price.unit}; the other prices here are for {unit} tokens"
                yield offer.warning(("unit",), message, "")


def _most(counted: Counter[_Value], of: int) -> _Value | None:
    """The value that more than half have; None if there is none."""
    value, count = next(iter(counted.most_common(1)), (None, 0))
    return value if count * 2 > of else None


def _siblings(offers: list[_Offer], only: Container[str]) -> Iterator[Problem]:
    """Warnings about an offer whose price is far from the median of the others for the same model."""
    by_model: dict[str, list[_Offer]] = {}
    for offer in offers:
        by_model.setdefault(offer.model.id, []).append(offer)
    groups = [
        group for group in by_model.values() if len(group) > 1 and any(offer.provider.name in only for offer in group)
    ]
    for group, name in product(groups, _LINES):
        values = [(offer, value) for offer in group if (value := offer.usd_per_million(name))]
        for offer, value in values:
            others = [theirs for other, theirs in values if other.provider is not offer.provider]
            if not others or offer.price.why or offer.provider.name not in only:
                continue
            middle = median(others)
            # Of two offers that differ either may be wrong: the more expensive one is reported.
            if value >= middle * _APART or (len(others) > 1 and value * _APART <= middle):
                message = f"found {_amount(value)} USD per million tokens, others take {_amount(middle)}"
                yield offer.warning((name,), message, "compare unit and currency")


def _amount(value: Decimal) -> str:
    return decimal_text(value.quantize(Decimal("0.0001"))) if value < _DEAR else f"{value:,.0f}"
