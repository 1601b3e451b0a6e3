"""What a request is seen to ask of a route."""

from typing import Any

import pytest

from tollgate.completions.needs import needs_of

TOOLS: dict[str, Any] = {"tools": [{"type": "function", "function": {"name": "f"}}]}


@pytest.mark.parametrize(("dialect", "body", "effort"), [
    ("chat", TOOLS, "unset"),
    ("chat", {**TOOLS, "reasoning_effort": None}, "unset"),
    ("chat", {**TOOLS, "reasoning_effort": "none"}, "none"),
    ("chat", {**TOOLS, "reasoning_effort": "high"}, "high"),
    ("responses", {**TOOLS, "reasoning": {"effort": "high"}}, "unset"),
])
def test_the_effort_that_chat_requests_name_beside_tools(dialect, body, effort):
    needs = needs_of(dialect, body, b"{}", 2)
    assert needs.tools and needs.effort == effort
