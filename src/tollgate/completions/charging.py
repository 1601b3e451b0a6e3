"""The cost of an answer: its usage at the price of the model that was asked for, and the part of it that other models
used at theirs."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tollgate.charge import Charge, price_usage
from tollgate.money import CONTEXT, round_cost

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal

    from tollgate.catalog import Catalog, CatalogModel
    from tollgate.tariff import Tariff
    from tollgate.usage import Usage


def charge_of(
    usage: Usage,
    tariff: Tariff | None,
    asked: CatalogModel,
    provider: str,
    catalog: Catalog,
    rates: Mapping[str, Decimal],
    *,
    at: datetime,
    **options: Any,
) -> Charge:
    """The charge for an answer of the model `asked`: its own usage at its price, the usage of other models at theirs.
    `usage.others` names these as `provider` does; a model that is not in the catalog costs the same as `asked`."""
    others = [
        (model, part)
        for name, part in usage.others
        if (model := catalog.resolve_foreign(name, provider)) is not None
        and model.id != asked.id
        and model.tariff is not None
    ]
    for _, part in others:
        usage = usage.without(part)
    charge = price_usage(usage, tariff, rates, at=at, **options)
    for model, part in others:
        more = price_usage(part, model.tariff, rates, at=at, **options)
        native = more.native if more.currency == charge.currency else round_cost(CONTEXT.divide(more.cost, charge.rate))
        charge = replace(
            charge, cost=charge.cost + more.cost, native=charge.native + native, rule=f"{charge.rule} + {model.id}"
        )
    return charge
