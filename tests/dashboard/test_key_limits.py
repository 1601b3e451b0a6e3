"""The limits of a key created on the pages apply on every endpoint, with the bodies and headers of its dialect."""

from __future__ import annotations

import re
from datetime import datetime

import pytest

REQUESTS = {
    "chat": ("/v1/chat/completions", {"model": "sandbox/echo", "messages": [{"role": "user", "content": "hi"}]}),
    "responses": ("/v1/responses", {"model": "sandbox/echo", "input": "hi"}),
    "messages": (
        "/v1/messages",
        {"model": "sandbox/echo", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]},
    ),
    "embeddings": ("/v1/embeddings", {"model": "sandbox/embed", "input": "hi"}),
}


@pytest.mark.parametrize("dialect", REQUESTS)
async def test_a_key_over_its_requests_per_minute_is_429(app, alice, dialect):
    secret = await alice.make_key(rpm="2")
    path, body = REQUESTS[dialect]
    first = await app.post(path, body, key=secret)
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
    await app.post(path, body, key=secret)
    refused = await app.post(path, body, key=secret)
    assert refused.status_code == 429 and 1 <= int(refused.headers["retry-after"]) <= 60
    error = refused.json()
    if dialect == "embeddings":
        assert error == {"success": False, "code": 429, "message": "rate limit exceeded"}
    elif dialect == "messages":
        assert error["error"]["type"] == "rate_limit_error"
    else:
        assert error["error"]["code"] == "rate_limit_exceeded" and re.match(
            r"Rate limit reached for requests\. Please try again in \d+s\.", error["error"]["message"]
        )


async def test_a_key_over_its_tokens_per_minute_is_429(app, alice):
    secret = await alice.make_key(tpm="30")
    path, body = REQUESTS["chat"]
    codes = [
        (
            await app.post(
                path, body | {"messages": [{"role": "user", "content": "one two three four five six"}]}, key=secret
            )
        ).status_code
        for _ in range(4)
    ]
    assert codes[0] == 200 and codes[-1] == 429


async def test_rejected_requests_have_no_row(app, alice):
    secret = await alice.make_key(rpm="1")
    path, body = REQUESTS["chat"]
    for _ in range(5):
        await app.post(path, body, key=secret)
    await app.services.ledger.settle()
    assert len(re.findall(r"<tr>\s*<td><a", (await alice.get("/requests?range=24h")).text)) == 1


@pytest.mark.parametrize("dialect", REQUESTS)
async def test_a_key_over_its_spend_cap_is_403_until_the_cap_is_raised(app, alice, dialect):
    """SPEC requires the words `insufficient quota`. The reason and the reset date follow in dialects that have room
    for them."""
    secret = await alice.make_key(cap="0.0000001", window="day")
    assert (await app.post(*REQUESTS["chat"], key=secret)).status_code == 200
    path, body = REQUESTS[dialect]
    refused = await app.post(path, body, key=secret)
    error = refused.json()
    assert refused.status_code == 403 and refused.headers["x-tollgate-error"] == "insufficient_quota"
    if dialect == "embeddings":
        assert error == {"success": False, "code": 403, "message": "user quota exceeded"}
    else:
        assert re.fullmatch(
            r"insufficient quota: the key's spend cap is reached; it starts anew on [0-9-]{10} \(UTC\)",
            error["error"]["message"],
        )
        assert error["error"].get("code") == (None if dialect == "messages" else "insufficient_quota")
        assert error.get("message") == (None if dialect == "messages" else "insufficient quota")
    key = app.services.ledger.find_key(secret)
    await alice.post(f"/keys/{key.id}", name="more", cap="1", window="day", models="all")
    assert (await app.post(path, body, key=secret)).status_code == 200


async def test_a_key_lists_and_calls_only_its_allowed_models(app, alice):
    secret = await alice.make_key(models="sandbox/reasoner")
    path, body = REQUESTS["chat"]
    assert (await app.post(path, body, key=secret)).status_code == 400
    assert (await app.post(path, body | {"model": "sandbox/reasoner"}, key=secret)).status_code == 200
    assert [model["id"] for model in (await app.get("/v1/models", key=secret)).json()["data"]] == ["sandbox/reasoner"]
    assert [
        model["id"] for model in (await app.get("/v1/models", key=await alice.make_key(models="none"))).json()["data"]
    ] == []


async def test_an_expired_key_is_401(app, alice):
    from datetime import UTC, timedelta

    secret = await alice.make_key(expires="1h")
    key = app.services.ledger.find_key(secret)
    await app.services.ledger.update_key(key.id, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    path, body = REQUESTS["chat"]
    assert (await app.post(path, body, key=secret)).status_code == 401
    assert "expired" in (await alice.get("/keys")).text


@pytest.mark.parametrize("written, revived", [(None, False), ("", True), ("never", True), ("7d", True)])
async def test_an_expired_key_stays_expired_unless_its_expiry_is_changed(app, alice, written, revived):
    """The form showed no expiry of such a key, so a new name made it valid for ever."""
    from datetime import UTC, timedelta

    secret = await alice.make_key(expires="1h")
    key = app.services.ledger.find_key(secret)
    ended = datetime.now(UTC) - timedelta(seconds=1)
    await app.services.ledger.update_key(key.id, expires_at=ended)
    page = f"/keys/{key.id}"
    shown = await alice.field(page, "expires")
    assert shown == f"{ended:%Y-%m-%dT%H:%M}"
    done = await alice.post(page, page=page, name="renamed", expires=shown if written is None else written)
    changed = await app.services.ledger.get_key(key.id)
    assert (done.status_code, changed.name) == (303, "renamed")
    assert revived or changed.expires_at == ended
    path, body = REQUESTS["chat"]
    assert (await app.post(path, body, key=secret)).status_code == (200 if revived else 401)


async def test_a_key_is_strict_only_if_created_so(app, alice):
    secret, easy = await alice.make_key(strict="yes"), await alice.make_key()
    assert app.services.ledger.find_key(secret).strict and not app.services.ledger.find_key(easy).strict
