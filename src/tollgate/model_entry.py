"""A model as clients see it: the `Model` resource of the specification, with its prices as its file has them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tollgate.config.model import Model
from tollgate.config.pricing import VOLUME_CONDITIONS, Pricing, Volume
from tollgate.money import decimal_text

_LAST_SECOND = 253402300799
"""The last second of the year 9999, the latest time in RFC 3339 format."""


def model_entry(model: Model) -> dict[str, Any]:
    """The `Model` resource of the specification for one model. Prices are formatted as in its file.

    `object` and `owned_by` are not in the specification, but typed clients of the chat API (for Rust, Swift and PHP)
    fail on a list without them; the owner is the vendor in the canonical id. `display_name`, `created_at`,
    `max_input_tokens` and `max_tokens` are what clients of the messages API look for; null is an unknown limit.
    """
    inputs, outputs = list(model.input_modalities), list(model.output_modalities)
    entry: dict[str, Any] = {
        "id": model.id,
        "object": "model",
        "canonical_slug": model.canonical_slug or model.id,
        "hugging_face_id": model.hugging_face_id,
        "name": model.name or model.id,
        "display_name": model.name or model.id,
        "type": model.type,
        "created": model.created,
        "created_at": datetime.fromtimestamp(min(model.created, _LAST_SECOND), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "description": model.description,
        "context_length": model.context,
        "max_input_tokens": model.context or None,
        "max_tokens": model.max_output,
        "architecture": {
            "modality": f"{'+'.join(inputs)}->{'+'.join(outputs)}",
            "input_modalities": inputs,
            "output_modalities": outputs,
            "tokenizer": model.tokenizer,
            "instruct_type": model.instruct_type,
        },
        "pricing": _pricing_entry(model.price),
        "supported_parameters": list(model.parameters),
        "model_provider": model.provider,
        "owned_by": model.id.partition("/")[0],
    }
    if model.type == "embedding":
        entry["dimensions"] = list(model.dimensions)
        largest = model.max_dimension or max(model.dimensions, default=None)
        if largest is not None:
            entry["max_dimension"] = largest
    return entry


def _pricing_entry(price: Pricing | None) -> dict[str, Any]:
    """The `pricing` object. A missing flat fee is "0". A missing price that falls back to another one is "", which SPEC
    allows, because "0" would mean that cached or reasoning tokens are free."""
    price = price or Pricing({}, {})
    return {
        **_PRICE_DEFAULTS,
        **{name: text for name, text in price.written.items() if name in _PRICE_DEFAULTS},
        "unit": price.unit,
        "currency": price.currency,
        "volumes": [_volume_entry(row) for row in price.volumes],
    }


_PRICE_DEFAULTS = {
    "prompt": "0",
    "completion": "0",
    "input_cache_read": "",
    "input_cache_write": "",
    "request": "0",
    "image": "0",
    "web_search": "0",
    "internal_reasoning": "",
}
"""The `pricing` fields, as they are where the file has no such price."""


def _volume_entry(row: Volume) -> dict[str, Any]:
    """A volume tier: the bounds that are set, and the prices it replaces, formatted as in its file."""
    bounds = {name: value for name in VOLUME_CONDITIONS if (value := getattr(row, name)) is not None}
    return bounds | {name: row.written.get(name, decimal_text(value)) for name, value in row.prices.items()}
