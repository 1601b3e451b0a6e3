"""Web pages of other origins: what a browser asks before and wants to read after."""

import pytest

from support.inprocess import inprocess

ASK = {"model": "sandbox/echo", "messages": [{"role": "user", "content": "hello"}]}
PAGE = "https://app.example"
QUESTION = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-stainless-os"}


@pytest.fixture(params=[f'["{PAGE}/", "capacitor://localhost"]', '["*"]'], ids=["named", "all"])
async def here(tmp_path, request):
    async with inprocess(tmp_path, settings=f"server: {{cors_origins: {request.param}}}\n") as opened:
        opened.every = "*" in request.param
        yield opened


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/v1/images/mcp", "/nowhere"])
async def test_a_browser_that_asks_is_told_yes_without_a_key(here, path):
    reply = await here.http.options(path, headers={"origin": PAGE, **QUESTION})
    assert (reply.status_code, reply.content) == (204, b"")
    assert reply.headers["access-control-allow-origin"] == ("*" if here.every else PAGE)
    assert (
        reply.headers["access-control-allow-headers"] == "authorization,x-stainless-os"
        and "POST" in reply.headers["access-control-allow-methods"]
    )


@pytest.mark.parametrize(
    "more", [{}, {"stream": True}, {"model": "nowhere/nothing"}], ids=["whole", "streamed", "an error"]
)
async def test_a_page_may_read_answers_and_errors(here, more):
    reply = await here.post("/v1/chat/completions", {**ASK, **more}, origin=PAGE)
    assert reply.headers["access-control-allow-origin"] == ("*" if here.every else PAGE)
    assert (
        reply.headers["access-control-expose-headers"] == "*"
        and "access-control-allow-credentials" not in reply.headers
    )
    assert here.every or "origin" in reply.headers["vary"]


async def test_pages_of_other_origins_and_requests_of_no_page_are_answered_as_ever(here):
    assert "access-control-allow-origin" not in (await here.post("/v1/chat/completions", ASK)).headers
    if not here.every:
        reply = await here.http.options("/v1/chat/completions", headers={"origin": "https://other.example", **QUESTION})
        assert reply.status_code == 405 and "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize(
    "origin", [{}, {"origin": "https://other.example"}, {"origin": PAGE}], ids=["none", "other", "page"]
)
async def test_what_a_browser_keeps_says_that_it_differs_by_origin(here, origin):
    reply = await here.http.get("/v1/models", headers=origin)
    assert "max-age" in reply.headers["cache-control"]
    assert "origin" in [each.strip() for each in reply.headers["vary"].split(",")]


async def test_tools_are_there_for_these_pages_too(here):
    reply = await here.post(
        "/v1/images/mcp",
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        origin=PAGE,
        host="127.0.0.1:8787",
        accept="application/json, text/event-stream",
    )
    assert reply.status_code == 200 and reply.headers["access-control-allow-origin"] == ("*" if here.every else PAGE)


async def test_no_page_is_told_yes_unless_the_operator_said_so(tmp_path):
    async with inprocess(tmp_path) as here:
        assert (
            await here.http.options("/v1/chat/completions", headers={"origin": PAGE, **QUESTION})
        ).status_code == 405
        assert "access-control-allow-origin" not in (await here.post("/v1/chat/completions", ASK, origin=PAGE)).headers
