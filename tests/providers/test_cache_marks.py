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


def test_grok_in_chat_gets_the_key_of_a_cache_in_its_header() -> None:
    # docs.x.ai, Maximizing Cache Hits: "Set x-grok-conv-id (Chat Completions API)"
    offer = next(offer for offer in offers("xai") if offer.endpoint == "chat")
    body, sent = offer.request_parts({"model": "grok-4.6", "prompt_cache_key": "chat 1 – a"}, stream=False)
    assert sent is not None
    assert (body, sent.all_headers({})) == (b'{"model":"grok-4.6"}', {"x-grok-conv-id": "chat%201%20%E2%80%93%20a"})
    body, sent = offer.request_parts({"model": "grok-4.6"}, stream=False)
    assert sent is not None and sent.all_headers(offer.headers({"x-grok-conv-id": "c1"}))["x-grok-conv-id"] == "c1"
