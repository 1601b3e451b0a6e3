"""Answers on uvicorn's connections: their heads, checked and written as a whole, and whether their client has left.

uvicorn searches every name and every value with a pattern and collects the head piece by piece, which costs as much as
reading a request. Bodies stay uvicorn's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

_BODILESS = (204, 304)


class Leaving:
    """What one request wants called when its client leaves. Not its `Answer`, which leads back to the scope that has this: every request would
    stay in memory until the collector comes by."""

    __slots__ = ("tell",)

    def __init__(self) -> None:
        self.tell: Callable[[], None] | None = None

    def on_leaving(self, tell: Callable[[], None] | None) -> None:
        """See `http.LEAVING`."""
        self.tell = tell


class Answer:
    """Gives the application `send` in the place of that of `cycle`, uvicorn's state of one request, and tells it of a client that leaves."""

    __slots__ = ("_cycle", "leaving")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self.leaving = Leaving()

    def leave(self) -> None:
        """The connection is lost."""
        if not self._cycle.response_complete:
            self._cycle.disconnected = True
            self._cycle.message_event.set()
            if self.leaving.tell is not None:
                self.leaving.tell()

    def send(self, message: MutableMapping[str, Any]) -> Awaitable[None]:
        """See ASGI."""
        if message["type"] == "http.response.start" and not self._cycle.response_started:
            return self._begin(message)
        return self._cycle.send(message)  # type: ignore[arg-type]

    async def _begin(self, message: MutableMapping[str, Any]) -> None:
        cycle = self._cycle
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if cycle.disconnected:
            return
        status = message["status"]
        headers = [*cycle.default_headers, *message.get("headers", ())]
        told = dict(headers)
        if b"connection" in told and b"close" in told[b"connection"].lower():
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            headers.append((b"connection", b"close"))
        if b"content-length" in told:
            cycle.chunked_encoding = False
            cycle.expected_content_length = int(told[b"content-length"])
        elif status not in _BODILESS and cycle.scope["method"] != "HEAD":
            cycle.chunked_encoding = True
            headers.append((b"transfer-encoding", b"chunked"))
        head = STATUS_LINE[status] + b"\r\n".join([*map(b": ".join, headers), b"", b""])
        if head.count(b"\n") != len(headers) + 2 or head.count(b"\r") != len(headers) + 2:
            raise ValueError("a header of an answer holds a line break")
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        cycle.transport.write(head)
