"""An answer that failed before any output, of which the provider reported no usage, costs nothing: whole or streamed,
native or converted. What was received is estimated (DESIGN section 5)."""

from __future__ import annotations

import asyncio
import json

import pytest

from completions.failing import CREATED, DELTA, FAILED, ITEM, OPENINGS, PROVIDER, SAID, SENT, sse
from conformance.upstreams import ASKS, PATHS
from support.inprocess import SSE, inprocess, replying
from support.usage_files import rows
from support.waiting import until


@pytest.mark.parametrize("ends", ["breaks off", "hangs"])
@pytest.mark.parametrize("speaks", OPENINGS, ids=[each.split(":")[0] for each in OPENINGS])
@pytest.mark.parametrize("client", PATHS)
async def test_a_stream_that_ends_before_any_output_costs_nothing(tmp_path, client, speaks, ends):
    async def app(method, path, headers, body):
        async def blocks():
            for block in OPENINGS[speaks]:
                yield block
            if ends == "hangs":
                await asyncio.sleep(30)

        return 200, SSE, blocks()

    async with inprocess(tmp_path, providers={"acme": PROVIDER % speaks}, apps={"acme": app}) as here:
        before = here.balance()
        await here.post(PATHS[client], {**ASKS[client], "model": "acme/one", "stream": True})
        assert here.balance() == before
        (row,) = await rows(here, tmp_path)
    assert row["outcome"] == ("timeout" if ends == "hangs" else "upstream_error")
    assert (row["input_tokens"], row["output_tokens"], row["cost"], row["estimated"]) == (0, 0, 0, False)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", PATHS)
async def test_a_response_that_failed_before_any_output_costs_nothing(tmp_path, client, stream):
    failed = {"type": "response.failed", "sequence_number": 1, "response": FAILED}
    answer = (
        replying(blocks=sse(CREATED, failed), headers=SSE) if stream else replying(body=json.dumps(FAILED).encode())
    )
    async with inprocess(tmp_path, providers={"acme": PROVIDER % "responses: /x"}, apps={"acme": answer}) as here:
        await here.post(PATHS[client], {**ASKS[client], "model": "acme/one", "stream": stream})
        (row,) = await rows(here, tmp_path)
    assert (row["outcome"], row["cost"], row["estimated"]) == ("upstream_error", 0, False)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_the_output_of_a_failed_response_is_estimated_where_the_client_gets_it(tmp_path, stream):
    response = {**FAILED, "output": [SAID]}
    failed = {"type": "response.failed", "sequence_number": 3, "response": response}
    answer = (
        replying(blocks=sse(CREATED, ITEM, DELTA, failed), headers=SSE)
        if stream
        else replying(body=json.dumps(response).encode())
    )
    async with inprocess(tmp_path, providers={"acme": PROVIDER % "responses: /x"}, apps={"acme": answer}) as here:
        reply = await here.post(PATHS["responses"], {**ASKS["responses"], "model": "acme/one", "stream": stream})
        assert "Hello there" in reply.text
        (row,) = await rows(here, tmp_path)
    assert (row["outcome"], row["output_tokens"], row["estimated"]) == ("upstream_error", 2, True)
    assert row["input_tokens"] > 0


async def test_reported_usage_of_a_failed_answer_is_billed(tmp_path):
    used = {"input_tokens": 10, "output_tokens": 0, "total_tokens": 10}
    failed = {"type": "response.failed", "sequence_number": 1, "response": {**FAILED, "usage": used}}
    answer = replying(blocks=sse(CREATED, failed), headers=SSE)
    async with inprocess(tmp_path, providers={"acme": PROVIDER % "responses: /x"}, apps={"acme": answer}) as here:
        await here.post(PATHS["responses"], {**ASKS["responses"], "model": "acme/one", "stream": True})
        (row,) = await rows(here, tmp_path)
    assert (row["outcome"], row["input_tokens"], row["estimated"]) == ("upstream_error", 10, False)


@pytest.mark.parametrize("said", [False, True], ids=["before any output", "after some"])
@pytest.mark.parametrize("speaks", SENT, ids=[each.split(":")[0] for each in SENT])
@pytest.mark.parametrize("client", PATHS)
async def test_a_stream_that_a_shutdown_ends_costs_only_its_output(tmp_path, client, speaks, said):
    hangs = asyncio.Event()

    async def app(method, path, headers, body):
        async def blocks():
            for block in SENT[speaks] if said else OPENINGS[speaks]:
                yield block
            hangs.set()
            await asyncio.sleep(30)

        return 200, SSE, blocks()

    provider = PROVIDER.replace("idle: 0.2", "idle: 60") % speaks
    async with inprocess(tmp_path, providers={"acme": provider}, apps={"acme": app}) as here:
        asked = asyncio.ensure_future(here.post(PATHS[client], {**ASKS[client], "model": "acme/one", "stream": True}))
        await hangs.wait()
        here.opened.app.cut()
        await asked
        await until(lambda: not here.services.live)
        (row,) = await rows(here, tmp_path)
    assert (row["outcome"], row["error_code"], row["estimated"]) == ("error", "unavailable", said)
    assert (row["output_tokens"], row["cost"] > 0) == (2 if said else 0, said)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", PATHS)
async def test_a_request_that_a_shutdown_ends_without_an_answer_costs_nothing(tmp_path, client, stream):
    called = asyncio.Event()

    async def app(method, path, headers, body):
        called.set()
        await asyncio.sleep(30)

    async with inprocess(tmp_path, providers={"acme": PROVIDER % "chat: /x"}, apps={"acme": app}) as here:
        asked = asyncio.ensure_future(here.post(PATHS[client], {**ASKS[client], "model": "acme/one", "stream": stream}))
        await called.wait()
        here.opened.app.cut()
        assert (await asked).status_code == 503
        await until(lambda: not here.services.live)
        (row,) = await rows(here, tmp_path)
    assert (row["outcome"], row["status"], row["cost"], row["estimated"]) == ("error", 503, 0, False)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", PATHS)
async def test_a_response_that_blames_the_request_is_a_rejection(tmp_path, client, stream):
    response = {**FAILED, "error": {"code": "invalid_prompt", "message": "no"}}
    failed = {"type": "response.failed", "sequence_number": 1, "response": response}
    answer = (
        replying(blocks=sse(CREATED, failed), headers=SSE) if stream else replying(body=json.dumps(response).encode())
    )
    async with inprocess(tmp_path, providers={"acme": PROVIDER % "responses: /x"}, apps={"acme": answer}) as here:
        await here.post(PATHS[client], {**ASKS[client], "model": "acme/one", "stream": stream})
        assert [(each.failures, each.rejections) for each in here.services.health.routes()] == [(0, 1)]
        (row,) = await rows(here, tmp_path)
    assert (row["outcome"], row["error_code"], row["cost"]) == ("rejected", "upstream_rejected", 0)
