"""A connection that breaks, or hangs, once the upstream said why its answer stopped: the answer is complete, as it is
where the body ends there. An error would make clients repeat, and pay for, all of it."""

from __future__ import annotations

import asyncio
import json

import pytest

from conformance.upstreams import ASKS, PATHS
from support.inprocess import SSE, inprocess
from support.usage_files import rows
from tollgate.errors import AnswerLost

PROVIDER = """
provider: acme
url: app://acme
speaks: {%s: /answer}
timeouts: {idle: 0.2}
models: {acme/one: {upstream: up-1, price: {prompt: "0.001", completion: "0.002"}}}
"""
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def chunk(delta: dict, finish: str | None = None, **more: object) -> dict:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "up-1", "choices": [choice], **more}


CHAT = [chunk({"role": "assistant", "content": "Hi"}), chunk({}, "stop", usage=USAGE)]
MESSAGES = [
    {
        "type": "message_start",
        "message": {
            "id": "m1",
            "type": "message",
            "role": "assistant",
            "model": "up-1",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 1},
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 5},
    },
]
SPOKEN = {"chat": CHAT, "messages": MESSAGES}
LAST = {"chat": "[DONE]", "responses": "response.completed", "messages": "message_stop"}


def upstream(sent: list[dict], *, hangs: bool, unfinished: bytes = b""):
    async def app(method, path, headers, body):
        async def blocks():
            for event in sent:
                name = f"event: {event['type']}\n" if "type" in event else ""
                yield f"{name}data: {json.dumps(event)}\n\n".encode()
            if unfinished:
                yield unfinished
            if hangs:
                await asyncio.sleep(30)
            raise AnswerLost("the connection was closed before the answer ended")

        return 200, SSE, blocks()

    return app


@pytest.mark.parametrize("hangs", [False, True], ids=["breaks", "hangs"])
@pytest.mark.parametrize("speaks", SPOKEN)
@pytest.mark.parametrize("client", PATHS)
async def test_a_connection_that_breaks_after_the_stop_reason_takes_nothing(tmp_path, client, speaks, hangs):
    app = upstream(SPOKEN[speaks], hangs=hangs, unfinished=b'data: {"id": "c')
    async with inprocess(tmp_path, providers={"acme": PROVIDER % speaks}, apps={"acme": app}) as here:
        reply = await here.post(PATHS[client], {**ASKS[client], "model": "acme/one", "stream": True})
        assert '"error":{' not in reply.text and "event: error" not in reply.text
        assert LAST[client] in reply.text and '"Hi"' in reply.text.replace('\\"', '"')
        row = (await rows(here, tmp_path))[0]
    assert (row["outcome"], row["input_tokens"], row["output_tokens"], row["estimated"]) == ("ok", 10, 5, False)


@pytest.mark.parametrize("client", PATHS)
async def test_a_whole_answer_is_assembled_from_such_a_stream(tmp_path, client):
    provider = PROVIDER % "chat" + "can: {whole: false}\n"
    async with inprocess(tmp_path, providers={"acme": provider}, apps={"acme": upstream(CHAT, hangs=False)}) as here:
        reply = await here.post(PATHS[client], {**ASKS[client], "model": "acme/one"})
    assert reply.status_code == 200 and "Hi" in reply.text


@pytest.mark.parametrize(
    ("sent", "more"), [(CHAT[:1], {}), (CHAT, {"n": 2})], ids=["no stop reason", "another choice may be missing"]
)
async def test_an_answer_that_may_lack_something_still_ends_in_an_error(tmp_path, sent, more):
    app = upstream(sent, hangs=False)
    async with inprocess(tmp_path, providers={"acme": PROVIDER % "chat"}, apps={"acme": app}) as here:
        reply = await here.post(PATHS["chat"], {**ASKS["chat"], "model": "acme/one", "stream": True, **more})
        assert '{"error":{' in reply.text and "[DONE]" not in reply.text
        row = (await rows(here, tmp_path))[0]
    assert row["outcome"] == "upstream_error"
