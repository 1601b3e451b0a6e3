"""Requests to a gateway in its own process, and what its upstream, the sandbox, has counted."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"


def chat(text: str, *, model: str = "sandbox/echo", stream: bool = True, **more: Any) -> dict[str, Any]:
    """The body of a request with one message. The sandbox obeys the markers in it (`docs/sandbox.md`)."""
    return {"model": model, "stream": stream, "messages": [{"role": "user", "content": text}], **more}


def stats(running: Any) -> dict[str, int]:
    """How many requests the sandbox answers at the moment, and how many were aborted so far."""
    with urllib.request.urlopen(running.sandbox + "/_sandbox/stats", timeout=30) as reply:
        return json.load(reply)
