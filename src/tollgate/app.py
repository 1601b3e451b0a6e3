"""The ASGI application: routes requests to endpoints, adds request ids, formats errors, and drains at shutdown.

A route is found by one dictionary lookup. Paths under a legacy base or with a doubled `/v1` are normalised to the same
routes.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tollgate import cors, endpoints
from tollgate.errors import BILLED, InternalError, MethodNotAllowed, NotFound, OutOfSockets, ShuttingDown, TollgateError
from tollgate.http import Receive, Responder, Scope, Send, headers_of
from tollgate.process import descriptors
from tollgate.request_body import ClientGone
from tollgate.services import CLIENT_LEFT, Services, new_request_id

if TYPE_CHECKING:
    from tollgate.config.settings import Server

log = logging.getLogger("tollgate.app")

_POLL_SECONDS = 0.01
"""How often `App.wait_idle` checks whether requests are still running."""

_DOUBLED = re.compile(r"(?:/v1)+/")

Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]


class App:
    """One running gateway as an ASGI application."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._mounts: dict[str, Asgi] = {}
        self._trees: dict[str, Asgi] = {}
        self._server = services.runtime.current.gateway.server
        self._prefixes = _prefixes(self._server)
        self._running: set[Responder] = set()

    def cut(self) -> None:
        """End every running request with an error reply or, if its stream has begun, an error event."""
        self.services.cut = True
        for responder in tuple(self._running):
            responder.stop()

    async def wait_idle(self, seconds: float) -> None:
        """Wait until no request is running, for at most `seconds`."""
        loop = asyncio.get_running_loop()
        last = loop.time() + seconds
        while self._running and loop.time() < last:
            await asyncio.sleep(_POLL_SECONDS)

    def mount(self, prefix: str, application: Asgi, *, below: bool = True) -> None:
        """Serve `prefix` by another application, and with `below` also every path below it."""
        self._mounts[prefix] = application
        if below:
            self._trees[prefix + "/"] = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection scope."""
        if scope["type"] == "http":
            origins = self.services.runtime.current.gateway.server.cors_origins
            if origins:
                cors_send = await cors.send_with_cors(scope, send, origins)
                if cors_send is None:
                    return
                send = cors_send
            path = scope["path"]
            mounted = None
            if path not in endpoints.ROUTES:
                path = self._canonical(path)
                mounted = self._mounts.get(path) or next(
                    (tree for start, tree in self._trees.items() if path.startswith(start)), None
                )
            if mounted is None:
                await self._serve(scope, path, receive, send)
            else:
                await mounted({**scope, "path": path}, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})

    def _canonical(self, path: str) -> str:
        """The path in the form used by `ROUTES`: without a configured prefix or a trailing slash, with `//` and
        `/v1/v1/` collapsed."""
        if not path.startswith("/") and "://" in path:
            # absolute-form (RFC 9112, 3.2.2), which a server must accept
            path = "/" + path.partition("://")[2].partition("/")[2]
        while "//" in path:  # the client's base address ends in a slash
            path = path.replace("//", "/")
        server = self.services.runtime.current.gateway.server
        if server is not self._server:  # a reload may bring other addresses
            self._server, self._prefixes = server, _prefixes(server)
        for prefix in self._prefixes:
            if path.startswith(prefix + "/"):
                path = path[len(prefix) :]
                break
        if path.startswith("/v1/v1/"):
            path = _DOUBLED.sub("/v1/", path, 1)  # in one step: a loop takes a tenth of a second for 64 kB of them
        return path.rstrip("/") or "/"

    async def _serve(self, scope: Scope, path: str, receive: Receive, send: Send) -> None:
        """Answer one request with the reply of its endpoint, or with an error reply."""
        services = self.services
        request_id = new_request_id()
        tag = request_id.encode()
        method = scope["method"]
        responder = Responder(receive, send, [(b"x-request-id", tag), (b"request-id", tag)], method == "HEAD")
        route, argument = endpoints.find(path)
        if route is not None and route.as_written and scope.get("raw_path", path.encode()) != path.encode():
            route = None
        dialect = route.dialect if route else endpoints.unknown_path_dialect(path)
        began = time.monotonic()
        self._running.add(responder)
        services.metrics.running += 1
        try:
            try:
                headers = headers_of(scope)
                if route is None:
                    raise NotFound(endpoints.unknown_path_message(method, path))
                if method not in route.methods and not (method == "HEAD" and "GET" in route.methods):
                    raise MethodNotAllowed(route.allowed)
                if services.draining and not route.while_draining:
                    raise ShuttingDown()
                request = endpoints.Request(services, scope, headers, receive, responder, request_id, argument)
                await responder.send(await route.endpoint(request))
            except ClientGone:
                pass
            except Exception as error:  # includes a stream whose usage row cannot be written
                failed = f"request {request_id} failed: {method} {path!r}"
                reply = endpoints.failure(services, dialect, self._noted(error, failed), request_id, responder)
                await responder.send(reply)
        except asyncio.CancelledError as cancelled:
            responder.status = CLIENT_LEFT
            if not responder.recovers():
                raise
            if responder.stopped:
                ended = ShuttingDown()
                ended.billed = BILLED in getattr(cancelled, "__notes__", ())
                await responder.send(endpoints.failure(services, dialect, ended, request_id, responder))
        finally:
            responder.close()
            self._running.discard(responder)
            services.metrics.running -= 1
            services.metrics.count_reply(route.name if route else "unknown", responder.status, time.monotonic() - began)

    def _noted(self, error: Exception, failed: str) -> TollgateError:
        """Count an expected error, or log an unexpected one with the message `failed`. Returns the error for the
        client."""
        if isinstance(error, TollgateError):
            self.services.metrics.refused[error.code] += 1
            return error
        log.error("%s", failed, exc_info=error)
        return OutOfSockets(str(error)) if descriptors.is_exhaustion(error) else InternalError()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Acknowledge lifespan messages. `server.py` does the actual start and stop."""
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return


def _prefixes(server: Server) -> tuple[str, ...]:
    """The non-empty path prefixes of the configured addresses, without `/v1`, longest first."""
    found = set()
    for base in (server.base_url, *server.legacy_base_urls):
        path = urlsplit(base).path.rstrip("/")
        found.add(path.removesuffix("/v1"))
    return tuple(sorted(filter(None, found), key=len, reverse=True))
