"""Billing of streams that end before the upstream reports its final counts: the text received so far if the client
left, otherwise the reported usage."""

import asyncio
import json
from decimal import Decimal

import pytest

from conformance.upstreams import ASKS, PATHS, events, provider, whole
from support.inprocess import SSE, Leaving, inprocess, replying
from support.usage_files import rows
from support.waiting import SECONDS

WORDS = [f" word{place}" for place in range(40)]


@pytest.mark.parametrize("client", PATHS)
async def test_a_stream_cut_off_after_a_preliminary_count_is_billed_as_reported(tmp_path, client):
    cut = events("messages", *WORDS)[: 2 + len(WORDS)]  # the first event reports one output token
    async with inprocess(
        tmp_path,
        providers={"acme": provider("app://acme/v1", "messages")},
        apps={"acme": replying(blocks=cut, headers=SSE)},
    ) as here:
        assert (await here.post(PATHS[client], {**ASKS[client], "stream": True})).status_code == 200
        (row,) = await rows(here, tmp_path)
    assert (row["outcome"], row["estimated"], row["input_tokens"], row["output_tokens"]) == (
        "upstream_error",
        False,
        10,
        1,
    )
    assert row["cost"] == Decimal(10 + 2) / 10**6


@pytest.mark.parametrize("client", PATHS)
async def test_reported_final_counts_are_billed_even_if_the_end_is_missing(tmp_path, client):
    cut = events("messages", *WORDS)[:-1]
    async with inprocess(
        tmp_path,
        providers={"acme": provider("app://acme/v1", "messages")},
        apps={"acme": replying(blocks=cut, headers=SSE)},
    ) as here:
        assert (await here.post(PATHS[client], {**ASKS[client], "stream": True})).status_code == 200
        (row,) = await rows(here, tmp_path)
    assert (row["estimated"], row["input_tokens"], row["output_tokens"]) == (False, 10, 5)


LATE_USAGE = b'event: message_delta\ndata: {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 7}}\n\n'
DELTA_WITHOUT_USAGE = events("messages", *WORDS)[-2].replace(b'{"output_tokens": 5}', b"null")
ENDS = {
    "no usage": ([DELTA_WITHOUT_USAGE], True, 80),
    "usage before the stop reason": ([LATE_USAGE, DELTA_WITHOUT_USAGE], False, 7),
    "usage after the stop reason": ([DELTA_WITHOUT_USAGE, LATE_USAGE], False, 7),
    "no stop reason": ([], True, 80),
}


@pytest.mark.parametrize(
    ("client", "way"),
    # a converted answer without a stop reason is not complete
    [(client, way) for client in PATHS for way in ENDS if client == "messages" or way != "no stop reason"],
)
async def test_the_preliminary_count_of_a_messages_stream_is_not_billed_as_its_output(tmp_path, client, way):
    """`message_start` reports one token before any was generated: if the end reports none, the output is estimated."""
    last, estimated, output = ENDS[way]
    *good, _, stop = events("messages", *WORDS)
    async with inprocess(
        tmp_path,
        providers={"acme": provider("app://acme/v1", "messages")},
        apps={"acme": replying(blocks=[*good, *last, stop], headers=SSE)},
    ) as here:
        reply = await here.post(PATHS[client], {**ASKS[client], "stream": True})
        (row,) = await rows(here, tmp_path)
    if last:
        name = "completion_tokens" if client == "chat" else "output_tokens"
        assert f'"{name}":{output}' in reply.text.replace(": ", ":")
    assert (row["outcome"], row["estimated"], row["input_tokens"], row["output_tokens"]) == (
        "ok",
        estimated,
        10,
        output,
    )
    assert row["cost"] == Decimal(10 + 2 * output) / 10**6


async def test_a_client_that_leaves_a_messages_stream_pays_for_what_it_received(tmp_path):
    async with inprocess(tmp_path) as here:
        body = {
            "model": "sandbox/echo",
            "stream": True,
            "max_tokens": 90,
            "messages": [{"role": "user", "content": "[[pace=20ms]] [[tokens=80]]"}],
        }
        client = Leaving(body, here.key, blocks=14)
        client.scope["path"] = "/v1/messages"
        await asyncio.wait_for(here.opened.app(client.scope, client.receive, client.send), SECONDS)
        (row,) = await rows(here, tmp_path)
    received = b"".join(message.get("body", b"") for message in client.sent).split(b"data: ")[1:]
    deltas = [
        event
        for event in (json.loads(each.partition(b"\n")[0]) for each in received)
        if event["type"] == "content_block_delta"
    ]
    assert row["outcome"] == "client_gone" and row["estimated"]
    assert row["output_tokens"] >= len(deltas) > 5


