"""/v1/images/mcp with the official MCP client over a real loopback server: both protocol eras, all tools,
all messages."""

import asyncio
import contextlib
import json
from decimal import Decimal
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from hypercorn.asyncio import serve
from hypercorn.config import Config
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from support.image_provider import Provider
from support.inprocess import inprocess, unspoken, write_config
from support.running import free_port, gateway
from tollgate.images.service import jobs_of
from tollgate.ledger import KeyRecord
from tollgate.tools.calls import Caller, call_tool

ROOT = Path(__file__).resolve().parents[2]
SANDBOX = (ROOT / "providers" / "sandbox-images.yaml").read_text()
SLOW = """
provider: slow
images:
  submit: {call: POST app://slow/jobs, body: $.input, result: {id: $.id, status: $.status}}
  poll: {call: "GET app://slow/jobs/{{ $job.id }}", every: [0.1], result: {status: $.status, error: $.error, images: [{$each: $i in $.images, url: $i}]}}
models:
  slow/draw: {upstream: draw, price: {price: "0.04"}, input_schema: {type: object, required: [prompt], properties: {prompt: {type: string}}}}
"""  # noqa: E501
MODES = ["legacy", "auto", "2026-07-28"]


@contextlib.asynccontextmanager
async def server(folder, *, slow=None, settings="", **options):
    for name in ("chat", "responses", "messages", "gemini", "embeddings"):
        (folder / "mappings").mkdir(exist_ok=True)
        (folder / "mappings" / f"{name}.yaml").write_text(unspoken(name))
    providers = {"sandbox-images": SANDBOX, **({"slow": SLOW} if slow else {})}
    async with inprocess(
        folder, providers=providers, apps={"slow": Provider(slow)} if slow else {}, settings=settings, **options
    ) as here:
        port = free_port()
        config = Config()
        config.bind = [f"127.0.0.1:{port}"]
        config.errorlog = None
        config.graceful_timeout = 0.1
        stop = asyncio.Event()
        task = asyncio.create_task(serve(here.opened.app, config, shutdown_trigger=stop.wait))
        here.base = f"http://127.0.0.1:{port}"
        here.mcp = f"{here.base}/v1/images/mcp"
        for _ in range(200):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            await asyncio.sleep(0.01)
        try:
            yield here
        finally:
            stop.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait_for(task, 5)


@contextlib.asynccontextmanager
async def assistant(here, mode="auto", **headers):
    import httpx2

    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {here.key}", **headers}, timeout=60) as http:
        async with Client(streamable_http_client(here.mcp, http_client=http), mode=mode) as client:
            yield client


