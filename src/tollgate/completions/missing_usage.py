"""Adding usage to a native stream whose provider reports none.

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

_LAST_RESPONSE = frozenset({"response.completed", "response.incomplete"})


class MissingUsage:
    """For one stream. `write` turns hub usage into the format's own; `expected` is the estimated number of input
    tokens; `reported` says whether the provider has reported usage so far; `name` is the model name for the first
    event, for clients that accept no other."""

    __slots__ = ("_expected", "_name", "_reported", "_write")

    def __init__(
        self,
        write: Callable[[dict[str, Any]], Any],
        expected: int,
        reported: Callable[[], bool],
        name: str | None = None,
    ) -> None:
        self._write = write
        self._expected = expected
        self._reported = reported
        self._name = name

    def begun(self, event: dict[str, Any]) -> dict[str, Any] | None:
        """A `message_start` event with usage and the model's name put in; None if the event needs no change."""
        message = event.get("message")
        if event.get("type") != "message_start" or not isinstance(message, dict):
            return None
        named = renamed_start(event, self._name)
        if message.get("usage"):
            return None if named is event else named
        return {**named, "message": {**named["message"], "usage": self._write({"input": self._expected, "output": 0})}}

    def lacks(self, event: dict[str, Any]) -> bool:
        """Whether this event should hold the final usage and does not."""
        kind = event.get("type")
        if kind == "message_delta":
            return not event.get("usage") and not self._reported()
        if not isinstance(kind, str) or kind not in _LAST_RESPONSE:
            return False
        response = event.get("response")
        return isinstance(response, dict) and not response.get("usage")


def written_usage(exchange: Exchange, hub_usage: dict[str, Any]) -> Any:
    """Hub usage in the client's format."""
    hub = {"parts": [], "usage": hub_usage}
    return response_from_hub(exchange.client_format, hub, Context(model={}, can={})).get("usage")


def filled(event: dict[str, Any], usage: Any) -> dict[str, Any]:
    """An event that `lacks` usage, with `usage` added."""
    if "response" in event:
        return {**event, "response": {**event["response"], "usage": usage}}
    return {**event, "usage": usage}
