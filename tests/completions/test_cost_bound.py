"""The hold of a running request covers content from elsewhere: searches, images and files by URL, stored
conversations."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from support.inprocess import inprocess, replying
from support.usage_files import rows

PROVIDER = """
provider: acme
url: app://acme
speaks: {chat: /chat, responses: /responses, messages: /messages}
models:
  acme/one:
    context: 200000
    max_output: 100
    modalities: {input: [text, image, file]}
    price: {prompt: "1", completion: "2", web_search: "0.01", unit: 1000000}
"""
WIDE = 'credits: {hold_cap: "1000000"}\n'
TOKEN, SEARCH = Decimal("0.000001"), Decimal("0.01")
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
ASK = {
    "chat": {"messages": [{"role": "user", "content": "hi"}]},
    "responses": {"input": "hi"},
    "messages": {"max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]},
}
PICTURE = {
    "chat": {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}},
    "responses": {"type": "input_image", "image_url": "https://x.example/a.png"},
    "messages": {"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}},
}
FILE = {
    "chat": {"type": "file", "file": {"file_data": "https://x.example/a.pdf"}},
    "responses": {"type": "input_file", "file_url": "https://x.example/a.pdf"},
    "messages": {"type": "document", "source": {"type": "url", "url": "https://x.example/a.pdf"}},
}


def with_parts(client: str, *parts: dict[str, Any]) -> dict[str, Any]:
    turns = [{"role": "user", "content": [*parts]}]
    return {"input": turns} if client == "responses" else {"messages": turns}


async def held_beyond_plain(tmp_path, *requests: tuple[str, dict[str, Any]]) -> list[Decimal]:
    """The amount held_beyond_plain for each request beyond that for a plain request of its client."""
    async with inprocess(tmp_path, providers={"acme": PROVIDER}, apps={"acme": replying(500)}, settings=WIDE) as here:
        amounts: list[Decimal] = []
        await here.services.minted.remember("default", "acme", ["resp_1", "conv_1", "pmpt_1"])
        hold = here.services.ledger.hold
        here.services.ledger.hold = lambda key, amount: amounts.append(amount) or hold(key, amount)
        for client, more in requests:
            for body in (ASK[client], {**ASK[client], **more}):
                await here.post(PATHS[client], {"model": "acme/one", **body})
    return [with_more - plain for plain, with_more in zip(amounts[::2], amounts[1::2], strict=True)]


async def test_the_output_that_the_client_allows_is_held_for(tmp_path):
    """Without a limit of its own, that of the model (100 tokens)."""
    limited = ("max_tokens", "max_completion_tokens"), ("max_output_tokens",), ("max_tokens",)
    requests = [(client, {name: 50_100}) for client, names in zip(PATHS, limited, strict=True) for name in names]
    *longer, both, several = await held_beyond_plain(
        tmp_path, *requests, ("chat", {"max_tokens": 60, "max_completion_tokens": 50_100}), ("chat", {"n": 3})
    )
    for amount in (*longer, both):
        assert amount == pytest.approx(50_000 * 2 * TOKEN, abs=50 * TOKEN)
    assert several == pytest.approx(2 * 100 * 2 * TOKEN, abs=50 * TOKEN)


@pytest.mark.parametrize(("path", "model"), [("/v1/chat/completions", "acme/one"), ("/v1/embeddings", "acme/vectors")])
async def test_the_prices_of_the_hour_in_which_a_request_came_are_held_for(tmp_path, monkeypatch, path, model):
    """It is billed at these, also when its hour ends a moment later."""
    then = datetime.now(UTC) + timedelta(hours=12)
    hours = f"windows: [{{start: '{then:%H:00}', end: '{then:%H:59}', prices: {{prompt: '1000'}}}}]"
    priced = f"price: {{prompt: '1', unit: 1000000, {hours}}}"
    provider = (
        "provider: acme\nurl: app://acme\nspeaks: {chat: /chat, embeddings: {path: /vectors}}\n"
        f"models:\n  acme/one: {{{priced}}}\n  acme/vectors: {{type: embedding, dimensions: [8], {priced}}}\n"
    )
    monkeypatch.setattr("tollgate.services.datetime", SimpleNamespace(now=lambda _: then.replace(minute=30)))
    async with inprocess(tmp_path, providers={"acme": provider}, apps={"acme": replying(500)}, settings=WIDE) as here:
        amounts: list[Decimal] = []
        hold = here.services.ledger.hold
        here.services.ledger.hold = lambda key, amount: amounts.append(amount) or hold(key, amount)
        await here.post(path, {"model": model, "max_tokens": 1, **ASK["chat"], "input": "hi"})
    assert amounts[0] >= 1000 * TOKEN


async def test_searches_are_held_for(tmp_path):
    limited, unlimited, calls_limited, nothing_stored, options, plugin, own = await held_beyond_plain(
        tmp_path,
        ("messages", {"tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}]}),
        ("messages", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
        ("responses", {"tools": [{"type": "web_search"}], "max_tool_calls": 4}),
        ("responses", {"tools": [{"type": "web_search"}], "max_tool_calls": 4, "previous_response_id": None}),
        ("chat", {"web_search_options": {}}),
        ("chat", {"plugins": [{"id": "web"}]}),
        (
            "messages",
            {
                "tools": [
                    {"type": "tool_search_tool_regex_20251119", "name": "t"},
                    {"name": "search", "input_schema": {}},
                ]
            },
        ),
    )
    found = 100_000 * TOKEN
    for amount, searches in (
        (limited, 3),
        (unlimited, 10),
        (calls_limited, 4),
        (nothing_stored, 4),
        (options, 10),
        (plugin, 10),
    ):
        assert searches * SEARCH + found < amount < searches * SEARCH + found * Decimal("1.01")
    assert own < SEARCH


@pytest.mark.parametrize("client", PATHS)
async def test_images_and_files_by_url_are_held_for(tmp_path, client):
    one, three, file = await held_beyond_plain(
        tmp_path,
        (client, with_parts(client, PICTURE[client])),
        (client, with_parts(client, *[PICTURE[client]] * 3)),
        (client, with_parts(client, FILE[client])),
    )
    assert 5_000 * TOKEN < one < 5_100 * TOKEN
    assert 15_000 * TOKEN < three < 15_200 * TOKEN
    assert 100_000 * TOKEN < file < 100_100 * TOKEN


async def test_videos_and_content_stored_by_the_provider_are_held_for(tmp_path):
    every = await held_beyond_plain(
        tmp_path,
        ("chat", with_parts("chat", {"type": "video_url", "video_url": {"url": "https://x.example/a.mp4"}})),
        ("responses", {"previous_response_id": "resp_1"}),
        ("responses", {"conversation": "conv_1"}),
        ("responses", {"prompt": {"id": "pmpt_1"}}),
        ("responses", with_parts("responses", {"type": "input_file", "file_id": "resp_1"})),
    )
    for amount in every:
        assert 100_000 * TOKEN < amount < 100_100 * TOKEN


async def test_the_hold_is_bounded_by_the_context_of_the_model(tmp_path):
    (many,) = await held_beyond_plain(tmp_path, ("chat", with_parts("chat", *[PICTURE["chat"]] * 100)))
    assert many < 200_000 * TOKEN


async def test_concurrent_searches_cannot_overdraw_an_account(tmp_path):
    """A balance for one search admits one request: the others are rejected while it runs."""
    arrived, go_on = asyncio.Event(), asyncio.Event()
    answer = json.dumps(
        {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "one",
            "content": [{"type": "text", "text": "hi"}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 30_000, "output_tokens": 5, "server_tool_use": {"web_search_requests": 1}},
        }
    ).encode()

    async def app(method, path, headers, body):
        arrived.set()
        await go_on.wait()
        return await replying(body=answer)(method, path, headers, body)

    ask = {
        "model": "acme/one",
        **ASK["messages"],
        "tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 1}],
    }
    async with inprocess(tmp_path, providers={"acme": PROVIDER}, apps={"acme": app}) as here:
        await here.services.ledger.grant("default", Decimal("0.04") - here.balance(), "enough for one search")
        first = asyncio.ensure_future(here.post(PATHS["messages"], ask))
        await arrived.wait()
        others = await asyncio.gather(*(here.post(PATHS["messages"], ask) for _ in range(5)))
        go_on.set()
        assert ((await first).status_code, {reply.status_code for reply in others}) == (200, {403})
        assert here.balance() == Decimal("0.04") - SEARCH - (30_000 + 5 * 2) * TOKEN


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("reported", [True, False])
async def test_a_model_that_always_searches_is_billed_one_search(tmp_path, stream, reported):
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15} if reported else None
    frame = {"id": "c", "created": 1, "model": "one"}
    whole = {
        **frame,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
        "usage": usage,
    }
    chunk = {
        **frame,
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}],
        "usage": usage,
    }
    app = (
        replying(
            blocks=[b"data: " + json.dumps(chunk).encode() + b"\n\n", b"data: [DONE]\n\n"],
            headers={"content-type": "text/event-stream"},
        )
        if stream
        else replying(body=json.dumps(whole).encode())
    )
    async with inprocess(
        tmp_path, providers={"acme": PROVIDER + "    can: {always_searches: true}\n"}, apps={"acme": app}
    ) as here:
        assert (
            await here.post(PATHS["chat"], {"model": "acme/one", **ASK["chat"], "stream": stream})
        ).status_code == 200
        (row,) = await rows(here, tmp_path)
    assert (row["searches"], row["estimated"]) == (1, not reported)
    assert SEARCH < row["cost"] < SEARCH + 100 * TOKEN
    assert not reported or row["cost"] == SEARCH + 20 * TOKEN


async def test_a_failed_request_to_a_model_that_always_searches_is_billed_no_search(tmp_path):
    async with inprocess(
        tmp_path,
        providers={"acme": PROVIDER + "    can: {always_searches: true}\n"},
        apps={"acme": replying(500, b"{}")},
    ) as here:
        assert (await here.post(PATHS["chat"], {"model": "acme/one", **ASK["chat"]})).status_code == 500
        (row,) = await rows(here, tmp_path)
    assert (row["searches"], row["images"], row["cost"]) == (0, 0, 0)


@pytest.mark.parametrize("client", PATHS)
async def test_images_with_a_price_per_image_are_billed_and_held_for(tmp_path, client):
    """`image` of a price list is the price of each image sent (SPEC model pricing, DESIGN section 5), whether the
    tokens are reported or estimated."""
    priced = PROVIDER.replace('web_search: "0.01"', 'image: "0.01"')
    answer = {
        "chat": {
            "id": "c",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5},
        },
        "responses": {
            "id": "r",
            "object": "response",
            "status": "completed",
            "output": [],
            "usage": {"input_tokens": 10, "output_tokens": 5},
        },
        "messages": {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "content": [],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 10, "output_tokens": 5},
        },
    }
    async with inprocess(
        tmp_path,
        providers={"acme": priced},
        apps={"acme": replying(body=json.dumps(answer[client]).encode())},
        settings=WIDE,
    ) as here:
        amounts: list[Decimal] = []
        hold = here.services.ledger.hold
        here.services.ledger.hold = lambda key, amount: amounts.append(amount) or hold(key, amount)
        for body in (ASK[client], {**ASK[client], **with_parts(client, PICTURE[client], PICTURE[client])}):
            assert (await here.post(PATHS[client], {"model": "acme/one", **body})).status_code == 200
        plain, pictured = await rows(here, tmp_path)
    assert (plain["cost"], plain["images"]) == (20 * TOKEN, 0)
    assert (pictured["cost"], pictured["images"]) == (20 * TOKEN + 2 * SEARCH, 2)
    assert amounts[1] - amounts[0] > 2 * SEARCH
