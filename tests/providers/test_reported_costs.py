"""The cost that OpenRouter reported for each recorded answer, against ours for the same usage at the shipped prices."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from providers import shipped, traffic
from tollgate.charge import price_usage
from tollgate.mapping import Tap, tap_response
from tollgate.usage import from_hub

AT = datetime(2026, 11, 18, tzinfo=UTC)
CUT = Decimal("1e-9")
"""Price lists cut repeating decimals after six places."""
DIFFERENT = {
    "oc-openrouter-17d304": "the model cost twice as much in August 2026",
    "oc-openrouter-22a87e": "the recorded cost is that of another model; the recording was edited",
    "oc-openrouter-cfd2b6": "the recording was edited",
    "oc-openrouter-d1db43": "the recording was edited",
    "oc-openrouter-30b4fe": "the model's price depends on the service behind it",
    "oc-openrouter-4ef9d4": "the model's price depends on the service behind it",
    "oc-openrouter-643356": "the model's price depends on the service behind it",
    "oc-openrouter-9ddbcc": "the model's price depends on the service behind it",
}
"""Exchange id -> why its price of then is not the shipped one."""


def reported(usage: dict) -> Decimal:
    """The cost of the model itself. Fees for other work (a plugin that reads a file) are in `cost` only."""
    details = usage.get("cost_details") or {}
    parts = [
        details[name]
        for name in ("upstream_inference_prompt_cost", "upstream_inference_completions_cost")
        if details.get(name) is not None
    ]
    whole = details.get("upstream_inference_cost")
    return Decimal(repr(whole)) if whole else sum(map(Decimal, map(repr, parts))) or Decimal(repr(usage["cost"]))


def answers() -> list[tuple[traffic.Exchange, dict]]:
    """Every answer with a cost, of a model that is still on sale, with its usage block."""
    on_sale = {offer.model.upstream for offer in shipped.offers("openrouter")} if traffic.exchanges() else set()
    found = []
    for exchange in traffic.of("openrouter"):
        told = [e for _, e in exchange.events if isinstance(e, dict)] if exchange.stream else [exchange.body]
        usage = next((e["usage"] for e in reversed(told) if isinstance(e, dict) and e.get("usage")), None)
        if usage and usage.get("cost") is not None and exchange.model in on_sale:
            found.append((exchange, usage))
    return found


@pytest.mark.skipif(not traffic.exchanges(), reason=traffic.ABSENT)
def test_the_cost_is_the_one_that_the_provider_reported() -> None:
    compared = 0
    for exchange, usage in answers():
        offer = shipped.offer_for("openrouter", "chat", exchange.model)
        if exchange.stream:
            tap = Tap(offer.mapping)
            for name, event in exchange.events:
                tap.feed(event, name)
            hub = tap.usage
        else:
            hub = tap_response(offer.mapping, exchange.body).get("usage")
        charge = price_usage(from_hub(hub, excludes=offer.usage.excludes), offer.own_tariff, {}, at=AT)
        near = abs(charge.cost - reported(usage)) <= CUT
        assert near == (exchange.id not in DIFFERENT), (exchange.id, charge.cost, usage)
        compared += near
    assert compared >= 20
