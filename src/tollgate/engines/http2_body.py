"""Buffers the body of an HTTP/2 request between the connection and the application, with flow control per stream.

A client may send more of a body only as the application reads it. hypercorn's own queue opens the window at once, and
blocks the whole connection, with all other requests on it, if ten pieces are unread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from hypercorn.asyncio.task_group import _handle
from hypercorn.typing import TaskGroup


class UnreadBody:
    """The part of one request's body that its application has not read. `put` and `get` replace hypercorn's queue."""

    def __init__(self, acknowledge: Callable[[int], Awaitable[None]]) -> None:
        self.unacknowledged = 0
        """Bytes of the client's window that are in use. Increased by the receiver of each piece."""
        self._acknowledge = acknowledge
        self._body = bytearray()
        self._more = True
        self._end_delivered = False
        """The application has received the end of the body."""
        self._gone = False
        self._changed = asyncio.Event()

    @property
    def empty(self) -> bool:
        """Whether the application has read everything that arrived."""
        return not self._body

    async def put(self, message: dict[str, Any]) -> None:
        """Add an ASGI message for the application. Never waits."""
        if message["type"] == "http.disconnect":
            self._gone = True
        else:
            self._body += message["body"]
            self._more = message["more_body"]
        self._changed.set()

    async def get(self) -> dict[str, Any]:
        """See ASGI's `receive`. All pieces that arrived are returned as one message."""
        while not (self._gone or self._body or not (self._more or self._end_delivered)):
            self._changed.clear()
            await self._changed.wait()
        await self.acknowledge()
        if self._gone:
            return {"type": "http.disconnect"}
        body = bytes(self._body)
        self._body.clear()
        self._end_delivered = not self._more
        return {"type": "http.request", "body": body, "more_body": self._more}

    async def acknowledge(self) -> None:
        """Open the client's window again by the bytes in use."""
        while self.unacknowledged:  # more may arrive while this is sent
            size, self.unacknowledged = self.unacknowledged, 0
            await self._acknowledge(size)


class ApplicationTasks:
    """Replaces hypercorn's task group, by which a stream starts its application."""

    def __init__(self, group: TaskGroup, acknowledge: Callable[[int, int], Awaitable[None]]) -> None:
        """`acknowledge` is called with a stream's number and the number of bytes that the application has read."""
        self.spawn = group.spawn
        self._acknowledge = acknowledge

    async def spawn_app(self, app: Any, config: Any, scope: Any, send: Any) -> Callable[..., Awaitable[None]]:
        """See hypercorn's."""
        number = send.__self__.stream_id

        async def acknowledge(size: int) -> None:
            await self._acknowledge(number, size)

        unread = UnreadBody(acknowledge)
        self.spawn(_handle, app, config, scope, unread.get, send, None, None)
        return unread.put
