"""/v1/images/mcp with the official MCP client over a loopback server: both generations of the protocol, all tools, all
messages."""

import asyncio
import contextlib
import json
from decimal import Decimal

import httpx
import pytest
import pytest_asyncio
from hypercorn.asyncio import serve
from hypercorn.config import Config
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from support.image_provider import Provider
from support.inprocess import inprocess, write_config, write_unused_mappings
from support.places import SANDBOX_IMAGES
from support.running import free_port, gateway
from support.waiting import SECONDS, until
from tollgate.images.service import jobs_of
from tollgate.ledger import KeyRecord
from tollgate.tools.calls import Caller, call_tool

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
    write_unused_mappings(folder)
    providers = {"sandbox-images": SANDBOX_IMAGES, **({"slow": SLOW} if slow else {})}
    async with inprocess(
        folder, providers=providers, apps={"slow": Provider(slow)} if slow else {}, settings=settings, **options
    ) as app:
        port = free_port()
        config = Config()
        config.bind = [f"127.0.0.1:{port}"]
        config.errorlog = None
        config.graceful_timeout = 0.1
        stop = asyncio.Event()
        task = asyncio.create_task(serve(app.opened.app, config, shutdown_trigger=stop.wait))
        app.base = f"http://127.0.0.1:{port}"
        app.mcp = f"{app.base}/v1/images/mcp"
        for _ in range(3000):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            await asyncio.sleep(0.01)
        try:
            yield app
        finally:
            stop.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait_for(task, SECONDS)


@contextlib.asynccontextmanager
async def assistant(app, mode="auto", **headers):
    import httpx2

    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {app.key}", **headers}, timeout=60) as http:
        async with Client(streamable_http_client(app.mcp, http_client=http), mode=mode) as client:
            yield client


