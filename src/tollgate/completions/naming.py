"""The model's name in an answer: the provider's name, or the name that the client used where the client's format
demands it (`request.asked_model` in its mapping file). Converted answers get it from `Context.asked_model`, native ones
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tollgate.mapping import CompiledMapping, holds


def asked_model(client_format: CompiledMapping, body: dict[str, Any], headers: Mapping[str, str]) -> str | None:
    """The model name that the answer must show to this client; None if any will do."""
    return body["model"] if holds(client_format, "request.asked_model", body, headers) else None


def renamed(answer: dict[str, Any], name: str | None) -> dict[str, Any]:
    """A whole answer with this model name; the same object if nothing changes."""
    if name is None or answer.get("model") in (None, name):
        return answer
    return {**answer, "model": name}


def renamed_start(event: dict[str, Any], name: str | None) -> dict[str, Any]:
    """A stream event with this model name if it is a `message_start`; the same object if nothing changes."""
    message = event.get("message")
    if name is None or event.get("type") != "message_start" or not isinstance(message, dict):
        return event
    named_message = renamed(message, name)
    return event if named_message is message else {**event, "message": named_message}
