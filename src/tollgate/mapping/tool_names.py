"""The client's own names of tools in answers: an answer calls a tool by the name under which it was sent.

The mapping of a format says which names it changes (names that are too long, or have characters it does not accept) in
`request.tool_name`. Here that is reversed, for whole answers and for names that arrive in pieces of a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tollgate.mapping.context import Context


class ToolNames:
    """The tools of one request. `sent` gives the name under which a tool is sent; None if names are never changed."""

    __slots__ = ("_context", "_names", "_other", "_sent", "_tools")

    def __init__(self, context: Context, sent: Callable[..., Any] | None) -> None:
        tools = context.request.get("tools") if context.request else None
        self._tools: list[Any] = tools if type(tools) is list else []
        self._context = context
        self._sent = sent
        self._names: tuple[str, ...] | None = None
        self._other: dict[str, str] | None = None
        """The client's name by the name that was sent instead; made when first needed."""

    def own(self, name: str) -> str:
        """The client's name of a tool that an answer calls: `files_read` -> `files.read`."""
        if self._sent is None:
            return name
        if self._names is not None and name in self._names:
            return name
        for tool in self._tools:  # nearly always an unchanged name
            if type(tool) is dict and tool.get("name") == name:
                return name
        return self._others().get(name, name)

    def begins(self, text: str, *, whole: bool = False) -> bool:
        """Whether the name of a tool begins with this text (and is longer, unless `whole`)."""
        own = self._own()
        if _begins(own, text, whole):
            return True
        return self._sent is not None and text not in own and _begins(self._others(), text, whole)

    def _own(self) -> tuple[str, ...]:
        if self._names is None:
            names = [tool.get("name") for tool in self._tools if type(tool) is dict]
            self._names = tuple(name for name in names if type(name) is str)
        return self._names

    def _others(self) -> dict[str, str]:
        if self._other is None:
            assert self._sent is not None
            found = [(self._sent(name, self._context), name) for name in self._own()]
            self._other = {sent: name for sent, name in found if type(sent) is str and sent != name}
        return self._other


def _begins(names: Iterable[str], text: str, whole: bool) -> bool:
    return any(name.startswith(text) and (whole or name != text) for name in names)


def with_own_names(hub: dict[str, Any], context: Context, sent: Callable[..., Any]) -> dict[str, Any]:
    """A hub answer whose calls have the client's names of the tools."""
    parts = hub.get("parts")
    if type(parts) is not list:
        return hub
    tools: ToolNames | None = None
    renamed: dict[int, dict[str, Any]] = {}
    for place, part in enumerate(parts):
        if type(part) is dict and part.get("kind") == "tool_call" and type(name := part.get("name")) is str:
            tools = tools or ToolNames(context, sent)
            if (own := tools.own(name)) != name:
                renamed[place] = {**part, "name": own}
    if not renamed:
        return hub
    return {**hub, "parts": [renamed.get(place, part) for place, part in enumerate(parts)]}
