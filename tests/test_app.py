"""Paths, methods, headers, sizes and the error words of each endpoint."""

import asyncio
import contextlib
import gzip
import http.client
import json
import random
import socket
import threading
import time
from decimal import Decimal

import httpx
import pytest

from support.inprocess import inprocess, runtime_of, write_config
from support.running import gateway
from support.usage_files import usage_rows
from tollgate import accounts
from tollgate.errors import BadRequest, BodyTooLarge
from tollgate.http import unpacked
from tollgate.ledger import Ledger
from tollgate.room import Room
from tollgate.server import close_gateway, open_gateway

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
    [
        "/v1/chat/completions",
        "/v1/v1/chat/completions",
        "/api/gateway/v1/chat/completions",
        "/llm/v1/chat/completions",
        "/llm/v1/v1/chat/completions",
        "/v1/chat/completions/",
    ],
)
async def test_every_spelling_of_a_path_reaches_the_endpoint(here, path):
    assert (await here.post(path, ASK)).status_code == 200


async def test_every_reply_has_both_request_ids(here):
    for reply in (
        await here.get("/healthz"),
        await here.get("/nowhere"),
        await here.post("/v1/chat/completions", b"{"),
    ):
        assert reply.headers["x-request-id"] == reply.headers["request-id"]
        assert reply.headers["x-request-id"].startswith("req_") and len(reply.headers["x-request-id"]) >= 28


async def test_head_and_health(here):
    assert (await here.http.head("/")).status_code == 200
    for path in ("/healthz", "/health"):
        alive = await here.get(path, key=None)
        assert (alive.status_code, alive.json()) == (200, {"status": "ok"})
    assert (await here.get("/readyz", key=None)).json() == {"status": "ready"}
    text = (await here.get("/metrics", key=None)).text
    assert "tollgate_requests_total" in text and "\nprocess_open_fds " in text and "\nprocess_max_fds " in text


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/v1/images/generations"])
async def test_what_is_true_of_now_is_kept_by_no_cache(here, path):
    """Caches may keep an answer that does not say how long, as they see fit (RFC 9111, 4.2.2)."""
    assert (await here.get(path)).headers["cache-control"] == "no-store"


async def test_a_wrong_method_and_a_wrong_path(here):
    wrong = await here.get("/v1/chat/completions")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    for path, said in {
        "/v1/nothing": "no such endpoint: GET /v1/nothing",
        "/chat/completions": "no such endpoint: GET /chat/completions; did you mean /v1/chat/completions?",
        "/api/v1/messages": "no such endpoint: GET /api/v1/messages; did you mean /v1/messages?",
    }.items():
        missing = await here.get(path)
        assert (missing.status_code, missing.json()["error"]["message"]) == (404, said)


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
    for headers in (
        {"x-api-key": here.key},
        {"authorization": f"bearer {here.key}"},
        {"authorization": "Basic abc", "x-api-key": here.key},
    ):
        reply = await here.http.post("/v1/chat/completions", json=ASK, headers=headers)
        assert reply.status_code == 200, headers


async def test_compressed_bodies_are_read_and_bounded(here):
    small = await here.post("/v1/chat/completions", gzip.compress(json.dumps(ASK).encode()), content_encoding="gzip")
    assert small.status_code == 200
    bomb = await here.post("/v1/chat/completions", gzip.compress(b" " * 10_000_000), content_encoding="gzip")
    assert bomb.status_code == 413
    assert (await here.post("/v1/chat/completions", b"x", content_encoding="gzip")).status_code == 400


async def test_all_members_of_a_compressed_body_are_read_and_bounded(here):
    """One after the other is one valid body (RFC 1952, 2.2): parallel and appending compressors write such."""
    raw = json.dumps(ASK).encode()
    for cut in (0, 1, 40, len(raw)):
        reply = await here.post(
            "/v1/chat/completions", gzip.compress(raw[:cut]) + gzip.compress(raw[cut:]), content_encoding="gzip"
        )
        assert reply.status_code == 200, reply.text
    assert (
        await here.post("/v1/chat/completions", gzip.compress(raw) + gzip.compress(b"[]"), content_encoding="gzip")
    ).status_code == 400, "not JSON as a whole"
    for cut_off in (gzip.compress(raw) + b"more", gzip.compress(raw[:40]) + gzip.compress(raw[40:])[:-4]):
        assert "not valid gzip" in (await here.post("/v1/chat/completions", cut_off, content_encoding="gzip")).text


