"""Requests of web pages from other origins: preflight requests and response headers."""

import pytest

from support.inprocess import inprocess

CHAT_REQUEST = {"model": "sandbox/echo", "messages": [{"role": "user", "content": "hello"}]}
PAGE = "https://app.example"
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-stainless-os"}


@pytest.fixture(params=[f'["{PAGE}/", "capacitor://localhost"]', '["*"]'], ids=["named", "all"])
async def app(tmp_path, request):
    async with inprocess(tmp_path, settings=f"server: {{cors_origins: {request.param}}}\n") as opened:
        opened.every = "*" in request.param
        yield opened


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/v1/images/mcp", "/nowhere"])
async def test_a_preflight_request_is_allowed_without_a_key(app, path):
    reply = await app.http.options(path, headers={"origin": PAGE, **PREFLIGHT})
    assert (reply.status_code, reply.content) == (204, b"")
    assert reply.headers["access-control-allow-origin"] == ("*" if app.every else PAGE)
    assert (
        reply.headers["access-control-allow-headers"] == "authorization,x-stainless-os"
        and "POST" in reply.headers["access-control-allow-methods"]
    )


async def test_a_preflight_request_that_names_no_headers_is_told_of_those_of_a_call(app):
    reply = await app.http.options("/v1/models", headers={"origin": PAGE, "access-control-request-method": "GET"})
    assert (reply.status_code, reply.headers["access-control-allow-headers"]) == (204, "authorization, content-type")


@pytest.mark.parametrize(
    "more", [{}, {"stream": True}, {"model": "nowhere/nothing"}], ids=["whole", "streamed", "an error"]
)
async def test_a_page_may_read_responses_and_errors(app, more):
    reply = await app.post("/v1/chat/completions", {**CHAT_REQUEST, **more}, origin=PAGE)
    assert reply.headers["access-control-allow-origin"] == ("*" if app.every else PAGE)
    assert (
        reply.headers["access-control-expose-headers"] == "*"
        and "access-control-allow-credentials" not in reply.headers
    )
    assert app.every or "origin" in reply.headers["vary"]


async def test_other_origins_and_requests_without_origin_get_no_cors_headers(app):
    assert "access-control-allow-origin" not in (await app.post("/v1/chat/completions", CHAT_REQUEST)).headers
    if not app.every:
        reply = await app.http.options("/v1/chat/completions", headers={"origin": "https://other.example", **PREFLIGHT})
        assert reply.status_code == 405 and "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize(
    "origin", [{}, {"origin": "https://other.example"}, {"origin": PAGE}], ids=["none", "other", "page"]
)
async def test_a_cacheable_response_varies_by_origin(app, origin):
    reply = await app.http.get("/v1/models", headers=origin)
    assert "max-age" in reply.headers["cache-control"]
    assert "origin" in [each.strip() for each in reply.headers["vary"].split(",")]


async def test_the_tool_server_allows_these_origins(app):
    reply = await app.post(
        "/v1/images/mcp",
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        origin=PAGE,
        host="127.0.0.1:8787",
        accept="application/json, text/event-stream",
    )
    assert reply.status_code == 200 and reply.headers["access-control-allow-origin"] == ("*" if app.every else PAGE)


async def test_no_origin_is_allowed_by_default(tmp_path):
    async with inprocess(tmp_path) as app:
        assert (
            await app.http.options("/v1/chat/completions", headers={"origin": PAGE, **PREFLIGHT})
        ).status_code == 405
        assert (
            "access-control-allow-origin"
            not in (await app.post("/v1/chat/completions", CHAT_REQUEST, origin=PAGE)).headers
        )
