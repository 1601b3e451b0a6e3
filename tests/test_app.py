"""Paths, methods, headers, body sizes, and the error body of each endpoint."""

import asyncio
import contextlib
import gzip
import http.client
import json
import socket
import threading
import time
from decimal import Decimal

import httpx
import pytest

from support.inprocess import Leaving, inprocess, runtime_of, write_config
from support.running import gateway
from support.usage_files import usage_rows
from support.waiting import until
from tollgate import accounts
from tollgate.ledger import Ledger
from tollgate.server import close_gateway, open_gateway
from tollgate.services import Background

CHAT_REQUEST = {"model": "sandbox/echo", "messages": [{"role": "user", "content": "hello"}]}
LEGACY = """
server:
  legacy_base_urls: ["https://old.example/api/gateway/v1", "https://older.example/llm/v1"]
  max_body_bytes: 2000
"""


@pytest.fixture
async def app(tmp_path):
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
        pytest.param("/v1" * 10_000 + "/chat/completions", id="many times v1"),
    ],
)
async def test_every_spelling_of_a_path_reaches_the_endpoint(app, path):
    assert (await app.post(path, CHAT_REQUEST)).status_code == 200


@pytest.mark.parametrize(
    "path", ["/metrics/", "/metrics//", "/%6detrics", "/metrics%2F", "/llm/metrics", "/api/gateway/metrics/"]
)
async def test_no_other_spelling_reaches_the_metrics_which_proxies_block(app, path):
    assert (await app.get("/metrics?a=b")).status_code == 200
    assert (await app.get(path)).status_code == 404


async def test_every_reply_has_both_request_ids(app):
    for reply in (
        await app.get("/healthz"),
        await app.get("/nowhere"),
        await app.post("/v1/chat/completions", b"{"),
    ):
        assert reply.headers["x-request-id"] == reply.headers["request-id"]
        assert reply.headers["x-request-id"].startswith("req_") and len(reply.headers["x-request-id"]) >= 28


async def test_head_and_health(app):
    assert (await app.http.head("/")).status_code == 200
    for path in ("/healthz", "/health"):
        alive = await app.get(path, key=None)
        assert (alive.status_code, alive.json()) == (200, {"status": "ok"})
    assert (await app.get("/readyz", key=None)).json() == {"status": "ready"}
    metrics = await app.get("/metrics", key=None)
    assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8", "Prometheus refuses others"
    text = metrics.text
    assert "tollgate_requests_total" in text and "\nprocess_open_fds " in text and "\nprocess_max_fds " in text


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/v1/images/generations"])
async def test_responses_that_change_any_time_are_not_cached(app, path):
    """Without `cache-control`, caches may store a response for as long as they like (RFC 9111, 4.2.2)."""
    assert (await app.get(path)).headers["cache-control"] == "no-store"


async def test_a_wrong_method_is_405_and_an_unknown_path_404(app):
    wrong = await app.get("/v1/chat/completions")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    for path, message in {
        "/v1/nothing": "no such endpoint: GET /v1/nothing",
        "/chat/completions": "no such endpoint: GET /chat/completions; did you mean /v1/chat/completions?",
        "/api/v1/messages": "no such endpoint: GET /api/v1/messages; did you mean /v1/messages?",
    }.items():
        missing = await app.get(path)
        assert (missing.status_code, missing.json()["error"]["message"]) == (404, message)


async def test_the_model_list_contains_what_the_key_may_use(app):
    everything = (await app.get("/v1/models")).json()
    assert everything["object"] == "list" and everything == (await app.get("/models")).json()
    _, narrow = await app.services.ledger.create_key("default", allowed_models=("sandbox/echo",))
    _, nothing = await app.services.ledger.create_key("default", allowed_models=())
    assert [model["id"] for model in (await app.get("/v1/models", key=narrow)).json()["data"]] == ["sandbox/echo"]
    assert (await app.get("/v1/models", key=nothing)).json()["data"] == []
    assert (await app.get("/v1/models/sandbox/echo", key=nothing)).status_code == 404
    assert (await app.post("/v1/chat/completions", CHAT_REQUEST, key=nothing)).text == "model not found: sandbox/echo"
    assert (await app.post("/v1/chat/completions", CHAT_REQUEST, key=narrow)).status_code == 200
    assert (await app.get("/v1/models", key="sk-tg-typo")).status_code == 401
    assert (await app.get("/v1/models", key=None)).status_code == 200


