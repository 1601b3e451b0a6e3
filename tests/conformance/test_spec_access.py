"""SPEC, authentication and limits: keys in either header, the 0.01 rule, expiry, paths, methods and headers of every
endpoint."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import httpx
import pytest
import pytest_asyncio

from conformance.upstreams import provider
from support.inprocess import inprocess, replying
from support.places import SANDBOX_IMAGES
from tollgate.ledger.keys import is_well_formed, mint

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEGACY = 'server: {legacy_base_urls: ["https://old.example/api/gateway/v1", "https://older.example/llm/v1"]}\n'
HELLO = [{"role": "user", "content": "hi"}]
CALLS: dict[str, tuple[str, str, Any]] = {
    "chat": ("POST", "/v1/chat/completions", {"model": "sandbox/echo", "messages": HELLO}),
    "responses": ("POST", "/v1/responses", {"model": "sandbox/echo", "input": "hi"}),
    "messages": ("POST", "/v1/messages", {"model": "sandbox/echo", "max_tokens": 20, "messages": HELLO}),
    "count_tokens": ("POST", "/v1/messages/count_tokens", {"model": "sandbox/echo", "messages": HELLO}),
    "embeddings": ("POST", "/v1/embeddings", {"model": "sandbox/embed", "input": "hi"}),
    "images": ("POST", "/v1/images/generations", {"model": "sandbox/draw", "input": {"prompt": "a cat"}}),
    "image list": ("GET", "/v1/images/generations", None),
    "image": ("GET", "/v1/images/generations/00000000-0000-4000-8000-000000000000", None),
    "mcp": ("POST", "/v1/images/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}),
    "mcp about": ("GET", "/v1/images/mcp", None),
}
FINE = {name: 404 if name == "image" else 200 for name in CALLS}


async def ask(here: Any, name: str, headers: dict[str, str], *, prefix: str = "", body: Any = None) -> httpx.Response:
    method, path, content = CALLS[name]
    sent = None if content is None else json.dumps(body if body is not None else content).encode()
    return await here.http.request(
        method, prefix + path, content=sent, headers={"content-type": "application/json", **headers}
    )


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory):
    """One gateway for the whole file: tests that need credits of their own create an account."""
    async with inprocess(
        tmp_path_factory.mktemp("access"), providers={"sandbox-images": SANDBOX_IMAGES}, settings=LEGACY
    ) as opened:
        yield opened


_numbers = itertools.count()


async def account(here: Any, credits: str = "0") -> str:
    """The key of a new account with this many credits."""
    name = f"account-{next(_numbers)}"
    await here.services.ledger.create_account(name)
    if Decimal(credits):
        await here.services.ledger.grant(name, Decimal(credits))
    return (await here.services.ledger.create_key(name))[1]


@pytest.mark.parametrize("name", CALLS)
async def test_every_authenticated_endpoint_accepts_a_key_in_either_header_and_nothing_else(here, name):
    for headers in (
        bearer(here.key),
        {"x-api-key": here.key},
        {"authorization": f"BEARER   {here.key} "},
        {"authorization": "Basic eDp5", "x-api-key": here.key},
        {"authorization": "Bearer ", "x-api-key": here.key},
        {**bearer("placeholder"), "x-api-key": here.key},
        {**bearer(here.key), "x-api-key": "placeholder"},
    ):
        assert (await ask(here, name, headers)).status_code == FINE[name], headers
    for headers in (
        {},
        {"authorization": here.key},
        {"x-api-key": " "},
        {"authorization": "Bearer"},
        bearer("nonsense"),
        bearer(here.key[:-1]),
        bearer(here.key + "x"),
        {"x-api-key": mint()},
        {**bearer(mint()), "x-api-key": mint()},
        {"api-key": here.key},
        {"cookie": f"key={here.key}"},
    ):
        reply = await ask(here, name, headers)
        assert reply.status_code == 401, headers
        assert "www-authenticate" not in reply.headers
        assert here.key not in reply.text and here.key[:-1] not in reply.text


NO_KEY = (
    "You didn't provide an API key. Send it in an Authorization header using Bearer auth (Authorization: Bearer "
    "YOUR_KEY) or in an X-Api-Key header."
)


async def test_a_401_has_the_message_of_each_api(here):
    wrong = mint()
    shown = f"sk-tg-...{wrong[-4:]}"
    openai = {"type": "invalid_request_error", "param": None}
    for name in ("chat", "responses"):
        assert (await ask(here, name, {})).json() == {"error": {"message": NO_KEY, **openai, "code": None}}
        assert (await ask(here, name, bearer(wrong))).json() == {
            "error": {"message": f"Incorrect API key provided: {shown}", **openai, "code": "invalid_api_key"}
        }
    for headers, message in (({}, "x-api-key header is required"), (bearer(wrong), "invalid x-api-key")):
        reply = await ask(here, "messages", headers)
        assert reply.json() == {
            "type": "error",
            "error": {"type": "authentication_error", "message": message},
            "request_id": reply.headers["request-id"],
        }
    for name in ("embeddings", "images", "image list", "image", "mcp"):
        for headers in ({}, bearer(wrong)):
            body = (await ask(here, name, headers)).json()
            assert {**body, "message": ""} == {"success": False, "code": 401, "message": ""} and body["message"], name


async def test_a_401_says_not_to_retry(here):
    for name in ("chat", "messages", "embeddings"):
        for headers in ({}, bearer(mint())):
            assert (await ask(here, name, headers)).headers["x-should-retry"] == "false", name


@pytest.mark.parametrize(
    ("credits", "status"), [("0.01", None), ("0.010000000001", None), ("0.009999999999", 403), ("0", 403), ("-5", 403)]
)
@pytest.mark.parametrize("name", CALLS)
async def test_fewer_than_a_hundredth_credit_is_rejected_and_exactly_that_is_not(here, name, credits, status):
    reply = await ask(here, name, bearer(await account(here, credits)))
    assert reply.status_code == (status or FINE[name]), reply.text
    if status == 403 and name != "messages" and name != "count_tokens":
        assert reply.json()["message"] == ("user quota exceeded" if name == "embeddings" else "insufficient quota")


@pytest.mark.parametrize("name", CALLS)
async def test_a_spend_cap_that_is_reached_blocks_only_paid_requests(here, name):
    record, key = await here.services.ledger.create_key("default", spend_cap=Decimal("0.01"))
    hold = await here.services.ledger.hold(record, Decimal("0.01"))
    spends = name in ("chat", "responses", "messages", "embeddings", "images")
    assert (await ask(here, name, bearer(key))).status_code == (403 if spends else FINE[name])
    hold.release()


async def test_catalogs_require_no_credits(here):
    key = await account(here)
    for path in ("/v1/models", "/models", "/v1/images/models"):
        assert (await here.get(path, key=key)).status_code == 200


@pytest.mark.parametrize("name", ["chat", "messages", "embeddings", "mcp"])
async def test_an_expired_or_revoked_key_is_a_401(here, name):
    ledger = here.services.ledger
    end = datetime.now(UTC) + timedelta(milliseconds=30)
    _, expired = await ledger.create_key("default", expires_at=end)
    record, revoked = await ledger.create_key("default")
    assert (await ask(here, name, bearer(revoked))).status_code == 200
    await ledger.revoke_key(record.id)
    while datetime.now(UTC) <= end:
        await asyncio.sleep(0.01)
    for key in (expired, revoked):
        assert (await ask(here, name, bearer(key))).status_code == 401


async def test_a_key_has_a_scannable_form_and_a_checksum():
    key = mint()
    assert re.fullmatch(r"sk-tg-[A-Za-z0-9_-]{43}[0-9A-Za-z]{6}", key) and is_well_formed(key)
    for at in range(6, len(key)):
        other = "a" if key[at] != "a" else "b"
        assert not is_well_formed(key[:at] + other + key[at + 1 :]), at
    assert not is_well_formed(key + "\n") and not is_well_formed(key.upper()) and not is_well_formed("")


@pytest.mark.parametrize(
    "prefix", ["", "/api/gateway", "/llm", "/v1", "/api/gateway/v1", "/v1/v1"], ids=lambda prefix: prefix or "plain"
)
@pytest.mark.parametrize("name", CALLS)
async def test_legacy_bases_and_a_doubled_v1_reach_the_same_endpoints(here, name, prefix):
    assert (await ask(here, name, bearer(here.key), prefix=prefix)).status_code == FINE[name]
    assert (await ask(here, name, {}, prefix=prefix)).status_code == 401


METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
PATHS = {
    "/v1/models": "GET",
    "/models": "GET",
    "/v1/chat/completions": "POST",
    "/v1/responses": "POST",
    "/v1/messages": "POST",
    "/v1/embeddings": "POST",
    "/v1/images/models": "GET",
    "/v1/images/generations": "GET, POST",
    "/v1/images/generations/x": "GET",
    "/v1/messages/count_tokens": "POST",
    "/v1/images/mcp": "GET, POST",
}


@pytest.mark.parametrize("path", PATHS)
async def test_another_method_is_405_and_lists_the_allowed_ones(here, path):
    for method in METHODS:
        if method in PATHS[path]:
            continue
        reply = await here.http.request(method, path, headers=bearer(here.key))
        allowed = PATHS[path] if path.endswith("/mcp") else PATHS[path].replace("GET", "GET, HEAD")
        assert (reply.status_code, reply.headers["allow"]) == (405, allowed), method
        assert reply.headers["x-request-id"] == reply.headers["request-id"]


@pytest.mark.parametrize(
    "path",
    [
        "/v1",
        "/v1/",
        "/v1/chat",
        "/v1/completions",
        "/v2/models",
        "/chat/completions",
        "/v1/images",
        "/v1/images/mcp/x",
        "/api/gateway",
    ],
)
async def test_no_other_paths_exist(here, path):
    reply = await here.http.get(path, headers=bearer(here.key))
    assert reply.status_code == 404, reply.text
    assert reply.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize("name", CALLS)
async def test_every_reply_has_one_request_id_of_our_own_in_both_headers(here, name):
    seen = set()
    for headers in ({}, bearer(here.key), {**bearer(here.key), "x-request-id": "mine", "request-id": "mine"}):
        reply = await ask(here, name, headers)
        tag = reply.headers["x-request-id"]
        assert re.fullmatch(r"req_[0-9a-f]{24}", tag) and reply.headers["request-id"] == tag
        assert reply.headers.get_list("x-request-id") == [tag]
        seen.add(tag)
    assert len(seen) == 3


@pytest.mark.parametrize("name", ["chat", "responses", "messages", "embeddings"])
async def test_a_success_reports_provider_attempts_time_and_cost(here, name):
    headers = (await ask(here, name, bearer(here.key))).headers
    assert (headers["x-tollgate-provider"], headers["x-tollgate-attempts"]) == ("sandbox", "1")
    assert headers["content-type"] == "application/json"
    assert (
        int(headers["openai-processing-ms"]) >= 0
        and float(headers["x-tollgate-overhead-ms"]) >= 0
        and Decimal(headers["x-tollgate-cost"]) > 0
    )


@pytest.mark.parametrize("name", ["chat", "responses", "messages"])
async def test_a_stream_is_an_event_stream_that_proxies_do_not_buffer(here, name):
    body = {**CALLS[name][2], "stream": True}
    reply = await ask(here, name, bearer(here.key), body=body)
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert (reply.headers["cache-control"], reply.headers["x-accel-buffering"]) == ("no-cache", "no")
    assert "content-length" not in reply.headers and "x-tollgate-cost" not in reply.headers


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "application/json; charset=utf-8",
        "application/problem+json",
        "text/json",
        "APPLICATION/JSON",
        "",
    ],
)
@pytest.mark.parametrize("name", ["chat", "embeddings", "images"])
async def test_json_is_accepted_under_its_media_types(here, name, kind):
    assert (await ask(here, name, {**bearer(here.key), "content-type": kind})).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"provider-version": "2026-01-01"},
        {"anthropic-version": "2023-06-01"},
        {"provider-version": "soon", "anthropic-beta": "a,b"},
        {},
    ],
    ids=str,
)
async def test_messages_accepts_any_version_header_or_none(here, headers):
    assert (await ask(here, "messages", {"x-api-key": here.key, **headers}, prefix="")).status_code == 200
    assert (await here.post("/v1/messages?beta=true", CALLS["messages"][2])).status_code == 200


@pytest.mark.parametrize("name", ["chat", "responses", "messages", "embeddings"])
async def test_unknown_fields_and_query_strings_are_accepted(tmp_path, name):
    seen: list[Any] = []
    app = replying(400, b'{"error": {"message": "seen"}}', seen=seen)
    lines = "  acme/embed: {upstream: up-2, type: embedding, context: 8192}"
    yaml = provider("app://acme/v1", "chat", lines=lines).replace(
        "speaks: chat", "speaks: {chat: /c, responses: /r, messages: /m, embeddings: /e}"
    )
    async with inprocess(tmp_path, providers={"acme": yaml}, apps={"acme": app}) as here:
        method, path, body = CALLS[name]
        body = {
            **body,
            "model": "acme/embed" if name == "embeddings" else "acme/one",
            "x_new_field": {"deep": [1, 2.50, None]},
            "ünï": True,
        }
        reply = await here.http.request(method, path + "?beta=true&x=%20y", json=body, headers=bearer(here.key))
        assert reply.status_code == 400 and len(seen) == 1
        sent = json.loads(seen[0][3])
        assert sent == {**body, "model": "up-2" if name == "embeddings" else "up-1"}
        assert "beta=true" in seen[0][1]


BAD_BODIES = {
    "cut-off gzip": (gzip.compress(b'{"model": "sandbox/echo"}')[:-9], {"content-encoding": "gzip"}, 400),
    "an unknown coding": (b"{}", {"content-encoding": "br"}, 400),
    "two codings": (b"{}", {"content-encoding": "gzip, gzip"}, 400),
    "a length that is no number": (b"{", {"content-length": "²"}, 400),
    "a form": (b"a=b", {"content-type": "application/x-www-form-urlencoded"}, 400),
    "no body": (b"", {}, 400),
    "UTF-16": ("{}".encode("utf-16"), {}, 400),
    "deep nesting": (b"[" * 5000 + b"]" * 5000, {}, 400),
    "deep nesting inside": (b'{"model": "sandbox/echo", "messages": ' + b"[" * 900 + b"]" * 900 + b"}", {}, 400),
}


@pytest.mark.parametrize("case", BAD_BODIES)
@pytest.mark.parametrize("name", ["chat", "responses", "messages", "embeddings", "images"])
async def test_a_body_that_cannot_be_read_is_a_400_with_a_message(here, name, case):
    content, headers, status = BAD_BODIES[case]
    scope_headers = [
        (b"authorization", f"Bearer {here.key}".encode()),
        *((key.encode(), value.encode("latin-1")) for key, value in headers.items()),
    ]
    sent: list[Any] = []

    async def receive():
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": CALLS[name][1], "query_string": b"", "headers": scope_headers}
    await here.opened.app(scope, receive, send)
    assert sent[0]["status"] == status
    assert b"internal" not in sent[1]["body"] and sent[1]["body"]


async def test_an_absolute_target_is_handled_as_its_path(here):
    for target, status in (
        ("http://127.0.0.1:8787/v1/models", 200),
        ("https://old.example/api/gateway/v1/models", 200),
        ("http://x", 200),
        ("http://x/nowhere", 404),
    ):
        sent: list[Any] = []

        async def send(message, sent=sent):
            sent.append(message)

        await here.opened.app(
            {"type": "http", "method": "GET", "path": target, "query_string": b"", "headers": []}, None, send
        )
        assert sent[0]["status"] == status, target
