"""The HTTP servers that can run the application: their interface, their common limits, and the choice by the settings.

An engine binds its addresses before it serves, so that an address in use is reported before anything is created. It
reads only the `server:` settings. Only the module of the engine in use is imported, and with it the server's package.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from tollgate.errors import TollgateError

if TYPE_CHECKING:
    from tollgate.app import App
    from tollgate.config.settings import Server

Stopped = Callable[[], Awaitable[None]]
"""Returns when the engine must stop."""

KEEP_ALIVE_SECONDS = 75
"""The idle timeout of connections: longer than the 60 seconds after which proxies in front of the gateway close them.
"""
CLOSE_GRACE_SECONDS = 0.3
"""How long a stopping server keeps an idle connection, to answer one more request with `connection: close`. A proxy may
have sent one already, which would be lost if the connection were closed at once; proxies do not retry a POST."""
UNREAD_SECONDS = 0.005
"""When to check again an idle connection that was not closed because unread bytes of a request had arrived."""
STUCK_SECONDS = 300
"""How long a client may read nothing of its answer. Without a limit, it could keep its socket for ever."""
SLOWEST_BYTES = 32 * 1024
"""The minimum that must arrive of a request's body within `KEEP_ALIVE_SECONDS` (about 400 bytes a second), and that a
client must read of an HTTP/2 answer within `STUCK_SECONDS`. Otherwise a byte a minute would keep a request and its
memory for ever."""
MOST_DROPPED = 64 << 20
"""How much of a request's body is read and discarded after its answer was sent, so that the client can read the answer:
twice the default limit of a body. Without a limit, a client without a key could send for ever."""
MAX_HEAD_BYTES = 64 * 1024
"""Most bytes of a request's head, and of the trailers after a chunked body. A single read may exceed it."""


class Engine(Protocol):
    """An HTTP server for the application."""

    drain_seconds: float
    """How long running requests may continue once `serve` has to stop; read at that moment, because a reload may have
    changed it."""

    def bind(self) -> tuple[str, ...]:
        """Bind the configured addresses and return them, with the assigned port in place of port 0. Raises
        `AddressTaken` if an address cannot be bound."""

    async def serve(self, app: App, stopped: Stopped, announce: Callable[[], None]) -> None:
        """Serve until `stopped` returns; `announce` is called once connections are accepted."""


def engine_of(server: Server) -> Engine:
    """The engine selected by the settings. Raises `TollgateError` if its package is not installed."""
    if server.engine == "hypercorn":
        from tollgate.engines.hypercorn import Hypercorn

        return Hypercorn(server)
    try:
        from tollgate.engines.uvicorn import Uvicorn
    except ModuleNotFoundError as error:
        raise TollgateError(
            f"server.engine is uvicorn, and {error.name} is not installed: pip install {error.name}, or use hypercorn"
        ) from None
    return Uvicorn(server)