async def test_both_key_headers_work(app):
    for headers in (
        {"x-api-key": app.key},
        {"authorization": f"bearer {app.key}"},
        {"authorization": "Basic abc", "x-api-key": app.key},
    ):
        reply = await app.http.post("/v1/chat/completions", json=CHAT_REQUEST, headers=headers)
        assert reply.status_code == 200, headers


async def test_compressed_bodies_are_decompressed_up_to_the_limit(app):
    small = await app.post(
        "/v1/chat/completions", gzip.compress(json.dumps(CHAT_REQUEST).encode()), content_encoding="gzip"
    )
    assert small.status_code == 200
    bomb = await app.post("/v1/chat/completions", gzip.compress(b" " * 10_000_000), content_encoding="gzip")
    assert bomb.status_code == 413
    assert (await app.post("/v1/chat/completions", b"x", content_encoding="gzip")).status_code == 400


async def test_all_members_of_a_gzip_body_are_decompressed(app):
    """Several members are one valid gzip body (RFC 1952, 2.2); parallel compressors write them."""
    raw = json.dumps(CHAT_REQUEST).encode()
    for cut in (0, 1, 40, len(raw)):
        reply = await app.post(
            "/v1/chat/completions", gzip.compress(raw[:cut]) + gzip.compress(raw[cut:]), content_encoding="gzip"
        )
        assert reply.status_code == 200, reply.text
    assert (
        await app.post("/v1/chat/completions", gzip.compress(raw) + gzip.compress(b"[]"), content_encoding="gzip")
    ).status_code == 400, "not JSON as a whole"
    for cut_off in (gzip.compress(raw) + b"more", gzip.compress(raw[:40]) + gzip.compress(raw[40:])[:-4]):
        assert "not valid gzip" in (await app.post("/v1/chat/completions", cut_off, content_encoding="gzip")).text


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
async def test_a_body_over_the_limit_is_413_in_the_dialect_of_the_endpoint(app, dialect, status, body):
    reply = await app.post(ENDPOINTS[dialect], json.dumps({"x": "y" * 3000}).encode())
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
async def test_an_account_without_credits_is_rejected_before_its_body_is_read(app, dialect, body):
    await app.services.ledger.create_account("poor")
    _, key = await app.services.ledger.create_key("poor")
    reply = await app.post(ENDPOINTS[dialect], b"not even json", key=key)
    found = reply.json()
    found.pop("request_id", None)
    assert (reply.status_code, found) == (403, body)


@pytest.mark.parametrize("path", [*ENDPOINTS.values(), "/v1/messages/count_tokens", "/v1/images/mcp"])
@pytest.mark.parametrize(
    ("change", "status"), [({"revoked": True}, 401), ({"endpoints": ("none",)}, 403)], ids=["revoked", "restricted"]
)
async def test_a_key_that_is_revoked_or_restricted_while_the_body_arrives_is_refused(app, path, change, status):
    ledger = app.services.ledger
    made, key = await ledger.create_key("default")

    async def body():
        yield b"{"
        await ledger.update_key(made.id, **change)
        yield b"}"

    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    reply = await app.http.post(path, content=body(), headers=headers)
    assert reply.status_code == status, reply.text


@pytest.mark.parametrize("dialect", ENDPOINTS)
async def test_a_draining_gateway_answers_503(app, dialect):
    app.services.draining = True
    try:
        reply = await app.post(ENDPOINTS[dialect], CHAT_REQUEST)
        assert (reply.status_code, reply.json()) == (503, {"message": "Service temporarily unavailable"})
        assert (await app.get("/readyz")).status_code == 503
    finally:
        app.services.draining = False


async def test_a_rate_limit_is_enforced_and_sent_in_headers(app):
    _, key = await app.services.ledger.create_key("default", rpm=2)
    first = await app.post("/v1/chat/completions", CHAT_REQUEST, key=key)
    assert (first.headers["x-ratelimit-limit-requests"], first.headers["x-ratelimit-remaining-requests"]) == ("2", "1")
    await app.post("/v1/chat/completions", CHAT_REQUEST, key=key)
    over = await app.post("/v1/chat/completions", CHAT_REQUEST, key=key)
    assert over.status_code == 429 and 1 <= int(over.headers["retry-after"]) <= 120
    assert over.json()["error"]["code"] == "rate_limit_exceeded"


