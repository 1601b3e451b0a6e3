"""One attempt at one route: what is known of it, and begins anew with the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tollgate.errors import UpstreamError
    from tollgate.mapping import Context
    from tollgate.routing import Offer


@dataclass(slots=True, eq=False)
class Attempt:
    """The state of one attempt; it does not hold its exchange, which holds it."""

    offer: Offer | None
    """The route."""
    native: bool = False
    """The client's protocol is that of the route."""
    routes_left: int = 0
    """How many others may be tried when this attempt fails."""
    called: bool = False
    """The route has been called: from then on it may cost something."""
    context: Context | None = None
    """Of its conversion or edits, with what these lost."""
    tier_sent: bool = True
    """Whether what was sent says a service tier, where the caller's request does."""
    words: tuple[str, ...] = ()
    """Words of what was sent that the prices may ask for."""
    first_byte_ms: float | None = None
    """From the request's arrival to the first byte of the answer."""
    reported_tier: str | None = None
    """The service tier the upstream says it used."""
    failure: UpstreamError | None = None
    """Why the answer that came is none after all: it was cut off, or tells so itself and passes as it came."""
    count_part: Callable[[], Awaitable[None]] | None = None
    """Notes what was used so far of an answer that is put together here, for a client that leaves meanwhile."""

    @property
    def provider(self) -> str:
        """Whose route it is, for rows and the log."""
        return self.offer.provider if self.offer is not None else ""


NOT_TRIED = Attempt(None)
"""Of a request that has not come so far."""
