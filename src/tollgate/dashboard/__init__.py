"""The web pages at `/dashboard`: what a person can do with an account, and what an operator can see.

`dashboard_app(services, reloader)` is an ASGI application; the pages call the same services as the commands do. The
pages are created at the first visit, off the event loop, so that they do not slow down the start of a gateway.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from tollgate.reload import Reloader
    from tollgate.services import Services

__all__ = ["dashboard_app"]


def dashboard_app(services: Services, reloader: Reloader) -> ASGIApp:
    """The pages, to be mounted at `/dashboard`; also makes the ledger's sign-in links point here."""
    base = services.runtime.current.gateway.server.base_url
    services.ledger.links.address = f"{base}/dashboard/link/"
    return _Lazy(services, reloader)


class _Lazy:
    """Creates the pages when they are first requested."""

    def __init__(self, services: Services, reloader: Reloader) -> None:
        self._given = (services, reloader)
        self._lock = asyncio.Lock()
        self._pages: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if self._pages is None:
            async with self._lock:
                if self._pages is None:
                    self._pages = await asyncio.to_thread(_make, *self._given)
                    self._given[0].tasks.spawn(_closing(self._pages))
        await self._pages(scope, receive, send)


def _make(services: Services, reloader: Reloader) -> ASGIApp:
    from tollgate.dashboard.application import make_pages

    return make_pages(services, reloader)


async def _closing(pages: ASGIApp) -> None:
    """Close what the pages have open when the gateway closes."""
    try:
        await asyncio.Event().wait()
    finally:
        pages.state.queries.files.close()  # type: ignore[attr-defined]
