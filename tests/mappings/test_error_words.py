"""`error.too_long` and `error.spent`: the words and codes by which the providers of each format report a prompt that is
too long, and a used up balance."""

from __future__ import annotations

import pytest

from mappings.support import mapping
from tollgate.mapping.provider.errors import ErrorRules


@pytest.mark.parametrize(
    ("upstream", "message", "known"),
    [
        ("chat", "This model's maximum context length is 4096 tokens, you asked for 5000.", True),
        ("chat", "`inputs` tokens + `max_new_tokens` must be <= 8", True),
        ("chat", "the request exceeds the available context size, try increasing it", True),
        ("chat", "Input length (9) must be smaller than the model context length (8).", True),
        ("chat", "Request exceeds the model's configured context length.", True),
        ("chat", "litellm.ContextWindowExceededError: litellm.BadRequestError: too many words", True),
        ("chat", "max_tokens is too large: 9. This model supports at most 8 completion tokens.", False),
        ("responses", "Your input exceeds the context window of this model.", True),
        ("messages", "prompt is too long: 9 tokens > 8 maximum", True),
        ("gemini", "The input token count (9) exceeds the maximum number of tokens allowed (8).", True),
        ("bedrock", "Input is too long for requested model.", True),
        ("bedrock", "The tool name is too long.", False),
        ("cohere", "too many tokens: total number of tokens in the prompt cannot exceed 8 - received 9.", True),
        ("cohere", "too many tokens: max tokens must be less than 8, the maximum output length for this model", False),
        ("ollama", "the input length exceeds the context length", True),
    ],
)
def test_a_prompt_that_is_too_long_is_recognised_by_the_words_of_its_format(
    upstream: str, message: str, known: bool
) -> None:
    verdict = ErrorRules(too_long=mapping(upstream).too_long).judge(400, {}, {"error": {"message": message}})
    assert verdict is not None and verdict.code == ("context_length_exceeded" if known else None)


@pytest.mark.parametrize(
    ("upstream", "code"),
    [
        ("chat", "project_spend_limit_exceeded"),
        ("chat", "organization_usage_limit_exceeded"),
        ("responses", "credit_balance_exhausted"),
        ("embeddings", "organization_spend_limit_exceeded"),
        ("messages", "enforced_spend_limit_reached"),
        ("messages", "contract_spend_limit_reached"),
    ],
)
def test_an_exhausted_balance_is_recognised_by_the_codes_of_its_format(upstream: str, code: str) -> None:
    verdict = ErrorRules(spent=mapping(upstream).spent).judge(429, {}, {"error": {"code": code, "message": "m"}})
    assert verdict is not None and (verdict.kind, verdict.alarm) == ("next", "balance")
