"""Authorisation: signatures equal the vendor's own library; tokens are requested once and renewed early."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from scripted import Peer, Seen, ok, upstream

from support.waiting import until
from tollgate.config.authorisation import CALL_FIELDS, Authorisation
from tollgate.errors import UpstreamError, UpstreamFailed
from tollgate.upstream import Call, Client
from tollgate.upstream.oauth import EARLY, RENEWAL_PAUSE, Grant, Tokens
from tollgate.upstream.sigv4 import Credentials, sign

# The vendor's documented example keys. The signatures below were computed by its own library (botocore 1.34.22).
_ACCESS, _SECRET, _SESSION = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "FwoGZXIvYXdzEXAMPLE//token=="
_BODY = json.dumps({"messages": [{"role": "user", "content": [{"text": "hé"}]}]}).encode()
_AT = datetime(2026, 11, 20, 12, 34, 56, tzinfo=UTC)
_JSON = {"content-type": "application/json"}
_MORE = {
    "Content-Type": "application/json",
    "X-Custom": "a   b ",
    "accept": "application/vnd.amazon.eventstream",
    "User-Agent": "z",
}
_RUNTIME = "https://bedrock-runtime.us-east-1.amazonaws.com/model/"
SIGNATURES = {
    "escaped model id": (
        _RUNTIME + "anthropic.claude-3-5-sonnet-20241022-v2%3A0/converse-stream",
        "",
        _JSON,
        "33f2278153897ed4aff2dba26a6f8974e20401d80425b157b0f9c29e560058e8",
    ),
    "session token": (
        _RUNTIME + "anthropic.claude-3-5-sonnet-20241022-v2%3A0/converse-stream",
        _SESSION,
        _JSON,
        "d55168b5718e9577f0c2202a8c00b1c084a1890c9f959402e227713a00bbebbc",
    ),
    "more headers": (
        _RUNTIME + "anthropic.claude-3-5-sonnet-20241022-v2%3A0/converse-stream",
        _SESSION,
        _MORE,
        "971292cdd4b1d5edfd7aa4461a280dfa12151b5895fa0a3222e9e71b8384c4c5",
    ),
    "inference profile": (
        _RUNTIME + "arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fx/converse",
        "",
        {},
        "b6a65c2fba8c71166a26b7c19df441977329b1e24f10f183a346d49198738f66",
    ),
    "query": (
        "https://bedrock.us-west-2.amazonaws.com/foundation-models?byProvider=x&a=2&a=1&flag&z=%20y",
        "",
        _JSON,
        "2f3a4951ec44e1d58f46b2991ef0a578912d733fc0e6b4a6cfb908771cccc1f6",
    ),
    "port, dots and slashes": (
        "https://vpce.example.com:8443/a//b/../c/?q=1",
        _SESSION,
        {},
        "75ce2697dd9c319ddc0df97db32f1f4606ab2880c5470192d465076260311b32",
    ),
    "no path": ("https://x.amazonaws.com", "", {}, "315eb654c550d12cd8a9e06d67838691d155ad65e36ea957a964e40640531cce"),
    "unescaped colon": (
        "https://x.amazonaws.com/model/a:b~c/x%20y",
        _SESSION,
        _MORE,
        "0137c1e7c8c75fecacaf0cb06bf36068a1a52004c2e5552e3f3295688d0aeba6",
    ),
}


@pytest.mark.parametrize(("url", "session", "headers", "wanted"), SIGNATURES.values(), ids=SIGNATURES.keys())
def test_a_signature_equals_the_vendor_library_s(url: str, session: str, headers: dict, wanted: str) -> None:
    added = sign(Credentials(_ACCESS, _SECRET, "us-east-1", "bedrock", session), "POST", url, headers, _BODY, _AT)
    assert added["authorization"].rpartition("Signature=")[2] == wanted
    assert added["authorization"].startswith(
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261120/us-east-1/bedrock/aws4_request, SignedHeaders="
    )
    assert added["x-amz-date"] == "20261120T123456Z"
    assert added.get("x-amz-security-token", "") == session


SIGV4 = Authorisation(
    "sigv4", {"access_key": _ACCESS, "secret_key": _SECRET, "region": "eu-west-1", "service": "bedrock"}
)


async def test_the_signature_covers_the_request_as_sent(client: Client) -> None:
    async with upstream(ok()) as server:
        url = server.url("/model/a%3A0/converse?x=1")
        headers = {"content-type": "application/json", "authorization": "Bearer old"}
        await (await client.open(Call("POST", url, headers, b"{}", auth=SIGV4))).read()
        seen = server.seen[0]
    signed_at = datetime.strptime(seen.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    again = sign(Credentials(_ACCESS, _SECRET, "eu-west-1", "bedrock"), "POST", url, _JSON, b"{}", signed_at)
    assert seen.headers["authorization"] == again["authorization"]
    assert seen.headers["host"] in url


async def test_missing_signing_options_are_reported_as_our_own_fault(client: Client) -> None:
    with pytest.raises(UpstreamFailed, match="sigv4 needs secret_key, region") as caught:
        await client.open(Call("POST", "http://x/", auth=Authorisation("sigv4", {"access_key": "a", "service": "b"})))
    assert caught.value.alarm == "key"


def test_secrets_are_not_in_a_repr() -> None:
    call = Call(
        "POST",
        "http://x/?key=canary",
        {"authorization": "canary"},
        b"canary",
        auth=Authorisation("sigv4", {"a": "canary"}),
    )
    assert "canary" not in repr(call) + repr(Credentials(_ACCESS, "canary", "r", "s", "canary"))


# Signatures defined by a provider file.


async def test_a_provider_s_own_signature_is_computed_from_the_call_as_sent(client: Client) -> None:
    calls: list[Mapping[str, object]] = []

    def adds(call: Mapping[str, object], now: int) -> Mapping[str, Mapping[str, str]]:
        calls.append({**call, "now": now})
        return {"headers": {"X-Sign": "s", "X-Old": "new"}, "query": {"at": "a b"}}

    auth = Authorisation("signed", adds=adds)
    async with upstream(ok()) as server:
        for _ in range(2):
            call = Call("POST", server.url("/a%3Ab?q=1"), {"X-Old": "old"}, body="hé".encode(), auth=auth)
            await (await client.open(call)).read()
        [seen, _] = server.seen
    assert seen.line == "POST /a%3Ab?q=1&at=a%20b HTTP/1.1"
    assert (seen.headers["x-sign"], seen.headers["x-old"]) == ("s", "new")
    first, second = calls
    assert {name: first[name] for name in ("method", "path", "query", "body", "size", "host")} == {
        "method": "POST",
        "path": "/a%3Ab",
        "query": "q=1",
        "body": "hé",
        "size": 3,
        "host": seen.headers["host"],
    }
    assert first.keys() == {*CALL_FIELDS, "now"} and first["headers"] == {"x-old": "old"}
    assert len(str(first["nonce"])) == 32 and first["nonce"] != second["nonce"]
    assert isinstance(first["now"], int) and abs(first["now"] - time.time()) < 60


async def test_expensive_signatures_are_computed_off_the_event_loop(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def adds(call: Mapping[str, object], now: int) -> Mapping[str, Mapping[str, str]]:
        threads.append(threading.get_ident())
        return {"headers": {"x-sign": "s"}}

    def sign_recorded(*args: object) -> dict[str, str]:
        threads.append(threading.get_ident())
        return {"authorization": "s"}

    def grant() -> Grant:
        threads.append(threading.get_ident())
        return Grant(server.url(), {}, Call("POST", server.url()))

    monkeypatch.setattr("tollgate.upstream.authorise.sign", sign_recorded)
    keys = {"access_key": "a", "secret_key": "s", "region": "r", "service": "b"}
    async with upstream(ok()) as server:
        for auth in (Authorisation("signed", adds=adds), Authorisation("sigv4", keys)):
            await (await client.open(Call("POST", server.url(), {}, body=b"x" * 2_000_000, auth=auth))).read()
        with pytest.raises(UpstreamFailed, match="without a token"):
            await Tokens(client.open).get("key", grant)
    assert len(threads) == 3 and threading.get_ident() not in threads


async def test_an_empty_signature_is_our_own_fault(client: Client) -> None:
    with pytest.raises(UpstreamFailed, match="has no result") as error:
        auth = Authorisation("signed", adds=lambda call, now: {})
        await client.open(Call("POST", "http://127.0.0.1:1/", auth=auth))
    assert error.value.alarm == "key"


# Tokens.


class Issuer:
    """A token endpoint that records requests and answers as configured."""

    def __init__(self) -> None:
        self.forms: list[dict[str, str]] = []
        self.status, self.life, self.delay = 200, 3600, 0.0
        self.body: bytes | None = None

    async def __call__(self, seen: Seen, peer: Peer) -> None:
        self.forms.append({name: values[0] for name, values in parse_qs(seen.body.decode()).items()})
        await asyncio.sleep(self.delay)
        body = (
            self.body
            or json.dumps(
                {"access_token": f"token-{len(self.forms)}", "expires_in": self.life, "token_type": "Bearer"}
            ).encode()
        )
        await peer.send(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (self.status, len(body), body))


@pytest.fixture(scope="module")
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def service_account(key: rsa.RSAPrivateKey, token_url: str) -> str:
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    return json.dumps(
        {
            "type": "service_account",
            "client_email": "robot@example.com",
            "private_key": pem,
            "private_key_id": "k1",
            "token_uri": token_url,
        }
    )


def client_auth(url: str, **more: str) -> Authorisation:
    return Authorisation("oauth_client", {"token_url": url, "client_id": "us", "client_secret": "canary", **more})


async def test_a_client_credentials_token_is_requested_once(client: Client) -> None:
    issuer = Issuer()
    async with upstream(issuer) as tokens, upstream(ok()) as server:
        auth = client_auth(tokens.url("/token"), scope="models", audience="api")
        for _ in range(3):
            await (await client.open(Call("POST", server.url(), {"Authorization": "x"}, auth=auth))).read()
        assert [seen.headers["authorization"] for seen in server.seen] == ["Bearer token-1"] * 3
    assert issuer.forms == [
        {
            "grant_type": "client_credentials",
            "client_id": "us",
            "client_secret": "canary",
            "scope": "models",
            "audience": "api",
        }
    ]


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "file"])
async def test_a_service_account_signs_an_assertion(
    client: Client, rsa_key: rsa.RSAPrivateKey, tmp_path: Path, inline: bool
) -> None:
    issuer = Issuer()
    async with upstream(issuer) as tokens, upstream(ok()) as server:
        account = service_account(rsa_key, tokens.url("/token"))
        path = tmp_path / "account.json"
        path.write_text(account)
        auth = Authorisation(
            "oauth_jwt",
            {
                "credentials": account if inline else str(path),
                "scope": "https://scope.example/all",
                "audience": "https://run.example",
            },
        )
        await (await client.open(Call("POST", server.url(), auth=auth))).read()
        assert server.seen[0].headers["authorization"] == "Bearer token-1"
        form = issuer.forms[0]
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        claims = jwt.decode(
            form["assertion"], rsa_key.public_key(), algorithms=["RS256"], audience=tokens.url("/token")
        )
    assert jwt.get_unverified_header(form["assertion"]) == {"alg": "RS256", "typ": "JWT", "kid": "k1"}
    assert (claims["iss"], claims["sub"], claims["scope"]) == (
        "robot@example.com",
        "robot@example.com",
        "https://scope.example/all",
    )
    assert claims["exp"] - claims["iat"] == 3600
    assert claims["target_audience"] == "https://run.example"


async def test_a_custom_token_request_and_a_token_in_the_query(client: Client) -> None:
    issuer = Issuer()
    async with upstream(issuer) as tokens, upstream(ok()) as server:
        auth = Authorisation(
            "oauth_client",
            {"token_url": tokens.url("/token"), "query": "access_token"},
            form={"grant_type": "urn:example:apikey", "apikey": "canary"},
            headers={"Authorization": "Basic canary", "X-Id": "1"},
        )
        for path in ("/a", "/a?b=c"):
            await (await client.open(Call("POST", server.url(path), {"x-mine": "y"}, auth=auth))).read()
        assert [seen.line.split()[1] for seen in server.seen] == [
            "/a?access_token=token-1",
            "/a?b=c&access_token=token-1",
        ]
        assert all("authorization" not in seen.headers for seen in server.seen)
        assert (tokens.seen[0].headers["authorization"], tokens.seen[0].headers["x-id"]) == ("Basic canary", "1")
    assert issuer.forms == [{"grant_type": "urn:example:apikey", "apikey": "canary"}]
    assert "canary" not in repr(auth)


@pytest.mark.parametrize(
    ("more", "sent"),
    [
        ({}, {"authorization": "Bearer token-1"}),
        ({"header": "X-Access", "scheme": "Key"}, {"x-access": "Key token-1"}),
        ({"header": "X-Access", "scheme": ""}, {"x-access": "token-1"}),
    ],
    ids=["bearer", "another scheme", "the token alone"],
)
async def test_the_token_header_can_be_configured(client: Client, more: dict[str, str], sent: dict[str, str]) -> None:
    async with upstream(Issuer()) as tokens, upstream(ok()) as server:
        auth = client_auth(tokens.url("/token"), **more)
        await (await client.open(Call("POST", server.url(), auth=auth))).read()
    headers = server.seen[0].headers
    assert {name: headers[name] for name in ("authorization", "x-access") if name in headers} == sent


async def test_each_token_request_is_built_anew_and_shares_one_token(client: Client) -> None:
    issuer, once = Issuer(), iter("abc")
    async with upstream(issuer) as tokens, upstream(ok()) as server:
        template = Authorisation("oauth_client", {"token_url": tokens.url("/token")}, form={"a": "b"})
        auth = replace(template, anew=lambda: replace(template, headers={"X-Once": next(once)}))
        for _ in range(2):
            await (await client.open(Call("POST", server.url("/"), auth=auth))).read()
        client.invalidate(auth)
        await (await client.open(Call("POST", server.url("/"), auth=auth))).read()
    assert [seen.headers["x-once"] for seen in tokens.seen] == ["a", "b"]


@pytest.mark.parametrize(
    ("at", "life"),
    [(1800, 1), (1800, 1000), ("2026-11-22", 1), (10**400, 1), (-(10**400), 1)],
    ids=["seconds", "milliseconds", "not a number", "far future", "far past"],
)
async def test_a_token_expires_when_its_issuer_says(
    client: Client, at: object, life: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tollgate.upstream.oauth.time.time", lambda: 1_800_000_000.0)
    issuer, now = Issuer(), [1000.0]
    expires_at = (1_800_000_000 + at) * life if isinstance(at, int) else at
    issuer.body = json.dumps({"access_token": "t", "expires_at": expires_at}).encode()
    async with upstream(issuer) as address:
        tokens = Tokens(client.open, lambda: now[0])

        async def mints() -> int:
            await tokens.get("k", lambda: Grant(address.url(), {}, Call("POST", "http://x")))
            await asyncio.sleep(0)
            return len(address.seen)

        assert await mints() == 1
        now[0] += 1810
        assert await mints() == (2 if at == 1800 else 1)


@pytest.mark.parametrize("lifetime", ["9" * 400, '"soon"', "-1e999", "NaN"])
async def test_a_token_with_an_invalid_lifetime_is_used(client: Client, lifetime: str) -> None:
    issuer = Issuer()
    issuer.body = f'{{"access_token": "t", "expires_in": {lifetime}}}'.encode()
    async with upstream(issuer) as address:
        call = Call("POST", "http://x")
        assert await Tokens(client.open).get("k", lambda: Grant(address.url(), {}, call)) == "t"


async def test_many_waiters_share_one_token_request_and_a_cancelled_one_does_not_stop_it(client: Client) -> None:
    issuer = Issuer()
    issuer.delay = 0.2
    async with upstream(issuer) as tokens, upstream(ok()) as server:
        calls = [
            asyncio.create_task(client.open(Call("POST", server.url(), auth=client_auth(tokens.url()))))
            for _ in range(20)
        ]
        await until(lambda: issuer.forms)
        calls[0].cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)
        assert all(answer.status == 200 for answer in results[1:])  # type: ignore[union-attr]
        assert len(issuer.forms) == 1


async def test_a_token_is_used_while_it_is_renewed_early(client: Client) -> None:
    issuer = Issuer()
    now = [1000.0]
    async with upstream(issuer) as address:
        tokens = Tokens(client.open, lambda: now[0])

        async def get() -> str:
            return await tokens.get("k", lambda: Grant(address.url(), {"a": "b"}, Call("POST", "http://x")))

        assert await get() == "token-1"
        now[0] += 3600 - 301
        assert await get() == "token-1"
        assert len(issuer.forms) == 1
        now[0] += 2
        assert await get() == "token-1"  # still valid; its successor is being requested
        await until(lambda: not tokens._mints)
        assert await get() == "token-2"
        now[0] += 3400
        issuer.status = 500
        assert await get() == "token-2"  # the renewal fails, but the token is still valid
        await until(lambda: not tokens._mints)
        now[0] += 300
        with pytest.raises(UpstreamFailed, match="answered 500"):
            await get()
        issuer.status, issuer.life = 200, 10
        assert await get() == "token-5"
        requested = len(issuer.forms)
        for seconds, more in ((7.5, 0), (1, 1)):  # a short-lived token is renewed in its last fifth
            now[0] += seconds
            assert await get() == "token-5"
            await until(lambda: not tokens._mints)
            assert len(issuer.forms) == requested + more
        assert await get() == "token-6"


async def test_a_failed_renewal_is_tried_again_after_a_pause_while_the_token_is_valid(client: Client) -> None:
    """Each call requested a token of an issuer that was failing."""
    issuer = Issuer()
    now = [1000.0]
    async with upstream(issuer) as address:
        tokens = Tokens(client.open, lambda: now[0])

        async def get() -> str:
            token = await tokens.get("k", lambda: Grant(address.url(), {"a": "b"}, Call("POST", "http://x")))
            await until(lambda: not tokens._mints)
            return token

        assert await get() == "token-1"
        now[0] += 3600 - EARLY
        issuer.status = 500
        for pause, requested in ((0, 2), (RENEWAL_PAUSE - 1, 2), (1, 3), (1, 3)):
            now[0] += pause
            assert await get() == "token-1"
            assert len(issuer.forms) == requested
        now[0] += RENEWAL_PAUSE
        issuer.status = 200
        assert [await get(), await get()] == ["token-1", "token-4"]
        issuer.status = 500
        now[0] += 3600 - RENEWAL_PAUSE / 2
        assert await get() == "token-4"
        now[0] += RENEWAL_PAUSE / 2
        with pytest.raises(UpstreamFailed, match="answered 500"):  # the pause does not outlive the token
            await get()


async def test_a_rejected_token_is_not_used_again(client: Client) -> None:
    issuer = Issuer()
    async with (
        upstream(issuer) as tokens,
        upstream(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n") as server,
    ):
        for _ in range(2):
            assert (await client.open(Call("POST", server.url(), auth=client_auth(tokens.url())))).status == 401
        assert [seen.headers["authorization"] for seen in server.seen] == ["Bearer token-1", "Bearer token-2"]


async def test_a_token_revoked_early_fails_no_request(client: Client) -> None:
    """Ten requests are rejected with a cached token at once: one new token serves their second attempts, and none
    fails."""
    issuer, good = Issuer(), ["Bearer token-1"]

    async def script(seen: Seen, peer: Peer) -> None:
        status = 200 if seen.headers["authorization"] in good and seen.body == b"asked" else 401
        await peer.send(b"HTTP/1.1 %d X\r\ncontent-length: 2\r\n\r\n{}" % status)

    async with upstream(issuer) as tokens, upstream(script) as server:

        async def post() -> int:
            async with await client.open(
                Call("POST", server.url(), body=b"asked", auth=client_auth(tokens.url()))
            ) as answer:
                return answer.status

        assert await post() == 200
        good[:] = ["Bearer token-2"]
        assert await asyncio.gather(*(post() for _ in range(10))) == [200] * 10
        assert len(issuer.forms) == 2
        good.clear()
        assert await post() == 401
        assert [seen.headers["authorization"] for seen in server.seen[-2:]] == ["Bearer token-2", "Bearer token-3"], (
            "one second attempt"
        )
        assert await post() == 401 and server.seen[-2].headers["authorization"] == "Bearer token-3", (
            "a new token is not tried twice"
        )


@pytest.mark.parametrize(
    ("status", "body", "wanted", "alarm"),
    [
        (400, b'{"error":"invalid_grant","error_description":"canary"}', r"answered 400 \(invalid_grant\)", "key"),
        (401, b'{"error":"secret canary here"}', "answered 401 without a token", "key"),
        (503, b"<html>canary", "answered 503", None),
        (200, b"[]", "answered 200 without a token", None),
        (200, b'{"access_token": 7}', "answered 200 without a token", None),
        pytest.param(200, b"[" * 60_000, "answered 200 without a token", None, id="deep"),
    ],
)
async def test_a_failed_token_request_is_reported_without_secrets(
    client: Client, status: int, body: bytes, wanted: str, alarm: str | None
) -> None:
    issuer = Issuer()
    issuer.status, issuer.body = status, body
    async with upstream(issuer) as tokens:
        with pytest.raises(UpstreamFailed, match=wanted) as caught:
            await client.open(Call("POST", "http://127.0.0.1:1/", auth=client_auth(tokens.url())))
    assert "canary" not in str(caught.value)
    assert caught.value.alarm == alarm


@pytest.mark.parametrize(
    ("auth", "wanted"),
    [
        (Authorisation("oauth_client", {"client_id": "x"}), "oauth_client needs token_url, client_secret"),
        (Authorisation("oauth_jwt", {"credentials_file": "/nowhere/canary.json"}), "file of oauth_jwt cannot be read"),
        (Authorisation("oauth_jwt", {"credentials": "{canary"}), "secret of oauth_jwt is not JSON"),
        (Authorisation("oauth_jwt", {"credentials": "{}"}), "must have client_email"),
        (
            Authorisation(
                "oauth_jwt",
                {"credentials": json.dumps({"client_email": "a", "private_key": "canary", "token_uri": "http://x"})},
            ),
            "not a usable RSA key",
        ),
        (Authorisation("kerberos", {}), "no authorisation of kind 'kerberos'"),
    ],
    ids=["client", "no file", "not JSON", "no fields", "no key", "unknown kind"],
)
async def test_unusable_credentials_are_a_clean_error(client: Client, auth: Authorisation, wanted: str) -> None:
    with pytest.raises(UpstreamError, match=wanted) as caught:
        await client.open(Call("POST", "http://127.0.0.1:1/", auth=auth))
    assert "canary" not in str(caught.value)
