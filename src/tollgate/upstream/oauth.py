"""OAuth access tokens for upstreams, obtained with a signed assertion or with a client id and secret.

Invariants: one token request serves all calls that wait for it; a token that is still valid is used while it is being
renewed, and a failed renewal is no error while it is valid.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlencode

from tollgate.addresses import with_query
from tollgate.config.authorisation import AUTH_OPTIONS, CLIENT_FORM, Authorisation
from tollgate.config.secrets import note_bought
from tollgate.config.settings import Timeouts
from tollgate.errors import UpstreamError, UpstreamFailed
from tollgate.process.concurrency import shielded
from tollgate.upstream.answer import Answer
from tollgate.upstream.call import Call

EARLY = 300.0
"""A token is renewed this many seconds before it expires, or after four fifths of its lifetime if that is later."""

RENEWAL_PAUSE = 10.0
"""Seconds after a failed renewal in which the token, while it is valid, is not renewed again: every call would try."""

_DEFAULT_LIFETIME = 3600
_MILLISECONDS = 1e11
"""A larger time is in milliseconds: in seconds it would be the year 5138."""
_NEVER = 1e15
"""A larger time is invalid: even in milliseconds it would be the year 33658."""
_BUDGETS = Timeouts(connect=10, first_byte=20, idle=20, total=30)
_MAX_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Token:
    """An access token; its times are those of the monotonic clock."""

    value: str = field(repr=False)
    renew_at: float
    ends_at: float


@dataclass(frozen=True, slots=True)
class Grant:
    """One token request. It is created anew each time, because an assertion contains its own time."""

    url: str
    form: Mapping[str, str]
    call: Call
    """The upstream call that needs the token; its connection settings are used here too."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    """JSON to post in place of the form."""
    reads: Mapping[str, Callable[..., object]] = field(default_factory=dict)
    """Read the token and its lifetime from the answer (`Authorisation.reads`)."""
    method: str = "POST"
    """With GET the form is in the query, as the metadata services of clouds want it."""


class Tokens:
    """A cache of tokens by key. A missing one is requested through `open_call`; each is renewed before it expires."""

    def __init__(
        self, open_call: Callable[[Call], Awaitable[Answer]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._open = open_call
        self._clock = clock
        self._tokens: dict[object, Token] = {}
        self._mints: dict[object, asyncio.Task[Token]] = {}

    async def get(self, key: object, grant: Callable[[], Grant]) -> str:
        """A valid token. Raises an `UpstreamError` if none can be obtained."""
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
        # a waiter that is cancelled must not cancel the request for the others
        try:
            return (await shielded(mint)).value
        except UpstreamError as error:
            raise error.copy() from None

    def cached(self, key: object) -> str | None:
        """The valid token that `get` would return without a request; None if there is none."""
        token = self._tokens.get(key)
        return token.value if token is not None and self._clock() < token.ends_at else None

    def forget(self, key: object, value: str | None = None) -> None:
        """Discard a token that the upstream rejected (with `value`, only that one), so that the next call requests a
        new one."""
        token = self._tokens.get(key)
        if token is not None and value in (None, token.value):
            del self._tokens[key]

    async def close(self) -> None:
        """Cancel running token requests."""
        mints = list(self._mints.values())
        for mint in mints:
            mint.cancel()
        if mints:
            await asyncio.wait(mints)

    def _minted(self, key: object, done: asyncio.Task[Token]) -> None:
        self._mints.pop(key, None)
        if done.cancelled():
            return
        if done.exception() is None:
            self._tokens[key] = done.result()
        elif (token := self._tokens.get(key)) is not None:
            self._tokens[key] = replace(token, renew_at=min(self._clock() + RENEWAL_PAUSE, token.ends_at))

    async def _mint(self, wanted: Callable[[], Grant]) -> Token:
        # in a thread: reading a private key takes 100 ms or more, and its file may be on a slow disk
        grant = await asyncio.to_thread(wanted)
        url, headers, body = grant.url, {"accept": "application/json"}, b""
        if grant.method == "GET":
            url = with_query(url, grant.form)
        else:
            kind = "application/x-www-form-urlencoded" if grant.body is None else "application/json"
            headers["content-type"] = kind
            body = (urlencode(grant.form) if grant.body is None else grant.body).encode()
        headers |= {name.lower(): value for name, value in grant.headers.items()}
        call = Call(grant.method, url, headers, body, _BUDGETS, connection=grant.call.connection)
        async with await self._open(call) as answer:
            raw = await answer.read(_MAX_BYTES)
        value, lifetime = _granted(grant, answer, raw)
        note_bought(value)
        now = self._clock()
        return Token(value, now + lifetime - min(EARLY, lifetime / 5), now + lifetime)


def _granted(grant: Grant, answer: Answer, raw: bytes) -> tuple[str, float]:
    """The token in an answer with this body, and its lifetime in seconds. Raises `UpstreamFailed` if there is none."""
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        document = raw.decode("utf-8", "replace").strip()
    body = document if isinstance(document, dict) else {}
    value = body.get("access_token") or body.get("id_token")
    if read := grant.reads.get("token"):
        value = read(document, answer_headers=answer.headers)
    if not 200 <= answer.status < 300 or not isinstance(value, str) or not value:
        # `error` is from a fixed list (RFC 6749, 5.2); `error_description` may quote our secret
        why = body.get("error")
        is_word = isinstance(why, str) and why.isascii() and len(why) < 60 and why.replace("_", "").isalnum()
        raise UpstreamFailed(
            f"the token endpoint answered {answer.status}{f' ({why})' if is_word else ''} without a token",
            upstream_status=answer.status,
            alarm="key" if answer.status in (400, 401, 403) else None,
        )
    expires_in = read(document, answer_headers=answer.headers) if (read := grant.reads.get("expires_in")) else None
    return value, _lifetime(body) if expires_in is None else _seconds(expires_in)


def _lifetime(body: Mapping[str, object]) -> float:
    """The lifetime of a token in seconds: `expires_in` (RFC 6749, 5.1), or the time until `expires_at`, which issuers
    send in seconds or milliseconds."""
    at = body.get("expires_at")
    if body.get("expires_in") is None and isinstance(at, (int, float)) and abs(at) < _NEVER:
        return _seconds(at / (1000 if at > _MILLISECONDS else 1) - time.time())
    return _seconds(body.get("expires_in"))


def _seconds(value: object) -> float:
    if not isinstance(value, (int, float, str)):
        return float(_DEFAULT_LIFETIME)
    try:
        return max(1.0, min(float(value), 86400.0))
    except (ValueError, OverflowError):
        return float(_DEFAULT_LIFETIME)


def jwt_grant(auth: Authorisation, call: Call) -> Grant:
    """A token request with the assertion of a service account (RFC 7523), signed with RS256.

    The option `credentials` is the account's JSON or the path of its file; `scope` or `audience` is the purpose. Raises
    `UpstreamFailed` (alarm `key`) if they are unusable.
    """
    import jwt  # takes 60 ms, and few providers need it

    options = auth.options
    account = _account(options)
    url = options.get("token_url") or str(account.get("token_uri") or "")
    issuer, key = account.get("client_email"), account.get("private_key")
    if not url or not isinstance(issuer, str) or not isinstance(key, str):
        raise unusable_credentials("oauth_jwt credentials must have client_email, private_key and token_uri")
    now = int(time.time())
    claims: dict[str, object] = {"iss": issuer, "aud": url, "iat": now, "exp": now + _DEFAULT_LIFETIME}
    claims["sub"] = options.get("subject") or issuer
    if options.get("scope"):
        claims["scope"] = options["scope"]
    if options.get("audience"):
        claims["target_audience"] = options["audience"]
    headers = {"kid": str(account["private_key_id"])} if account.get("private_key_id") else None
    try:
        assertion = jwt.encode(claims, key, algorithm="RS256", headers=headers)
    except (ValueError, TypeError, jwt.PyJWTError):
        raise unusable_credentials("the private_key of oauth_jwt credentials is not a usable RSA key") from None
    form = {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": assertion}
    return Grant(url, form, call, auth.headers)


def client_grant(auth: Authorisation, call: Call) -> Grant:
    """A token request with client credentials (RFC 6749, 4.4), with the secret in the form, which all large issuers
    accept; or the form or body defined by the provider's file. Raises `UpstreamFailed` (alarm `key`) if an option is
    missing."""
    options, form = auth.options, auth.form
    usual = form is None and auth.body is None
    needed = AUTH_OPTIONS["oauth_client"][0] if usual else ("token_url",)
    missing = [name for name in needed if not options.get(name)]
    if missing:
        raise unusable_credentials(f"oauth_client needs {', '.join(missing)}")
    if usual:
        sent = {name: options[name] for name in CLIENT_FORM if options.get(name)}
        form = {"grant_type": "client_credentials"} | sent
    method = options.get("method", "POST")
    return Grant(options["token_url"], form or {}, call, auth.headers, auth.body, auth.reads, method)


def _account(options: Mapping[str, str]) -> dict[str, object]:
    text = options.get("credentials") or options.get("credentials_file") or ""
    where = "the credentials secret"
    if not text.lstrip().startswith("{"):
        where = "the credentials file"
        try:
            text = Path(text).read_text("utf-8")
        except (OSError, ValueError):
            raise unusable_credentials("the credentials file of oauth_jwt cannot be read") from None
    try:
        account = json.loads(text)
    except ValueError:
        raise unusable_credentials(f"{where} of oauth_jwt is not JSON") from None
    if not isinstance(account, dict):
        raise unusable_credentials(f"{where} of oauth_jwt is not a JSON object")
    return account


def unusable_credentials(message: str) -> UpstreamFailed:
    """The error for credentials with which no call can be authorised."""
    return UpstreamFailed(message, upstream_status=401, alarm="key")
