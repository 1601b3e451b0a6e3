"""Prices in model lists that are read at run time: those beside prompt and completion are billed as well."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from providers import facts, shipped


def listed(body):
    models, problems = shipped.runtime().providers["openrouter"].discovery.read(body)
    assert not problems
    return {model.id: model.price for model in models}


def test_long_prompts_have_the_overridden_prices_of_the_list():
    tier = {"min_prompt_tokens": 200000, "prompt": "0.000004", "completion": "0.000018", "audio": "0"}
    at_night = {"utc_start": 1600, "utc_end": 30, "prompt": "0.000001"}
    (price,) = listed(
        {
            "data": [
                {
                    "id": "acme/long",
                    "pricing": {"prompt": "0.000002", "completion": "0.000012", "overrides": [tier, at_night]},
                }
            ]
        }
    ).values()
    assert [(row.min_prompt_tokens, dict(row.prices)) for row in price.volumes] == [
        (200000, {"prompt": Decimal("0.000004"), "completion": Decimal("0.000018")})
    ]
    assert not price.windows


@pytest.mark.skipif(not facts.FACTS.is_file(), reason=facts.ABSENT)
def test_a_recorded_list_has_audio_prices_and_no_free_reasoning():
    """Zeros in `internal_reasoning` of models that reason mean the completion price."""
    recorded = facts.FACTS.parents[1] / "traffic" / "exchanges" / "models-list" / "ml-openrouter-b1c180.json"
    prices = listed(json.loads(recorded.read_text())["response"]["body"])
    assert prices["google/gemini-3-flash-preview"].written["audio"] == "0.000001"
    assert not [name for name, price in prices.items() if "internal_reasoning" in price.prices]
