"""`error.too_long`: each format knows the words by which its providers say that a prompt does not fit."""

from __future__ import annotations

import pytest

from mappings.support import mapping
from tollgate.mapping.provider.errors import ErrorRules


@pytest.mark.parametrize(
    ("upstream", "message"),
    [
        ("chat", "This model's maximum context length is 4096 tokens, you asked for 5000."),
        ("chat", "`inputs` tokens + `max_new_tokens` must be <= 8"),
        ("chat", "the request exceeds the available context size, try increasing it"),
        ("responses", "Your input exceeds the context window of this model."),
        ("messages", "prompt is too long: 9 tokens > 8 maximum"),
        ("gemini", "The input token count (9) exceeds the maximum number of tokens allowed (8)."),
        ("bedrock", "Input is too long for requested model."),
        ("cohere", "too many tokens: total number of tokens in the prompt cannot exceed 8 - received 9."),
        ("ollama", "the input length exceeds the context length"),
    ],
)
def test_a_prompt_that_does_not_fit_is_known_by_the_words_of_its_format(upstream: str, message: str) -> None:
    verdict = ErrorRules(too_long=mapping(upstream).too_long).judge(400, {}, {"error": {"message": message}})
    assert verdict is not None and verdict.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("upstream", "message"),
    [
        ("cohere", "too many tokens: max tokens must be less than 8, the maximum output length for this model"),
        ("chat", "max_tokens is too large: 9. This model supports at most 8 completion tokens."),
        ("bedrock", "The tool name is too long."),
    ],
)
def test_a_limit_of_something_else_is_not_taken_for_it(upstream: str, message: str) -> None:
    verdict = ErrorRules(too_long=mapping(upstream).too_long).judge(400, {}, {"error": {"message": message}})
    assert verdict is not None and verdict.code is None
