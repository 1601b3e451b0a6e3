"""A failed request releases its memory with its answer: failures come in bursts with bodies of megabytes, and Python
collects reference cycles only after some thousands of them."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections.abc import AsyncIterator
from types import FrameType

import pytest

from conformance.upstreams import ASKS, PATHS, provider
from support.inprocess import inprocess, replying
from support.waiting import SECONDS
from tollgate.completions.exchange import Exchange

CHUNK = b'data: {"id": "1", "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": null}]}\n\n'
ERROR = json.dumps({"error": {"message": "no", "type": "t"}}).encode()
JSON, SSE = "application/json", "text/event-stream"
FAILURES = {
    "rejected": (400, JSON, [ERROR]),
    "failed": (500, JSON, [ERROR]),
    "limited": (429, JSON, [ERROR]),
    "rejected key": (401, JSON, [ERROR]),
    "an HTML page": (200, "text/html", [b"<html>"]),
    "an error in a 200": (200, JSON, [ERROR]),
    "invalid JSON": (200, JSON, [b"{"]),
    "empty": (200, JSON, [b"{}"]),
    "an error event first": (200, SSE, [b"data: " + ERROR + b"\n\n"]),
    "an error event later": (200, SSE, [CHUNK, b"data: " + ERROR + b"\n\n"]),
    "truncated": (200, SSE, [CHUNK]),
    "broken off by a reset": (200, SSE, [CHUNK, ConnectionResetError()]),
    "reset": (200, JSON, [ConnectionResetError()]),
}


def alive(kind: type = Exchange) -> int:
    """How many objects of this type, created since the collector was disabled, are still in memory. New objects stay in
    the youngest generation, so only those are searched."""
    return sum(type(each) is kind for each in gc.get_objects(0))


async def send_requests(here, dialect: str, models: list[str], count: int = 3) -> None:
    for model in models:
        for stream in (False, True)[: 1 + (dialect != "embeddings")]:
            for _ in range(count):
                body = {**ASKS[dialect], "model": model} | ({"stream": True} if stream else {})
                await here.post(PATHS[dialect], body)
    await here.services.settlements.drain(SECONDS)


async def settled(kind: type = Exchange, most: int = 0) -> int:
    """How many objects are alive after the tasks that end with a request have run."""
    for _ in range(500):
        if alive(kind) <= most:
            break
        await asyncio.sleep(0.01)
    return alive(kind)


@pytest.fixture
def without_collector():
    """Disables the garbage collector: what is freed was freed by its reference count."""
    gc.collect(0)  # older objects move to an older generation
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failed_request_is_freed(tmp_path, without_collector, failure):
    status, kind, blocks = FAILURES[failure]

    async def app(method, path, headers, body):
        async def answer() -> AsyncIterator[bytes]:
            for block in blocks:
                if isinstance(block, Exception):
                    raise block
                yield block

        return status, {"content-type": kind}, answer()

    protocols = ("chat", "messages", "responses")
    async with inprocess(
        tmp_path,
        providers={name: provider(f"app://{name}/v1", name, name=name, model=f"{name}/m") for name in protocols},
        apps=dict.fromkeys(protocols, app),
        settings="retry: {cooldown_failures: 1000}\n",
    ) as here:
        for dialect in protocols:
            before = alive()
            await send_requests(here, dialect, [f"{name}/m" for name in protocols])
            assert await settled(most=before) == before, dialect


@pytest.mark.parametrize("end", ["whole", "cut"])
async def test_a_gathered_answer_is_freed(tmp_path, without_collector, end):
    blocks = [CHUNK, CHUNK.replace(b"null", b'"stop"'), b"data: [DONE]\n\n"][: 3 if end == "whole" else 1]
    gathered = provider("app://acme/v1", "chat", more="can: {whole: false}")
    app = replying(blocks=blocks, headers={"content-type": SSE})
    async with inprocess(tmp_path, providers={"acme": gathered}, apps={"acme": app}) as here:
        for _ in range(3):
            reply = await here.post(PATHS["chat"], ASKS["chat"])
            assert reply.status_code == (200 if end == "whole" else 500)
        assert await settled() == 0


async def test_a_request_to_an_unreachable_upstream_is_freed(tmp_path, without_collector):
    unreachable = provider("http://127.0.0.1:1/v1", "chat", model="acme/m")
    async with inprocess(tmp_path, providers={"acme": unreachable}) as here:
        await send_requests(here, "chat", ["acme/m"])
        assert await settled() == 0


@pytest.mark.parametrize("status", [200, 400, 500])
async def test_failed_embeddings_are_freed(tmp_path, without_collector, status):
    async def app(method, path, headers, body):
        async def answer() -> AsyncIterator[bytes]:
            yield ERROR

        return status, {"content-type": JSON}, answer()

    embedder = provider("app://acme/v1", "embeddings", model="acme/embed", lines="    type: embedding")
    embedder = embedder.replace("    max_output: 32000\n", "")
    async with inprocess(tmp_path, providers={"acme": embedder}, apps={"acme": app}) as here:
        for _ in range(3):
            reply = await here.post("/v1/embeddings", {"model": "acme/embed", "input": "x"})
            assert reply.status_code == (400 if status == 400 else 500)
        assert await settled() == 0


async def test_a_request_rejected_by_the_gateway_is_freed(tmp_path, without_collector):
    unused = provider("app://acme/v1", "chat")
    async with inprocess(tmp_path, providers={"acme": unused}, apps={}) as here:
        invalid_fields = (
            {"model": "no/model"},
            {"messages": []},
            {"messages": "x"},
            {"n": "x"},
            {"previous_response_id": "x"},
        )
        for fields in invalid_fields:
            for dialect in ("chat", "messages", "responses"):
                await here.post(PATHS[dialect], {**ASKS[dialect], **fields})
        assert await settled() == 0


async def test_the_sandbox_frees_rejected_requests(tmp_path, without_collector):
    async with inprocess(tmp_path) as here:
        before = alive(FrameType)
        for _ in range(20):
            body = {**ASKS["chat"], "model": "sandbox/echo", "messages": [{"role": "nobody", "content": "x"}]}
            assert (await here.post(PATHS["chat"], body)).status_code == 400
        assert alive(FrameType) < before + 20


@pytest.mark.parametrize(
    ("routes", "more"),
    [(1, ""), (2, ""), (1, "auth: {kind: signed, adds: {headers: {x-signature: words}}}")],
    ids=["the only route", "two routes", "a signed request"],
)
async def test_a_large_body_is_freed_as_soon_as_no_route_needs_it(tmp_path, routes, more):
    """While waiting for the answer there are the parsed and the sent body, and the received one only if another route
    may need it; while the answer arrives, only the parsed one."""
    seen = []
    size = 8_000_000

    async def app(method, path, headers, body):
        (exchange,) = here.services.live

        def look():
            seen.append((bool(exchange.inbound.body), (tracemalloc.get_traced_memory()[0] - before) / size))

        look()
        del body

        async def answer():
            yield b'data: {"id": "1", "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": null}]}\n\n'
            await asyncio.sleep(0.01)
            look()
            yield b"data: [DONE]\n\n"

        return 200, {"content-type": "text/event-stream"}, answer()

    names = ("acme", "other")[:routes]
    async with inprocess(
        tmp_path,
        providers={name: provider(f"app://{name}/v1", "chat", name=name, lines=more) for name in names},
        apps=dict.fromkeys(names, app),
    ) as here:
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * size}}
        body = json.dumps(
            {**ASKS["chat"], "model": "acme/one", "stream": True, "messages": [{"role": "user", "content": [image]}]}
        ).encode()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        try:
            assert (await here.post(PATHS["chat"], body)).status_code == 200
        finally:
            tracemalloc.stop()
    (waiting, copies), (streaming, left) = seen
    assert (waiting, streaming) == (routes == 2, False)
    assert copies < 1.2 + routes and left < 1.2
