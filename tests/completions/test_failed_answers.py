"""What the usage row says of an answer that failed."""

from __future__ import annotations

import json

import pytest

from completions.failing import CREATED, DELTA, FAILED, ITEM, PROVIDER, SAID, sse
from conformance.upstreams import ASKS, PATHS
from support.inprocess import SSE, inprocess, replying
from support.usage_files import rows


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


async def test_a_whole_response_that_failed_without_output_costs_nothing(tmp_path):
    answer = replying(body=json.dumps(FAILED).encode())
    async with inprocess(tmp_path, providers={"acme": PROVIDER % "responses: /x"}, apps={"acme": answer}) as here:
        await here.post(PATHS["responses"], {**ASKS["responses"], "model": "acme/one"})
        (row,) = await rows(here, tmp_path)
    assert (row["outcome"], row["cost"], row["estimated"]) == ("upstream_error", 0, False)


async def test_a_whole_response_that_failed_after_a_search_costs_the_search(tmp_path):
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    }
    answer = replying(
        body=json.dumps({**FAILED, "output": [search], "usage": {"input_tokens": 0, "output_tokens": 0}}).encode()
    )
    priced = (PROVIDER % "responses: /x").replace('request: "0.5"', 'web_search: "0.25"')
    async with inprocess(tmp_path, providers={"acme": priced}, apps={"acme": answer}) as here:
        await here.post(PATHS["responses"], {**ASKS["responses"], "model": "acme/one"})
        (row,) = await rows(here, tmp_path)
    assert (row["outcome"], float(row["cost"]), row["estimated"]) == ("upstream_error", 0.25, False)


async def test_reported_usage_of_a_failed_answer_is_billed(tmp_path):
    used = {"input_tokens": 10, "output_tokens": 0, "total_tokens": 10}
    failed = {"type": "response.failed", "sequence_number": 1, "response": {**FAILED, "usage": used}}
    answer = replying(blocks=sse(CREATED, failed), headers=SSE)
    async with inprocess(tmp_path, providers={"acme": PROVIDER % "responses: /x"}, apps={"acme": answer}) as here:
        await here.post(PATHS["responses"], {**ASKS["responses"], "model": "acme/one", "stream": True})
        (row,) = await rows(here, tmp_path)
    assert (row["outcome"], row["input_tokens"], row["estimated"]) == ("upstream_error", 10, False)


@pytest.mark.parametrize("together", [False, True], ids=["apart", "in one block"])
async def test_the_reason_of_a_failed_response_may_follow_in_an_event_of_its_own(tmp_path, together):
    """Azure sends it so. Without it a blocked prompt would count as a failure of the route."""
    failed = {"type": "response.failed", "sequence_number": 1, "response": {**FAILED, "error": None}}
    reason = {"type": "error", "code": "invalid_prompt", "message": "no", "param": None, "sequence_number": 2}
    blocks = sse(CREATED, failed, reason)
    if together:  # cut within the failed response
        blocks = [b"".join(blocks)[:-200], b"".join(blocks)[-200:]]
    answer = replying(blocks=blocks, headers=SSE)
    async with inprocess(tmp_path, providers={"acme": PROVIDER % "responses: /x"}, apps={"acme": answer}) as here:
        reply = await here.post(PATHS["responses"], {**ASKS["responses"], "model": "acme/one", "stream": True})
        assert reply.content == b"".join(blocks)
        assert [(each.failures, each.rejections) for each in here.services.health.routes()] == [(0, 1)]
        (row,) = await rows(here, tmp_path)
    assert (row["outcome"], row["error_code"]) == ("rejected", "upstream_rejected")


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
    assert (row["outcome"], row["error_code"]) == ("rejected", "upstream_rejected")
