"""Image models as clients see them: which a key may use, their descriptors, and the routes for a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tollgate.catalog import ANONYMOUS, access_of, listing_of
from tollgate.errors import ModelNotFound

if TYPE_CHECKING:
    from tollgate.catalog import CatalogModel, Listing
    from tollgate.ledger import KeyRecord
    from tollgate.mapping.images.offer import ImageOffer
    from tollgate.runtime import Runtime


def image_routes(runtime: Runtime, name: str, key: KeyRecord) -> list[ImageOffer]:
    """The offers of a model, by id or alias, best first. Raises `ModelNotFound`, also where the key may not use it."""
    found = runtime.catalog.find(name, access_of(key)) if name else None
    offers = offers_of(runtime, found) if found else []
    if not offers:
        raise ModelNotFound(name[:200], kind=found.type if found and found.type != "image" else None)
    return offers


def offers_of(runtime: Runtime, model: CatalogModel) -> list[ImageOffer]:
    """The image offers of a model, best first; none for a model of another type."""
    return [offer for route in model.routes if (offer := runtime.images.offer(model.id, route.provider)) is not None]


def image_models(runtime: Runtime, key: KeyRecord | None) -> list[ImageOffer]:
    """The first offer of every image model this key may use (without a key: of every public one), sorted by id."""
    models = runtime.catalog.image_models(access_of(key) if key else ANONYMOUS)
    return [offers[0] for model in models if (offers := offers_of(runtime, model))]


def descriptor(offer: ImageOffer) -> dict[str, Any]:
    """An image model descriptor of SPEC; `price` is a number there, the only place a price is not exact text."""
    model = offer.model
    return {
        "id": model.id,
        "name": model.name or model.id,
        "model_provider": offer.provider,
        "description": model.description,
        "tags": list(model.tags),
        "pricing": {"price": float(offer.price.price), "currency": offer.price.currency, "unit": offer.price.unit},
        "input_schema": offer.schema.document,
    }


def image_listing(runtime: Runtime, key: KeyRecord | None = None) -> Listing:
    """The body of `GET /v1/images/models` for a key, or for a caller without one. Made once for each configuration and
    set of visible models."""
    offers = image_models(runtime, key)
    names = tuple(offer.model.id for offer in offers)
    memo = runtime.images.rendered
    listing = memo.get(names)
    if listing is None:
        listing = listing_of({"success": True, "code": 200, "data": [descriptor(offer) for offer in offers]})
        if len(memo) > 64:
            memo.clear()
        memo[names] = listing
    return listing
