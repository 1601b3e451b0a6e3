"""The catalog: search, prices, context, routes; and one model with an example to copy."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import get_args

from starlette.responses import Response

from tollgate.catalog import CatalogModel
from tollgate.config.model import ModelType
from tollgate.config.pricing import FLAT_PRICES, Pricing
from tollgate.dashboard.visit import Visit
from tollgate.errors import NotFound
from tollgate.images.catalog import offers_of

_TYPES = get_args(ModelType)
_LABELS = {
    "prompt": "Input",
    "completion": "Output",
    "input_cache_read": "Cache read",
    "input_cache_write": "Cache write",
    "input_cache_write_1h": "Cache write, one hour",
    "internal_reasoning": "Reasoning",
    "audio": "Audio input",
    "audio_output": "Audio output",
    "input_audio_cache": "Audio cache read",
    "image_output_token": "Image output",
    "request": "Each request",
    "image": "Each image",
    "web_search": "Each web search",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A model in the list; prices are per million tokens, those of an image model per image in `picture`."""

    model: CatalogModel
    prompt: Decimal | None
    completion: Decimal | None
    picture: Decimal | None
    currency: str


async def show(visit: Visit) -> Response:
    """The list, narrowed by a search over ids, names, aliases and providers."""
    search, kind = visit.query["q"].strip()[:100], visit.query["type"]
    kind = kind if kind in _TYPES else ""
    models = visit.runtime.catalog.models.values()
    found = [model for model in models if (not kind or model.type == kind) and _fits(model, search.lower().split())]
    counts = {name: sum(1 for model in models if model.type == name) for name in _TYPES}
    return visit.render(
        "models.html",
        entries=[_entry(visit, model) for model in found],
        search=search,
        kind=kind,
        counts=counts,
        total=len(models),
    )


async def one(visit: Visit) -> Response:
    """One model by id or alias."""
    model = visit.runtime.catalog.resolve(visit.argument("model"))
    if model is None:
        raise NotFound("there is no such model")
    return visit.render(
        "model.html",
        entry=_entry(visit, model),
        model=model,
        price=price_list(model.facts.price),
        resting=visit.services.health.cooling(),
    )


def price_list(pricing: Pricing | None) -> list[tuple[str, Decimal]]:
    """(name, exact price) for each price; token prices per million."""
    if pricing is None:
        return []
    prices = {name: pricing.prices.get(name) if name in FLAT_PRICES else pricing.per_million(name) for name in _LABELS}
    return [(_LABELS[name], price) for name, price in prices.items() if price is not None]


def _entry(visit: Visit, model: CatalogModel) -> Entry:
    pricing = model.facts.price
    if model.type == "image":
        offer = next(iter(offers_of(visit.runtime, model)), None)
        return Entry(model, None, None, offer.price.price if offer else None, offer.price.currency if offer else "USD")
    if pricing is None:
        return Entry(model, None, None, None, "USD")
    return Entry(model, pricing.per_million("prompt"), pricing.per_million("completion"), None, pricing.currency)


def _fits(model: CatalogModel, words: list[str]) -> bool:
    text = " ".join((model.id, model.facts.name, *model.aliases, *(route.provider for route in model.routes))).lower()
    return all(word in text for word in words)
