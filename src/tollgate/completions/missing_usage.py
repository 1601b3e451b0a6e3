"""Usage in a native answer whose provider tells none.

The published formats have it in certain events of a stream, and official clients fail on a `message_start` without it
(CLIENTS 3a). What the first event says is the estimate the request was admitted with; the last ones say what is billed.
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
    """For one stream. `write` makes the format's own usage of a count of input tokens, `expected` is that count,
    `reported` asks whether the provider has said anything of usage so far. `name` is what the first event must call the
    model, where the client takes no other name."""

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
        """A first event of messages with usage put in, and under the name the client asked for; None where it is right
        as it came."""
        message = event.get("message")
        if event.get("type") != "message_start" or not isinstance(message, dict):
            return None
        named = renamed_start(event, self._name)
        if message.get("usage"):
            return None if named is event else named
        return {**named, "message": {**named["message"], "usage": self._write({"input": self._expected, "output": 0})}}

    def lacks(self, event: dict[str, Any]) -> bool:
        """Whether this event ends the answer and should tell what was used, and nothing told it."""
        kind = event.get("type")
        if kind == "message_delta":
            return not event.get("usage") and not self._reported()
        if not isinstance(kind, str) or kind not in _LAST_RESPONSE:
            return False
        response = event.get("response")
        return isinstance(response, dict) and not response.get("usage")


def written_usage(exchange: Exchange, hub_usage: dict[str, Any]) -> Any:
    """Hub usage as the client's format tells it."""
    hub = {"parts": [], "usage": hub_usage}
    return response_from_hub(exchange.client_format, hub, Context(model={}, can={})).get("usage")


def filled(event: dict[str, Any], usage: Any) -> dict[str, Any]:
    """Such an event with this usage."""
    if "response" in event:
        return {**event, "response": {**event["response"], "usage": usage}}
    return {**event, "usage": usage}
