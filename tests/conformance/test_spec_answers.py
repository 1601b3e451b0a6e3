"""SPEC, endpoints: successful answers, whole and streamed, embeddings, image jobs and the image tools."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from conformance.shapes import shape
from support.inprocess import inprocess, replying
from support.places import SANDBOX_IMAGES
from support.usage_files import rows_by_id
from tollgate.config.model import Gateway
from tollgate.config.provider_schema import DISCOVER_EVERY
from tollgate.images.service import RECENT
from tollgate.ledger import Generation
from tollgate.tools.calls import WAIT_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="module")

ONLY = """
provider: only-{name}
url: app://sandbox/v1
speaks: {{{name}: {path}}}
models:
  only/{name}: {{upstream: {upstream}, context: 100000, max_output: 9000, type: {type}, price: {{prompt: "1", completion: "2", unit: 1000000}}}}
"""  # noqa: E501
PROVIDERS = {
    f"only-{name}": ONLY.format(name=name, path=path, upstream=upstream, type=kind)
    for name, path, upstream, kind in (
        ("chat", "/chat/completions", "reasoner", "chat"),
        ("responses", "/responses", "reasoner", "chat"),
        ("messages", "/messages", "reasoner", "chat"),
    )
}
MODELS = ["sandbox/echo", "sandbox/reasoner", "only/chat", "only/responses", "only/messages"]
HELLO = [{"role": "user", "content": "hello"}]
COUNTS = {"prompt_tokens": int, "completion_tokens": int, "total_tokens": int}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory):
    async with inprocess(
        tmp_path_factory.mktemp("answers"), providers={**PROVIDERS, "sandbox-images": SANDBOX_IMAGES}
    ) as opened:
        yield opened


def events(text: str) -> list[str]:
    """The data of each event of a chat stream; every block is one `data:` line (or a comment)."""
    blocks = text.removesuffix("\n\n").split("\n\n")
    assert all("\n" not in block and block.startswith(("data: ", ":")) for block in blocks), text
    return [block[6:] for block in blocks if block.startswith("data: ")]


@pytest.mark.parametrize("model", MODELS)
async def test_a_chat_completion_has_the_fields_of_the_specification(here, model):
    body = (await here.post("/v1/chat/completions", {"model": model, "messages": HELLO})).json()
    assert (
        shape(
            {name: body[name] for name in ("id", "object", "created", "model")},
            {"id": str, "object": str, "created": int, "model": str},
        )
        == []
    )
    assert body["object"] == "chat.completion" and body["id"] and body["created"] > 1_700_000_000
    assert body["model"] in ("echo", "reasoner"), "the provider's own id, which can lack the prefix"
    [choice] = body["choices"]
    assert (
        choice["index"] == 0
        and choice["message"]["role"] == "assistant"
        and choice["message"]["content"] == "You said: hello"
    )
    assert choice["finish_reason"] == "stop" and "logprobs" in choice and choice["logprobs"] is None
    usage = body["usage"]
    assert (
        shape({name: usage[name] for name in COUNTS}, COUNTS) == []
        and usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stream_options": {"include_usage": True}},
        {"stream_options": {"include_usage": False}},
        {"stream_options": None},
    ],
    ids=str,
)
@pytest.mark.parametrize("model", MODELS)
async def test_a_chat_stream_ends_with_usage_on_the_finishing_chunk_and_done(here, model, options):
    reply = await here.post("/v1/chat/completions", {"model": model, "messages": HELLO, "stream": True, **options})
    assert reply.headers["content-type"].startswith("text/event-stream")
    *chunks, done = events(reply.text)
    assert done == "[DONE]" and reply.text.endswith("data: [DONE]\n\n")
    bodies = [json.loads(chunk) for chunk in chunks]
    for body in bodies:
        assert (
            body["object"] == "chat.completion.chunk"
            and body["id"] == bodies[0]["id"]
            and isinstance(body["created"], int)
            and body["model"]
        )
        assert body["choices"] and all(
            isinstance(choice["index"], int) and isinstance(choice["delta"], dict) for choice in body["choices"]
        )
    assert "".join(body["choices"][0]["delta"].get("content") or "" for body in bodies) == "You said: hello"
    assert [body["choices"][0].get("finish_reason") for body in bodies if body["choices"][0].get("finish_reason")] == [
        "stop"
    ]
    last = bodies[-1]
    assert (
        last["choices"][0]["finish_reason"] == "stop"
        and shape({name: last["usage"][name] for name in COUNTS}, COUNTS) == []
    )
    assert not any(body.get("usage") for body in bodies[:-1])
    whole = (await here.post("/v1/chat/completions", {"model": model, "messages": HELLO})).json()
    assert {name: last["usage"][name] for name in COUNTS} == {name: whole["usage"][name] for name in COUNTS}


@pytest.mark.parametrize("model", MODELS)
async def test_a_failure_during_a_stream_is_one_error_event_without_done(here, model):
    reply = await here.post(
        "/v1/chat/completions",
        {"model": model, "stream": True, "messages": [{"role": "user", "content": "hello [[cut=4 tokens=9]]"}]},
    )
    *_, last = events(reply.text)
    body = json.loads(last)
    assert (
        set(body) == {"error"}
        and set(body["error"]) == {"message"}
        and body["error"]["message"]
        and "[DONE]" not in reply.text
    )


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_responses_and_messages_answer_on_every_model(here, model, stream):
    reply = await here.post("/v1/responses", {"model": model, "input": "hello", "stream": stream})
    body = (
        json.loads(reply.text.rpartition("event: response.completed\ndata: ")[2])["response"]
        if stream
        else reply.json()
    )
    assert (body["object"], body["status"], body["output"][-1]["content"][0]["text"]) == (
        "response",
        "completed",
        "You said: hello",
    )
    assert body["usage"]["total_tokens"] == body["usage"]["input_tokens"] + body["usage"]["output_tokens"] > 0
    reply = await here.post("/v1/messages", {"model": model, "max_tokens": 500, "messages": HELLO, "stream": stream})
    if stream:
        assert reply.text.startswith("event: message_start\n") and reply.text.rstrip().endswith(
            'data: {"type":"message_stop"}'
        )
        text = "".join(
            json.loads(block.partition("data: ")[2])["delta"].get("text", "")
            for block in reply.text.split("\n\n")
            if block.startswith("event: content_block_delta")
        )
        assert text == "You said: hello"
    else:
        body = reply.json()
        assert (body["type"], body["role"], body["stop_reason"], body["content"][-1]["text"]) == (
            "message",
            "assistant",
            "end_turn",
            "You said: hello",
        )


@pytest.mark.parametrize(
    ("given", "count"),
    [("hello", 1), (["hello", "there", "🙂"], 3), ([[15339, 1917], [1]], 2), ([1, 2, 3], 1)],
    ids=["text", "texts", "token arrays", "one token array"],
)
@pytest.mark.parametrize(
    "options",
    [{}, {"encoding_format": "float"}, {"encoding_format": "base64"}, {"dimensions": 256}, {"user": "u"}],
    ids=str,
)
async def test_embeddings_are_floats_with_usage_for_any_options(here, given, count, options):
    body = (await here.post("/v1/embeddings", {"model": "sandbox/embed", "input": given, **options})).json()
    assert (body["object"], isinstance(body["model"], str), len(body["data"])) == ("list", True, count)
    for at, item in enumerate(body["data"]):
        assert (item["object"], item["index"], len(item["embedding"])) == (
            "embedding",
            at,
            options.get("dimensions", 1536),
        )
        assert all(type(number) in (float, int) for number in item["embedding"])
    assert (
        shape(body["usage"], {"prompt_tokens": int, "total_tokens": int}) == []
        and body["usage"]["prompt_tokens"] == body["usage"]["total_tokens"] > 0
    )


async def test_an_unsupported_embedding_dimension_is_rejected_by_the_provider(here):
    reply = await here.post("/v1/embeddings", {"model": "sandbox/embed", "input": "hi", "dimensions": 7})
    assert reply.status_code == 400 and reply.json()["message"].startswith("failed to bind request: ")


async def test_missing_usage_of_embeddings_is_estimated_and_base64_is_decoded(tmp_path):
    vector = base64.b64encode(struct.pack("<3f", 0.5, -1.0, 0.25)).decode()
    answer = {"object": "list", "model": "m", "data": [{"object": "embedding", "index": 0, "embedding": vector}]}
    yaml = (
        "provider: acme\nurl: app://acme/v1\nspeaks: {embeddings: /e}\nmodels: {acme/e: {upstream: e, type: embedding, "
        "context: 100, encoding: cl100k_base}}\n"
    )
    async with inprocess(
        tmp_path, providers={"acme": yaml}, apps={"acme": replying(200, json.dumps(answer).encode())}
    ) as here:
        body = (
            await here.post("/v1/embeddings", {"model": "acme/e", "input": "hello world", "encoding_format": "base64"})
        ).json()
        assert body["data"] == [{"object": "embedding", "index": 0, "embedding": [0.5, -1.0, 0.25]}]
        assert body["usage"] == {"prompt_tokens": 2, "total_tokens": 2}


# ---- image jobs -----------------------------------------------------------------------------------------------------
async def finished(here: Any, job_id: str) -> dict[str, Any]:
    while True:
        body = (await here.get(f"/v1/images/generations/{job_id}")).json()
        assert {**body, "data": 0} == {"success": True, "code": 200, "data": 0}
        if body["data"]["status"] not in ("starting", "processing"):
            return body["data"]
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("output", ["url", "base64"])
async def test_an_image_job_goes_from_starting_to_succeeded(here, output):
    made = await here.post(
        "/v1/images/generations",
        {"model": "sandbox/draw", "input": {"prompt": "a cat", "output": output}, "webhook": "https://example.org/h"},
    )
    body = made.json()
    assert {**body, "data": 0} == {"success": True, "code": 200, "data": 0}
    assert shape(body["data"], {"id": str, "model": str, "status": str}) == [] and body["data"]["status"] == "starting"
    assert str(uuid.UUID(body["data"]["id"])) == body["data"]["id"]
    job = await finished(here, body["data"]["id"])
    assert (job["status"], job["model"], job["cost"]) == ("succeeded", "sandbox/draw", 0.01) and "error" not in job
    [image] = job["images"]
    kinds = {"url": str, "data": str, "context_type": str, "width": int, "height": int}
    assert (
        set(image) <= set(kinds)
        and {"url", "data"} & set(image)
        and all(isinstance(value, kinds[name]) for name, value in image.items())
    )
    assert (await here.get(f"/v1/images/generations/{job['id'].upper()}")).json()["data"] == job


async def test_a_failed_job_reports_its_cause_costs_nothing_and_is_not_listed(here):
    before = here.balance()
    made = await here.post(
        "/v1/images/generations", {"model": "sandbox/draw", "input": {"prompt": "a cat [[fail=too_furry]]"}}
    )
    job = await finished(here, made.json()["data"]["id"])
    assert job == {"id": job["id"], "model": "sandbox/draw", "status": "failed", "error": "too furry"}
    assert here.balance() == before
    assert job["id"] not in [each["id"] for each in (await here.get("/v1/images/generations")).json()["data"]]


async def test_the_list_holds_the_newest_hundred_successes_of_the_account(here):
    ledger = here.services.ledger
    await ledger.create_account("painter")
    await ledger.grant("painter", here.balance())
    record, key = await ledger.create_key("painter")
    start = datetime.now(UTC) - timedelta(hours=1)
    ids = []
    for number in range(105):
        status = {3: "failed", 4: "canceled"}.get(number, "succeeded")
        job = Generation(
            id=str(uuid.uuid4()),
            account_id="painter",
            key_id=record.id,
            request_id=f"r{number}",
            model="sandbox/draw",
            provider="sandbox-images",
            status=status,
            input={},
            created_at=start + timedelta(seconds=number),
            updated_at=start,
            images=[{"url": "https://e.org/a.png"}] if status == "succeeded" else [],
        )
        await ledger.generations.create(job)
        if status == "succeeded":
            ids.append(job.id)
    await ledger.settle()
    data = (await here.get("/v1/images/generations", key=key)).json()["data"]
    assert [job["id"] for job in data] == ids[::-1][:100]
    assert all({"id", "model", "status", "images"} <= set(job) and job["status"] == "succeeded" for job in data)
    assert all(job["id"] not in ids for job in (await here.get("/v1/images/generations")).json()["data"])
    reply = await here.get(f"/v1/images/generations/{ids[0]}")
    assert (reply.status_code, reply.json()["message"]) == (404, "missing ID parameter"), (
        "another account's job does not exist"
    )


# ---- image tools ----------------------------------------------------------------------------------------------------
async def call(here: Any, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    reply = await here.post(
        "/v1/images/mcp",
        {"jsonrpc": "2.0", "id": 7, "method": method, "params": params or {}},
        accept="application/json, text/event-stream",
    )
    assert reply.status_code == 200 and reply.headers["content-type"] == "application/json", reply.text
    body = reply.json()
    assert (body["jsonrpc"], body["id"]) == ("2.0", 7)
    return body["result"]


async def tool(here: Any, name: str, **arguments: Any) -> tuple[bool, Any]:
    result = await call(here, "tools/call", {"name": name, "arguments": arguments})
    [block] = result["content"]
    assert block["type"] == "text"
    flagged = result.get("isError", False)
    return flagged, block["text"] if flagged else json.loads(block["text"])


async def test_the_tool_server_names_itself_and_its_four_tools(here):
    about = await call(
        here,
        "initialize",
        {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    )
    assert {name: about["serverInfo"][name] for name in ("name", "version")} == {
        "name": "service-images",
        "version": "1.0.0",
    }
    tools = {each["name"]: each["inputSchema"] for each in (await call(here, "tools/list"))["tools"]}
    assert {
        name: (sorted(about.get("properties", {})), about.get("required", [])) for name, about in tools.items()
    } == {
        "list_models": ([], []),
        "get_model": (["model_id"], ["model_id"]),
        "generate_image": (["input", "model_id"], ["model_id", "input"]),
        "get_generation": (["id"], ["id"]),
    }


async def test_the_tools_work_in_their_recommended_order(here):
    flagged, models = await tool(here, "list_models")
    assert not flagged and [set(model) for model in models] == [{"id", "name", "description", "pricing"}] * 2
    assert models[0]["pricing"] == {"price": 0.01, "currency": "USD", "unit": 1}
    _, model = await tool(here, "get_model", model_id="sandbox/draw")
    assert (
        set(model) == {"id", "name", "description", "pricing", "input_schema"}
        and model["input_schema"]["properties"]["prompt"]["type"] == "string"
    )
    _, made = await tool(here, "generate_image", model_id="sandbox/draw", input={"prompt": "a cat"})
    assert set(made) == {"id", "status", "images"} and made["status"] == "succeeded" and made["images"]
    _, job = await tool(here, "get_generation", id=made["id"])
    assert (
        set(job) == {"id", "model", "status", "images", "cost"}
        and job["cost"] == 0.01
        and job["images"] == made["images"]
    )


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("get_model", {}, "model_id is required"),
        ("get_model", {"model_id": ""}, "model_id is required"),
        ("get_model", {"model_id": None}, "model_id is required"),
        ("get_model", {"model_id": 5}, "model_id is required"),
        ("generate_image", {}, "model_id is required"),
        ("generate_image", {"input": {}}, "model_id is required"),
        ("get_model", {"model_id": "no/such"}, "model not found: no/such"),
        ("get_model", {"model_id": "sandbox/echo"}, "model not found: sandbox/echo"),
        ("generate_image", {"model_id": "no/such", "input": {}}, "model not found: no/such"),
        ("generate_image", {"model_id": "sandbox/draw"}, "input is required and must be an object"),
        ("generate_image", {"model_id": "sandbox/draw", "input": None}, "input is required and must be an object"),
        ("generate_image", {"model_id": "sandbox/draw", "input": "a cat"}, "input is required and must be an object"),
        ("generate_image", {"model_id": "sandbox/draw", "input": [1]}, "input is required and must be an object"),
        ("get_generation", {}, "invalid id format"),
        ("get_generation", {"id": "nonsense"}, "invalid id format"),
        ("get_generation", {"id": 5}, "invalid id format"),
        ("get_generation", {"id": "../../etc/passwd"}, "invalid id format"),
    ],
    ids=str,
)
async def test_tool_failures_are_results_with_an_error_flag_and_this_message(here, name, arguments, message):
    assert await tool(here, name, **arguments) == (True, message)


async def test_other_tool_failures_have_an_error_flag_too(here):
    for name, arguments, start in (
        ("generate_image", {"model_id": "sandbox/draw", "input": {}}, "input validation failed"),
        ("get_generation", {"id": str(uuid.uuid4())}, "generation not found"),
        ("paint_it_black", {}, "unknown tool"),
    ):
        flagged, text = await tool(here, name, **arguments)
        assert flagged and text.startswith(start)


# ---- rows -----------------------------------------------------------------------------------------------------------
async def test_every_answer_writes_a_row_with_account_key_model_tokens_and_cost(here):
    for path, body in {
        "/v1/chat/completions": {"model": "sandbox/echo", "messages": HELLO},
        "/v1/responses": {"model": "sandbox/echo", "input": "hello"},
        "/v1/messages": {"model": "sandbox/echo", "max_tokens": 500, "messages": HELLO},
        "/v1/embeddings": {"model": "sandbox/embed", "input": "hello"},
    }.items():
        assert (await here.post(path, body)).status_code == 200
    made = await here.post("/v1/images/generations", {"model": "sandbox/draw", "input": {"prompt": "a cat"}})
    await finished(here, made.json()["data"]["id"])
    await tool(here, "generate_image", model_id="sandbox/draw", input={"prompt": "a cat"})
    rows = list((await rows_by_id(here, here.services.runtime.current.gateway.store.directory.parent)).values())
    assert {row["endpoint"] for row in rows} == {"chat", "responses", "messages", "embeddings", "images", "mcp"}
    for row in rows:
        assert row["account_id"] and row["key_id"] and row["model"] and row["request_id"] and row["outcome"]
        assert row["outcome"] != "ok" or row["cost"] > 0


async def test_the_limits_are_those_of_the_specification():
    """Its table of limits; other tests set shorter times and lower numbers to be fast."""
    gateway = Gateway(Path())
    assert gateway.credits.minimum == Decimal("0.01")
    assert gateway.retry.attempts == 3
    assert (RECENT, WAIT_SECONDS, DISCOVER_EVERY) == (100, 30, 3600)
