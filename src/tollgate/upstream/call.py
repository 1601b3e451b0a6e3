"""The request of one attempt: `Call` is the input of a transport, and `call_to` creates one for an offer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tollgate.config.authorisation import Authorisation
from tollgate.config.settings import ConnectionSettings, Timeouts

if TYPE_CHECKING:
    from tollgate.mapping.images.offer import ImageOffer
    from tollgate.mapping.provider.offer import Offer


@dataclass(slots=True, eq=False)
class Call:
    """One HTTP request to a provider. Treat it as frozen; it is not declared so, because that costs 2 µs per request.

    `url` is absolute (http, https or app) and is sent as written, without decoding `%3A`. `headers` are the provider's
    headers and credentials, never the caller's. `host`, `content-length`, `user-agent`, `accept` and
    `accept-encoding: identity` are added if absent; `auth` adds a signature or a token when the call is sent.
    """

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)
    timeouts: Timeouts = field(default_factory=Timeouts)
    auth: Authorisation | None = None
    connection: ConnectionSettings = ConnectionSettings()
    sent: bool = False
    """Set by the transport once it has a connection and begins to send: from then on the call may cost something."""


def call_to(offer: Offer | ImageOffer, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> Call:
    """A call with the settings of `offer`."""
    return Call(method, url, headers, body, offer.timeouts, offer.auth, offer.connection)
