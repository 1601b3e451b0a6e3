"""OAuth tokens for upstreams that want one minted first: a signed assertion, or a client id and secret.

What must stay true: one mint serves every request that waits for it; a token that is still good is used while its
successor is fetched; a failed renewal of a token that is still good is nobody's problem yet.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

from tollgate.config.authorisation import Authorisation
from tollgate.config.secrets import note_bought
from tollgate.config.settings import Timeouts
from tollgate.errors import UpstreamFailed
from tollgate.process.concurrency import shielded
from tollgate.upstream.answer import Answer
from tollgate.upstream.call import Call

EARLY = 300.0
"""Seconds before its end at which a token is renewed; a fifth of its life when it lives shorter."""

_LIFE = 3600
_MILLISECONDS = 1e11
"""A time above this is told in milliseconds: in seconds it would be the year 5138."""
_NEVER = 1e15
"""A time that is none, in milliseconds either: the year 33658."""
_BUDGETS = Timeouts(connect=10, first_byte=20, idle=20, total=30)
_MAX_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Token:
    """An access token; times are of the monotonic clock."""

    value: str
    renew_at: float
    ends_at: float

    def __repr__(self) -> str:
        return f"Token(ends_at={self.ends_at})"


@dataclass(frozen=True, slots=True)
class Grant:
    """One form to post to a token address; made anew for each mint, since an assertion carries its own time."""

    url: str
    form: Mapping[str, str]
    call: Call
    """The upstream call that needs the token: its proxy and TLS settings hold here too."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    """JSON that is posted in the place of the form."""
    reads: Mapping[str, Callable[..., object]] = field(default_factory=dict)
    """Where the answer holds its token and that one's life (`Authorisation.reads`)."""


