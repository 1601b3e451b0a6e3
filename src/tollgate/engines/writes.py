"""Batches writes to a client, to reduce system calls."""

from __future__ import annotations

import asyncio

_MOST_HELD = 6
"""Most pieces that are collected for one write."""


class Writes:
    """A writer for a transport that sends everything written within one turn of the event loop together.

    Otherwise a head and its body, or a stream's last event and its end, would each take a system call and wake the
    client (uvloop writes at once since 0.23). The turn ends as soon as the writing task waits for something else.
    """

    __slots__ = ("_held", "_loop", "_transport")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.WriteTransport) -> None:
        self._loop = loop
        self._transport = transport
        self._held: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Write bytes by the end of this turn."""
        if not self._held:
            self._loop.call_soon(self.flush)
        self._held.append(data)
        if len(self._held) > _MOST_HELD:
            self.flush()

    def flush(self) -> None:
        """Write the collected pieces now, unless the client has left."""
        held, self._held = self._held, []
        if held and not self._transport.is_closing():
            self._transport.writelines(held)

    def close(self) -> None:
        """Write the collected pieces and close the transport."""
        self.flush()
        self._transport.close()
