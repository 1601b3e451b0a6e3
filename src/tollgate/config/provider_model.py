"""Reads one entry of a provider's `models:` into a `Model`: what is offered under a canonical id, and at which
price."""

from __future__ import annotations

from datetime import date
from types import MappingProxyType

from tollgate.config.fields import Fields, fields_of
from tollgate.config.image_schema import IMAGE_STEPS, PRICE_KEYS
from tollgate.config.json_schema import schema_mistake
from tollgate.config.load import Map, Mark, Node, find, plain
from tollgate.config.model import Model, ModelType, Provider, model_type_of, names_match
from tollgate.config.prices import read_decimal, read_pricing
from tollgate.config.pricing import PRICES, Pricing
from tollgate.config.reading import Reading
from tollgate.config.shape import found
from tollgate.wording import path_text

_OUTPUT: dict[ModelType, tuple[str, ...]] = {"chat": ("text",), "embedding": ("embeddings",), "image": ("image",)}
"""The output modalities of each type of model."""

IMAGE_KEYS = ("price", "bill", *IMAGE_STEPS)
"""Keys of an image model that the image compiler reads."""


def read_model(reading: Reading, provider: Provider, name: str, node: Node, mark: Mark) -> Model:
    """The model of a checked node; problems go to `reading`."""
    at, path, short = Fields(node), f"models.{name}", name.partition("/")[2]
    kind: ModelType = at.text("type", _type_of(at, provider))  # type: ignore[assignment]
    if kind == "image":
        _check_image_price(reading, at, path)
    modalities = Fields(at.get("modalities"))
    defaults = {
        "upstream": short,
        "output_modalities": _OUTPUT[kind],
        "max_dimension": max(at.integers("dimensions"), default=None),
        "priority": _priority(provider, name, at.text("upstream", short)),
        "weight": provider.weight,
    }
    ruled = {
        "id": name,
        "provider": provider.name,
        "mark": mark,
        "name": at.text("name") or short,
        "type": kind,
        "canonical_slug": at.text("canonical_slug") or name,
        **{f"{side}_modalities": modalities.texts(side) for side in ("input", "output") if modalities.get(side)},
        "price": None if kind == "image" else _pricing(reading, at, path),
        "edits": reading.edits(at),
        "input_schema": _input_schema(reading, at, path),
        "image": _image(at, mark) if kind == "image" else None,
        "retires": _retires(reading, at, path),
    }
    return Model(**defaults | fields_of(Model, node) | ruled)


def _retires(reading: Reading, at: Fields, path: str) -> str:
    """The date of withdrawal, or ""; reports a date that does not exist."""
    day, node = at.text("retires"), at.get("retires")
    if day and node is not None:
        try:
            date.fromisoformat(day)
        except ValueError:
            reading.report(node, f'found "{day}", wanted a day that the calendar has', f"{path}.retires")
            return ""
    return day


def _priority(provider: Provider, name: str, upstream: str) -> int:
    """The model's priority: of the last matching policy that sets one, else the provider's."""
    return next(
        (
            policy.priority
            for policy in reversed(provider.policies)
            if policy.priority is not None and names_match(policy.match, name, upstream)
        ),
        provider.priority,
    )


def _type_of(at: Fields, provider: Provider) -> ModelType:
    if at.get("input_schema") is not None or (provider.images and not provider.endpoints):
        return "image"
    only = {model_type_of(protocol) for protocol in (at.texts("protocols") or provider.endpoints)}
    return "embedding" if only == {"embedding"} else "chat"


def _pricing(reading: Reading, at: Fields, path: str) -> Pricing | None:
    node = at.map("price")
    if node is None:
        return None
    for key, value in node.entries.items():
        if key in PRICE_KEYS:
            reading.report(
                value,
                f"found `{key}` in a price of tokens, wanted prompt, completion, ...",
                f"{path}.price.{key}",
                hint="it is for image models: type: image",
            )
    return read_pricing(reading, node, f"{path}.price")


def _check_image_price(reading: Reading, at: Fields, path: str) -> None:
    price = Fields(at.get("price"))
    for name in ("price", *PRICES):
        if (value := price.get(name)) is not None:
            read_decimal(reading, value, f"{path}.price.{name}", empty=name in PRICES)


def _image(at: Fields, mark: Mark) -> Map:
    node = at.node or Map({}, {}, mark)
    kept = {key: value for key, value in node.entries.items() if key in IMAGE_KEYS}
    return Map(kept, {key: node.keys[key] for key in kept}, node.mark, node.flow, node.incomplete)


def _input_schema(reading: Reading, at: Fields, path: str) -> MappingProxyType[str, object] | None:
    node = at.map("input_schema")
    if node is None:
        return None
    mistake = schema_mistake(node)
    if mistake is not None:
        at_fault = find(node, mistake[0])
        reading.report(
            at_fault,
            f"found {found(at_fault)}, wanted JSON Schema",
            path_text([*path.split(".", 1), "input_schema", *mistake[0]]),
            mistake[1],
        )
        return None
    return MappingProxyType(plain(node, floats=True))  # type: ignore[arg-type]
