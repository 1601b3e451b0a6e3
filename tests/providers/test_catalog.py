"""The shipped catalog against the facts it was imported from, read independently: prices, limits, names, routes."""

from __future__ import annotations

from fractions import Fraction

import pytest

from providers import facts, shipped
from support.places import ROOT
from tollgate.config.model import Model

pytestmark = pytest.mark.skipif(not facts.FACTS.is_file(), reason=facts.ABSENT)
PROVIDERS = sorted(path.stem for path in (ROOT / "providers" / "models").glob("*.yaml"))
TOKENS = (
    "prompt",
    "completion",
    "input_cache_read",
    "input_cache_write",
    "input_cache_write_1h",
    "internal_reasoning",
    "audio",
    "input_audio_cache",
    "audio_output",
)


def models(provider: str) -> list[Model]:
    return [model for model in shipped.loaded().gateway.providers[provider].models]


def per_token(prices, unit: int) -> dict[str, Fraction]:
    return {name: Fraction(value) / unit for name, value in prices.items() if name in TOKENS} | {
        name: Fraction(value) for name, value in prices.items() if name in ("request", "web_search")
    }


def expected_prices(row: dict, unit: int) -> dict[str, Fraction]:
    return {name: Fraction(row[name]) / unit for name in TOKENS if name in row} | {
        name: Fraction(row[name]) for name in ("request", "web_search") if name in row
    }


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_price_equals_the_facts_exactly(provider: str) -> None:
    for model in models(provider):
        row = facts.row_of(provider, model)
        assert row is not None, model.id
        price, pricing = model.price, row["pricing"]
        unit = pricing["unit"]
        assert per_token(price.prices, price.unit) == expected_prices(pricing, unit), model.id
        assert price.currency == pricing["currency"], model.id
        volumes = [volume for volume in pricing.get("volumes", ()) if expected_prices(volume, unit)] + [
            {"word": word, "request": fee}
            for word in ("medium", "high")  # low is the base fee
            if (fee := pricing.get("request_by_search_context", {}).get(word))
        ]
        assert [
            (
                per_token(v.prices, price.unit),
                v.min_prompt_tokens,
                v.max_prompt_tokens,
                v.min_completion_tokens,
                v.thinking,
                v.word,
            )
            for v in price.volumes
        ] == [
            (
                expected_prices(v, unit),
                v.get("min_prompt_tokens"),
                v.get("max_prompt_tokens"),
                v.get("min_completion_tokens"),
                v.get("thinking"),
                v.get("word"),
            )
            for v in volumes
        ], model.id
        assert {tier: per_token(prices, price.unit) for tier, prices in price.service_tiers.items()} == {
            tier: expected_prices(prices, unit) for tier, prices in pricing.get("service_tiers", {}).items()
        }, model.id
        assert {name: Fraction(value) for name, value in price.multipliers.items()} == {
            n: Fraction(v) for n, v in pricing.get("multipliers", {}).items()
        }
        assert [(f"{w.start}-{w.end}", list(w.days), per_token(w.prices, price.unit)) for w in price.windows] == [
            (hours, window["weekdays"], expected_prices(window, unit))
            for window in pricing.get("windows", ())
            for hours in window["hours_utc"]
        ], model.id