on_one_server = pytest.mark.asyncio(loop_scope="module")
"""Marks tests that use `shared_server`."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_server(tmp_path_factory):
    """One server for all calls that change nothing."""
    settings = (
        "server: {max_small_body_bytes: 100000, base_url: 'https://gw.example', "
        "legacy_base_urls: ['https://old.example/api/v1']}\n"
    )
    async with server(tmp_path_factory.mktemp("shared_server"), settings=settings) as app:
        yield app


def result_of(result):
    return json.loads(result.content[0].text)


@pytest.mark.parametrize("mode", MODES)
async def test_an_image_is_generated_through_the_tools(tmp_path, mode):
    async with server(tmp_path) as app, assistant(app, mode) as client:
        if mode != "2026-07-28":  # a client with a pinned version does not request the server info
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
        assert result_of(listed)[0] == {
            "id": "sandbox/draw",
            "name": "Sandbox Draw",
            "description": result_of(listed)[0]["description"],
            "pricing": {"price": 0.01, "currency": "USD", "unit": 1},
        }
        assert listed.structured_content == {"result": result_of(listed)}
        model = result_of(await client.call_tool("get_model", {"model_id": "sandbox/draw"}))
        assert model["input_schema"]["required"] == ["prompt"]
        created = await client.call_tool(
            "generate_image", {"model_id": "sandbox/draw", "input": {"prompt": "a cat", "count": 2}}
        )
        assert not created.is_error
        assert result_of(created)["status"] == "succeeded"
        assert [image["context_type"] for image in result_of(created)["images"]] == ["image/png"] * 2
        again = result_of(await client.call_tool("get_generation", {"id": result_of(created)["id"]}))
        assert (again["model"], again["status"], again["cost"]) == ("sandbox/draw", "succeeded", 0.02)
        assert app.balance() == Decimal("99.98")


@pytest.mark.parametrize("mode", MODES)
@on_one_server
async def test_tools_are_annotated_as_read_only_and_not_destructive(shared_server, mode):
    async with assistant(shared_server, mode) as client:
        annotations = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
    looks = {name: hints.read_only_hint for name, hints in annotations.items()}
    assert looks == {"list_models": True, "get_model": True, "generate_image": False, "get_generation": True}
    assert {hints.destructive_hint for hints in annotations.values()} == {False}, "the default is destructive"


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
async def test_errors_are_results_with_exact_messages(shared_server, mode, tool, arguments, message):
    async with assistant(shared_server, mode) as client:
        result = await client.call_tool(tool, arguments)
        assert result.is_error
        assert [block.text for block in result.content] == [message]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_failed_generation_is_an_error_result(tmp_path, mode):
    answers = iter([(200, {"id": "j", "status": "starting"}), (200, {"status": "failed", "error": "NSFW content"})])
    async with server(tmp_path, slow=lambda *_: next(answers)) as app, assistant(app, mode) as client:
        result = await client.call_tool("generate_image", {"model_id": "slow/draw", "input": {"prompt": "a"}})
        assert result.is_error
        assert result.content[0].text == "image generation failed: NSFW content"
        assert result.structured_content["status"] == "failed"
        shown = result_of(await client.call_tool("get_generation", {"id": result.structured_content["id"].upper()}))
        assert (shown["status"], shown["error"], shown["images"]) == ("failed", "NSFW content", [])


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_an_unfinished_job_is_processing_and_blocks_no_other_request(tmp_path, mode, monkeypatch):
    monkeypatch.setattr("tollgate.tools.calls.WAIT_SECONDS", 1.0)
    async with (
        server(tmp_path, slow=lambda *_: (200, {"id": "j", "status": "processing"})) as app,
        assistant(app, mode) as client,
    ):
        waiting = asyncio.create_task(
            client.call_tool("generate_image", {"model_id": "slow/draw", "input": {"prompt": "a"}})
        )
        await asyncio.sleep(0.2)
        await app.get("/v1/images/models")
        assert not waiting.done()
        result = await waiting
        assert not result.is_error
        assert result_of(result) == {"id": result_of(result)["id"], "status": "processing"}
        assert (
            result_of(await client.call_tool("get_generation", {"id": result_of(result)["id"]}))["status"]
            == "processing"
        )


async def test_the_time_of_the_submission_counts_towards_the_wait(tmp_path):
    async with inprocess(
        tmp_path,
        providers={"slow": SLOW},
        apps={"slow": Provider(lambda *_: (200, {"id": "j", "status": "processing"}))},
    ) as app:
        jobs = jobs_of(app.services)
        submit = jobs.submissions._submit
        now = 0.0

        async def slowly(*given):
            nonlocal now
            now += 31
            return await submit(*given)

        jobs.tracked.clock, jobs.submissions._submit = lambda: now, slowly
        key = app.services.ledger.find_key(app.key)
        async with asyncio.timeout(20):
            result = await call_tool(
                app.services,
                Caller(key, "req_1"),
                "generate_image",
                {"model_id": "slow/draw", "input": {"prompt": "a"}},
            )
        assert result == {"id": result["id"], "status": "processing"}


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_progress_is_reported_on_request(tmp_path, mode):
    reports = []

    def upstream(method, path, body):
        """The job ends once three reports have arrived, however long that takes."""
        status = "succeeded" if len(reports) >= 3 else "processing"
        return 200, {"id": "j", "status": status, "images": ["https://pictures.example/1.png"]}

    async def record_progress(progress, total, message):
        reports.append((progress, total))

    async with (
        server(tmp_path, slow=upstream) as app,
        assistant(app, mode) as client,
    ):
        result = await client.call_tool(
            "generate_image", {"model_id": "slow/draw", "input": {"prompt": "a"}}, progress_callback=record_progress
        )
        assert result_of(result)["status"] == "succeeded"
    assert len(reports) >= 3
    assert [progress for progress, _ in reports] == sorted({progress for progress, _ in reports}), "it only increases"
    assert all(0 <= progress <= total for progress, total in reports)


REQUEST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


async def post(app, body=REQUEST, *, key=None, path="", **headers):
    """Sends a message over plain HTTP; headers that are None are omitted."""
    sent = {"authorization": f"Bearer {key or app.key}", "content-type": "application/json"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    async with httpx.AsyncClient(timeout=60) as http:
        return await http.post(
            app.base + path if path else app.mcp,
            headers={name: value for name, value in sent.items() if value is not None},
            content=body if isinstance(body, (bytes, str)) else json.dumps(body),
        )


@on_one_server
@pytest.mark.parametrize("accept", ["application/json", "*/*", "application/json, text/event-stream"])
async def test_a_message_is_answered_in_json_with_a_request_id(shared_server, accept):
    reply = await post(shared_server, accept=accept)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/json")
    assert len(reply.json()["result"]["tools"]) == 4
    assert reply.headers["x-request-id"].startswith("req_")


@on_one_server
@pytest.mark.parametrize("key", [None, "Bearer sk-tg-nope"])
async def test_a_missing_or_wrong_key_is_401_without_www_authenticate(shared_server, key):
    reply = await post(shared_server, authorization=key)
    assert (reply.status_code, reply.json()["success"]) == (401, False)
    assert "www-authenticate" not in reply.headers


@on_one_server
async def test_a_key_may_be_in_the_x_api_key_header(shared_server):
    assert (await post(shared_server, authorization=None, x_api_key=shared_server.key)).status_code == 200


@on_one_server
@pytest.mark.parametrize(
    ("host", "status", "word"),
    [
        ("gw.example", 200, None),
        ("old.example:8443", 200, None),
        ("localhost:9", 200, None),
        ("evil.example", 421, "host_refused"),
    ],
)
async def test_only_the_gateway_s_own_hosts_are_served(shared_server, host, status, word):
    reply = await post(shared_server, host=host)
    assert (reply.status_code, reply.headers.get("x-tollgate-error")) == (status, word)


@on_one_server
@pytest.mark.parametrize(
    ("origin", "status", "word"),
    [
        ("https://gw.example", 200, None),
        ("http://localhost:3000", 200, None),
        ("https://evil.example", 403, "origin_refused"),
        ("null", 403, "origin_refused"),
    ],
)
async def test_only_the_gateway_s_own_origins_are_served(shared_server, origin, status, word):
    reply = await post(shared_server, origin=origin)
    assert (reply.status_code, reply.headers.get("x-tollgate-error")) == (status, word)


@on_one_server
@pytest.mark.parametrize(
    ("body", "code", "word"), [(b"{", -32700, "invalid_request"), ({**REQUEST, "method": "nope"}, -32601, None)]
)
async def test_an_invalid_message_is_a_json_rpc_error(shared_server, body, code, word):
    """Every error status has `x-tollgate-error` (README), also one of the protocol layer."""
    reply = await post(shared_server, body)
    assert (reply.json()["error"]["code"], reply.headers.get("x-tollgate-error")) == (code, word)


@on_one_server
async def test_a_notification_is_accepted_without_an_answer(shared_server):
    assert (await post(shared_server, {"jsonrpc": "2.0", "method": "notifications/initialized"})).status_code == 202


@on_one_server
async def test_a_body_over_the_limit_is_413(shared_server):
    assert (await post(shared_server, b" " * 100_001)).status_code == 413


async def test_a_limit_that_a_reload_raised_is_that_of_the_next_message(tmp_path, monkeypatch):
    """The protocol layer kept the limit of the first message."""
    monkeypatch.chdir(tmp_path)  # files have the same names in a reload
    async with server(tmp_path, settings="server: {max_small_body_bytes: 1000}\n") as app:
        padding = b" " * 2000
        message = json.dumps({**REQUEST, "method": "tools/list"}).encode()
        assert (await post(app, message)).status_code == 200
        assert (await post(app, message + padding)).status_code == 413
        settings = (tmp_path / "gateway.yaml").read_text()
        (tmp_path / "gateway.yaml").write_text(
            settings.replace("max_small_body_bytes: 1000", "max_small_body_bytes: 9000")
        )
        assert (await app.opened.reloader.reload()).ok
        assert (await post(app, message + padding)).status_code == 200


@on_one_server
async def test_a_get_request_returns_the_server_info_or_a_stream(shared_server):
    headers = {"authorization": f"Bearer {shared_server.key}"}
    async with httpx.AsyncClient(timeout=60) as http:
        assert (await http.get(shared_server.mcp, headers=headers)).json() == {
            "name": "service-images",
            "version": "1.0.0",
            "transport": "streamable-http",
            "stateless": True,
        }
        async with http.stream(
            "GET", shared_server.mcp, headers=headers | {"accept": "text/event-stream"}
        ) as listening:
            answer = listening.status_code, listening.headers["content-type"]
            assert answer == (200, "text/event-stream; charset=utf-8")
            assert await anext(listening.aiter_text()) == ": listening\n\n"
        assert (await http.get(shared_server.mcp)).status_code == 401
        assert (await http.delete(shared_server.mcp, headers=headers)).status_code == 405


@on_one_server
async def test_a_message_has_the_content_types_of_other_requests(shared_server):
    headers = {"authorization": f"Bearer {shared_server.key}"}
    content = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}).encode()
    async with httpx.AsyncClient(timeout=60) as http:
        for kind in (None, "application/json; charset=utf-8", "text/json", "application/vnd.mcp+json"):
            more = {} if kind is None else {"content-type": kind}
            listed = await http.post(shared_server.mcp, content=content, headers=headers | more)
            assert listed.status_code == 200 and len(listed.json()["result"]["tools"]) == 4, kind
        plain = await http.post(shared_server.mcp, content=content, headers=headers | {"content-type": "text/plain"})
    assert (plain.status_code, plain.headers["x-tollgate-error"]) == (400, "unsupported_content_type")
    assert "send application/json" in plain.json()["message"]


async def test_a_listening_client_gets_comments_as_often_as_any_other_stream(tmp_path):
    async with server(tmp_path, settings="server: {keepalive_comment_seconds: 0.1}\n") as app:
        headers = {"authorization": f"Bearer {app.key}", "accept": "text/event-stream"}
        async with (
            httpx.AsyncClient(timeout=8) as http,  # less than the default interval
            http.stream("GET", app.mcp, headers=headers) as listening,
        ):
            lines = listening.aiter_lines()
            assert [await anext(lines) for _ in range(6)] == [": listening", ""] * 3


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
async def test_every_spelling_of_a_tool_call_counts_towards_the_rate_limit(tmp_path, spelled):
    async with server(tmp_path) as app:
        _, key = await app.services.ledger.create_key("default", rpm=2)
        body = json.dumps(CALL).encode().replace(b'"tools/call"', spelled)
        drawing = {"model_id": "sandbox/draw", "input": {"prompt": "a [[duration=0s]]"}}
        drawn = json.dumps(CALL | {"params": CALL["params"] | {"name": "generate_image", "arguments": drawing}})
        # an image counts once
        replies = [await post(app, each, key=key) for each in (drawn, body, body)]
        assert [reply.status_code for reply in replies] == [200, 200, 429]
        assert [reply.json()["result"]["isError"] for reply in replies[:2]] == [False, False]
        # not a call, so it does not count
        noted = REQUEST | {"params": {"_meta": {"note": "tools/call"}}}
        assert (await post(app, noted, key=key)).status_code == 200


async def test_a_tool_call_in_an_encoding_of_the_protocol_layer_counts_towards_the_limits(tmp_path):
    nan = json.dumps({**CALL, "params": {**CALL["params"], "arguments": {"x": float("nan")}}}).encode()
    wide = json.dumps({**CALL, "params": {**CALL["params"], **ENVELOPE}}).encode("utf-16")
    for body, headers in ((nan, {}), (wide, MODERN)):
        async with server(tmp_path, read_later=True) as app:
            _, key = await app.services.ledger.create_key("default", rpm=2)
            replies = [await post(app, body, key=key, **headers) for _ in range(3)]
            assert [reply.json()["result"]["isError"] for reply in replies] == [False, False, True]
            assert "Rate limit reached" in replies[2].json()["result"]["content"][0]["text"]
            record, key = await app.services.ledger.create_key("default", max_concurrent=1)
            with app.services.ledger.occupy(record) or pytest.fail("no slot"):
                refused = await post(app, body, key=key, **headers)
            assert "concurrent requests" in refused.json()["result"]["content"][0]["text"]
            admitted = await post(app, body, key=key, **headers)
            assert admitted.json()["result"]["isError"] is False and not app.services.ledger.concurrency._running


async def test_27_a_client_that_abandons_a_call_may_make_another(tmp_path):
    """Waiting for an image takes up to half a minute; a client that gives up must not be blocked by its own call."""
    drawing = {"model_id": "slow/draw", "input": {"prompt": "a"}}
    drawn = CALL | {"params": CALL["params"] | {"name": "generate_image", "arguments": drawing}}
    status = "processing"
    async with (
        server(tmp_path, slow=lambda *_: (200, {"id": "j", "status": status})) as app,
        httpx.AsyncClient(timeout=60) as http,
    ):
        _, key = await app.services.ledger.create_key("default", max_concurrent=1)
        headers = {"authorization": f"Bearer {key}"}
        with pytest.raises(httpx.ReadTimeout):
            await http.post(app.mcp, json=drawn, headers=headers, timeout=1)
        running = app.services.ledger.concurrency._running
        await until(lambda: not running)
        reply = await http.post(app.mcp, json=CALL, headers=headers)
        assert (reply.status_code, running) == (200, {})
        status = "failed"  # lets the test's server close, as nothing waits any more


@on_one_server
async def test_an_input_nested_too_deeply_is_an_error_result(shared_server):
    """The other generation's parser stops at 200 levels itself."""
    called = {
        **CALL,
        "params": {
            "name": "generate_image",
            "arguments": {"model_id": "sandbox/paint", "input": {"prompt": "a", "more": "deep"}},
            **ENVELOPE,
        },
    }
    body = json.dumps(called).encode().replace(b'"deep"', b"[" * 260 + b"]" * 260)
    reply = await post(shared_server, body, **MODERN | {"mcp-name": "generate_image"})
    result = reply.json()["result"]
    assert (result["isError"], result["content"][0]["text"]) == (
        True,
        "input validation failed: input is nested more than 199 levels deep",
    )


