"""A stream without content and without a stop reason is no answer, as for whole answers: an end mark alone is not a
success."""

from __future__ import annotations

import json

import pytest

from conformance.upstreams import ASKS, PATHS, error_events, events, provider
from support.inprocess import SSE, inprocess, replying
from support.usage_files import rows

DONE = b"data: [DONE]\n\n"


def chunk(*choices: dict, **more) -> bytes:
    frame = {"id": "empty", "object": "chat.completion.chunk", "created": 1, "model": "up-1", "choices": list(choices)}
    return b"data: " + json.dumps(frame | more).encode() + b"\n\n"


ROLE = chunk({"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None})
USAGE = chunk(usage={"prompt_tokens": 9, "completion_tokens": 0, "total_tokens": 9})
EMPTY = {
    "the end mark alone": [DONE],
    "a comment": [b": busy\n\n", DONE],
    "a chunk without choices": [chunk(prompt_filter_results=[]), DONE],
    "a role": [ROLE, DONE],
    "usage": [USAGE, DONE],
    "a role and usage": [ROLE, USAGE, DONE],
}


@pytest.mark.parametrize("blocks", EMPTY.values(), ids=EMPTY)
@pytest.mark.parametrize("client", PATHS)
async def test_an_empty_stream_falls_back_to_the_next_route(tmp_path, client, blocks):
    async with inprocess(
        tmp_path,
        providers={
            "first": provider("app://first/v1", "chat", name="first"),
            "second": provider("app://second/v1", "chat", name="second", lines="priority: 1"),
        },
        apps={
            "first": replying(blocks=blocks, headers=SSE),
            "second": replying(blocks=events("chat"), headers=SSE),
        },
    ) as here:
        reply = await here.post(PATHS[client], {**ASKS[client], "stream": True})
        (row,) = await rows(here, tmp_path)
    assert (reply.status_code, reply.headers["x-tollgate-provider"]) == (200, "second")
    assert "hello" in reply.text and "empty" not in reply.text
    assert (row["outcome"], row["provider"], row["attempts"]) == ("ok", "second", 2)


@pytest.mark.parametrize("blocks", EMPTY.values(), ids=EMPTY)
@pytest.mark.parametrize("client", PATHS)
async def test_an_empty_stream_of_the_only_route_is_an_error(tmp_path, client, blocks):
    async with inprocess(
        tmp_path,
        providers={"acme": provider("app://acme/v1", "chat")},
        apps={"acme": replying(blocks=blocks, headers=SSE)},
    ) as here:
        reply = await here.post(PATHS[client], {**ASKS[client], "stream": True})
        (row,) = await rows(here, tmp_path)
    nothing_to_pass = not any(b'"choices"' in block for block in blocks)
    if nothing_to_pass or (client, blocks) == (
        "chat",
        EMPTY["usage"],
    ):  # a native client gets usage with its finish only
        assert reply.status_code == 500 and "model service" in reply.text
    else:
        assert reply.status_code == 200 and error_events(client, reply.text)
    assert row["outcome"] == "upstream_error" and row["output_tokens"] == 0


@pytest.mark.parametrize("client", PATHS)
async def test_a_stop_reason_or_a_word_of_text_is_an_answer(tmp_path, client):
    stopped = chunk({"index": 0, "delta": {}, "finish_reason": "stop"})
    text = chunk({"index": 0, "delta": {"content": "hi"}, "finish_reason": None})
    for number, blocks in enumerate(([ROLE, stopped, DONE], [ROLE, text, DONE], [text, USAGE, DONE])):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with inprocess(
            folder,
            providers={"acme": provider("app://acme/v1", "chat")},
            apps={"acme": replying(blocks=blocks, headers=SSE)},
        ) as here:
            reply = await here.post(PATHS[client], {**ASKS[client], "stream": True})
            (row,) = await rows(here, folder)
        assert (reply.status_code, row["outcome"], '"error":{' in reply.text) == (200, "ok", False)


MESSAGE_START, MESSAGE_STOP = events("messages")[0].replace(b'"msg_', b'"empty_'), events("messages")[-1]


@pytest.mark.parametrize(
    "blocks", [[MESSAGE_STOP], [MESSAGE_START, MESSAGE_STOP]], ids=["the end alone", "a start and an end"]
)
async def test_a_messages_stream_without_content_falls_back_to_the_next_route(tmp_path, blocks):
    async with inprocess(
        tmp_path,
        providers={
            "first": provider("app://first/v1", "messages", name="first"),
            "second": provider("app://second/v1", "messages", name="second", lines="priority: 1"),
        },
        apps={
            "first": replying(blocks=blocks, headers=SSE),
            "second": replying(blocks=events("messages"), headers=SSE),
        },
    ) as here:
        reply = await here.post(PATHS["messages"], {**ASKS["messages"], "stream": True})
        assert (reply.status_code, reply.headers["x-tollgate-provider"]) == (200, "second")
        assert "hello" in reply.text and "empty" not in reply.text


@pytest.mark.parametrize("client", ["messages", "responses"])
async def test_the_end_mark_of_chat_alone_is_no_answer_in_other_formats(tmp_path, client):
    names = ("first", "second", "third")
    apps = dict.fromkeys(names, replying(blocks=[DONE], headers=SSE))
    asked = {**ASKS[client], "stream": True}
    providers = {
        name: provider(f"app://{name}/v1", client, name=name, lines=f"priority: {place}")
        for place, name in enumerate(names)
    }
    async with inprocess(tmp_path, providers=providers, apps=apps) as here:
        assert (await here.post(PATHS[client], asked)).status_code == 500 and here.balance() == 100
        here.services.client.register_app("third", replying(blocks=events(client), headers=SSE))
        reply = await here.post(PATHS[client], asked)
        assert (reply.status_code, reply.headers["x-tollgate-attempts"]) == (200, "3") and "[DONE]" not in reply.text
