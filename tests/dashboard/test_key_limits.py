"""A key made on the pages is held to its limits on every endpoint, with the bodies and headers of each dialect."""

from __future__ import annotations

import re
from datetime import datetime

import pytest

ASK = {
    "chat": ("/v1/chat/completions", {"model": "sandbox/echo", "messages": [{"role": "user", "content": "hi"}]}),
    "responses": ("/v1/responses", {"model": "sandbox/echo", "input": "hi"}),
    "messages": (
        "/v1/messages",
        {"model": "sandbox/echo", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]},
    ),
    "embeddings": ("/v1/embeddings", {"model": "sandbox/embed", "input": "hi"}),
}


@pytest.mark.parametrize("dialect", ASK)
async def test_requests_a_minute(here, alice, dialect):
    secret = await alice.make_key(rpm="2")
    path, body = ASK[dialect]
    first = await here.post(path, body, key=secret)
    assert first.status_code == 200, first.text
    if dialect == "messages":
        assert (
            first.headers["anthropic-ratelimit-requests-limit"] == "2"
            and first.headers["anthropic-ratelimit-requests-remaining"] == "1"
        )
        assert datetime.fromisoformat(first.headers["anthropic-ratelimit-requests-reset"])
    else:
        assert (
            first.headers["x-ratelimit-limit-requests"] == "2"
            and first.headers["x-ratelimit-remaining-requests"] == "1"
        )
        assert re.fullmatch(r"\d+m?s|\d+m\d+s", first.headers["x-ratelimit-reset-requests"])
    await here.post(path, body, key=secret)
    refused = await here.post(path, body, key=secret)
    assert refused.status_code == 429 and 1 <= int(refused.headers["retry-after"]) <= 60
    said = refused.json()
    if dialect == "embeddings":
        assert said == {"success": False, "code": 429, "message": "rate limit exceeded"}
    elif dialect == "messages":
        assert said["error"]["type"] == "rate_limit_error"
    else:
        assert said["error"]["code"] == "rate_limit_exceeded" and re.match(
            r"Rate limit reached for requests\. Please try again in \d+s\.", said["error"]["message"]
        )


async def test_tokens_a_minute(here, alice):
    secret = await alice.make_key(tpm="30")
    path, body = ASK["chat"]
    codes = [
        (
            await here.post(
                path, body | {"messages": [{"role": "user", "content": "one two three four five six"}]}, key=secret
            )
        ).status_code
        for _ in range(4)
    ]
    assert codes[0] == 200 and codes[-1] == 429


async def test_refused_requests_leave_no_row(here, alice):
    secret = await alice.make_key(rpm="1")
    path, body = ASK["chat"]
    for _ in range(5):
        await here.post(path, body, key=secret)
    await here.services.ledger.settle()
    assert len(re.findall(r"<tr>\s*<td><a", (await alice.get("/requests?range=24h")).text)) == 1


@pytest.mark.parametrize("dialect", ASK)
async def test_a_spend_cap(here, alice, dialect):
    """`insufficient quota` is what SPEC has everybody told; why, and until when, follows where there is room for it."""
    secret = await alice.make_key(cap="0.0000001", window="day")
    assert (await here.post(*ASK["chat"], key=secret)).status_code == 200
    path, body = ASK[dialect]
    refused = await here.post(path, body, key=secret)
    said = refused.json()
    assert refused.status_code == 403 and refused.headers["x-tollgate-error"] == "insufficient_quota"
    if dialect == "embeddings":
        assert said == {"success": False, "code": 403, "message": "user quota exceeded"}
    else:
        assert re.fullmatch(
            r"insufficient quota: the key's spend cap is reached; it starts anew on [0-9-]{10} \(UTC\)",
            said["error"]["message"],
        )
        assert said["error"].get("code") == (None if dialect == "messages" else "insufficient_quota")
        assert said.get("message") == (None if dialect == "messages" else "insufficient quota")
    key = here.services.ledger.find_key(secret)
    await alice.post(f"/keys/{key.id}", name="more", cap="1", window="day", models="all")
    assert (await here.post(path, body, key=secret)).status_code == 200


async def test_a_key_sees_and_calls_its_allowed_models_only(here, alice):
    secret = await alice.make_key(models="sandbox/reasoner")
    path, body = ASK["chat"]
    assert (await here.post(path, body, key=secret)).status_code == 400
    assert (await here.post(path, body | {"model": "sandbox/reasoner"}, key=secret)).status_code == 200
    assert [model["id"] for model in (await here.get("/v1/models", key=secret)).json()["data"]] == ["sandbox/reasoner"]
    assert [
        model["id"] for model in (await here.get("/v1/models", key=await alice.make_key(models="none"))).json()["data"]
    ] == []


async def test_an_expired_key(here, alice):
    from datetime import UTC, timedelta

    secret = await alice.make_key(expires="1h")
    key = here.services.ledger.find_key(secret)
    await here.services.ledger.update_key(key.id, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    path, body = ASK["chat"]
    assert (await here.post(path, body, key=secret)).status_code == 401
    assert "expired" in (await alice.get("/keys")).text


async def test_strict_refuses_what_a_conversion_loses(here, alice):
    """`logit_bias` has no place in another format; a strict key hears that at once."""
    secret, easy = await alice.make_key(strict="yes"), await alice.make_key()
    assert here.services.ledger.find_key(secret).strict and not here.services.ledger.find_key(easy).strict
