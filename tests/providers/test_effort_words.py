"""Reasoning effort as chat clients for OpenRouter send it, converted to each provider's own parameters."""

from __future__ import annotations

from typing import Any

import pytest

from providers.shipped import offer_for
from tollgate.mapping import Context

LOW_AND_SPLIT = {"reasoning_effort": "low", "reasoning_split": True}


def sent(provider: str, model: str, reasoning: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What a native chat request becomes at a provider, without the members that every request has."""
    offer = offer_for(provider, "chat", model)
    assert offer.request_edits is not None
    request = {"model": offer.model.upstream, "messages": [{"role": "user", "content": "Hi"}], "reasoning": reasoning}
    body = offer.request_edits({**request, **more}, Context(model=offer.model_facts, can=offer.can))
    return {name: value for name, value in body.items() if name not in ("model", "messages")}


@pytest.mark.parametrize(
    ("provider", "model", "effort", "off"),
    [
        ("deepseek", "deepseek/deepseek-v4-flash", {"reasoning_effort": "low"}, {"thinking": {"type": "disabled"}}),
        ("zai", "z-ai/glm-4.7", {"thinking": {"type": "enabled"}}, {"thinking": {"type": "disabled"}}),
        ("moonshot", "moonshotai/kimi-k2.6", {"thinking": {"type": "enabled"}}, {"thinking": {"type": "disabled"}}),
        ("dashscope", "qwen/qwen3-max", {"enable_thinking": True}, {"enable_thinking": False}),
        ("xai", "x-ai/grok-4.6", {"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        ("mistral", "mistralai/mistral-medium", {"reasoning_effort": "high"}, {}),
        ("groq", "openai/gpt-oss-20b", {"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        ("groq", "meta-llama/llama-3.3-70b-versatile", {}, {}),
        ("minimax", "minimax/minimax-m3.1-flash", LOW_AND_SPLIT, LOW_AND_SPLIT),
        ("cerebras", "qwen/qwen3.8-27b", {"reasoning_effort": "low"}, {"reasoning_effort": "none"}),
    ],
    ids=lambda value: value if isinstance(value, str) and "/" not in value else "",
)
def test_effort_and_its_switch_are_converted_to_the_provider_s_parameters(provider, model, effort, off):
    assert sent(provider, model, {"effort": "low"}) == effort
    assert sent(provider, model, {"enabled": False}) == off


@pytest.mark.parametrize(
    ("reasoning", "effort"),
    [
        ({"enabled": True}, "medium"),
        ({"max_tokens": 4096}, "low"),
        ({"max_tokens": 16384}, "medium"),
        ({"max_tokens": 16385}, "high"),
        ({"effort": "high", "max_tokens": 5}, "high"),
        ({"exclude": True}, None),
        ({}, None),
        ({"max_tokens": "many"}, None),
    ],
    ids=str,
)
def test_a_token_budget_is_converted_to_an_effort(reasoning, effort):
    assert sent("xai", "x-ai/grok-4.6", reasoning).get("reasoning_effort") == effort


def test_an_explicit_effort_wins_over_a_switch():
    converted = sent("xai", "x-ai/grok-4.6", {"enabled": True}, reasoning_effort="low")
    assert converted == {"reasoning_effort": "low"}


def test_a_responses_request_keeps_its_reasoning():
    offer = offer_for("xai", "responses", "x-ai/grok-4.6")
    assert offer.request_edits is not None
    body = {"model": "m", "input": "Hi", "reasoning": {"effort": "low"}}
    assert offer.request_edits(body, Context(model=offer.model_facts, can=offer.can))["reasoning"] == {"effort": "low"}
