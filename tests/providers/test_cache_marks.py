"""Which models are sent cache marks: those whose makers document them, and no others."""

from __future__ import annotations

from providers.shipped import offers


def test_openai_models_before_the_family_that_takes_breakpoints_are_sent_none() -> None:
    # "Supported for `gpt-5.6` and later models": prompt_cache_options in OpenAI's published document. That family is
    # the first to bill writes.
    found = [offer for offer in offers("openai") if offer.endpoint in ("chat", "responses")]
    marked = {offer.model.id for offer in found if offer.can.get("cache_breakpoint")}
    assert marked >= {offer.model.id for offer in found if "input_cache_write" in offer.model.price.prices}
    assert all(name.startswith(("openai/gpt-5.6", "openai/gpt-6")) for name in marked)