class Tokens:
    """Tokens by key, minted through `open` when missing and renewed before they end."""

    def __init__(
        self, open_call: Callable[[Call], Awaitable[Answer]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._open = open_call
        self._clock = clock
        self._tokens: dict[object, Token] = {}
        self._mints: dict[object, asyncio.Task[Token]] = {}

    async def get(self, key: object, grant: Callable[[], Grant]) -> str:
        """A token good for now; raises `UpstreamError`s when none can be had."""
        token = self._tokens.get(key)
        now = self._clock()
        if token is not None and now < token.renew_at:
            return token.value
        mint = self._mints.get(key)
        if mint is None:
            mint = asyncio.get_running_loop().create_task(self._mint(grant))
            self._mints[key] = mint
            mint.add_done_callback(lambda done: self._minted(key, done))
        if token is not None and now < token.ends_at:
            return token.value
        # Shielded: a waiter that leaves must not take the token from the others.
        return (await shielded(mint)).value

    def kept(self, key: object) -> str | None:
        """The token that `get` would give without minting one."""
        token = self._tokens.get(key)
        return token.value if token is not None and self._clock() < token.ends_at else None

    def forget(self, key: object, value: str | None = None) -> None:
        """The upstream refused this token (of this value, if one is named): the next call mints another."""
        token = self._tokens.get(key)
        if token is not None and value in (None, token.value):
            del self._tokens[key]

    async def close(self) -> None:
        """Stop running mints."""
        mints = list(self._mints.values())
        for mint in mints:
            mint.cancel()
        if mints:
            await asyncio.wait(mints)

    def _minted(self, key: object, done: asyncio.Task[Token]) -> None:
        self._mints.pop(key, None)
        if not done.cancelled() and done.exception() is None:
            self._tokens[key] = done.result()

    async def _mint(self, wanted: Callable[[], Grant]) -> Token:
        # beside the event loop: reading a private key takes 100 ms and more, and its file may be on a slow disk
        grant = await asyncio.to_thread(wanted)
        kind = "application/x-www-form-urlencoded" if grant.body is None else "application/json"
        headers = {"content-type": kind, "accept": "application/json"}
        headers |= {name.lower(): value for name, value in grant.headers.items()}
        call = Call(
            "POST",
            grant.url,
            headers,
            (urlencode(grant.form) if grant.body is None else grant.body).encode(),
            _BUDGETS,
            proxy=grant.call.proxy,
            verify=grant.call.verify,
            ca_file=grant.call.ca_file,
        )
        async with await self._open(call) as answer:
            raw = await answer.read(_MAX_BYTES)
        try:
            said = json.loads(raw)
        except (ValueError, RecursionError):
            said = raw.decode("utf-8", "replace").strip()
        body = said if isinstance(said, dict) else {}
        value = body.get("access_token") or body.get("id_token")
        if read := grant.reads.get("token"):
            value = read(said, answer_headers=answer.headers)
        if not 200 <= answer.status < 300 or not isinstance(value, str) or not value:
            # The error word is from a fixed list (RFC 6749, 5.2); the description may quote what we sent.
            why = body.get("error")
            word = (
                f" ({why})"
                if isinstance(why, str) and why.isascii() and len(why) < 60 and why.replace("_", "").isalnum()
                else ""
            )
            raise UpstreamFailed(
                f"the token address answered {answer.status}{word} and gave no token",
                upstream_status=answer.status,
                alarm="key" if answer.status in (400, 401, 403) else None,
            )
        note_bought(value)
        lives = read(said, answer_headers=answer.headers) if (read := grant.reads.get("expires_in")) else None
        life = _life(body) if lives is None else _seconds(lives)
        now = self._clock()
        return Token(value, now + life - min(EARLY, life / 5), now + life)


def _life(body: Mapping[str, object]) -> float:
    """Seconds a token lives: `expires_in` (RFC 6749, 5.1), or until `expires_at`, which issuers tell in seconds or in
    milliseconds."""
    at = body.get("expires_at")
    if body.get("expires_in") is None and isinstance(at, (int, float)) and abs(at) < _NEVER:
        return _seconds(at / (1000 if at > _MILLISECONDS else 1) - time.time())
    return _seconds(body.get("expires_in"))


def _seconds(value: object) -> float:
    try:
        return max(1.0, min(float(value), 86400.0)) if isinstance(value, (int, float, str)) else float(_LIFE)
    except (ValueError, OverflowError):
        return float(_LIFE)


def jwt_grant(auth: Authorisation, call: Call) -> Grant:
    """The assertion of a service account (RFC 7523), signed with RS256.

    `credentials` is its JSON or the path of a file holding it; `scope` (or `audience`) says what for.
    """
    import jwt  # 60 ms to import, wanted by two providers in thirty

    options = auth.options
    account = _account(options)
    url = options.get("token_url") or str(account.get("token_uri") or "")
    issuer, key = account.get("client_email"), account.get("private_key")
    if not url or not isinstance(issuer, str) or not isinstance(key, str):
        raise unusable("oauth_jwt credentials must have client_email, private_key and token_uri")
    now = int(time.time())
    claims: dict[str, object] = {"iss": issuer, "aud": url, "iat": now, "exp": now + _LIFE}
    claims["sub"] = options.get("subject") or issuer
    if options.get("scope"):
        claims["scope"] = options["scope"]
    if options.get("audience"):
        claims["target_audience"] = options["audience"]
    headers = {"kid": str(account["private_key_id"])} if account.get("private_key_id") else None
    try:
        assertion = jwt.encode(claims, key, algorithm="RS256", headers=headers)
    except (ValueError, TypeError, jwt.PyJWTError):
        raise unusable("the private_key of oauth_jwt credentials is not a usable RSA key") from None
    form = {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": assertion}
    return Grant(url, form, call, auth.headers)


def client_grant(auth: Authorisation, call: Call) -> Grant:
    """Client credentials (RFC 6749, 4.4), the secret in the form as every large issuer takes it; or the form a
    provider's file says."""
    options, form = auth.options, auth.form
    missing = [
        name
        for name in ("token_url", *(("client_id", "client_secret") if form is None and auth.body is None else ()))
        if not options.get(name)
    ]
    if missing:
        raise unusable(f"oauth_client needs {', '.join(missing)}")
    if form is not None or auth.body is not None:
        return Grant(options["token_url"], form or {}, call, auth.headers, auth.body, auth.reads)
    fixed = {
        "grant_type": "client_credentials",
        "client_id": options["client_id"],
        "client_secret": options["client_secret"],
    }
    fixed |= {name: options[name] for name in ("scope", "audience", "resource") if options.get(name)}
    return Grant(options["token_url"], fixed, call, auth.headers, reads=auth.reads)


def _account(options: Mapping[str, str]) -> dict[str, object]:
    text = options.get("credentials") or options.get("credentials_file") or ""
    where = "the credentials secret"
    if not text.lstrip().startswith("{"):
        where = "the credentials file"
        try:
            text = Path(text).read_text("utf-8")
        except (OSError, ValueError):
            raise unusable("the credentials file of oauth_jwt cannot be read") from None
    try:
        account = json.loads(text)
    except ValueError:
        raise unusable(f"{where} of oauth_jwt is not JSON") from None
    if not isinstance(account, dict):
        raise unusable(f"{where} of oauth_jwt is not a JSON object")
    return account


def unusable(message: str) -> UpstreamFailed:
    """The error where the operator's credentials are not such that a call could be authorised with them."""
    return UpstreamFailed(message, upstream_status=401, alarm="key")