@pytest.mark.parametrize(("most", "sent"), [(7, "7"), (300, "200"), (0.5, "1")])
async def test_the_longest_retry_after_is_a_setting_also_after_a_reload(tmp_path, monkeypatch, most, sent):
    """`retry.max_retry_after_seconds` was read and described, and clients got at most 120 seconds whatever it said."""

    async def busy(method, path, headers, body):
        async def content():
            yield b'{"error": {"message": "busy"}}'

        return 503, {"retry-after": "200"}, content()

    monkeypatch.chdir(tmp_path)  # files have the same names in a reload
    acme = "provider: acme\nurl: app://acme/v1\nspeaks: {chat: /chat, embeddings: /embed}\n"
    acme += "models: {acme/large: {}, acme/embed: {type: embedding}}\n"
    async with inprocess(tmp_path, providers={"acme": acme}, apps={"acme": busy}) as here:
        settings = (tmp_path / "gateway.yaml").read_text()
        (tmp_path / "gateway.yaml").write_text(f"{settings}\nretry: {{max_retry_after_seconds: {most}}}\n")
        assert (await here.opened.reloader.reload()).ok
        _, limited = await here.services.ledger.create_key("default", rpm=1)
        for path, body in (
            ("/v1/chat/completions", {**CHAT_REQUEST, "model": "acme/large"}),
            ("/v1/responses", {"model": "acme/large", "input": "hello"}),
            ("/v1/messages", {**CHAT_REQUEST, "model": "acme/large", "max_tokens": 9}),
            ("/v1/embeddings", {"model": "acme/embed", "input": "hello"}),
        ):
            assert (await here.post(path, body)).headers["retry-after"] == sent
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_models", "arguments": {}}}
        for _ in range(2):
            over = await here.post("/v1/images/mcp", call, key=limited, host="localhost")
        assert over.status_code == 429 and int(over.headers["retry-after"]) <= max(most, 1)