on_one_server = pytest.mark.asyncio(loop_scope="module")
"""Marks tests that use `untouched`."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def untouched(tmp_path_factory):
    """One server for all calls that change nothing."""
    settings = (
        "server: {max_small_body_bytes: 100000, base_url: 'https://gw.example', "
        "legacy_base_urls: ['https://old.example/api/v1']}\n"
    )
    async with server(tmp_path_factory.mktemp("untouched"), settings=settings) as here:
        yield here


def said(result):
    return json.loads(result.content[0].text)


@pytest.mark.parametrize("mode", MODES)
async def test_an_assistant_makes_an_image(tmp_path, mode):
    async with server(tmp_path) as here, assistant(here, mode) as client:
        if mode != "2026-07-28":  # a pinned client does not ask who is there
            assert (client.server_info.name, client.server_info.version) == ("service-images", "1.0.0")
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["list_models", "get_model", "generate_image", "get_generation"]
        assert [tool.input_schema.get("required", []) for tool in tools] == [
            [],
            ["model_id"],
            ["model_id", "input"],
            ["id"],
        ]
        listed = await client.call_tool("list_models", {})
        assert len(listed.content) == 1
        assert said(listed)[0] == {
            "id": "sandbox/draw",
            "name": "Sandbox Draw",
            "description": said(listed)[0]["description"],
            "pricing": {"price": 0.01, "currency": "USD", "unit": 1},
        }
        assert listed.structured_content == {"result": said(listed)}
        model = said(await client.call_tool("get_model", {"model_id": "sandbox/draw"}))
        assert model["input_schema"]["required"] == ["prompt"]
        made = await client.call_tool(
            "generate_image", {"model_id": "sandbox/draw", "input": {"prompt": "a cat", "count": 2}}
        )
        assert not made.is_error
        assert said(made)["status"] == "succeeded"
        assert [image["context_type"] for image in said(made)["images"]] == ["image/png"] * 2
        again = said(await client.call_tool("get_generation", {"id": said(made)["id"]}))
        assert (again["model"], again["status"], again["cost"]) == ("sandbox/draw", "succeeded", 0.02)
        assert here.balance() == Decimal("99.98")


@pytest.mark.parametrize("mode", MODES)
@on_one_server
async def test_hosts_are_told_which_tools_only_look_and_that_none_destroys(untouched, mode):
    async with assistant(untouched, mode) as client:
        told = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
    looks = {name: hints.read_only_hint for name, hints in told.items()}
    assert looks == {"list_models": True, "get_model": True, "generate_image": False, "get_generation": True}
    assert {hints.destructive_hint for hints in told.values()} == {False}, "unsaid means that it may"


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("get_model", {}, "model_id is required"),
        ("get_model", {"model_id": 5}, "model_id is required"),
        ("get_model", {"model_id": "acme/none"}, "model not found: acme/none"),
        ("generate_image", {"input": {}}, "model_id is required"),
        ("generate_image", {"model_id": "acme/none", "input": {}}, "model not found: acme/none"),
        ("generate_image", {"model_id": "sandbox/draw"}, "input is required and must be an object"),
        ("generate_image", {"model_id": "sandbox/draw", "input": "a cat"}, "input is required and must be an object"),
        (
            "generate_image",
            {"model_id": "sandbox/draw", "input": {}},
            "input validation failed: input.prompt: is required",
        ),
        (
            "generate_image",
            {"model_id": "sandbox/draw", "input": {"prompt": "a", "count": 9}},
            "input validation failed: input.count: 9 is greater than the maximum of 4",
        ),
        (
            "generate_image",
            {"model_id": "sandbox/paint", "input": {"prompt": "a", "more": 2**70}},
            "input validation failed: input cannot be read: Integer exceeds 64-bit range",
        ),
        ("get_generation", {}, "invalid id format"),
        ("get_generation", {"id": "12"}, "invalid id format"),
        (
            "get_generation",
            {"id": "00000000-0000-4000-8000-000000000000"},
            "generation not found: 00000000-0000-4000-8000-000000000000",
        ),
        ("paint", {}, "unknown tool: paint"),
    ],
)
@on_one_server
async def test_failures_are_results_with_their_exact_words(untouched, mode, tool, arguments, message):
    async with assistant(untouched, mode) as client:
        result = await client.call_tool(tool, arguments)
        assert result.is_error
        assert [block.text for block in result.content] == [message]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_failed_generation_is_flagged(tmp_path, mode):
    answers = iter([(200, {"id": "j", "status": "starting"}), (200, {"status": "failed", "error": "NSFW content"})])
    async with server(tmp_path, slow=lambda *_: next(answers)) as here, assistant(here, mode) as client:
        result = await client.call_tool("generate_image", {"model_id": "slow/draw", "input": {"prompt": "a"}})
        assert result.is_error
        assert result.content[0].text == "image generation failed: NSFW content"
        assert result.structured_content["status"] == "failed"


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_an_unfinished_job_is_processing_and_nobody_else_waits(tmp_path, mode, monkeypatch):
    monkeypatch.setattr("tollgate.tools.calls.WAIT_SECONDS", 1.0)
    async with (
        server(tmp_path, slow=lambda *_: (200, {"id": "j", "status": "processing"})) as here,
        assistant(here, mode) as client,
    ):
        waiting = asyncio.create_task(
            client.call_tool("generate_image", {"model_id": "slow/draw", "input": {"prompt": "a"}})
        )
        await asyncio.sleep(0.2)
        await here.get("/v1/images/models")
        assert not waiting.done()
        result = await waiting
        assert not result.is_error
        assert said(result) == {"id": said(result)["id"], "status": "processing"}
        assert said(await client.call_tool("get_generation", {"id": said(result)["id"]}))["status"] == "processing"


async def test_the_time_a_provider_took_to_accept_the_job_is_part_of_the_wait(tmp_path):
    async with inprocess(
        tmp_path,
        providers={"slow": SLOW},
        apps={"slow": Provider(lambda *_: (200, {"id": "j", "status": "processing"}))},
    ) as here:
        jobs = jobs_of(here.services)
        submit = jobs.submissions._submit
        now = 0.0

        async def slowly(*given):
            nonlocal now
            now += 31
            return await submit(*given)

        jobs.tracked.clock, jobs.submissions._submit = lambda: now, slowly
        key = here.services.ledger.find_key(here.key)
        async with asyncio.timeout(5):
            made = await call_tool(
                here.services,
                Caller(key, "req_1"),
                "generate_image",
                {"model_id": "slow/draw", "input": {"prompt": "a"}},
            )
        assert made == {"id": made["id"], "status": "processing"}


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_progress_is_told_to_who_asks(tmp_path, mode, monkeypatch):
    monkeypatch.setattr("tollgate.tools.calls.WAIT_SECONDS", 1.0)
    heard = []

    async def hear(progress, total, message):
        heard.append((progress, total))

    async with (
        server(tmp_path, slow=lambda *_: (200, {"id": "j", "status": "processing"})) as here,
        assistant(here, mode) as client,
    ):
        result = await client.call_tool(
            "generate_image", {"model_id": "slow/draw", "input": {"prompt": "a"}}, progress_callback=hear
        )
        assert said(result)["status"] == "processing"
    assert len(heard) >= 3
    assert all(0 <= progress <= 1.01 for progress, _ in heard)


REQUEST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


async def post(here, body=REQUEST, *, key=None, path="", **headers):
    """Send a message as any HTTP client does; a header that is None is left out."""
    sent = {"authorization": f"Bearer {key or here.key}", "content-type": "application/json"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    async with httpx.AsyncClient(timeout=10) as http:
        return await http.post(
            here.base + path if path else here.mcp,
            headers={name: value for name, value in sent.items() if value is not None},
            content=body if isinstance(body, (bytes, str)) else json.dumps(body),
        )


@on_one_server
@pytest.mark.parametrize("accept", ["application/json", "*/*", "application/json, text/event-stream"])
async def test_a_message_is_answered_in_json_with_an_id(untouched, accept):
    reply = await post(untouched, accept=accept)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/json")
    assert len(reply.json()["result"]["tools"]) == 4
    assert reply.headers["x-request-id"].startswith("req_")


@on_one_server
@pytest.mark.parametrize("key", [None, "Bearer sk-tg-nope"])
async def test_a_missing_or_wrong_key_is_refused_without_an_offer_to_sign_in(untouched, key):
    reply = await post(untouched, authorization=key)
    assert (reply.status_code, reply.json()["success"]) == (401, False)
    assert "www-authenticate" not in reply.headers


@on_one_server
async def test_a_key_may_stand_in_a_header_of_its_own(untouched):
    assert (await post(untouched, authorization=None, x_api_key=untouched.key)).status_code == 200


@on_one_server
@pytest.mark.parametrize(
    ("host", "status"),
    [("gw.example", 200), ("old.example:8443", 200), ("localhost:9", 200), ("evil.example", 421)],
)
async def test_only_the_gateways_own_hosts_are_served(untouched, host, status):
    assert (await post(untouched, host=host)).status_code == status


@on_one_server
@pytest.mark.parametrize(
    ("origin", "status"),
    [("https://gw.example", 200), ("http://localhost:3000", 200), ("https://evil.example", 403), ("null", 403)],
)
async def test_only_pages_of_the_gateways_own_origins_are_served(untouched, origin, status):
    assert (await post(untouched, origin=origin)).status_code == status


@on_one_server
@pytest.mark.parametrize(("body", "code"), [(b"{", -32700), ({**REQUEST, "method": "nope"}, -32601)])
async def test_what_is_no_call_is_refused_in_json_rpc(untouched, body, code):
    assert (await post(untouched, body)).json()["error"]["code"] == code


@on_one_server
async def test_a_notification_is_taken_without_an_answer(untouched):
    assert (await post(untouched, {"jsonrpc": "2.0", "method": "notifications/initialized"})).status_code == 202


@on_one_server
async def test_a_body_over_the_limit_is_refused(untouched):
    assert (await post(untouched, b" " * 100_001)).status_code == 413


@on_one_server
async def test_a_get_tells_who_is_there_or_listens(untouched):
    headers = {"authorization": f"Bearer {untouched.key}"}
    async with httpx.AsyncClient(timeout=10) as http:
        assert (await http.get(untouched.mcp, headers=headers)).json() == {
            "name": "service-images",
            "version": "1.0.0",
            "transport": "streamable-http",
            "stateless": True,
        }
        async with http.stream("GET", untouched.mcp, headers=headers | {"accept": "text/event-stream"}) as listening:
            told = listening.status_code, listening.headers["content-type"]
            assert told == (200, "text/event-stream; charset=utf-8")
            assert await anext(listening.aiter_text()) == ": listening\n\n"
        assert (await http.get(untouched.mcp)).status_code == 401
        assert (await http.delete(untouched.mcp, headers=headers)).status_code == 405


CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_models", "arguments": {}}}
MODERN = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "list_models"}
ENVELOPE = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}


@pytest.mark.parametrize("spelled", [b'"tools/call"', b'"tools\\/call"', b'"tools\\u002fcall"', b'"\\u0074ools/call"'])
async def test_every_spelling_of_a_tool_call_is_counted(tmp_path, spelled):
    async with server(tmp_path) as here:
        _, key = await here.services.ledger.create_key("default", rpm=2)
        body = json.dumps(CALL).encode().replace(b'"tools/call"', spelled)
        drawing = {"model_id": "sandbox/draw", "input": {"prompt": "a [[duration=0s]]"}}
        drawn = json.dumps(CALL | {"params": CALL["params"] | {"name": "generate_image", "arguments": drawing}})
        # an image is counted once, by its call
        replies = [await post(here, each, key=key) for each in (drawn, body, body)]
        assert [reply.status_code for reply in replies] == [200, 200, 429]
        assert [reply.json()["result"]["isError"] for reply in replies[:2]] == [False, False]
        # no call: not counted
        noted = REQUEST | {"params": {"_meta": {"note": "tools/call"}}}
        assert (await post(here, noted, key=key)).status_code == 200


async def test_a_tool_call_that_only_the_protocol_layer_can_read_is_counted(tmp_path):
    nan = json.dumps({**CALL, "params": {**CALL["params"], "arguments": {"x": float("nan")}}}).encode()
    wide = json.dumps({**CALL, "params": {**CALL["params"], **ENVELOPE}}).encode("utf-16")
    for body, headers in ((nan, {}), (wide, MODERN)):
        async with server(tmp_path) as here:
            _, key = await here.services.ledger.create_key("default", rpm=2)
            replies = [await post(here, body, key=key, **headers) for _ in range(3)]
            assert [reply.json()["result"]["isError"] for reply in replies] == [False, False, True]
            assert "Rate limit reached" in replies[2].json()["result"]["content"][0]["text"]
            record, key = await here.services.ledger.create_key("default", max_concurrent=1)
            with here.services.ledger.occupy(record) or pytest.fail("no slot"):
                refused = await post(here, body, key=key, **headers)
            assert "concurrent requests" in refused.json()["result"]["content"][0]["text"]
            admitted = await post(here, body, key=key, **headers)
            assert admitted.json()["result"]["isError"] is False and not here.services.ledger.concurrency._running


async def test_27_a_client_that_leaves_a_call_may_make_another(tmp_path):
    """Waiting for a picture takes half a minute; whoever gives up and asks again is not refused meanwhile."""
    drawing = {"model_id": "slow/draw", "input": {"prompt": "a"}}
    drawn = CALL | {"params": CALL["params"] | {"name": "generate_image", "arguments": drawing}}
    status = "processing"
    async with (
        server(tmp_path, slow=lambda *_: (200, {"id": "j", "status": status})) as here,
        httpx.AsyncClient() as http,
    ):
        _, key = await here.services.ledger.create_key("default", max_concurrent=1)
        headers = {"authorization": f"Bearer {key}"}
        with pytest.raises(httpx.ReadTimeout):
            await http.post(here.mcp, json=drawn, headers=headers, timeout=1)
        running = here.services.ledger.concurrency._running
        for _ in range(200):
            if not running:
                break
            await asyncio.sleep(0.01)
        reply = await http.post(here.mcp, json=CALL, headers=headers)
        assert (reply.status_code, running) == (200, {})
        status = "failed"  # the server of this test closes when nobody waits any more


@on_one_server
async def test_an_input_too_deep_to_be_kept_is_a_result_with_an_error(untouched):
    """The other era's parser stops at 200 levels by itself."""
    called = {
        **CALL,
        "params": {
            "name": "generate_image",
            "arguments": {"model_id": "sandbox/paint", "input": {"prompt": "a", "more": "deep"}},
            **ENVELOPE,
        },
    }
    body = json.dumps(called).encode().replace(b'"deep"', b"[" * 260 + b"]" * 260)
    reply = await post(untouched, body, **MODERN | {"mcp-name": "generate_image"})
    result = reply.json()["result"]
    assert (result["isError"], result["content"][0]["text"]) == (
        True,
        "input validation failed: input is nested more than 199 levels deep",
    )


