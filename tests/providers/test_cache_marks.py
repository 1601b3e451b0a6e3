"""Cache breakpoints are sent only to models whose vendors document them."""

from __future__ import annotations

from providers.shipped import offers


def test_openai_models_before_gpt_5_6_are_sent_no_cache_breakpoints() -> None:
    # "Supported for `gpt-5.6` and later models": prompt_cache_options in OpenAI's published document. That family
    # is the first that bills cache writes.
    found = [offer for offer in offers("openai") if offer.endpoint in ("chat", "responses")]
    marked = {offer.model.id for offer in found if offer.can.get("cache_breakpoint")}
    assert marked >= {offer.model.id for offer in found if "input_cache_write" in offer.model.price.prices}
    assert all(name.startswith(("openai/gpt-5.6", "openai/gpt-6")) for name in marked)
