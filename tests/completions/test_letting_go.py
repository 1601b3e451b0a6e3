"""A request that failed is let go of when it is answered, its body with it: failures come in swarms, with bodies of
megabytes, and Python looks for what refers to itself only after some thousands of them."""

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
from tollgate.completions.exchange import Exchange

CHUNK = b'data: {"id": "1", "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": null}]}\n\n'
ERROR = json.dumps({"error": {"message": "no", "type": "t"}}).encode()
JSON, SSE = "application/json", "text/event-stream"
FAILURES = {
    "refused": (400, JSON, [ERROR]),
    "failed": (500, JSON, [ERROR]),
    "limited": (429, JSON, [ERROR]),
    "our key": (401, JSON, [ERROR]),
    "a page": (200, "text/html", [b"<html>"]),
    "an error in a 200": (200, JSON, [ERROR]),
    "no json": (200, JSON, [b"{"]),
    "empty": (200, JSON, [b"{}"]),
    "an error event first": (200, SSE, [b"data: " + ERROR + b"\n\n"]),
    "an error event later": (200, SSE, [CHUNK, b"data: " + ERROR + b"\n\n"]),
    "cut": (200, SSE, [CHUNK]),
    "broken off": (200, SSE, [CHUNK, ConnectionResetError()]),
    "reset": (200, JSON, [ConnectionResetError()]),
}


def left(kind: type = Exchange) -> int:
    """How many requests, of those made since the collector rests, are still in memory: what is new stays in the
    youngest generation then, and the whole run's objects need not be gone through."""
    return sum(type(each) is kind for each in gc.get_objects(0))


async def asked(here, dialect: str, models: list[str], count: int = 3) -> None:
    for model in models:
        for stream in (False, True)[: 1 + (dialect != "embeddings")]:
            for _ in range(count):
                body = {**ASKS[dialect], "model": model} | ({"stream": True} if stream else {})
                await here.post(PATHS[dialect], body)
    await here.services.settlements.drain(5)
    await asyncio.sleep(0.05)  # what ends with a request has its turn


@pytest.fixture
def uncollected():
    """Without the collector: what is gone is gone because nobody had it any more."""
    gc.collect(0)  # what was there before is in an older generation
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failed_request_is_let_go_of(tmp_path, uncollected, failure):
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
            before = left()
            await asked(here, dialect, [f"{name}/m" for name in protocols])
            assert left() == before, dialect


@pytest.mark.parametrize("end", ["whole", "cut"])
async def test_an_answer_that_was_put_together_here_is_let_go_of(tmp_path, uncollected, end):
    blocks = [CHUNK, CHUNK.replace(b"null", b'"stop"'), b"data: [DONE]\n\n"][: 3 if end == "whole" else 1]
    gathered = provider("app://acme/v1", "chat", more="can: {whole: false}")
    app = replying(blocks=blocks, headers={"content-type": SSE})
    async with inprocess(tmp_path, providers={"acme": gathered}, apps={"acme": app}) as here:
        for _ in range(3):
            told = await here.post(PATHS["chat"], ASKS["chat"])
            assert told.status_code == (200 if end == "whole" else 500)
        await asyncio.sleep(0.05)
        assert left() == 0


async def test_a_request_that_reached_nobody_is_let_go_of(tmp_path, uncollected):
    nowhere = provider("http://127.0.0.1:1/v1", "chat", model="acme/m")
    async with inprocess(tmp_path, providers={"acme": nowhere}) as here:
        await asked(here, "chat", ["acme/m"])
        assert left() == 0


@pytest.mark.parametrize("status", [200, 400, 500])
async def test_failed_embeddings_are_let_go_of(tmp_path, uncollected, status):
    async def app(method, path, headers, body):
        async def answer() -> AsyncIterator[bytes]:
            yield ERROR

        return status, {"content-type": JSON}, answer()

    embedder = provider("app://acme/v1", "embeddings", model="acme/embed", lines="    type: embedding")
    embedder = embedder.replace("    max_output: 32000\n", "")
    async with inprocess(tmp_path, providers={"acme": embedder}, apps={"acme": app}) as here:
        for _ in range(3):
            assert (await here.post("/v1/embeddings", {"model": "acme/embed", "input": "x"})).status_code in (400, 500)
        await asyncio.sleep(0.05)
        assert left() == 0


async def test_a_request_that_is_refused_here_is_let_go_of(tmp_path, uncollected):
    nobody = provider("app://acme/v1", "chat")
    async with inprocess(tmp_path, providers={"acme": nobody}, apps={}) as here:
        wrongs = ({"model": "no/model"}, {"messages": []}, {"messages": "x"}, {"n": "x"}, {"previous_response_id": "x"})
        for wrong in wrongs:
            for dialect in ("chat", "messages", "responses"):
                await here.post(PATHS[dialect], {**ASKS[dialect], **wrong})
        await asyncio.sleep(0.05)
        assert left() == 0


async def test_the_sandbox_lets_go_of_what_it_refuses(tmp_path, uncollected):
    async with inprocess(tmp_path) as here:
        before = left(FrameType)
        for _ in range(20):
            body = {**ASKS["chat"], "model": "sandbox/echo", "messages": [{"role": "nobody", "content": "x"}]}
            assert (await here.post(PATHS["chat"], body)).status_code == 400
        assert left(FrameType) < before + 20


@pytest.mark.parametrize("routes", [1, 2])
async def test_a_large_body_is_let_go_of_as_soon_as_nobody_can_need_it(tmp_path, routes):
    """While an answer is waited for it is there as parsed, as sent, and as it came where another route may get it."""
    seen = []
    size = 8_000_000

    async def app(method, path, headers, body):
        (exchange,) = here.services.live
        seen.append((bool(exchange.inbound.body), (tracemalloc.get_traced_memory()[0] - before) / size))

        async def answer():
            yield b'data: {"id": "1", "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": null}]}\n\n'
            await asyncio.sleep(0.01)
            seen.append((bool(exchange.inbound.body), 0))
            yield b"data: [DONE]\n\n"

        return 200, {"content-type": "text/event-stream"}, answer()

    names = ("acme", "other")[:routes]
    async with inprocess(
        tmp_path,
        providers={name: provider(f"app://{name}/v1", "chat", name=name) for name in names},
        apps=dict.fromkeys(names, app),
    ) as here:
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * size}}
        body = json.dumps(
            {**ASKS["chat"], "model": "acme/one", "stream": True, "messages": [{"role": "user", "content": [picture]}]}
        ).encode()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        try:
            assert (await here.post(PATHS["chat"], body)).status_code == 200
        finally:
            tracemalloc.stop()
    (waiting, copies), (streaming, _) = seen
    assert (waiting, streaming) == (routes == 2, False)
    assert copies < 1.2 + routes