@pytest.mark.parametrize("client", PATHS)
async def test_a_client_that_leaves_pays_for_its_text_if_chunks_only_report_the_prompt(tmp_path, client):
    chunks = [
        json.dumps(
            {
                "id": "c",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "up-1",
                "usage": {"prompt_tokens": 10, "completion_tokens": None},
                "choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}],
            }
        )
        for word in WORDS
    ]

    async def app(*_: object):
        async def paced():
            for chunk in chunks:
                yield f"data: {chunk}\n\n".encode()
                await asyncio.sleep(0.02)

        return 200, SSE, paced()

    async with inprocess(tmp_path, providers={"acme": provider("app://acme/v1", "chat")}, apps={"acme": app}) as here:
        leaving = Leaving({**ASKS[client], "stream": True}, here.key, blocks=14)
        leaving.scope["path"] = PATHS[client]
        await asyncio.wait_for(here.opened.app(leaving.scope, leaving.receive, leaving.send), SECONDS)
        (row,) = await rows(here, tmp_path)
    assert (row["outcome"], row["estimated"], row["input_tokens"]) == ("client_gone", True, 10)
    assert row["output_tokens"] >= 5


async def test_a_client_that_leaves_after_the_whole_answer_arrived_pays_the_reported_usage(tmp_path, monkeypatch):
    async with inprocess(
        tmp_path,
        providers={"acme": provider("app://acme/v1", "responses")},
        apps={"acme": replying(body=json.dumps(whole("responses")).encode())},
    ) as here:
        client = Leaving(ASKS["responses"], here.key, blocks=None)

        async def slow(*_: object) -> None:
            client.gone.set()
            await asyncio.sleep(600)

        monkeypatch.setattr(here.services.minted, "remember", slow)
        client.scope["path"] = PATHS["responses"]
        await asyncio.wait_for(here.opened.app(client.scope, client.receive, client.send), SECONDS)
        (row,) = await rows(here, tmp_path)
    assert (row["outcome"], row["estimated"], row["input_tokens"], row["output_tokens"]) == (
        "client_gone",
        False,
        10,
        5,
    )


@pytest.mark.parametrize("client", PATHS)
async def test_a_client_that_leaves_a_gathered_stream_pays_for_what_had_arrived(tmp_path, client):
    gone = asyncio.Event()

    async def app(*_: object):
        async def answering():
            for event in events("messages", *WORDS)[:-2]:
                yield event
            gone.set()
            await asyncio.sleep(600)

        return 200, SSE, answering()

    acme = provider("app://acme/v1", "messages", more="can: {whole: false}")
    async with inprocess(tmp_path, providers={"acme": acme}, apps={"acme": app}) as here:
        leaving = Leaving(ASKS[client], here.key)
        leaving.gone = gone
        leaving.scope["path"] = PATHS[client]
        await asyncio.wait_for(here.opened.app(leaving.scope, leaving.receive, leaving.send), SECONDS)
        (row,) = await rows(here, tmp_path)
    assert (row["outcome"], row["estimated"], row["input_tokens"], row["output_tokens"]) == (
        "client_gone",
        True,
        10,
        80,
    )
    assert row["cost"] == Decimal(10 + 2 * 80) / 10**6


SEARCHED = {
    "messages": [
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
        },
        {"type": "content_block_stop", "index": 1},
        {
            "type": "content_block_start",
            "index": 2,
            "content_block": {
                "type": "web_search_tool_result",
                "tool_use_id": "s1",
                "content": [{"type": "web_search_result"}],
            },
        },
        {"type": "content_block_stop", "index": 2},
        {
            "type": "content_block_start",
            "index": 3,
            "content_block": {
                "type": "web_search_tool_result",
                "tool_use_id": "s2",
                "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"},
            },
        },
        {"type": "content_block_stop", "index": 3},
    ],
    "responses": [
        {
            "type": "response.output_item.done",
            "output_index": 1,
            "item": {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action},
        }
        for action in ({"type": "search", "query": "q"}, {"type": "open_page", "url": "https://x"})
    ],
}


@pytest.mark.parametrize("whole", [False, True], ids=["cut", "whole"])
@pytest.mark.parametrize("client", SEARCHED)
async def test_searches_of_a_truncated_answer_are_billed(tmp_path, client, whole):
    """They were run, even if the last event, which counts them, is missing or does not mention them."""
    good = events(client, *WORDS)
    opening = 3 if client == "messages" else 5
    found = [
        b"event: "
        + event["type"].encode()
        + b"\ndata: "
        + json.dumps({**event, "sequence_number": 99}).encode()
        + b"\n\n"
        for event in SEARCHED[client]
    ]
    blocks = [*good[:opening], *found, *(good[opening:] if whole else good[opening : opening + 2])]
    price = '{prompt: "1", completion: "2", web_search: "0.01", unit: 1000000, currency: USD}'
    async with inprocess(
        tmp_path,
        providers={"acme": provider("app://acme/v1", client, price=price)},
        apps={"acme": replying(blocks=blocks, headers=SSE)},
    ) as here:
        assert (await here.post(PATHS[client], {**ASKS[client], "stream": True})).status_code == 200
        (row,) = await rows(here, tmp_path)
    assert (row["outcome"], row["searches"]) == ("ok" if whole else "upstream_error", 1)
    assert Decimal("0.01") < row["cost"] < Decimal("0.0101")
