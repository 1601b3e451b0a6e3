"""The error table, cell by cell: status, content type and exact body of every client error, on every endpoint."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal

import pytest
import pytest_asyncio

from conformance.upstreams import ASKS, PATHS, provider
from support.inprocess import inprocess
from support.places import SANDBOX_IMAGES

ENDPOINTS = {**PATHS, "embeddings": "/v1/embeddings", "images": "/v1/images/generations"}
GOOD = {
    **{name: {**body, "model": "sandbox/echo"} for name, body in ASKS.items()},
    "embeddings": {"model": "sandbox/embed", "input": "a"},
    "images": {"model": "sandbox/draw", "input": {"prompt": "a cat"}},
}
UNREACHABLE = {"message": "Service temporarily unavailable"}


def openai_error(message, kind="invalid_request_error", code=None, param=None):
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def envelope(code, message):
    return {"success": False, "code": code, "message": message}


def anthropic_error(kind, message):
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": ...}


def like(got, wanted):
    """Equal, where `...` stands for any non-empty string."""
    if wanted is ...:
        return isinstance(got, str) and bool(got)
    if isinstance(wanted, dict):
        return (
            isinstance(got, dict)
            and set(got) == set(wanted)
            and all(like(got[name], value) for name, value in wanted.items())
        )
    return got == wanted


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("errors")
    unreachable = provider("http://127.0.0.1:1/v1", "chat", name="unreachable", model="unreachable/one")
    async with inprocess(
        folder,
        providers={"unreachable": unreachable, "sandbox-images": SANDBOX_IMAGES},
        settings="server: {max_body_bytes: 20000, max_small_body_bytes: 20000}\n",
    ) as gateway:
        yield gateway


pytestmark = pytest.mark.asyncio(loop_scope="module")


def check(reply, status, wanted, kind="application/json"):
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"].startswith(kind)
    assert reply.headers["x-request-id"] == reply.headers["request-id"] and reply.headers["x-request-id"].startswith(
        "req_"
    )
    if wanted is not None:
        assert like(reply.json(), wanted), reply.text


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_a_request_without_a_key_is_a_401(here, endpoint):
    reply = await here.http.post(ENDPOINTS[endpoint], json=GOOD[endpoint])
    check(
        reply,
        401,
        {
            "chat": openai_error(...),
            "responses": openai_error(...),
            "messages": anthropic_error("authentication_error", "x-api-key header is required"),
            "embeddings": envelope(401, ...),
            "images": envelope(401, ...),
        }[endpoint],
    )
    assert "www-authenticate" not in reply.headers
    if endpoint in ("chat", "responses"):
        assert reply.json()["error"]["message"].startswith("You didn't provide an API key")


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_a_wrong_key_is_a_401_that_shows_its_last_characters(here, endpoint):
    key = here.key[:-4] + "zzzz"
    wrong = openai_error(f"Incorrect API key provided: sk-tg-...{key[-4:]}", code="invalid_api_key")
    check(
        await here.post(ENDPOINTS[endpoint], GOOD[endpoint], key=key),
        401,
        {
            "chat": wrong,
            "responses": wrong,
            "messages": anthropic_error("authentication_error", "invalid x-api-key"),
            "embeddings": envelope(401, ...),
            "images": envelope(401, ...),
        }[endpoint],
    )


BAD_BODIES = {
    "no JSON": b'{"model": ',
    "empty": b"",
    "a list": b"[]",
    "a number": b"7",
    "nested too deeply": b'{"a":' * 3000 + b"1" + b"}" * 3000,
    "no model": b"{}",
    "model is a number": b'{"model": 5, "messages": [], "input": "x", "max_tokens": 5}',
    "invalid UTF-8": b'{"model": "\xff\xfe"}',
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES.keys())
@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_an_invalid_body_is_a_400(here, endpoint, body):
    reply = await here.post(ENDPOINTS[endpoint], body)
    if endpoint == "chat":
        check(reply, 400, None, "text/plain")
        assert reply.text and not reply.text.startswith("{")
    elif endpoint == "responses":
        check(reply, 400, None)
        assert reply.json()["error"]["type"] == "invalid_request_error" and set(reply.json()["error"]) == {
            "message",
            "type",
            "param",
            "code",
        }
    elif endpoint == "messages":
        check(reply, 400, anthropic_error("invalid_request_error", ...))
    else:
        check(reply, 400, envelope(400, ...))
        assert reply.json()["message"].startswith(
            {"embeddings": "failed to bind request: ", "images": "input validation failed"}[endpoint]
        )


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_an_unknown_model_is_reported_in_the_form_of_each_format(here, endpoint):
    reply = await here.post(ENDPOINTS[endpoint], {**GOOD[endpoint], "model": "no/such"})
    if endpoint == "chat":
        check(reply, 400, None, "text/plain")
        assert "no/such" in reply.text
    else:
        check(
            reply,
            404 if endpoint == "messages" else 400,
            {
                "responses": openai_error(..., code="model_not_found", param="model"),
                "messages": anthropic_error("not_found_error", "model: no/such"),
                "embeddings": envelope(400, ...),
                "images": envelope(400, ...),
            }[endpoint],
        )


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_less_than_a_cent_of_credits_is_a_403(here, endpoint):
    ledger = here.services.ledger
    await ledger.create_account(f"poor-{endpoint}")
    await ledger.grant(f"poor-{endpoint}", Decimal("0.009999"))
    _, key = await ledger.create_key(f"poor-{endpoint}")
    quota = {
        "message": "insufficient quota",
        **openai_error("insufficient quota", "insufficient_quota", "insufficient_quota"),
    }
    check(
        await here.post(ENDPOINTS[endpoint], GOOD[endpoint], key=key),
        403,
        {
            "chat": quota,
            "responses": quota,
            "messages": anthropic_error("billing_error", "insufficient quota"),
            "embeddings": envelope(403, "user quota exceeded"),
            "images": envelope(403, "insufficient quota"),
        }[endpoint],
    )
    await ledger.grant(f"poor-{endpoint}", Decimal("0.000001"))
    assert (await here.post(ENDPOINTS[endpoint], GOOD[endpoint], key=key)).status_code == 200, "0.01 is enough"


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "compressed"])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_a_body_that_is_too_large_is_a_413(here, endpoint, packed):
    body = json.dumps({**GOOD[endpoint], "padding": "x" * 30_000}).encode()
    reply = await here.post(
        ENDPOINTS[endpoint], gzip.compress(body) if packed else body, **({"content_encoding": "gzip"} if packed else {})
    )
    if endpoint == "chat":
        check(reply, 413, None, "text/plain")
    else:
        check(
            reply,
            413,
            {
                "responses": openai_error(..., code="request_too_large"),
                "messages": anthropic_error("request_too_large", "Request exceeds the maximum size"),
                "embeddings": envelope(413, ...),
                "images": envelope(413, ...),
            }[endpoint],
        )


@pytest.mark.parametrize("client", PATHS)
async def test_an_unreachable_provider_is_a_502(here, client):
    for stream in (False, True):
        check(
            await here.post(PATHS[client], {**ASKS[client], "model": "unreachable/one", "stream": stream}),
            502,
            UNREACHABLE,
        )


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_a_wrong_method_is_a_405_and_another_media_type_a_400(here, endpoint):
    wrong = await here.http.request("PATCH", ENDPOINTS[endpoint], headers={"authorization": f"Bearer {here.key}"})
    assert wrong.status_code == 405 and "POST" in wrong.headers["allow"]
    form = await here.http.post(
        ENDPOINTS[endpoint], data={"model": "x"}, headers={"authorization": f"Bearer {here.key}"}
    )
    assert form.status_code == 400
    assert "content type application/x-www-form-urlencoded is not supported; send application/json" in form.text


async def test_an_unknown_path_or_job_has_a_request_id(here):
    known, unknown = (
        ("/v1/models/", "/.."),
        ("/v1/nothing", "/v2/models", "/v1/chat", "/v1/images/generations/not-a-uuid"),
    )
    for path in (*known, *unknown):
        reply = await here.get(path)
        assert (reply.status_code, reply.headers["x-request-id"][:4]) == (200 if path in known else 404, "req_"), path
    missing = await here.get("/v1/images/generations/6f1c1a52-0d0b-4b57-9a0e-2f0f5f4f9f10")
    assert (missing.status_code, missing.json()) == (404, envelope(404, "missing ID parameter"))
