"""Models that search for every answer without reporting it, which costs a search each, and their endpoints."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from providers.shipped import offers
from tollgate.charge import price_usage
from tollgate.usage import Usage


def test_openai_search_models_are_billed_a_search_for_every_answer() -> None:
    # "When using Chat Completions, the model always retrieves information from the web" (OpenAI's guide to web
    # search). The price of a search is on the pricing page and in the facts.
    found = {
        offer.model.id: offer
        for offer in offers("openai")
        if offer.endpoint == "chat" and offer.can.get("always_searches")
    }
    assert {
        "openai/gpt-4o-search-preview",
        "openai/gpt-4o-mini-search-preview",
        "openai/gpt-5-search-api",
    } <= found.keys()
    assert not [offer.model.id for offer in offers("openai") if offer.model.id in found and offer.endpoint != "chat"], (
        "the other endpoint does not serve them (404), and an answer would be billed without its search"
    )
    assert all("-search-" in name and offer.model.price.prices["web_search"] > 0 for name, offer in found.items())


@pytest.mark.parametrize(("depth", "fee"), [(None, "0.006"), ("low", "0.006"), ("medium", "0.01"), ("high", "0.014")])
def test_perplexity_has_a_fee_by_search_context_size(depth: str | None, fee: str) -> None:
    [offer] = [offer for offer in offers("perplexity") if offer.model.id == "perplexity/sonar-pro"]
    request = {"model": "sonar-pro", "web_search_options": {"search_context_size": depth} if depth else {}}
    assert offer.own_tariff is not None
    charge = price_usage(
        Usage(), offer.own_tariff, {}, at=datetime(2026, 11, 1, tzinfo=UTC), multipliers=offer.usage.words_of(request)
    )
    assert charge.cost == Decimal(fee)