@on_one_server
async def test_a_message_of_too_many_values_is_refused_before_it_is_read(untouched):
    reply = await post(untouched, {**REQUEST, "params": {"x": [[]] * 20_000}})
    assert (reply.status_code, reply.json()["message"]) == (
        400,
        "input validation failed: the message holds more than 20000 values",
    )


async def test_no_credits_is_told_before_any_json_rpc(tmp_path):
    async with server(tmp_path) as here:
        await here.services.ledger.grant("default", Decimal("-99.995"))
        reply = await post(here)
        assert (reply.status_code, reply.json()) == (
            403,
            {"success": False, "code": 403, "message": "insufficient quota"},
        )


async def test_what_running_jobs_hold_keeps_an_assistant_from_new_images_only(tmp_path):
    async with server(tmp_path) as here, assistant(here) as client:
        await here.services.ledger.grant("default", Decimal(-95))
        with await here.services.ledger.hold(KeyRecord("key_other", "default"), Decimal(5)):
            assert said(await client.call_tool("list_models", {}))
            refused = await client.call_tool(
                "generate_image", {"model_id": "sandbox/draw", "input": {"prompt": "a cat"}}
            )
            assert (refused.is_error, refused.content[0].text) == (True, "insufficient quota")


@on_one_server
@pytest.mark.parametrize("path", ["/v1/v1/images/mcp", "/api/v1/images/mcp", "/v1/images/mcp/"])
async def test_a_doubled_v1_and_a_legacy_prefix_reach_the_tools(untouched, path):
    assert (await post(untouched, path=path)).status_code == 200


