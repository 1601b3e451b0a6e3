"""`tollgate models`: the models on offer, their prices and routes, from the configuration alone, without a gateway."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from tollgate.catalog import CatalogModel
from tollgate.cli.books import compiled, config_option, fail, json_option, print_json, print_table, print_views
from tollgate.config.model import Model
from tollgate.money import decimal_text
from tollgate.runtime import Runtime


@click.command(
    help="""List the models on offer, their routes and prices.

PATTERN (a glob over ids and aliases) narrows the list. Prices are per million tokens (images: per picture) in their own
currency."""
)
@click.argument("pattern", required=False)
@click.option("--routes", is_flag=True, help="Every route of each model, in the order they are tried.")
@config_option
@json_option
def command(pattern: str | None, routes: bool, path: Path | None, as_json: bool) -> None:
    runtime = compiled(path)
    models = [
        model
        for model in runtime.catalog.models.values()
        if pattern is None or any(fnmatchcase(name, pattern) for name in (model.id, *model.aliases))
    ]
    if pattern is not None and not models:
        fail(f"no model matches {pattern}")
    if as_json:
        entries = [{**model.entry, "aliases": _aliases(runtime, model)} for model in models]
        if routes:
            entries = [{**entry, "routes": _routes(model)} for entry, model in zip(entries, models, strict=True)]
        print_json(entries)
    elif routes:
        columns = ("provider", "upstream", "protocols", "priority", "weight", "retires")
        print_table(("model", *columns), [row for model in models for row in _route_rows(model, columns)])
    else:
        prices = {model.id: _shown_prices(runtime, model) for model in models}
        print_views(
            {
                "model": "id",
                "type": "type",
                "context": lambda model: model.facts.context or "",
                "prompt, per M": lambda model: prices[model.id][0],
                "completion, per M": lambda model: prices[model.id][1],
                "currency": lambda model: prices[model.id][2],
                "provider": "facts.provider",
                "routes": lambda model: len(model.routes),
                "aliases": lambda model: ", ".join(_aliases(runtime, model)),
            },
            models,
        )
    if not as_json and (off := runtime.loaded.providers_off):
        click.echo(off, err=True)


def _aliases(runtime: Runtime, model: CatalogModel) -> list[str]:
    return sorted(alias for alias, target in runtime.catalog.aliases.items() if target == model.id)


def _routes(model: CatalogModel) -> list[dict[str, Any]]:
    return [
        {
            "provider": route.provider,
            "upstream": route.model.upstream,
            "protocols": [offer.protocol for offer in route.offers] or ["images"],
            "priority": route.priority,
            "weight": route.weight,
            "context": route.model.context,
            "retires": route.model.retires or None,
            "price": _own_price(route.model),
        }
        for route in model.routes
    ]


def _route_rows(model: CatalogModel, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """A row for each route; only the first has the model's id."""
    for place, route in enumerate(_routes(model)):
        shown = {**route, "protocols": ", ".join(route["protocols"]), "retires": route["retires"] or ""}
        yield "" if place else model.id, *(shown[name] for name in columns)


def _own_price(model: Model) -> dict[str, Any] | None:
    price = model.price
    return None if price is None else {**price.written, "unit": price.unit, "currency": price.currency}


def _shown_prices(runtime: Runtime, model: CatalogModel) -> tuple[str, str, str]:
    """Prompt and completion price per million tokens; of an image model the price of a picture."""
    if model.type == "image":
        offer = runtime.images.offer(model.id, model.facts.provider)
        if offer is None:
            return "", "", ""
        return "", f"{decimal_text(offer.price.price)} a picture", offer.price.currency
    price = model.facts.price
    if price is None:
        return "?", "?", ""
    prompt, completion = (
        "" if (each := price.per_million(name)) is None else decimal_text(each) for name in ("prompt", "completion")
    )
    return prompt, completion, price.currency
