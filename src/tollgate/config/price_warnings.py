"""Whether prices look right: slips that load, and would bill wrongly.

Every finding is a warning, from the kinds of mistakes met in public price lists: a price per million entered per token,
a cache hit dearer than the prompt, dust of binary fractions, no price at all (which is billed as nothing). Offers of
one model are compared in USD per token, so that units and currencies do not hide a slip.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import product
from statistics import median

from tollgate.config.load import Problem, find
from tollgate.config.model import Gateway, Model, Provider, Rank, rank_of
from tollgate.config.pricing import Pricing
from tollgate.money import CONTEXT, decimal_text
from tollgate.wording import path_text

_MILLION = Decimal(1_000_000)
_UNITS = (1, 1000, 1_000_000)
"""The units price lists use for tokens: another one is a slip of a zero."""
_MEASURE = re.compile(r"(models\..+\.price)\.(unit|currency)\Z")
"""The path of a key that says what the numbers of a price mean."""
_DEAR = Decimal(1000)
"""USD per million tokens no model costs (the dearest on sale takes 600): a higher price is a unit forgotten."""
_APART = Decimal(10)
"""How many times an offer may differ from the others of its model."""
_DUST = 15
"""Significant digits that no price list has, but every sum of binary fractions."""
_MIDNIGHT = "00:00"
"""No time is past the end of a day, so that a window of a whole one begins and ends here."""
_LINES = ("prompt", "completion")
_WANTED = {"chat": _LINES, "embedding": ("prompt",)}
"""The prices without which a type's tokens cost nothing."""
_MOST_SINGLY = 5
"""Models of one provider warned of one by one; more get one warning together."""
_MOST_NAMED = 3


def price_warnings(gateway: Gateway, only: Container[str], wrong: Iterable[Problem] = ()) -> list[Problem]:
    """All warnings about prices of the providers named by `only`, compared with everybody's. A price whose unit or
    currency is among what is `wrong` is not judged: it would be with the default."""
    broken = {(problem.mark.file, found[1]) for problem in wrong if (found := _MEASURE.match(problem.path))}
    offers = [(provider, model) for provider in gateway.providers.values() for model in provider.models
              if model.price and (model.mark.file, f"models.{model.id}.price") not in broken]
    problems = [
        problem
        for provider, model in offers
        if provider.name in only and not model.price.why  # type: ignore[union-attr]
        for problem in _one(gateway, provider, model)
    ]
    warned = {problem.path for problem in problems}
    return problems + [problem for problem in _siblings(gateway, offers, only) if problem.path not in warned]


def unpriced_warnings(gateway: Gateway) -> list[Problem]:
    """Warnings about models whose tokens cost nothing because no price says what they cost. What stands in for a model
    of another provider needs none: the price of the first that is on is billed (`catalog.make_model`)."""
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
    """The token prices a model does not say, so that these tokens cost nothing; "0" says that they shall."""
    if model.price is None:
        return _WANTED.get(model.type, ())
    return (
        () if model.price.why else tuple(name for name in _WANTED.get(model.type, ()) if name not in model.price.prices)
    )


