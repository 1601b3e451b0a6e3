"""The HTTP servers that serve the application: what each must offer, and the one the settings ask for.

An engine binds first, so that an address in use is an error before anything is made, and serves later. It reads the
`server:` settings and nothing else. The modules here import their server's package, so only the one in use is imported.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from tollgate.errors import TollgateError

if TYPE_CHECKING:
    from tollgate.app import App
    from tollgate.config.model import Server

Stopped = Callable[[], Awaitable[None]]
"""Returns when the engine has to stop."""

KEEP_ALIVE_SECONDS = 75
"""How long a connection may be idle: longer than the 60 seconds after which proxies in front of the gateway close
one."""
LAST_CALL_SECONDS = 0.3
"""How long a server that stops keeps an idle connection, to answer one more request and say that it is the last. A
proxy may have sent one already: if the connection were closed at once, that request would be lost, and nobody repeats a
POST by itself."""
UNREAD_SECONDS = 0.005
"""When to look again at an idle connection that was not closed because bytes of a request were waiting to be read."""
STUCK_SECONDS = 300
"""How long a client may take nothing of what is written to it. Without a limit, one that never reads would keep its
socket for ever."""
SLOWEST_BYTES = 32 * 1024
"""The least that must arrive of a request's body within `KEEP_ALIVE_SECONDS` (some 400 bytes a second), and the least
of an answer over HTTP/2 that its client must take within `STUCK_SECONDS`. Without it, a byte a minute would keep a
request and all it holds for ever."""
MOST_DROPPED = 64 << 20
"""The most that is read and dropped of a request's body after its answer was sent, so that the client gets to see that
answer: twice the largest body of the default settings. Without a limit, somebody without a key could send for ever."""
MAX_HEAD_BYTES = 64 * 1024
"""Of a request, and of the trailers after a chunked one; what comes in one read may be more."""


class Engine(Protocol):
    """What serves the application."""

    def bind(self) -> tuple[str, ...]:
        """Take the addresses of the settings; gives them with the port that was had where one asks for any (0). Raises
        `AddressTaken` when one cannot be had."""

    async def serve(self, app: App, stopped: Stopped, announce: Callable[[], None]) -> None:
        """Serve until `stopped` returns; `announce` is called once connections are taken."""


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
