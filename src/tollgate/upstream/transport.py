"""The interface of transports, by which the HTTP client can be replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tollgate.upstream.answer import Answer
    from tollgate.upstream.call import Call


class Transport(Protocol):
    """Sends the calls of one URL scheme and owns their connections. It is independent of providers and protocols."""

    async def open(self, call: Call) -> Answer:
        """Send `call`. Returns when the answer's head has arrived.

        Raises `UpstreamUnreachable` (no connection, or lost or malformed before the head) and `UpstreamTimeout`
        (connect, first_byte, total). Only a reused connection that closed before the first byte of an answer is
        retried.
        """
        ...

    async def close(self) -> None:
        """Close every connection, including those of running calls."""
        ...
