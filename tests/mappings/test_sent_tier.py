"""`request.service_tier`: where each format has the service tier in a request."""

from __future__ import annotations

import pytest

from mappings.support import context, mapping
from tollgate.mapping import convert_request


@pytest.mark.parametrize(
    ("upstream", "requested", "sent"),
    [
        ("chat", "auto", "auto"),
        ("responses", "auto", "auto"),
        ("messages", "auto", "auto"),
        ("bedrock", "auto", None),
        ("chat", "standard_only", "default"),
        ("messages", "priority", None),
        ("bedrock", "priority", "priority"),
        ("gemini", "priority", "priority"),
        ("gemini", "auto", None),
        ("chat", None, None),
    ],
)
def test_the_tier_that_is_sent_is_found(upstream: str, requested: str | None, sent: str | None) -> None:
    body = {
        "model": "m",
        "max_tokens": 5,
        "messages": [{"role": "user", "content": "Hi"}],
        **({"service_tier": requested} if requested else {}),
    }
    target, read = mapping(upstream), mapping(upstream).sent_tier
    assert read is not None
    assert read(convert_request(mapping("messages"), target, body, context()).body, context()) == sent


@pytest.mark.parametrize("upstream", ["cohere", "ollama"])
def test_a_format_without_tiers_has_none(upstream: str) -> None:
    assert mapping(upstream).sent_tier is None
