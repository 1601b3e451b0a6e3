"""Values that change nothing, such as defaults, are never named as lost, whatever a provider's edits remove."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from providers.shipped import PROVIDERS, mapping, offers, runtime
from tollgate.mapping import Context, convert_request
from tollgate.mapping.provider import Offer

REQUESTS: dict[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "Hi"}]},
    "responses": {"input": "Hi"},
    "messages": {"max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]},
}
SAID: dict[str, list[dict[str, Any]]] = {
    "chat": [
        {"n": 1, "logprobs": False, "top_logprobs": 0, "frequency_penalty": 0, "presence_penalty": 0.0, "top_p": 1},
        {"min_p": 0, "top_k": -1, "repetition_penalty": 1.0, "best_of": 1, "echo": False, "min_tokens": 0},
        {"top_k": 0, "logit_bias": {}, "stop": [], "metadata": {}, "tools": [], "provider": {}, "plugins": []},
        {"store": False, "service_tier": "auto", "modalities": ["text"], "verbosity": "medium", "safe_prompt": False},
        {"tool_choice": "auto", "parallel_tool_calls": True, "response_format": {"type": "text"}},
        {"service_tier": "default", "include_reasoning": True, "reasoning": {"exclude": False}, "stop": ""},
        {"usage": {"include": True}, "reasoning": {"effort": None, "max_tokens": None}, "reasoning_effort": None},
    ],
    "responses": [
        {"top_logprobs": 0, "frequency_penalty": 0, "presence_penalty": 0, "top_p": 1, "truncation": "disabled"},
        {"store": False, "background": False, "service_tier": "auto", "tool_choice": "auto", "include": []},
        {"service_tier": "default", "parallel_tool_calls": True, "reasoning": {"effort": None, "summary": None}},
        {"text": {"format": {"type": "text"}, "verbosity": "medium"}, "tools": [], "metadata": {}},
    ],
    "messages": [
        {"top_p": 1, "top_k": 0, "service_tier": "auto", "speed": "standard", "tool_choice": {"type": "auto"}},
        {"service_tier": "standard_only", "context_management": {"edits": []}, "stop_sequences": [], "tools": []},
        {"metadata": {}, "output_config": {}, "inference_geo": "global", "temperature": 1},
    ],
}


def different(provider: str) -> Iterator[Offer]:
    """Of a provider's offers of conversations, one for each list of edits."""
    seen = set()
    for offer in offers(provider):
        if offer.protocol in runtime().mappings and not mapping(offer.protocol).hub:
            kind = (offer.protocol, id(offer.request_edits))
            if kind not in seen:
                seen.add(kind)
                yield offer


def lost(client: str, offer: Offer, said: dict[str, Any]) -> list[str]:
    """What a request is said to lose at an offer."""
    context = Context(offer.model_facts, offer.can)
    body: Any = {"model": "m", **REQUESTS[client], **said}
    if client != offer.protocol:
        body = convert_request(mapping(client), mapping(offer.protocol), body, context).body
    if offer.request_edits is not None:
        offer.request_edits(body, context)
    return context.lost


def test_every_provider_is_tested_here() -> None:
    assert set(PROVIDERS) == set(runtime().providers)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_changes_nothing_is_not_named_as_lost(provider: str) -> None:
    named = {
        (client, offer.protocol, offer.model.id, *names)
        for offer in different(provider)
        for client, several in SAID.items()
        for said in several
        if (names := lost(client, offer, said))
    }
    assert not named


def test_a_model_without_reasoning_is_asked_for_none() -> None:
    offer = next(each for each in offers("azure-openai") if each.model.id == "openai/gpt-5-chat")
    assert lost("chat", offer, {}) == []


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_default_beside_what_says_nothing_is_not_named_as_lost(provider: str) -> None:
    alone, beside = ({"reasoning": {"enabled": False, **more}} for more in ({}, {"exclude": False}))
    for offer in different(provider):
        for switch in (True, False):
            alone["reasoning"]["enabled"] = beside["reasoning"]["enabled"] = switch
            if offer.protocol == "chat" and not lost("chat", offer, alone):
                assert not lost("chat", offer, beside)


@pytest.mark.parametrize("provider", ["azure-ai", "cerebras", "fireworks", "groq", "openai", "openrouter"])
def test_reasoning_switched_off_twice_loses_nothing_more(provider: str) -> None:
    for offer in different(provider):
        if offer.protocol == "chat":
            once = lost("chat", offer, {"reasoning": {"effort": "none"}})
            assert lost("chat", offer, {"reasoning": {"effort": "none", "enabled": False}}) in (once, [])


def test_a_forced_call_that_is_dropped_is_named() -> None:
    """Bedrock's word for it is an empty object below a name."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    offer = next(offer for offer in different("bedrock") if offer.model.id == "meta-llama/llama-3-70b-instruct")
    assert lost("chat", offer, {"tools": [tool], "tool_choice": "required"}) == ["toolConfig.toolChoice"]
    assert not lost("chat", offer, {"tools": [tool], "tool_choice": "auto"})


@pytest.mark.parametrize("said", [{"store": True}, {"n": 2}, {"logprobs": True}, {"verbosity": "low"}], ids=str)
def test_what_changes_something_is_named(said: dict[str, Any]) -> None:
    offer = next(offer for offer in different("zai") if offer.protocol == "chat")
    assert lost("chat", offer, said) == list(said)
