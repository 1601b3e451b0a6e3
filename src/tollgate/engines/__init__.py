"""The HTTP servers that can run the application: their common interface, and the choice by the settings.

An engine binds its addresses first, so that an address in use is reported before anything is created, and serves later.
It reads only the `server:` settings. Each module here imports its server's package, so only the one in use is imported.
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
"""How long a connection may be idle: longer than the 60 seconds after which proxies in front of the gateway close
it."""
LAST_CALL_SECONDS = 0.3
"""How long a stopping server keeps an idle connection, to answer one more request with `connection: close`. A proxy may
have sent one already: if the connection were closed at once, it would be lost, and a POST is not repeated."""
UNREAD_SECONDS = 0.005
"""When to check again an idle connection that was not closed because unread bytes of a request had arrived."""
STUCK_SECONDS = 300
"""How long a client may read nothing of its answer. Without a limit, one that never reads would keep its socket for
ever."""
SLOWEST_BYTES = 32 * 1024
"""The least that must arrive of a request's body within `KEEP_ALIVE_SECONDS` (some 400 bytes a second), and that a
client must read of an HTTP/2 answer within `STUCK_SECONDS`. Without it, a byte a minute would keep a request and its
memory for ever."""
MOST_DROPPED = 64 << 20
"""The most that is read and discarded of a request's body after its answer was sent, which lets the client see that
answer: twice the default for the largest body. Without a limit, a client without a key could send for ever."""
MAX_HEAD_BYTES = 64 * 1024
"""Most bytes of a request's head, and of the trailers after a chunked body; what arrives in one read may be more."""


class Engine(Protocol):
    """An HTTP server for the application."""

    def bind(self) -> tuple[str, ...]:
        """Bind the addresses of the settings, and return them; port 0 is replaced by the port that was assigned. Raises
        `AddressTaken` when an address cannot be bound."""

    async def serve(self, app: App, stopped: Stopped, announce: Callable[[], None]) -> None:
        """Serve until `stopped` returns; `announce` is called once connections are accepted."""


def engine_of(server: Server) -> Engine:
    """The engine these settings ask for. Raises `TollgateError` when its package is not installed."""
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
