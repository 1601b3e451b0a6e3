"""Providers that answer 400 to a member of a message they do not know are sent none that clients have from elsewhere:
what the gateway tells of Gemini's and Claude's answers, what OpenAI's library and LiteLLM add, marks for Claude."""

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
PICTURE = {"url": "https://x/y.png", "detail": "low"}

GIVEN: dict[str, Any] = {
    "model": "m",
    "messages": [
        {
            "role": "user",
            **MARK,
            "content": [
                {"type": "text", "text": "a", **MARK},
                {"type": "image_url", "image_url": PICTURE | {"format": "image/png"}},
            ],
        },
        {
            "role": "assistant",
            "content": "b",
            "parsed": None,
            "images": [{"type": "image_url", "image_url": PICTURE}],
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
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": PICTURE}]},
        {"role": "assistant", "content": "b", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "Caf7Pyrd8", "content": "1"},
        {"role": "assistant", "content": [{"type": "text", "text": "c"}]},
        {"role": "user", "content": "d"},
    ],
    "tools": [{"type": "function", "function": {"name": "f"}}],
}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_members_from_elsewhere_are_not_sent_and_those_that_say_something_are_named(provider: str) -> None:
    offer = offer_for(provider, "chat", PROVIDERS[provider])
    assert offer.request_edits is not None
    context = Context(offer.model_facts, offer.can)
    assert offer.request_edits(GIVEN, context) == SENT
    calls = [f"messages.tool_calls.{name}" for name in ("extra_content", "provider_specific_fields")]
    assert {"messages.images", "messages.cache_control", "tools.cache_control", *calls} <= set(context.lost)
    assert not {"messages.parsed", "messages.content.annotations"} & set(context.lost)


@pytest.mark.parametrize("provider", ["mistral", "groq", "cerebras", "fireworks"])
def test_an_answer_of_openai_may_be_sent_back_to_others_as_it_came(provider: str) -> None:
    offer = offer_for(provider, "chat", PROVIDERS[provider])
    assert offer.request_edits is not None
    said = {"role": "assistant", "content": "b"}
    answer = said | {"refusal": None, "annotations": [], "audio": None, "function_call": None}
    user = {"role": "user", "content": "a"}
    context = Context(offer.model_facts, offer.can)
    sent = offer.request_edits({"model": "m", "messages": [user, answer, user]}, context)
    assert sent["messages"] == [user, said, user]
    assert context.lost == []
