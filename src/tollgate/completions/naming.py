"""The model's name in an answer: as its provider calls it, or, where the client's format says so (`request.asked_model`
of its mapping file), as the client asked for it. Converted answers get it from `Context.asked_model`; native ones here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tollgate.mapping import Mapping as ProtocolMapping
from tollgate.mapping import holds


def asked_model(client_format: ProtocolMapping, body: dict[str, Any], headers: Mapping[str, str]) -> str | None:
    """The name this client must hear, or None where it takes any."""
    return body["model"] if holds(client_format, "request.asked_model", body, headers) else None


def renamed(answer: dict[str, Any], name: str | None) -> dict[str, Any]:
    """A whole answer under this name; the very same object where nothing changes."""
    if name is None or answer.get("model") in (None, name):
        return answer
    return {**answer, "model": name}


def renamed_start(event: dict[str, Any], name: str | None) -> dict[str, Any]:
    """The first event of a messages stream under this name, and any other event: the very same object where nothing
    changes."""
    message = event.get("message")
    if name is None or event.get("type") != "message_start" or not isinstance(message, dict):
        return event
    named_message = renamed(message, name)
    return event if named_message is message else {**event, "message": named_message}
