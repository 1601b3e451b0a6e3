"""The body of a request over HTTP/2 on its way from the connection to the application.

Flow control is what makes a client wait: it may send more of a body only as the application takes it. hypercorn's own
queue lets it go on at once, and when ten pieces are unread, it keeps the whole connection waiting, with the requests of
everybody else on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from hypercorn.asyncio.task_group import _handle
from hypercorn.typing import TaskGroup


class UnreadBody:
    """What came of one request and its application has not taken; `put` and `get` are those of hypercorn's queue."""

    def __init__(self, taken: Callable[[int], Awaitable[None]]) -> None:
        self.unacknowledged = 0
        """Bytes of the client's window that this holds. Whoever receives a piece counts it here."""
        self._taken = taken
        self._body = bytearray()
        self._more = True
        self._told = False
        """The application knows that the body has ended."""
        self._gone = False
        self._changed = asyncio.Event()

    @property
    def empty(self) -> bool:
        """Whether the application has taken all that came."""
        return not self._body

    async def put(self, message: dict[str, Any]) -> None:
        """Take a message of ASGI for the application. Never waits."""
        if message["type"] == "http.disconnect":
            self._gone = True
        else:
            self._body += message["body"]
            self._more = message["more_body"]
        self._changed.set()

    async def get(self) -> dict[str, Any]:
        """See ASGI's `receive`. All pieces that came are one message."""
        while not (self._gone or self._body or not (self._more or self._told)):
            self._changed.clear()
            await self._changed.wait()
        await self.acknowledge()
        if self._gone:
            return {"type": "http.disconnect"}
        body = bytes(self._body)
        self._body.clear()
        self._told = not self._more
        return {"type": "http.request", "body": body, "more_body": self._more}

    async def acknowledge(self) -> None:
        """Let the client send as much again as this holds."""
        while self.unacknowledged:  # more may come while this is told
            size, self.unacknowledged = self.unacknowledged, 0
            await self._taken(size)


class Applications:
    """Takes the place of hypercorn's task group, where a stream starts its application."""

    def __init__(self, group: TaskGroup, taken: Callable[[int, int], Awaitable[None]]) -> None:
        """`taken` is told the number of a stream, and how much of its window is free again."""
        self.spawn = group.spawn
        self._taken = taken

    async def spawn_app(self, app: Any, config: Any, scope: Any, send: Any) -> Callable[..., Awaitable[None]]:
        """See hypercorn's."""
        number = send.__self__.stream_id

        async def taken(size: int) -> None:
            await self._taken(number, size)

        unread = UnreadBody(taken)
        self.spawn(_handle, app, config, scope, unread.get, send, None, None)
        return unread.put
