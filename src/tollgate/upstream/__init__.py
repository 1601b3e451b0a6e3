"""Sends one request to one upstream: `Client.open(call)` returns an `Answer`. All traffic to providers goes through
this package.

It handles connections, proxies, TLS, time budgets, signatures and cancellation. The services choose the upstream, build
the body and decide about retries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from tollgate.config.authorisation import Authorisation
from tollgate.upstream.answer import MAX_ERROR_BYTES, Answer, error_body
from tollgate.upstream.app import App, AppTransport
from tollgate.upstream.authorise import Authoriser
from tollgate.upstream.call import Call, call_to
from tollgate.upstream.http import HttpTransport
from tollgate.upstream.transport import Transport

__all__ = ["MAX_ERROR_BYTES", "Answer", "App", "Call", "Client", "Transport", "call_to", "error_body"]


class Client:
    """The upstream client of a gateway; it lives as long as the server's event loop.

    `environ` (by default that of the process) is read once, for proxies. `transport` replaces the one for http and
    https.
    """

    def __init__(self, *, environ: Mapping[str, str] | None = None, transport: Transport | None = None) -> None:
        self._http = transport or HttpTransport(environ=environ)
        self._apps = AppTransport()
        self._authoriser = Authoriser(self._send)

    def register_app(self, name: str, app: App) -> None:
        """Serve `app://name/...` by an in-process app."""
        self._apps.register(name, app)

    def open(self, call: Call) -> Awaitable[Answer]:
        """Send `call`. Await the result for an answer whose head has arrived, with any status.

        The caller must close the answer on every path (`async with answer:`). Raises `UpstreamUnreachable` and
        `UpstreamTimeout`. Cancelling closes the connection.
        """
        auth = call.auth
        return self._send(call) if auth is None else self._authorised(call, auth)

    async def _authorised(self, call: Call, auth: Authorisation) -> Answer:
        cached = self._authoriser.cached_token(auth)
        answer = await self._signed(call, auth)
        # a cached token may have been revoked: retry with a new one, but not if this one was new already
        if answer.status == 401 and cached is not None:
            self._authoriser.invalidate(auth, cached)
            answer.abort()
            answer = await self._signed(call, auth)
        if answer.status == 401:
            self.invalidate(auth)
        return answer

    async def _signed(self, call: Call, auth: Authorisation) -> Answer:
        signed = await self._authoriser.authorised(auth, call)
        try:
            return await self._send(signed)
        finally:
            call.sent = signed.sent
            signed.body = b""  # the answer keeps it; `call` still has the body, for a second try

    def invalidate(self, auth: Authorisation) -> None:
        """Discard the cached token of `auth`, because the upstream rejected it with an error other than 401 (a 401 is
        handled by `open`). The next call gets a new one."""
        self._authoriser.invalidate(auth)

    def _send(self, call: Call) -> Awaitable[Answer]:
        return self._apps.open(call) if call.url.startswith("app://") else self._http.open(call)

    async def close(self) -> None:
        """Drop all connections, running apps and token requests."""
        await self._authoriser.tokens.close()
        await self._apps.close()
        await self._http.close()
