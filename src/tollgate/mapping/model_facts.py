"""A model as mappings read it (`$model`), and its price block as usage rows store it."""

from __future__ import annotations

from typing import Any

import orjson

from tollgate.config.load import Mark
from tollgate.config.model import Model
from tollgate.tariff import tiers_with_a_price


def facts_of(model: Model, provider: str, protocol: str = "") -> dict[str, Any]:
    """What `$model` reads; what the file does not set is absent."""
    return {name: value for name, value in _facts(model, provider, protocol).items() if value is not None}


def _facts(model: Model, provider: str, protocol: str) -> dict[str, Any]:
    return {
        "id": model.id,
        "upstream": model.upstream,
        "provider": provider,
        "name": model.name or model.id,
        "type": model.type,
        "context": model.context or None,
        "max_output": model.max_output,
        "dimensions": list(model.dimensions) or None,
        "max_dimension": model.max_dimension,
        "created": model.created or None,
        "tokenizer": model.tokenizer,
        "parameters": list(model.parameters) or None,
        "service_tiers": None if model.price is None else tiers_with_a_price(model.price),
        "input_modalities": list(model.input_modalities),
        "output_modalities": list(model.output_modalities),
        "protocol": protocol or None,
    }


MODEL_FIELDS = frozenset(_facts(Model("", "", "", Mark("", 1, 1)), "", ""))
"""The fields of `$model`."""


def prices_text(model: Model) -> str:
    """The price block as compact JSON, for the usage row."""
    if model.price is None:
        return ""
    source = dict(model.price.source) or {
        **model.price.written,
        "unit": model.price.unit,
        "currency": model.price.currency,
    }
    return orjson.dumps(source, default=str).decode()