async def unpacked_gzip(body: bytes, limit: int) -> bytes:
    return await unpacked(body, {"content-encoding": "gzip"}, limit, Room(limit).place())


async def test_a_body_of_many_members_stays_bounded():
    assert await unpacked_gzip(
        b"".join(gzip.compress(bytes([n % 256]) * 10) for n in range(2000)), 100_000
    ) == b"".join(bytes([n % 256]) * 10 for n in range(2000))
    incompressible = random.Random(1).randbytes(300_000)
    assert await unpacked_gzip(gzip.compress(incompressible) * 2, 600_000) == incompressible * 2, (
        "members longer than a piece"
    )
    with pytest.raises(BodyTooLarge):
        await unpacked_gzip(gzip.compress(incompressible) * 2, 599_999)
    with pytest.raises(BodyTooLarge):
        await unpacked_gzip(gzip.compress(b" " * 60_000) * 1000, 100_000)
    began = time.process_time()
    with pytest.raises(BadRequest):
        await unpacked_gzip(gzip.compress(b"") * 400_000, 100_000)
    assert time.process_time() - began < 2


async def test_a_body_is_unpacked_beside_the_event_loop(monkeypatch):
    threads = []
    monkeypatch.setattr("tollgate.http._decompress", lambda *args: threads.append(threading.current_thread()) or b"")
    await unpacked_gzip(gzip.compress(random.Random(1).randbytes(2000)), 10_000)
    await unpacked_gzip(gzip.compress(b"{}"), 10_000)
    assert [thread is threading.main_thread() for thread in threads] == [False, True]


ENDPOINTS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "embeddings": "/v1/embeddings",
    "images": "/v1/images/generations",
}


@pytest.mark.parametrize(
    ("dialect", "status", "body"),
    [
        ("chat", 413, "request body exceeds 2000 bytes"),
        (
            "responses",
            413,
            {
                "error": {
                    "message": "request body exceeds 2000 bytes",
                    "type": "invalid_request_error",
                    "param": None,
                    "code": "request_too_large",
                }
            },
        ),
        (
            "messages",
            413,
            {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}},
        ),
        ("embeddings", 413, {"success": False, "code": 413, "message": "request body exceeds 2000 bytes"}),
    ],
)
async def test_a_body_over_the_limit(here, dialect, status, body):
    reply = await here.post(ENDPOINTS[dialect], json.dumps({"x": "y" * 3000}).encode())
    found = reply.text if isinstance(body, str) else reply.json()
    if isinstance(found, dict):
        found.pop("request_id", None)
    assert (reply.status_code, found) == (status, body)


NO_QUOTA = {
    "message": "insufficient quota",
    "error": {
        "message": "insufficient quota",
        "type": "insufficient_quota",
        "param": None,
        "code": "insufficient_quota",
    },
}


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("chat", NO_QUOTA),
        ("responses", NO_QUOTA),
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
    reply = await here.http.post(
        "/v1/chat/completions",
        content=b"a=b",
        headers={"authorization": f"Bearer {here.key}", "content-type": "application/x-www-form-urlencoded"},
    )
    assert (reply.status_code, reply.text) == (
        400,
        "content type application/x-www-form-urlencoded is not supported; send application/json",
    )


