"""Upstreams that only stream, called by clients that want a whole answer."""

import json
from decimal import Decimal

import pytest

from completions.invented import ANSWER, ASK, BITS, JSON, MAPPING, STREAM, provider, write_mapping
from completions.plain_chat import streamed
from providers.shipped import offers
from support.inprocess import SSE, inprocess, replying
from support.usage_files import rows

STREAM_ONLY = MAPPING.replace(MAPPING[MAPPING.index("response:") : MAPPING.index("error:")], "") + STREAM
BLOCKS = [b"data: %b\n\n" % json.dumps(bit).encode() for bit in BITS]
CHAT = """
provider: acme
url: app://acme
speaks: {chat: /chat}
can: {whole: false}
models:
  acme/one: {upstream: up-1, price: {prompt: "0.001", completion: "0.002"}}
"""
CHUNKS = [
    {"id": "c1", "model": "up-1", "choices": [{"index": 0, "delta": {"role": "assistant", "reasoning_content": "hm"}}]},
    {"id": "c1", "model": "up-1", "choices": [{"index": 0, "delta": {"content": "hi"}}]},
    {
        "id": "c1",
        "model": "up-1",
        "choices": [
            {
                "index": 0,
                "delta": {"tool_calls": [{"index": 0, "id": "t1", "function": {"name": "f", "arguments": '{"a"'}}]},
            }
        ],
    },
    {
        "id": "c1",
        "model": "up-1",
        "choices": [
            {
                "index": 0,
                "delta": {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]},
                "finish_reason": "tool_calls",
            }
        ],
    },
    {
        "id": "c1",
        "model": "up-1",
        "choices": [],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    },
]
CALLING = streamed(*CHUNKS, b"[DONE]")
"""A stream of a reasoning, a text and a call."""


@pytest.mark.parametrize("stream", [False, True])
async def test_a_mapping_that_only_reads_streams_also_serves_whole_answers(tmp_path, stream):
    write_mapping(tmp_path, "only", STREAM_ONLY)
    seen = []
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "only")},
        apps={"acme": replying(blocks=BLOCKS, headers=SSE, seen=seen)},
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": stream})
        assert json.loads(seen[0][3])["live"] is True
        assert here.balance() == Decimal("99.98")
        if not stream:
            answer = reply.json()
            assert (
                answer["object"],
                answer["choices"][0]["message"]["content"],
                answer["choices"][0]["finish_reason"],
            ) == ("chat.completion", "hi there", "stop")
            assert answer["usage"]["total_tokens"] == 15 and reply.headers["x-tollgate-cost"] == "0.020000000000"
            message = (await here.post("/v1/messages", {**ASK, "max_tokens": 9})).json()
            assert message["content"] == [{"type": "text", "text": "hi there"}]
            assert message["usage"]["output_tokens"] == 5
        row = (await rows(here, tmp_path))[0]
    assert (row["stream"], row["outcome"], row["output_tokens"], row["estimated"]) == (stream, "ok", 5, False)
    assert (row["attempts"], row["rate"]) == (1, 1)


async def test_a_client_of_the_same_format_loses_nothing_when_a_stream_is_gathered(tmp_path):
    seen = []
    async with inprocess(
        tmp_path,
        providers={"acme": CHAT},
        apps={"acme": replying(blocks=CALLING, headers=SSE, seen=seen)},
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "unknown_field": {"kept": 1}, "n": 1})
        sent = json.loads(seen[0][3])
        assert sent == {
            **ASK,
            "model": "up-1",
            "unknown_field": {"kept": 1},
            "n": 1,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        message = reply.json()["choices"][0]["message"]
        assert message["content"] == "hi" and message["reasoning"] == "hm"
        assert message["tool_calls"] == [
            {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
        ]
        assert reply.json()["usage"]["total_tokens"] == 15 and "x-tollgate-dropped" not in reply.headers
        assert (await here.post("/v1/chat/completions", {**ASK, "n": 2})).status_code == 400 and len(seen) == 1
        streamed = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        assert streamed.text.endswith("data: [DONE]\n\n") and '"reasoning_content":"hm"' in streamed.text.replace(
            " ", ""
        )


async def test_a_gathered_answer_with_a_tool_call_ends_with_one_whatever_its_stream_says(tmp_path):
    """Agents run the tools of an answer only if it says that it waits for them."""
    blocks = [block.replace(b'"tool_calls"}', b'"stop"}') for block in CALLING]
    assert blocks != CALLING
    async with inprocess(
        tmp_path, providers={"acme": CHAT}, apps={"acme": replying(blocks=blocks, headers=SSE)}
    ) as here:
        assert (await here.post("/v1/chat/completions", ASK)).json()["choices"][0]["finish_reason"] == "tool_calls"
        assert (await rows(here, tmp_path))[0]["lost"] is None


@pytest.mark.parametrize("path", ["chat/completions", "messages", "responses"])
async def test_a_stream_is_gathered_only_for_long_answers_where_the_route_says_so(tmp_path, path):
    chat = CHAT.replace("whole: false", "whole: 4096")
    limit = "max_output_tokens" if path == "responses" else "max_tokens"
    ask = {"model": "acme/one", "input": "Hi"} if path == "responses" else ASK
    seen = []
    async with inprocess(
        tmp_path,
        providers={"acme": chat},
        apps={"acme": replying(blocks=CALLING, headers=SSE, seen=seen)},
    ) as here:
        reply = await here.post(f"/v1/{path}", {**ask, limit: 4097})
        assert reply.status_code == 200
        assert json.loads(seen[0][3])["stream"] is True
    seen.clear()
    whole = {
        "id": "c1",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    }
    async with inprocess(
        tmp_path / "short",
        providers={"acme": chat},
        apps={"acme": replying(blocks=[json.dumps(whole).encode()], headers=JSON, seen=seen)},
    ) as here:
        assert (await here.post(f"/v1/{path}", {**ask, limit: 4096})).status_code == 200
        assert not json.loads(seen[0][3]).get("stream")


FAILURES = {
    "an error after some text": (
        streamed(*CHUNKS[:2], {"error": {"message": "overheated", "code": 500}}, b"[DONE]"),
        SSE,
        200,
    ),
    "a stream that breaks off": (streamed(*CHUNKS[:2]), SSE, 200),
    "no stream at all": ([json.dumps(ANSWER).encode()], JSON, 200),
    "a rejection before the stream": ([b'{"error": {"message": "slow down"}}'], JSON, 429),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_another_route_may_answer_until_a_gathered_stream_is_complete(tmp_path, case):
    blocks, headers, status = FAILURES[case]
    other = (
        CHAT.replace("acme\n", "other\n", 1)
        .replace("app://acme", "app://other")
        .replace("can: {whole: false}", "priority: 1")
    )
    whole = {
        "id": "x",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "instead"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
    async with inprocess(
        tmp_path,
        providers={"acme": CHAT, "other": other},
        apps={
            "acme": replying(status, blocks=blocks, headers=headers),
            "other": replying(body=json.dumps(whole).encode()),
        },
    ) as here:
        reply = await here.post("/v1/chat/completions", ASK)
        assert (
            reply.json()["choices"][0]["message"]["content"] == "instead"
            and reply.headers["x-tollgate-attempts"] == "2"
        )


def test_alibaba_models_that_only_stream_are_declared_as_such():
    only = {offer.model.id for offer in offers("dashscope-cny") if offer.protocol == "chat" and not offer.whole}
    assert {"qwen/qwq-32b", "qwen/qvq-max", "qwen/qwen-omni-turbo"} <= only and "qwen/qwen3-max" not in only