async def test_a_gateway_that_cannot_take_work_says_so_and_an_error_of_ours_is_a_500_with_an_id(tmp_path, monkeypatch):
    async with server(tmp_path) as here:
        with monkeypatch.context() as patch:
            patch.setattr(here.services.ledger, "_state", "shutting down")
            reply = await post(here)
            assert (reply.status_code, reply.json()) == (503, {"message": "Service temporarily unavailable"})
        with monkeypatch.context() as patch:
            patch.setattr(type(here.services.ledger), "find_key", lambda *_: 1 / 0)
            reply = await post(here)
            assert (reply.status_code, reply.json()) == (
                500,
                {"success": False, "code": 500, "message": "internal server error"},
            )
            assert reply.headers["x-request-id"].startswith("req_")
        assert (await post(here)).status_code == 200


def test_a_tool_call_leaves_no_line_in_the_log(tmp_path):
    write_config(tmp_path)
    with gateway(tmp_path) as started:
        answer = httpx.post(
            started.url + "/images/mcp",
            json=CALL,
            headers={"Authorization": f"Bearer {started.key}", "accept": "application/json, text/event-stream"},
            timeout=30,
        )
        assert answer.status_code == 200 and not answer.json()["result"]["isError"]
        assert "mcp." not in started.log.read_text()
