"""How a provider's calls are authorised beyond fixed headers: the `auth:` block as its file has it, and as computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tollgate.config.load import Node

Adds = Callable[[Mapping[str, object], int], Mapping[str, Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class Auth:
    """The `auth:` block of a provider file: its kind, a key of `AUTH_OPTIONS`, and its options, which are templates."""

    kind: str = "none"
    options: Mapping[str, Node] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Authorisation:
    """An `Auth` with its options computed: what an upstream call uses. Comparing and printing leave its secrets out."""

    kind: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    form: Mapping[str, str] | None = field(default=None, repr=False)
    """All fields of the token request, where these are not the usual client id and secret."""
    body: str | None = field(default=None, repr=False)
    """The token request as JSON, sent instead of a form."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers of the token request."""
    anew: Callable[[], Authorisation] | None = field(default=None, repr=False, compare=False)
    """Computes this value again for one request, where its form, body or headers read the time or a nonce. Raises a
    `TollgateError` where they cannot be computed."""
    reads: Mapping[str, Callable[..., object]] = field(default_factory=dict, repr=False, compare=False)
    """How to read `token` and `expires_in` from the response to a token request, where it differs from RFC 6749.
    Each is a function of the body and `answer_headers`."""
    adds: Adds | None = field(default=None, repr=False)
    """For the kind `signed`: a function of a call about to be sent (`CALL_FIELDS`) and the time that gives the
    `headers` and `query` to add. Raises a `TollgateError` where they cannot be computed."""
    key: object = field(init=False, repr=False, compare=False)
    """Equal for all providers that can use the same token. Computed once, because every call asks for it."""

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


TOKEN_READS = ("token", "expires_in")
"""Options that read the response to a token request."""
_TOKEN_SENT = ("header", "scheme", "query")
"""Options for how a token is sent."""

CLIENT_FORM = ("client_id", "client_secret", "scope", "audience", "resource")
"""The options that a token request with a client id and secret (RFC 6749, 4.4) sends in its form, if no `form` or
`body` of the file stands instead."""

AUTH_OPTIONS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = MappingProxyType(
    {
        "none": ((), ()),
        "sigv4": (("service", "region", "access_key", "secret_key"), ("session_token",)),
        "signed": (("adds",), ()),
        "oauth_jwt": (
            (),
            ("credentials", "credentials_file", "token_url", "subject", "scope", "audience", "headers", *_TOKEN_SENT),
        ),
        "oauth_client": (
            ("token_url", *CLIENT_FORM[:2]),
            (*CLIENT_FORM[2:], "method", "form", "body", "headers", *TOKEN_READS, *_TOKEN_SENT),
        ),
    }
)
"""The required and the optional options of each kind of authorisation."""

AUTH_EITHER: Mapping[str, tuple[str, ...]] = MappingProxyType({"oauth_jwt": ("credentials", "credentials_file")})
"""Options of which a kind needs at least one."""

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
"""What `adds` of the kind `signed` can read of a call as `$call`; it also reads `$now`, the time in whole Unix
seconds."""

CALL_ADDITIONS = ("headers", "query")
"""What `adds` may add to a call."""

AUTH_INSTEAD: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"form": CLIENT_FORM, "body": ("form", *CLIENT_FORM), "query": ("header", "scheme")}
)
"""Options that replace others."""
