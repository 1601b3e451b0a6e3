"""The status of an error counts at every endpoint, also if its body does not arrive whole."""

from __future__ import annotations

import pytest

from conformance.upstreams import ASKS, PATHS
from support.inprocess import inprocess
from support.usage_files import rows
from tollgate.errors import AnswerLost

PROVIDER = """
provider: acme
url: app://acme
speaks: {chat: /chat, embeddings: /embeddings}
images:
  submit:
    call: POST app://acme/images
    body: $.input
    result: {id: $.id, status: $.status}
  poll:
    call: GET app://acme/images/{{ $job.id }}
    result: {status: $.status}
models:
  acme/one: {price: {prompt: "1", completion: "1"}}
  acme/embed: {type: embedding, price: {prompt: "1"}}
  acme/draw: {price: {price: "0.04"}, input_schema: {type: object}}
"""
REQUESTS = {
    **{client: (PATHS[client], {**ASKS[client], "model": "acme/one"}) for client in PATHS},
    "embeddings": ("/v1/embeddings", {"model": "acme/embed", "input": "Hello"}),
    "images": ("/v1/images/generations", {"model": "acme/draw", "input": {"prompt": "a"}}),
}


def breaking_off(status: int):
    async def app(method, path, headers, body):
        async def blocks():
            yield b'{"error": {"mess'
            raise AnswerLost("the connection was closed before the answer ended")

        return status, {"content-type": "application/json"}, blocks()

    return app


@pytest.mark.parametrize("request_of", REQUESTS)
async def test_a_refused_key_with_a_broken_body_is_an_alarm(tmp_path, request_of):
    path, body = REQUESTS[request_of]
    async with inprocess(tmp_path, providers={"acme": PROVIDER}, apps={"acme": breaking_off(401)}) as here:
        assert (await here.post(path, body)).status_code == 500
        assert [(name, alarm.kind) for name, alarm in here.services.health.alarms()] == [("acme", "key")]


@pytest.mark.parametrize("request_of", REQUESTS)
async def test_a_rejection_with_a_broken_body_is_one(tmp_path, request_of):
    path, body = REQUESTS[request_of]
    async with inprocess(tmp_path, providers={"acme": PROVIDER}, apps={"acme": breaking_off(400)}) as here:
        reply = await here.post(path, body)
        assert (reply.status_code, reply.headers["x-tollgate-error"]) == (400, "upstream_rejected")
        (row,) = await rows(here, tmp_path)
    assert (row["outcome"], row["error_code"], row["cost"]) == ("rejected", "upstream_rejected", 0)