def refused_then_asked_again(port, head, size, pause):
    """On one connection: a request with a body that is refused, then another one. Gives (status, says it closes,
    status of the next or None)."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(f"{head}\r\nhost: 127.0.0.1:{port}\r\ncontent-length: {size}\r\n\r\n".encode())
        with contextlib.suppress(OSError):
            time.sleep(pause)
            connection.sendall(b"x" * size)
        with connection.makefile("rb") as heard:
            first = http.client.parse_headers(heard) if (line := heard.readline()) else {}
            heard.read(int(first.get("content-length", "0")))
            try:
                connection.sendall(f"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n".encode())
                after = heard.readline()
            except OSError:
                after = b""
        return int(line.split()[1]), first.get("connection") == "close", int(after.split()[1]) if after else None


async def test_a_start_without_an_operator_says_how_to_make_one(tmp_path, caplog):
    """Accounts that were made by commands before the first start leave no `default`, which would be one."""
    path = write_config(tmp_path)
    runtime = runtime_of(path, {})
    wanted = "to make one: tollgate accounts change alice --role operator"
    for told, role in ((True, "user"), (False, "operator")):
        async with Ledger(runtime.gateway.store, runtime.gateway.credits) as ledger:
            await (accounts.create_account if told else accounts.change_account)(ledger, "alice", role=role)
        caplog.clear()
        opened = await open_gateway(runtime, path)
        await close_gateway(opened)
        assert (wanted in caplog.text, opened.initial_account, opened.first_key) == (told, "alice", None)


async def test_a_start_that_fails_gives_its_store_back(tmp_path, monkeypatch):
    path = write_config(tmp_path)

    async def slip(*_: object) -> None:
        raise OSError("no socket")

    with monkeypatch.context() as broken, pytest.raises(OSError, match="no socket"):
        broken.setattr(Ledger, "serve_admin", slip)
        await open_gateway(runtime_of(path, {}), path)
    await close_gateway(await open_gateway(runtime_of(path, {}), path))


async def test_what_a_server_cancels_as_it_ends_has_its_row(tmp_path):
    """It returns at once, before the cancelled requests have settled."""
    path = write_config(tmp_path)
    opened = await open_gateway(runtime_of(path, {}), path)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=opened.app), base_url="http://127.0.0.1:8787"
    ) as client:
        body = {**ASK, "messages": [{"role": "user", "content": "[[delay=20s]] late"}]}
        asking = asyncio.create_task(
            client.post("/v1/chat/completions", json=body, headers={"authorization": f"Bearer {opened.first_key}"})
        )
        async with asyncio.timeout(5):
            while not opened.services.live:
                await asyncio.sleep(0.005)
        asking.cancel()
        await close_gateway(opened)
    assert [(row["outcome"], row["status"]) for row in usage_rows(tmp_path)] == [("client_gone", 499)]


async def test_a_row_that_is_still_being_counted_outlives_a_short_time_to_drain(tmp_path):
    path = write_config(tmp_path, settings="server: {drain_seconds: 0.1}\n")
    opened = await open_gateway(runtime_of(path, {}), path)
    recorded = []

    async def settle() -> None:
        await asyncio.sleep(0.3)
        await opened.services.ledger.grant("default", Decimal(1), "counted late")
        recorded.append(True)

    opened.services.settlements.spawn(settle())
    await close_gateway(opened)
    assert recorded


@pytest.mark.parametrize("engine", ["hypercorn", "uvicorn"])
def test_a_reply_before_the_end_of_the_body_says_whether_the_connection_goes_on(tmp_path, engine):
    """A pooled client's next request would be lost on a connection that was closed without a word."""
    write_config(tmp_path, settings=f"server: {{engine: {engine}, max_small_body_bytes: 50000}}\n")
    with gateway(tmp_path) as running:
        port = int(running.base.rpartition(":")[2])
        key = f"\r\nauthorization: Bearer {running.key}"
        cases = {
            401: "POST /v1/chat/completions HTTP/1.1",
            404: "POST /v1/nothing HTTP/1.1",
            405: "PUT /v1/chat/completions HTTP/1.1",
            200: "GET /v1/models HTTP/1.1",
            400: f"POST /v1/chat/completions HTTP/1.1{key}\r\ncontent-type: text/csv",
            413: f"POST /v1/images/generations HTTP/1.1{key}",
            403: f"POST /v1/images/mcp HTTP/1.1{key}\r\norigin: https://evil.example",
        }
        for status, head in cases.items():
            for size in (0, 100, 100_000, 3_000_000):
                if status == 413 and size < 100_000:
                    continue
                for pause in (0, 0.02):
                    told, closes, after = refused_then_asked_again(port, head, size, pause)
                    assert (told, after) == (status, None if closes else 200), (status, size, pause)
                    assert not closes, (status, size, pause)