async def test_the_most_values_of_a_body_are_limited_for_every_kind_of_request(tmp_path):
    """Image jobs and messages to the tools kept a limit of their own, however low `server.max_values` was."""
    many = {"more": [0] * 1000}
    async with inprocess(tmp_path, settings="server: {max_values: 1000}") as here:
        for path, body in (
            ("/v1/chat/completions", CHAT_REQUEST),
            ("/v1/responses", {"model": "sandbox/echo", "input": "hello"}),
            ("/v1/messages", {**CHAT_REQUEST, "max_tokens": 9}),
            ("/v1/messages/count_tokens", CHAT_REQUEST),
            ("/v1/embeddings", {"model": "sandbox/embed", "input": "hello"}),
            ("/v1/images/generations", {"model": "sandbox/draw", "input": {"prompt": "a cat"}}),
            ("/v1/images/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}),
        ):
            reply = await here.post(path, {**body, **many}, host="localhost")
            assert reply.status_code == 400 and "more than 1000 values" in reply.text, path


async def test_an_unsupported_content_type_is_400_with_a_message(app):
    reply = await app.http.post(
        "/v1/chat/completions",
        content=b"a=b",
        headers={"authorization": f"Bearer {app.key}", "content-type": "application/x-www-form-urlencoded"},
    )
    assert (reply.status_code, reply.text) == (
        400,
        "content type application/x-www-form-urlencoded is not supported; send application/json",
    )


def rejected_then_reused(port, head, size, pause):
    """Sends a rejected request with a body, then another one on the same connection. Returns the first status, whether
    the response announced `connection: close`, and the second status or None."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(f"{head}\r\nhost: 127.0.0.1:{port}\r\ncontent-length: {size}\r\n\r\n".encode())
        with contextlib.suppress(OSError):
            time.sleep(pause)
            connection.sendall(b"x" * size)
        with connection.makefile("rb") as stream:
            first = http.client.parse_headers(stream) if (line := stream.readline()) else {}
            stream.read(int(first.get("content-length", "0")))
            try:
                connection.sendall(f"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n".encode())
                after = stream.readline()
            except OSError:
                after = b""
        return int(line.split()[1]), first.get("connection") == "close", int(after.split()[1]) if after else None


async def test_a_start_without_an_operator_logs_how_to_create_one(tmp_path, caplog):
    """If commands created accounts before the first start, there is no `default` account that is an operator."""
    path = write_config(tmp_path)
    runtime = runtime_of(path, {})
    wanted = "to make one: tollgate accounts change alice --role operator"
    for logged, role in ((True, "user"), (False, "operator")):
        async with Ledger(runtime.gateway.store, runtime.gateway.credits) as ledger:
            await (accounts.create_account if logged else accounts.change_account)(ledger, "alice", role=role)
        caplog.clear()
        opened = await open_gateway(runtime, path)
        await close_gateway(opened)
        assert (wanted in caplog.text, opened.initial_account, opened.first_key) == (logged, "alice", None)


async def test_a_start_that_fails_releases_its_store(tmp_path, monkeypatch):
    path = write_config(tmp_path)

    async def fail(*_: object) -> None:
        raise OSError("no socket")

    with monkeypatch.context() as broken, pytest.raises(OSError, match="no socket"):
        broken.setattr(Ledger, "serve_admin", fail)
        await open_gateway(runtime_of(path, {}), path)
    await close_gateway(await open_gateway(runtime_of(path, {}), path))


async def test_a_request_cancelled_at_shutdown_has_its_row(tmp_path):
    """The server returns before the cancelled requests have settled."""
    path = write_config(tmp_path)
    opened = await open_gateway(runtime_of(path, {}), path)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=opened.app), base_url="http://127.0.0.1:8787"
    ) as client:
        body = {**CHAT_REQUEST, "messages": [{"role": "user", "content": "[[delay=20s]] late"}]}
        request = asyncio.create_task(
            client.post("/v1/chat/completions", json=body, headers={"authorization": f"Bearer {opened.first_key}"})
        )
        await until(lambda: opened.services.live)
        request.cancel()
        await close_gateway(opened)
    assert [(row["outcome"], row["status"]) for row in usage_rows(tmp_path)] == [("client_gone", 499)]


async def test_a_request_cut_by_a_stop_has_its_row_even_if_an_encoding_takes_too_long_to_load(tmp_path, monkeypatch):
    """On a machine with twenty busy processes, loading took longer than a stop waits, and the row was lost."""
    may_load, loading = threading.Event(), threading.Event()

    def load(name):
        loading.set()
        may_load.wait(60)

    monkeypatch.setattr("tollgate.server._SETTLE_SECONDS", 0.1)
    monkeypatch.setattr("tollgate.tokens._encodings", {})
    monkeypatch.setattr("tollgate.tokens._load", load)
    path = write_config(tmp_path, settings="server: {drain_seconds: 0.1}\n")
    opened = await open_gateway(runtime_of(path, {}), path)
    body = {**CHAT_REQUEST, "messages": [{"role": "user", "content": "[[delay=600s]] late"}]}
    client = Leaving(body, opened.first_key)
    request = asyncio.create_task(opened.app(client.scope, client.receive, client.send))
    try:
        await until(lambda: opened.services.live)
        opened.app.cut()
        await until(loading.is_set)
        await close_gateway(opened)
        [row] = usage_rows(tmp_path)
    finally:
        may_load.set()
    await request
    assert (row["outcome"], row["status"], row["estimated"]) == ("error", 503, True) and row["input_tokens"] > 0


async def test_what_still_runs_when_requests_have_ended_gets_the_rest_of_the_drain_time(tmp_path, monkeypatch):
    path = write_config(tmp_path, settings="server: {drain_seconds: 40}\n")
    waits: list[float] = []

    async def drain(_: Background, seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(Background, "drain", drain)
    for waited in (0, 25, 40):
        await close_gateway(await open_gateway(runtime_of(path, {}), path), waited)
    assert waits == [40, 15, 10], "at least ten seconds, in which rows are written"


async def test_a_settlement_in_progress_outlives_a_short_drain_time(tmp_path):
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
def test_a_connection_stays_usable_after_an_early_response(tmp_path, engine):
    """A pooled client would lose its next request on a connection that is closed without `connection: close`."""
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
                    found, closes, after = rejected_then_reused(port, head, size, pause)
                    assert (found, after) == (status, None if closes else 200), (status, size, pause)
                    assert not closes, (status, size, pause)
