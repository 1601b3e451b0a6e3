"""How a provider's calls are authorised beyond fixed headers: what its file says, and what that comes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tollgate.config.load import Node

Adds = Callable[[Mapping[str, object], int], Mapping[str, Mapping[str, str]]]


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
    body: str | None = field(default=None, repr=False)
    """The token request as JSON, in the place of a form."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers of the token request."""
    anew: Callable[[], Authorisation] | None = field(default=None, repr=False, compare=False)
    """Makes the same for one request, where its form, body or headers read the time or a nonce. Raises a
    `TollgateError` where they cannot be computed."""
    reads: Mapping[str, Callable[..., object]] = field(default_factory=dict, repr=False, compare=False)
    """How to read `token` and `expires_in` out of the answer to a token request, where it differs from RFC 6749. Each
    is a function of the body and `answer_headers`."""
    adds: Adds | None = field(default=None, repr=False)
    """For the kind `signed`: a function of a call about to be sent (`CALL_FIELDS`) and the time that gives the
    `headers` and `query` to add. Raises a `TollgateError` where they cannot be computed."""
    key: object = field(init=False, repr=False, compare=False)
    """Equal for whatever gets the same token. Made once here, for it is asked for at every call."""

    def __post_init__(self) -> None:
        object.__setattr__(
            self,
            "key",
            (
                self.kind,
                self.body,
                *(tuple(sorted(given.items())) for given in (self.options, self.form or {}, self.headers)),
            ),
        )


AUTH_OPTIONS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = MappingProxyType(
    {
        "none": ((), ()),
        "sigv4": (("service", "region", "access_key", "secret_key"), ("session_token",)),
        "signed": (("adds",), ()),
        "oauth_jwt": (
            (),
            (
                "credentials",
                "credentials_file",
                "token_url",
                "subject",
                "scope",
                "audience",
                "headers",
                "header",
                "scheme",
                "query",
            ),
        ),
        "oauth_client": (
            ("token_url", "client_id", "client_secret"),
            (
                "scope",
                "audience",
                "resource",
                "form",
                "body",
                "headers",
                "token",
                "expires_in",
                "header",
                "scheme",
                "query",
            ),
        ),
    }
)
"""What each kind of authorisation needs, and what it also takes."""

AUTH_EITHER: Mapping[str, tuple[str, ...]] = MappingProxyType({"oauth_jwt": ("credentials", "credentials_file")})
"""Options of which a kind needs one."""

TOKEN_READS = ("token", "expires_in")
"""Options that read the answer to a token request."""

CALL_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "method": "GET, POST",
        "url": "the whole address",
        "host": "as the host header says it, with a port that is not the scheme's own",
        "path": "as it is sent, percent signs included",
        "query": "what stands behind the question mark, or an empty text",
        "headers": "those of the provider's file, by lower-case name",
        "body": "as text",
        "size": "how many bytes the body has",
        "nonce": "32 hexadecimal digits, made for this call",
    }
)
"""What `adds` of `signed` reads of a call as `$call`; beside it `$now`, the time in whole Unix seconds."""

CALL_ADDITIONS = ("headers", "query")
"""What `adds` may add to a call."""

AUTH_INSTEAD: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "form": ("client_id", "client_secret", "scope", "audience", "resource"),
        "body": ("form", "client_id", "client_secret", "scope", "audience", "resource"),
        "query": ("header", "scheme"),
    }
)
"""Options that stand in the place of others."""