def test_every_chat_model_that_generates_images_has_an_image_token_price() -> None:
    """An image token costs ten times a text token or more. The image services of the same models have the price in
    their facts."""
    drawn = {
        model.upstream.rpartition("/")[2].removesuffix("-preview"): str(model.price.prices["image_output_token"])
        for provider in PROVIDERS
        for model in models(provider)
        if "image_output_token" in model.price.prices
    }
    assert drawn == {
        "gemini-2.5-flash-image": "30.00",
        "gemini-3-pro-image": "120.00",
        "gemini-3.1-flash-image": "60.00",
        "gemini-3.1-flash-lite-image": "30.00",
    }
    assert all(Fraction(drawn[name]) == Fraction(price) for name, price in facts.image_prices().items())
    assert not [
        model.id
        for provider in PROVIDERS
        for model in models(provider)
        if "gemini" in model.id and "image" in model.id and "image_output_token" not in model.price.prices
    ]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_limits_and_abilities_equal_the_facts(provider: str) -> None:
    for model in models(provider):
        row = facts.row_of(provider, model)
        shape = row["architecture"]
        assert (model.context, model.max_output or 0) == (
            row["context_length"] or 0,
            row.get("max_output_tokens") or 0,
        ), model.id
        assert model.type == row["type"] and list(model.parameters) == row["supported_parameters"], model.id
        assert model.type == "embedding" or (list(model.input_modalities), list(model.output_modalities)) == (
            shape["input_modalities"],
            shape["output_modalities"],
        )
        assert (model.name, model.created, model.tokenizer) == (row["name"], row["created"], shape["tokenizer"]), (
            model.id
        )
        assert set(model.dimensions) == set(row.get("dimensions") or ()) and (model.max_dimension or 0) == (
            row.get("max_dimension") or 0
        ), model.id
        assert model.retires == row.get("retires", "") and model.hugging_face_id == row.get("hugging_face_id"), model.id
        assert (
            row.get("native_endpoint") != "responses"
            or "responses" in model.protocols
            or "responses" not in shipped.loaded().gateway.providers[provider].endpoints
        ), model.id
        assert model.description


def test_every_model_has_its_canonical_slug_and_resolves_by_each_unambiguous_name() -> None:
    catalog, entries = shipped.runtime().catalog, {}
    for row in facts.rows().values():
        entries.setdefault(row["id"], []).append(row)
    for name, slug in facts.slugs().items():
        model = catalog.models.get(name)
        if model is not None and {route.provider for route in model.routes} & set(PROVIDERS):
            assert model.entry["canonical_slug"] == slug
    for dated in ("gpt-6-sol-2026-09-22", "gpt-4-turbo-2024-04-09", "gpt-5.1-codex-2025-11-13"):
        [named] = {row["id"] for rows in entries.values() for row in rows if dated in row.get("aliases", ())}
        assert catalog.resolve(dated).id == named


def test_no_model_on_sale_is_missing() -> None:
    """A model missing here is listed in its own file, has no price, or is a second offer of another model."""
    ours = {(facts.sources()[provider], model.id) for provider in PROVIDERS for model in models(provider)}
    sold = {
        (row["provider"], row["id"])
        for row in facts.rows().values()
        if row["status"] == "current" and row["pricing"] and row["provider"] in set(facts.sources().values())
    }
    assert len(ours) >= 0.97 * len(sold)
    assert ours <= sold


def test_the_catalog_is_wide_and_its_names_are_unambiguous() -> None:
    catalog = shipped.runtime().catalog
    routes = {name: {route.provider for route in model.routes} for name, model in catalog.models.items()}
    assert len(routes) > 800
    assert sum(len(providers) > 1 for providers in routes.values()) > 230
    assert sum(len(providers) > 2 for providers in routes.values()) > 130
    assert {"openai", "azure-openai", "openrouter"} <= routes["openai/gpt-5.2"]
    assert catalog.resolve("claude-opus-4-5-20251101").id == "anthropic/claude-opus-4.5"
    assert catalog.resolve("gpt-5.2").id == "openai/gpt-5.2"
    assert catalog.resolve("glm-latest") is None


@pytest.mark.parametrize(
    ("model", "first"),
    [
        ("openai/gpt-5.2", "openai"),
        ("anthropic/claude-opus-5.5", "anthropic"),
        ("deepseek/deepseek-v4-pro", "deepseek"),
        ("z-ai/glm-5.3", "zai"),
        ("google/gemini-2.5-pro", "gemini"),
        ("mistralai/mistral-large", "mistral"),
        ("x-ai/grok-4.3", "xai"),
        ("qwen/qwen3-max", "dashscope"),
    ],
)
def test_the_vendor_s_own_service_comes_first(model: str, first: str) -> None:
    routes = shipped.runtime().catalog.models[model].routes
    assert routes[0].provider == first
    assert [route.priority for route in routes] == sorted(route.priority for route in routes)
    assert routes[-1].provider == "openrouter" or "openrouter" not in {route.provider for route in routes}
