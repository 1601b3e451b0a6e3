"""Requests that the gateway ends because it shuts down."""

from __future__ import annotations

import asyncio
import json

import pytest

from completions.failing import OPENINGS, PROVIDER, SENT
from conformance.upstreams import ASKS, PATHS, provider, whole
from support.inprocess import SSE, inprocess, replying
from tollgate.sse import Decoder


@pytest.mark.parametrize("said", [False, True], ids=["before any output", "after some"])
@pytest.mark.parametrize("speaks", SENT, ids=[each.split(":")[0] for each in SENT])
@pytest.mark.parametrize("client", PATHS)
async def test_a_shutdown_ends_a_stream_in_its_own_format(tmp_path, client, speaks, said):
    hangs = asyncio.Event()

    async def app(method, path, headers, body):
        async def blocks():
            for block in SENT[speaks] if said else OPENINGS[speaks]:
                yield block
            yield b'data: {"id"'  # half an event
            hangs.set()
            await asyncio.sleep(30)

        return 200, SSE, blocks()

    provider = PROVIDER.replace("idle: 0.2", "idle: 60") % speaks
    async with inprocess(tmp_path, providers={"acme": provider}, apps={"acme": app}) as here:
        asked = asyncio.ensure_future(here.post(PATHS[client], {**ASKS[client], "model": "acme/one", "stream": True}))
        await hangs.wait()
        here.opened.app.cut()
        reply = await asked
        events = [json.loads(event.data) for event in Decoder().feed(reply.content)]
    assert "the gateway is shutting down" in json.dumps(events[-1])
    if client == "responses":
        assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
        assert [event["sequence_number"] for event in events] == list(range(len(events)))


async def test_a_shutdown_while_the_row_of_an_answer_is_written_asks_for_no_repeat(tmp_path, monkeypatch):
    apps = {"acme": replying(body=json.dumps(whole("chat")).encode())}
    async with inprocess(tmp_path, providers={"acme": provider("app://acme/v1", "chat")}, apps=apps) as here:
        record, recorded = here.services.ledger.record, asyncio.Event()

        async def slowly(row, hold):
            await record(row, hold)
            recorded.set()
            await asyncio.sleep(600)

        monkeypatch.setattr(here.services.ledger, "record", slowly)
        asked = asyncio.ensure_future(here.post(PATHS["chat"], ASKS["chat"]))
        await recorded.wait()
        here.opened.app.cut()
        reply = await asked
    assert (reply.status_code, reply.headers["x-should-retry"]) == (503, "false")
