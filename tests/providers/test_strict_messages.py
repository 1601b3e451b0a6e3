"""Providers that reject unknown members of a message are sent none that originate elsewhere: what the gateway adds to
answers of Gemini and Claude, what OpenAI's library and LiteLLM add, and cache marks for Claude."""

from __future__ import annotations

from typing import Any

import pytest

from providers.shipped import offer_for
from tollgate.mapping import Context

PROVIDERS = {
    "openai": "gpt-4.1",
    "azure-openai": "gpt-4.1",
    "mistral": "mistral-large-2512",
    "groq": "openai/gpt-oss-120b",
    "cerebras": "gpt-oss-120b",
    "fireworks": None,
}
MARK: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
SIGNED: dict[str, Any] = {"provider_specific_fields": {"thought_signature": "S"}}
CALL: dict[str, Any] = {"id": "Caf7Pyrd8", "type": "function", "function": {"name": "f", "arguments": "{}"}}
IMAGE = {"url": "https://x/y.png", "detail": "low"}

GIVEN: dict[str, Any] = {
    "model": "m",
    "messages": [
        {
            "role": "user",
            **MARK,
            "content": [
                {"type": "text", "text": "a", **MARK},
                {"type": "image_url", "image_url": IMAGE | {"format": "image/png"}},
            ],
        },
        {
            "role": "assistant",
            "content": "b",
            "parsed": None,
            "images": [{"type": "image_url", "image_url": IMAGE}],
            "provider_specific_fields": {"citations": None},
            "reasoning_details": [{"type": "reasoning.text", "text": "hm"}],
            "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "S"}],
            "tool_calls": [
                CALL
                | SIGNED
                | {"extra_content": {"google": {"thought_signature": "S"}}}
                | {"function": CALL["function"] | SIGNED | {"parsed_arguments": {}}}
            ],
        },
        {"role": "tool", "tool_call_id": "Caf7Pyrd8", "content": "1"},
        {"role": "assistant", "content": [{"type": "text", "text": "c", "annotations": []}]},
        {"role": "user", "content": "d"},
    ],
    "tools": [{"type": "function", **MARK, "function": {"name": "f", **MARK}}],
}
SENT: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": IMAGE}]},
        {"role": "assistant", "content": "b", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "Caf7Pyrd8", "content": "1"},
        {"role": "assistant", "content": [{"type": "text", "text": "c"}]},
        {"role": "user", "content": "d"},
    ],
    "tools": [{"type": "function", "function": {"name": "f"}}],
}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_foreign_members_are_not_sent_and_meaningful_ones_are_named(provider: str) -> None:
    offer = offer_for(provider, "chat", PROVIDERS[provider])
    assert offer.request_edits is not None
    context = Context(offer.model_facts, offer.can)
    assert offer.request_edits(GIVEN, context) == SENT
    calls = [f"messages.tool_calls.{name}" for name in ("extra_content", "provider_specific_fields")]
    assert {"messages.images", "messages.cache_control", "tools.cache_control", *calls} <= set(context.lost)
    assert not {"messages.parsed", "messages.content.annotations"} & set(context.lost)


@pytest.mark.parametrize("provider", ["mistral", "groq", "cerebras", "fireworks"])
def test_an_answer_of_openai_may_be_sent_to_others_unchanged(provider: str) -> None:
    offer = offer_for(provider, "chat", PROVIDERS[provider])
    assert offer.request_edits is not None
    message = {"role": "assistant", "content": "b"}
    answer = message | {"refusal": None, "annotations": [], "audio": None, "function_call": None}
    user = {"role": "user", "content": "a"}
    context = Context(offer.model_facts, offer.can)
    sent = offer.request_edits({"model": "m", "messages": [user, answer, user]}, context)
    assert sent["messages"] == [user, message, user]
    assert context.lost == []
