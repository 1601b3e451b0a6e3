"""Adding usage to a native stream whose provider reports none, or not where the format has it.

The published formats have usage in certain events, and official clients fail on a `message_start` without it (CLIENTS
3a). The first event gets the estimate with which the request was admitted; the last ones get what is billed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tollgate.completions.naming import renamed_start
from tollgate.mapping import Context, response_from_hub

if TYPE_CHECKING:
    from tollgate.completions.exchange import Exchange


def written_usage(exchange: Exchange, hub_usage: dict[str, Any]) -> Any:
    """Hub usage in the client's format."""
    hub = {"parts": [], "usage": hub_usage}
    return response_from_hub(exchange.client_format, hub, Context(model={}, can={})).get("usage")


def filled(event: dict[str, Any], usage: Any) -> dict[str, Any]:
    """An event that `lacks` usage, with `usage` added."""
    if "response" in event:
        return {**event, "response": {**event["response"], "usage": usage}}
    return {**event, "usage": usage}


def filled_start(event: dict[str, Any], exchange: Exchange) -> dict[str, Any]:
    """A `message_start` event with usage, and with the model's name for clients that accept no other; the same object
    if nothing changes."""
    message = event.get("message")
    if event.get("type") != "message_start" or not isinstance(message, dict):
        return event
    named = renamed_start(event, exchange.asked_model)
    if message.get("usage"):
        return named
    usage = written_usage(exchange, {"input": exchange.admitted_tokens, "output": 0})
    return {**named, "message": {**named["message"], "usage": usage}}


def lacks_usage(event: dict[str, Any], reported: Callable[[], bool]) -> bool:
    """Whether this event should hold the final usage and does not. `reported` says whether an earlier event did."""
    kind = event.get("type")
    if kind == "message_delta":
        return not event.get("usage") and not reported()
    if kind not in ("response.completed", "response.incomplete"):
        return False
    response = event.get("response")
    return isinstance(response, dict) and not response.get("usage")
