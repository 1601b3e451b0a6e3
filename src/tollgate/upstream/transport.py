"""What a transport is: the one seam behind which the way bytes travel can be swapped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tollgate.upstream.answer import Answer
    from tollgate.upstream.call import Call


class Transport(Protocol):
    """Opens calls of one address scheme. Owns its connections; knows nothing of providers, money or protocols."""

    async def open(self, call: Call) -> Answer:
        """Send `call`; return once the answer's head is here.

        Raises `UpstreamUnreachable` (no connection, lost or malformed before a head) and `UpstreamTimeout` (connect,
        first_byte, total). No retry beyond a reused connection that died before the first byte of an answer.
        """
        ...

    async def close(self) -> None:
        """Drop every connection, running calls included."""
        ...
