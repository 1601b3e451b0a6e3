"""The engine of the extra `uvicorn`: uvicorn's server, with our own HTTP/1 (`http1.py`).

The server gets sockets that are already bound. The caller handles signals."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import uvicorn

from tollgate.engines import Stopped
from tollgate.engines.http1 import Http1
from tollgate.engines.sockets import bound_addresses, bound_sockets

if TYPE_CHECKING:
    from uvicorn.server import ServerState

    from tollgate.app import App
    from tollgate.config.settings import Server


class Uvicorn:
    """See `Engine`."""

    def __init__(self, server: Server) -> None:
        self.drain_seconds = server.drain_seconds
        self._server = server
        self._sockets: list[socket.socket] = []

    def bind(self) -> tuple[str, ...]:
        """See `Engine`."""
        self._sockets = bound_sockets(self._server.bind)
        return bound_addresses(self._server.bind, self._sockets)

    async def serve(self, app: App, stopped: Stopped, announce: Callable[[], None]) -> None:
        """See `Engine`."""
        config = uvicorn.Config(
            app,
            http=_Connection,
            ws="none",
            log_level="error",
            access_log=False,
            server_header=False,
            lifespan="off",
            proxy_headers=False,
            loop="asyncio",
        )

        async def stopping() -> None:
            await stopped()
            # uvicorn declares whole seconds, and waits for fractions of them as well
            config.timeout_graceful_shutdown = self.drain_seconds  # type: ignore[assignment]

        announce()
        await serve_until(stopping, config, self._sockets)


async def serve_until(stopped: Stopped, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
    """Run uvicorn on these sockets until `stopped` returns. The caller handles signals. Also used for the sandbox."""
    running = uvicorn.Server(config)
    running.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]

    async def watch() -> None:
        await stopped()
        running.should_exit = True

    watcher = asyncio.get_running_loop().create_task(watch())
    try:
        await running.serve(sockets=sockets)
    finally:
        watcher.cancel()


class _Connection(Http1):
    """`Http1` with uvicorn's constructor."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config.loaded_app, server_state, _loop or asyncio.get_running_loop())
