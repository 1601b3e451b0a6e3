"""The state of one attempt at one route; the next attempt starts with a fresh one."""

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
    """One attempt. The exchange refers to its attempt, never the other way round."""

    offer: Offer | None
    """The route."""
    routes_left: int = 0
    """How many more routes may be tried if this one fails."""
    called: bool = False
    """The request was sent; from here on the provider may charge for it."""
    context: Context | None = None
    """The context of its conversion or edits, with the list of what they lost."""
    tier_sent: bool = True
    """False when the caller's service tier did not make it into the body that was sent."""
    words: tuple[str, ...] = ()
    """Values in the body that was sent on which a price may depend."""
    converts: bool = False
    """The answer is converted for the client, in `context`: its protocol is another one, or it cannot pass as it is."""
    sent_at: float = 0.0
    """When the call that was answered first was made, by `time.perf_counter`."""
    first_byte_ms: float | None = None
    """Milliseconds from the request's arrival to the first byte of the answer."""
    reported_tier: str | None = None
    """The service tier the upstream says it used."""
    failure: UpstreamError | None = None
    """Why an answer that began counts as failed: the stream broke off, or its own last event reports a failure."""
    count_part: Callable[[], Awaitable[None]] | None = None
    """Notes the usage so far if the client leaves meanwhile, where more is known than the prompt: for an answer that is
    assembled here from a stream, and for inputs that are sent in several calls."""

    @property
    def provider(self) -> str:
        """Name of the provider, for rows and the log."""
        return self.offer.provider if self.offer is not None else ""


NOT_TRIED = Attempt(None)
"""The attempt of a request that has not tried a route yet."""