def first_names(names: Iterable[str]) -> str:
    """Names for a line of text: the first ones, and how many more there are."""
    every = list(names)
    more = len(every) - _MOST_NAMED
    return ", ".join(every[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _unpriced(provider: Provider, models: Iterable[Model]) -> Iterator[Problem]:
    """Those of a provider's models that lack a price; many are told together, at the first."""
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


def _one(gateway: Gateway, provider: Provider, model: Model) -> Iterator[Problem]:
    price = model.price
    assert price is not None, "only offers with a price are looked at"
    if price.unit not in _UNITS:
        yield _warn(
            provider,
            model,
            ("unit",),
            f"found {price.unit}, wanted 1, 1000 or 1000000, the numbers of tokens that price lists are for",
        )
    for name in _LINES:
        value = _per_million(gateway, price, name)
        if value is not None and value > _DEAR:
            amount = f"{_amount(value)} USD per million tokens"
            per = (
                f"for {price.unit} tokens (unit)"
                if price.unit > 1
                else "for one token (no unit is written)"
                if "unit" not in price.source
                else "for one token (unit: 1)"
            )
            yield _warn(provider, model, (name,), f"found {price.written[name]} {per}, which is {amount}",
                        hint="" if price.unit == _MILLION else "is it a price per million? then write unit: 1000000")
    for name, written in price.written.items():
        if name in price.prices and len(written.replace(".", "").strip("0")) >= _DUST:
            yield _warn(
                provider,
                model,
                (name,),
                f"found {written}, which has the digits of a binary fraction",
                hint="write the price as the provider does",
            )
    yield from _order(provider, model, price.prices, price.prices, ())
    for index, volume in enumerate(price.volumes):
        yield from _order(provider, model, {**price.prices, **volume.prices}, volume.prices, ("volumes", index))
    yield from _rising(provider, model, price)
    for index, window in enumerate(price.windows):
        if window.start == window.end != _MIDNIGHT:
            yield _warn(
                provider,
                model,
                ("windows", index, "end"),
                f"found {window.end}, which is also the start: these prices hold for a whole day",
                hint='a whole day is "00:00" to "00:00"',
            )


def _order(provider: Provider, model: Model, row: Mapping[str, Decimal], own: Mapping[str, Decimal],
           at: tuple[str | int, ...]) -> Iterator[Problem]:
    """Within one row: generated tokens cost at least what prompt tokens do, cached ones at most. `own`:
    what the row itself says."""
    prompt = row.get("prompt")
    if prompt is None or prompt == 0:
        return
    completion, read = row.get("completion"), row.get("input_cache_read")
    if completion is not None and completion < prompt and "completion" in own:
        yield _warn(
            provider,
            model,
            (*at, "completion"),
            f"found {decimal_text(completion)}, which is below the prompt price {decimal_text(prompt)}",
        )
    if read is not None and read > prompt and "input_cache_read" in own:
        yield _warn(
            provider,
            model,
            (*at, "input_cache_read"),
            f"found {decimal_text(read)}, which is above the prompt price {decimal_text(prompt)}",
            hint="a cache hit is cheaper everywhere",
        )


def _rising(provider: Provider, model: Model, price: Pricing) -> Iterator[Problem]:
    """Warnings about tiers by prompt length alone: their bounds should rise, and their prices with them."""
    mark_before, prompt_before, written = -1, price.prices.get("prompt"), set[str]()
    for index, volume in enumerate(price.volumes):
        mark, prompt = volume.min_prompt_tokens, volume.prices.get("prompt")
        if (
            mark is None
            or volume.thinking is not None
            or volume.word is not None
            or volume.min_completion_tokens is not None
            or volume.max_completion_tokens is not None
        ):
            continue
        # Two rows may share a mark where they set different prices.
        if mark < mark_before or mark == mark_before and written & volume.written.keys():
            yield _warn(
                provider,
                model,
                ("volumes", index, "min_prompt_tokens"),
                f"found {mark}, which is not above the tier before ({mark_before})",
                hint="all matching tiers apply, the last one wins",
            )
        elif prompt is not None and prompt_before is not None and prompt < prompt_before:
            yield _warn(
                provider,
                model,
                ("volumes", index, "prompt"),
                f"found {decimal_text(prompt)}, which is below the tier before ({decimal_text(prompt_before)})",
            )
        written = {*volume.written} | (written if mark == mark_before else set())
        mark_before, prompt_before = mark, prompt if prompt is not None else prompt_before


def _siblings(gateway: Gateway, offers: list[tuple[Provider, Model]], only: Container[str]) -> Iterator[Problem]:
    """Warnings about an offer whose price is far from the middle of what others ask for the same model."""
    by_model: dict[str, list[tuple[Provider, Model]]] = {}
    for provider, model in offers:
        by_model.setdefault(model.id, []).append((provider, model))
    groups = [
        group for group in by_model.values() if len(group) > 1 and any(provider.name in only for provider, _ in group)
    ]
    for group, name in product(groups, _LINES):
        values = [(provider, model, value) for provider, model in group
                  if (value := _per_million(gateway, model.price, name))]  # type: ignore[arg-type]
        for provider, model, value in values:
            others = [other for owner, _, other in values if owner is not provider]
            if not others or model.price.why or provider.name not in only:  # type: ignore[union-attr]
                continue
            middle = median(others)
            # Of two offers that differ, nobody knows which is wrong: the dearer one is shown.
            if value >= middle * _APART or (len(others) > 1 and value * _APART <= middle):
                yield _warn(
                    provider,
                    model,
                    (name,),
                    f"found {_amount(value)} USD per million tokens, others take {_amount(middle)}",
                    hint="compare unit and currency",
                )


def _per_million(gateway: Gateway, price: Pricing, name: str) -> Decimal | None:
    """A token price in USD per million tokens; None where it or the currency's rate is not known."""
    value, rate = price.per_million(name), gateway.credits.rates.get(price.currency)
    return None if value is None or rate is None else CONTEXT.multiply(value, rate)


def _warn(provider: Provider, model: Model, steps: tuple[str | int, ...], message: str, hint: str = "") -> Problem:
    path = ("models", model.id, "price", *steps)
    return provider.document.warning(find(provider.document.root, path), message, path=path_text(path), hint=hint)


def _amount(value: Decimal) -> str:
    return decimal_text(value.quantize(Decimal("0.0001"))) if value < _DEAR else f"{value:,.0f}"
