"""One attempt at one upstream: `Client.open(call)` sends and gives an `Answer`. The only module that talks to
providers.

Owns connections, proxies, TLS, budgets, signatures and cancellation. Leaves which upstream, what body and whether to
try again to the services.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from tollgate.config.authorisation import Authorisation
from tollgate.upstream.answer import Answer
from tollgate.upstream.app import App, AppTransport
from tollgate.upstream.authorise import Authoriser
from tollgate.upstream.call import Call, call_to
from tollgate.upstream.http import HttpTransport
from tollgate.upstream.transport import Transport

__all__ = ["Answer", "App", "Call", "Client", "Transport", "call_to"]


class Client:
    """Every upstream call of a gateway goes through one of these; it lives as long as the server's event loop.

    `environ` (the process's by default) is read once, for proxies. `transport` replaces the one for http and https.
    """

    def __init__(self, *, environ: Mapping[str, str] | None = None, transport: Transport | None = None) -> None:
        self._http = transport or HttpTransport(environ=environ)
        self._apps = AppTransport()
        self._authoriser = Authoriser(self._send)

    def register_app(self, name: str, app: App) -> None:
        """Let `app://name/path` reach an in-process app."""
        self._apps.register(name, app)

    def open(self, call: Call) -> Awaitable[Answer]:
        """Send `call`; await it for an answer whose head is here, whatever its status.

        The caller closes the answer on every path (`async with answer:`). Raises `UpstreamUnreachable` and
        `UpstreamTimeout`; cancelling it closes the connection.
        """
        auth = call.auth
        return self._send(call) if auth is None else self._authorised(call, auth)

    async def _authorised(self, call: Call, auth: Authorisation) -> Answer:
        kept = self._authoriser.kept(auth)
        answer = await self._signed(call, auth)
        # taken back before its time? One bought for this very call would fare no better
        if answer.status == 401 and kept is not None:
            self._authoriser.refused(auth, kept)
            answer.abort()
            answer = await self._signed(call, auth)
        if answer.status == 401:
            self.refused(auth)
        return answer

    async def _signed(self, call: Call, auth: Authorisation) -> Answer:
        signed = await self._authoriser.authorised(auth, call)
        try:
            return await self._send(signed)
        finally:
            call.sent = signed.sent

    def refused(self, auth: Authorisation) -> None:
        """The upstream refused in its own words what `auth` gave it: a token is minted anew for the next call. After a
        401 that is done here."""
        self._authoriser.refused(auth)

    def _send(self, call: Call) -> Awaitable[Answer]:
        return self._apps.open(call) if call.url.startswith("app://") else self._http.open(call)

    async def close(self) -> None:
        """Drop all connections, running apps and token requests."""
        await self._authoriser.tokens.close()
        await self._apps.close()
        await self._http.close()