@on_one_server
async def test_a_message_with_too_many_values_is_rejected_before_it_is_parsed(shared_server):
    reply = await post(shared_server, {**REQUEST, "params": {"x": [[]] * 20_000}})
    assert (reply.status_code, reply.json()["message"]) == (
        400,
        "input validation failed: the message holds more than 20000 values",
    )


async def test_an_account_without_credits_is_403_before_any_json_rpc(tmp_path):
    async with server(tmp_path) as app:
        await app.services.ledger.grant("default", Decimal("-99.995"))
        reply = await post(app)
        assert (reply.status_code, reply.json()) == (
            403,
            {"success": False, "code": 403, "message": "insufficient quota"},
        )


async def test_held_credits_block_only_new_images(tmp_path):
    async with server(tmp_path) as app, assistant(app) as client:
        await app.services.ledger.grant("default", Decimal(-95))
        with await app.services.ledger.hold(KeyRecord("key_other", "default"), Decimal(5)):
            assert result_of(await client.call_tool("list_models", {}))
            refused = await client.call_tool(
                "generate_image", {"model_id": "sandbox/draw", "input": {"prompt": "a cat"}}
            )
            assert (refused.is_error, refused.content[0].text) == (True, "insufficient quota")


@on_one_server
@pytest.mark.parametrize("path", ["/v1/v1/images/mcp", "/api/v1/images/mcp", "/v1/images/mcp/"])
async def test_a_doubled_v1_and_a_legacy_prefix_reach_the_tools(shared_server, path):
    assert (await post(shared_server, path=path)).status_code == 200


async def test_an_unavailable_gateway_is_503_and_an_internal_error_is_500(tmp_path, monkeypatch):
    async with server(tmp_path) as app:
        with monkeypatch.context() as patch:
            patch.setattr(app.services.ledger, "_state", "shutting down")
            reply = await post(app)
            assert (reply.status_code, reply.json()) == (503, {"message": "Service temporarily unavailable"})
        with monkeypatch.context() as patch:
            patch.setattr(type(app.services.ledger), "find_key", lambda *_: 1 / 0)
            reply = await post(app)
            assert (reply.status_code, reply.json()) == (
                500,
                {"success": False, "code": 500, "message": "internal server error"},
            )
            assert reply.headers["x-request-id"].startswith("req_")
        assert (await post(app)).status_code == 200


async def test_a_stopping_gateway_refuses_calls_and_waits_for_none_that_ended(tmp_path, monkeypatch):
    async with server(tmp_path) as app:
        assert (await post(app)).status_code == 200
        monkeypatch.setattr(app.services, "draining", True)
        assert (await post(app)).status_code == 503
        assert app.services.metrics.running == 0


def test_a_tool_call_writes_nothing_to_the_log(tmp_path):
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
