"""Names of tools on their way back: an answer calls a tool by the name it was sent under, the client knows its own.

Which names a format changes (longer ones than it takes, characters it does not know) its mapping says in
`request.tool_name`; here that is turned round, for whole answers and for names that a stream tells in pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tollgate.mapping.context import Context


class ToolNames:
    """The tools of one request. `sent` gives the name under which a tool is sent; None where that is always its own."""

    __slots__ = ("_context", "_other", "_own", "_sent")

    def __init__(self, context: Context, sent: Callable[..., Any] | None) -> None:
        tools = context.request.get("tools") if context.request else None
        listed = tools if type(tools) is list else []
        names = (tool.get("name") for tool in listed if type(tool) is dict)
        self._own = tuple(name for name in names if type(name) is str)
        self._context = context
        self._sent = sent
        self._other: dict[str, str] | None = None
        """The names that are sent instead of others, once they were asked for."""

    def own(self, name: str) -> str:
        """The client's name of a tool that an answer calls: `files_read` -> `files.read`."""
        return name if self._sent is None or name in self._own else self._others().get(name, name)

    def begins(self, text: str, *, whole: bool = False) -> bool:
        """Whether the name of a tool begins so (and goes on, unless `whole`)."""
        if any(name.startswith(text) and (whole or name != text) for name in self._own):
            return True
        if self._sent is None or text in self._own:
            return False
        return any(name.startswith(text) and (whole or name != text) for name in self._others())

    def _others(self) -> dict[str, str]:
        if self._other is None:
            assert self._sent is not None
            found = ((self._sent(name, self._context), name) for name in self._own)
            self._other = {sent: name for sent, name in found if type(sent) is str and sent != name}
        return self._other


def with_own_names(hub: dict[str, Any], context: Context, sent: Callable[..., Any]) -> dict[str, Any]:
    """A hub answer whose calls name the tools as the client does."""
    parts = hub.get("parts")
    if type(parts) is not list or not any(map(_is_named_call, parts)):
        return hub
    tools = ToolNames(context, sent)
    return {
        **hub,
        "parts": [{**part, "name": tools.own(part["name"])} if _is_named_call(part) else part for part in parts],
    }


def _is_named_call(part: object) -> bool:
    return type(part) is dict and part.get("kind") == "tool_call" and type(part.get("name")) is str
