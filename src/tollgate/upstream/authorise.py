"""Adds signatures and tokens to calls when they are sent, for providers that need more than fixed headers.

The kinds are a closed set. `signed` is a signature defined by the provider's file; the other kinds are implemented
here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from secrets import token_hex
from typing import TYPE_CHECKING

from tollgate.addresses import with_query
from tollgate.errors import UpstreamFailed
from tollgate.upstream.http import authority, split_url
from tollgate.upstream.oauth import Grant, Tokens, client_grant, jwt_grant, unusable_credentials
from tollgate.upstream.sigv4 import Credentials, sign

if TYPE_CHECKING:
    from tollgate.config.authorisation import Adds, Authorisation
    from tollgate.upstream.answer import Answer
    from tollgate.upstream.call import Call

_GRANTS: dict[str, Callable[[Authorisation, Call], Grant]] = {"oauth_jwt": jwt_grant, "oauth_client": client_grant}
_CREDENTIALS = ("access_key", "secret_key", "region", "service")
_LARGE_BODY = 1024 * 1024
"""Larger bodies are hashed in a thread: 30 MB take 36 ms."""


class Authoriser:
    """Authorises calls and caches tokens. `open_call` sends the token requests."""

    def __init__(self, open_call: Callable[[Call], Awaitable[Answer]]) -> None:
        self.tokens = Tokens(open_call)

    async def authorised(self, auth: Authorisation, call: Call) -> Call:
        """`call` with a signature over exactly these bytes, or with a token in a header or in the query.

        Raises `UpstreamFailed` (alarm `key`) if the credentials are unusable, and the errors of the token request.
        """
        if auth.kind == "sigv4":
            if len(call.body) > _LARGE_BODY:
                return await asyncio.to_thread(_sigv4, auth, call)
            return _sigv4(auth, call)
        if auth.adds is not None:
            # reading an RSA key takes 100 ms, signing 1 to 4 ms, and the cost of a file's own expressions is unknown
            return await asyncio.to_thread(_signed, auth.adds, call)
        grant = _GRANTS.get(auth.kind)
        if grant is None:
            raise UpstreamFailed(f"no authorisation of kind {auth.kind!r}")
        token = await self.tokens.get(auth.key, lambda: grant(auth.anew() if auth.anew is not None else auth, call))
        if auth.options.get("query"):
            return replace(call, url=with_query(call.url, {auth.options["query"]: token}))
        header, scheme = auth.options.get("header") or "authorization", auth.options.get("scheme", "Bearer")
        return _headed(call, {header.lower(): f"{scheme} {token}" if scheme else token})

    def cached_token(self, auth: Authorisation) -> str | None:
        """The cached token that the next call would get; None if there is none."""
        return self.tokens.cached(auth.key) if auth.kind in _GRANTS else None

    def invalidate(self, auth: Authorisation, token: str | None = None) -> None:
        """Discard the cached token, which was rejected; with `token`, only if it is still that one."""
        if auth.kind in _GRANTS:
            self.tokens.forget(auth.key, token)


def _sigv4(auth: Authorisation, call: Call) -> Call:
    credentials = _credentials(auth.options)
    return _headed(call, sign(credentials, call.method, call.url, call.headers, call.body, datetime.now(UTC)))


def _signed(adds: Adds, call: Call) -> Call:
    """`call` with the headers and query parameters of its signature. Raises `UpstreamFailed` (alarm `key`) if there are
    none."""
    added = adds(_call_facts(call), int(time.time()))
    headers, query = added.get("headers") or {}, added.get("query") or {}
    if not headers and not query:
        raise unusable_credentials("auth.adds has no result: one of its values is absent, or its key is not valid")
    signed = _headed(call, {name.lower(): value for name, value in headers.items()})
    return replace(signed, url=with_query(call.url, query))


def _call_facts(call: Call) -> dict[str, object]:
    """The fields of a call that a `signed` rule can read (`CALL_FIELDS`)."""
    scheme, host, port, target = split_url(call.url.replace("app://", "http://", 1))
    path, _, query = target.partition("?")
    return {
        "method": call.method,
        "url": call.url,
        "host": authority(scheme, host, port),
        "path": path,
        "query": query,
        "headers": {name.lower(): value for name, value in call.headers.items()},
        "body": call.body.decode("utf-8", "surrogateescape"),
        "size": len(call.body),
        "nonce": token_hex(16),
    }


def _headed(call: Call, added: Mapping[str, str]) -> Call:
    others = {name: value for name, value in call.headers.items() if name.lower() not in added}
    return replace(call, headers={**others, **added})


def _credentials(options: Mapping[str, str]) -> Credentials:
    missing = [name for name in _CREDENTIALS if not options.get(name)]
    if missing:
        raise unusable_credentials(f"sigv4 needs {', '.join(missing)}")
    access, secret, region, service = (options[name] for name in _CREDENTIALS)
    return Credentials(access, secret, region, service, options.get("session_token") or "")
