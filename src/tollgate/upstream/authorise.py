"""How a call is authorised beyond fixed headers: a closed set of kinds, each changing a call at the moment of sending.

The one place where provider secrets become signatures and tokens. `signed` is a signature that the provider's file
words itself; another kind is code.
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
from tollgate.upstream.oauth import Grant, Tokens, client_grant, jwt_grant, unusable
from tollgate.upstream.sigv4 import Credentials, sign

if TYPE_CHECKING:
    from tollgate.config.authorisation import Adds, Authorisation
    from tollgate.upstream.answer import Answer
    from tollgate.upstream.call import Call

_GRANTS: dict[str, Callable[[Authorisation, Call], Grant]] = {"oauth_jwt": jwt_grant, "oauth_client": client_grant}
_CREDENTIALS = ("access_key", "secret_key", "region", "service")
_LARGE_BODY = 1024 * 1024
"""Above it a body's digest takes longer than the way to a thread and back: 36 ms for 30 MB."""


class Authoriser:
    """Does what each kind does to a call, and keeps the tokens. `open_call` sends the token requests."""

    def __init__(self, open_call: Callable[[Call], Awaitable[Answer]]) -> None:
        self.tokens = Tokens(open_call)

    async def authorised(self, auth: Authorisation, call: Call) -> Call:
        """`call` as it is to be sent: with a signature over exactly these bytes, or with a token in a header or its
        query.

        Raises `UpstreamFailed` (alarm `key`) when the credentials are unusable, and what minting a token raises.
        """
        if auth.kind == "sigv4":
            if len(call.body) > _LARGE_BODY:
                return await asyncio.to_thread(_sigv4, auth, call)
            return _sigv4(auth, call)
        if auth.adds is not None:
            # an RSA key is read in 100 ms and signs in 1 to 4, and what a file computes nobody knows
            return await asyncio.to_thread(_signed, auth.adds, call)
        grant = _GRANTS.get(auth.kind)
        if grant is None:
            raise UpstreamFailed(f"no authorisation of kind {auth.kind!r}")
        token = await self.tokens.get(auth.key, lambda: grant(auth.anew() if auth.anew is not None else auth, call))
        if auth.options.get("query"):
            return replace(call, url=with_query(call.url, {auth.options["query"]: token}))
        header, scheme = auth.options.get("header") or "authorization", auth.options.get("scheme", "Bearer")
        return _headed(call, {header.lower(): f"{scheme} {token}" if scheme else token})

    def kept(self, auth: Authorisation) -> str | None:
        """The token a call would get that was bought for an earlier one."""
        return self.tokens.kept(auth.key) if auth.kind in _GRANTS else None

    def refused(self, auth: Authorisation, token: str | None = None) -> None:
        """A token that was refused is used no more: this one, where another may be there by now."""
        if auth.kind in _GRANTS:
            self.tokens.forget(auth.key, token)


def _sigv4(auth: Authorisation, call: Call) -> Call:
    credentials = _credentials(auth.options)
    return _headed(call, sign(credentials, call.method, call.url, call.headers, call.body, datetime.now(UTC)))


def _signed(adds: Adds, call: Call) -> Call:
    return _added(call, adds(_call_facts(call), int(time.time())))


def _call_facts(call: Call) -> dict[str, object]:
    """A call as `signed` reads it: `CALL_FIELDS`."""
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


def _added(call: Call, added: Mapping[str, Mapping[str, str]]) -> Call:
    """`call` with what its signature consists of. Raises `UpstreamFailed` (alarm `key`) where nothing came of it."""
    headers, query = added.get("headers") or {}, added.get("query") or {}
    if not headers and not query:
        raise unusable("auth.adds came to nothing: one of its values is absent, or its key is none")
    signed = _headed(call, {name.lower(): value for name, value in headers.items()}) if headers else call
    return replace(signed, url=with_query(call.url, query)) if query else signed


def _headed(call: Call, added: Mapping[str, str]) -> Call:
    mine = {name: value for name, value in call.headers.items() if name.lower() not in added}
    return replace(call, headers={**mine, **added})


def _credentials(options: Mapping[str, str]) -> Credentials:
    missing = [name for name in _CREDENTIALS if not options.get(name)]
    if missing:
        raise unusable(f"sigv4 needs {', '.join(missing)}")
    access, secret, region, service = (options[name] for name in _CREDENTIALS)
    return Credentials(access, secret, region, service, options.get("session_token") or "")
