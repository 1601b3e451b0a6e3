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
"""How long a server that stops still answers a request on a connection that was idle, and says then that it is the last
one. A proxy keeps connections and may have sent one already: closed at once, that request would be lost, and a POST is
not repeated by itself."""
UNREAD_SECONDS = 0.005
"""How soon an idle connection is looked at again that was to be closed while bytes of a request waited to be read."""
STUCK_SECONDS = 300
"""How long a client may take nothing of what is written to it: without an end to it, whoever never reads keeps a socket
for good."""
SLOWEST_BYTES = 32 * 1024
"""Of a request's body, the least that must come while an idle connection would be kept, some 400 bytes a second; over
HTTP/2 also of an answer, the least that must be taken in `STUCK_SECONDS`. Without it, a byte a minute keeps a request
and what it holds for good."""
MOST_DROPPED = 64 << 20
"""Of a request's body, the most that is read behind an answer that did not wait for it, so that its client sees the
answer: twice the largest body of the default settings. Without it, whoever has no key could send for ever."""
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
            f"server.engine is uvicorn, and {error.name} is not installed: install tollgate[uvicorn], or use hypercorn"
        ) from None
    return Uvicorn(server)
