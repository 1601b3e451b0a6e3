"""What one attempt sends. `Call` is the whole vocabulary between the services and a transport's way in; `call_to` makes
one for an offer, so that how a provider is reached is copied in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tollgate.config.authorisation import Authorisation
from tollgate.config.settings import Timeouts


@dataclass(slots=True, eq=False)
class Call:
    """One HTTP request to a provider. Treat it as frozen: it is not, because freezing costs 2 µs on the hot path.

    `url` is absolute (http, https or app) and goes out as written, `%3A` included. `headers` hold the provider's own
    headers and credentials only, never the caller's. `host`, `content-length`, `user-agent`, `accept` and
    `accept-encoding: identity` are added when absent; `auth` adds a signature or token at the moment of sending.
    `proxy` (of the provider) beats the environment's; `""` means none.
    """

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)
    timeouts: Timeouts = field(default_factory=Timeouts)
    stream: bool = False
    auth: Authorisation | None = None
    proxy: str | None = None
    verify: bool = True
    ca_file: str | None = None
    sent: bool = False
    """Set by the transport once there is a connection to send it on: from then on it may cost something."""


class Reached(Protocol):
    """How a provider is reached, as an `Offer` or `ImageOffer` says it; the fields are those of `Call`."""

    @property
    def timeouts(self) -> Timeouts: ...
    @property
    def auth(self) -> Any: ...
    @property
    def proxy(self) -> str | None: ...
    @property
    def verify(self) -> bool: ...
    @property
    def ca_file(self) -> str | None: ...


def call_to(
    offer: Reached, method: str, url: str, headers: Mapping[str, str], body: bytes = b"", stream: bool = False
) -> Call:
    """The call of this address as `offer` says the provider is reached; `stream`: an event stream is asked for."""
    return Call(
        method,
        url,
        headers,
        body,
        offer.timeouts,
        stream,
        offer.auth,
        offer.proxy,
        offer.verify,
        offer.ca_file,
    )
