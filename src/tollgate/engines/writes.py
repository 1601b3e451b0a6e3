"""What goes out to a client, in as few calls to the system as it can be."""

from __future__ import annotations

import asyncio

_MOST_HELD = 6
"""Pieces that wait to be written together."""


class Writes:
    """Takes the place of a transport that is written to: what is written within one turn of the event loop leaves
    together.

    A head and its body, a stream's last event and its end: written one by one, as uvloop does since 0.23, each is a
    call to the system and wakes the client. The turn ends as soon as whoever writes waits for something else.
    """

    __slots__ = ("_held", "_loop", "_transport")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.WriteTransport) -> None:
        self._loop = loop
        self._transport = transport
        self._held: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Write bytes, at the end of this turn at the latest."""
        if not self._held:
            self._loop.call_soon(self.flush)
        self._held.append(data)
        if len(self._held) > _MOST_HELD:
            self.flush()

    def flush(self) -> None:
        """Write what is held now, unless the client has left."""
        held, self._held = self._held, []
        if held and not self._transport.is_closing():
            self._transport.writelines(held)

    def close(self) -> None:
        """Write what is held and close the transport."""
        self.flush()
        self._transport.close()
