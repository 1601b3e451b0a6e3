"""How a provider's calls are authorised beyond fixed headers: what its file says, and what that comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tollgate.config.load import Node


@dataclass(frozen=True, slots=True)
class Auth:
    """How a call is authorised beyond headers: by a kind of `AUTH_OPTIONS`. `options` are templates."""

    kind: str = "none"
    options: Mapping[str, Node] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Authorisation:
    """An `Auth` with its options computed: what an upstream call carries. Compare and show it without its secrets."""

    kind: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    form: Mapping[str, str] | None = field(default=None, repr=False)
    """All fields of the token request, where it is not a client's id and secret that buy the token."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers of the token request."""
    key: object = field(init=False, repr=False, compare=False)
    """Equal for whatever gets the same token. Made once here, for it is asked for at every call."""

    def __post_init__(self) -> None:
        object.__setattr__(
            self,
            "key",
            (self.kind, *(tuple(sorted(given.items())) for given in (self.options, self.form or {}, self.headers))),
        )


AUTH_OPTIONS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = MappingProxyType({
    "none": ((), ()),
    "sigv4": (("service", "region", "access_key", "secret_key"), ("session_token",)),
    "oauth_jwt": (
        (),
        (
            "credentials", "credentials_file", "token_url", "subject", "scope", "audience", "headers", "header",
            "scheme", "query",
        ),
    ),
    "oauth_client": (
        ("token_url", "client_id", "client_secret"),
        ("scope", "audience", "resource", "form", "headers", "header", "scheme", "query"),
    ),
})
"""What each kind of authorisation needs, and what it also takes."""

AUTH_INSTEAD: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "form": ("client_id", "client_secret", "scope", "audience", "resource"),
    "query": ("header", "scheme"),
})
"""Options that stand in the place of others."""
