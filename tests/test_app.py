"""Paths, methods, headers, sizes and the error words of each endpoint."""

import gzip
import json

import pytest

from support.inprocess import inprocess

ASK = {"model": "sandbox/echo", "messages": [{"role": "user", "content": "hello"}]}
LEGACY = """
server:
  legacy_base_urls: ["https://old.example/api/gateway/v1", "https://older.example/llm/v1"]
  max_body_bytes: 2000
"""


@pytest.fixture
async def here(tmp_path):
    async with inprocess(tmp_path, settings=LEGACY) as opened:
        yield opened


@pytest.mark.parametrize(
    "path",
    ["/v1/chat/completions", "/v1/v1/chat/completions", "/api/gateway/v1/chat/completions", "/llm/v1/chat/completions", "/llm/v1/v1/chat/completions",
     "/v1/chat/completions/"],
)
async def test_every_spelling_of_a_path_reaches_the_endpoint(here, path):
    assert (await here.post(path, ASK)).status_code == 200


async def test_every_reply_has_both_request_ids(here):
    for reply in (await here.get("/healthz"), await here.get("/nowhere"), await here.post("/v1/chat/completions", b"{")):
        assert reply.headers["x-request-id"] == reply.headers["request-id"]
        assert reply.headers["x-request-id"].startswith("req_") and len(reply.headers["x-request-id"]) >= 28


async def test_head_and_health(here):
    assert (await here.http.head("/")).status_code == 200
    assert (await here.get("/healthz", key=None)).status_code == 200
    assert (await here.get("/readyz", key=None)).json() == {"status": "ready"}
    assert "tollgate_requests_total" in (await here.get("/metrics", key=None)).text


async def test_a_wrong_method_and_a_wrong_path(here):
    wrong = await here.get("/v1/chat/completions")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert (await here.get("/v1/nothing")).status_code == 404


async def test_the_catalog_follows_the_key(here):
    everything = (await here.get("/v1/models")).json()
    assert everything["object"] == "list" and everything == (await here.get("/models")).json()
    _, narrow = await here.services.ledger.create_key("default", allowed_models=("sandbox/echo",))
    _, nothing = await here.services.ledger.create_key("default", allowed_models=())
    assert [model["id"] for model in (await here.get("/v1/models", key=narrow)).json()["data"]] == ["sandbox/echo"]
    assert (await here.get("/v1/models", key=nothing)).json()["data"] == []
    assert (await here.get("/v1/models/sandbox/echo", key=nothing)).status_code == 404
    assert (await here.post("/v1/chat/completions", ASK, key=nothing)).text == "model not found: sandbox/echo"
    assert (await here.post("/v1/chat/completions", ASK, key=narrow)).status_code == 200
    assert (await here.get("/v1/models", key="sk-tg-typo")).status_code == 401
    assert (await here.get("/v1/models", key=None)).status_code == 200


async def test_both_key_headers_work(here):
    for headers in ({"x-api-key": here.key}, {"authorization": f"bearer {here.key}"}, {"authorization": "Basic abc", "x-api-key": here.key}):
        reply = await here.http.post("/v1/chat/completions", json=ASK, headers=headers)
        assert reply.status_code == 200, headers


async def test_compressed_bodies_are_read_and_bounded(here):
    small = await here.post("/v1/chat/completions", gzip.compress(json.dumps(ASK).encode()), content_encoding="gzip")
    assert small.status_code == 200
    bomb = await here.post("/v1/chat/completions", gzip.compress(b" " * 10_000_000), content_encoding="gzip")
    assert bomb.status_code == 413
    assert (await here.post("/v1/chat/completions", b"x", content_encoding="gzip")).status_code == 400


ENDPOINTS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages", "embeddings": "/v1/embeddings",
             "images": "/v1/images/generations"}


@pytest.mark.parametrize(
    ("dialect", "status", "body"),
    [
        ("chat", 413, "request body exceeds 2000 bytes"),
        ("responses", 413, {"error": {"message": "request body exceeds 2000 bytes", "type": "invalid_request_error", "param": None, "code": "request_too_large"}}),
        ("messages", 413, {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}),
        ("embeddings", 413, {"success": False, "code": 413, "message": "request body exceeds 2000 bytes"}),
    ],
)
async def test_a_body_over_the_limit(here, dialect, status, body):
    reply = await here.post(ENDPOINTS[dialect], json.dumps({"x": "y" * 3000}).encode())
    found = reply.text if isinstance(body, str) else reply.json()
    if isinstance(found, dict):
        found.pop("request_id", None)
    assert (reply.status_code, found) == (status, body)


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("chat", {"message": "insufficient quota", "error": {"message": "insufficient quota", "type": "insufficient_quota", "param": None, "code": "insufficient_quota"}}),
        ("responses", {"message": "insufficient quota", "error": {"message": "insufficient quota", "type": "insufficient_quota", "param": None, "code": "insufficient_quota"}}),
        ("messages", {"type": "error", "error": {"type": "billing_error", "message": "insufficient quota"}}),
        ("embeddings", {"success": False, "code": 403, "message": "user quota exceeded"}),
        ("images", {"success": False, "code": 403, "message": "insufficient quota"}),
    ],
)
async def test_an_empty_account_is_refused_before_its_body_is_read(here, dialect, body):
    await here.services.ledger.create_account("poor")
    _, key = await here.services.ledger.create_key("poor")
    reply = await here.post(ENDPOINTS[dialect], b"not even json", key=key)
    found = reply.json()
    found.pop("request_id", None)
    assert (reply.status_code, found) == (403, body)


@pytest.mark.parametrize("dialect", ENDPOINTS)
async def test_a_draining_gateway_takes_no_work(here, dialect):
    here.services.draining = True
    try:
        reply = await here.post(ENDPOINTS[dialect], ASK)
        assert (reply.status_code, reply.json()) == (503, {"message": "Service temporarily unavailable"})
        assert (await here.get("/readyz")).status_code == 503
    finally:
        here.services.draining = False


async def test_a_key_has_its_rate_limit_told_and_enforced(here):
    _, key = await here.services.ledger.create_key("default", rpm=2)
    first = await here.post("/v1/chat/completions", ASK, key=key)
    assert (first.headers["x-ratelimit-limit-requests"], first.headers["x-ratelimit-remaining-requests"]) == ("2", "1")
    await here.post("/v1/chat/completions", ASK, key=key)
    over = await here.post("/v1/chat/completions", ASK, key=key)
    assert over.status_code == 429 and 1 <= int(over.headers["retry-after"]) <= 120
    assert over.json()["error"]["code"] == "rate_limit_exceeded"


async def test_a_wrong_content_type_is_refused_in_words(here):
    reply = await here.http.post("/v1/chat/completions", content=b"a=b", headers={"authorization": f"Bearer {here.key}", "content-type": "application/x-www-form-urlencoded"})
    assert (reply.status_code, reply.text) == (400, "content type application/x-www-form-urlencoded is not supported; send application/json")
