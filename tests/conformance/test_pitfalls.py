"""Known pitfalls of other gateways, row by row: `test_NN_...` here and in this folder's other files is row NN of
PITFALLS."""

from __future__ import annotations

import ast
import asyncio
import base64
import contextlib
import json
import random
import socket
import time
import tomllib
from decimal import Decimal
from pathlib import Path

import anthropic
import openai
import orjson
import pytest

from conformance.upstreams import ASKS, CELLS, FAILURES, IDS, PATHS, events, provider, whole
from replay.clients import complete_response, published, published_event
from support import sdks
from support.inprocess import SSE, inprocess, replying
from support.places import ROOT, SANDBOX_IMAGES
from support.stores import available_to
from support.usage_files import rows_by_id
from support.waiting import SECONDS, until
from tollgate.sandbox import Sandbox

CLIENTS = ("chat", "responses", "messages")


def test_every_row_has_a_test():
    found = {
        node.name[5:7]
        for file in Path(__file__).parent.glob("test_*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and node.name[5:7].isdigit()
        and node.name[7] == "_"
    }
    assert found == {f"{row:02}" for row in range(1, 33)}


@contextlib.asynccontextmanager
async def answering(folder, upstream: str, *bodies, stream: bool = False, **how):
    """A gateway whose upstream answers with the bodies in turn and repeats the last. Yields a function that sends a
    request as a client does, and returns the reply, its row and the request that the upstream received."""
    coming, seen = list(bodies), []

    async def app(*call):
        body = coming.pop(0) if len(coming) > 1 else coming[0]
        raw = body if stream or isinstance(body, bytes) else json.dumps(body).encode()
        return await (replying(blocks=raw, headers=SSE, seen=seen) if stream else replying(body=raw, seen=seen))(*call)

    async with inprocess(
        folder, providers={"acme": provider("app://acme/v1/talk", upstream, **how)}, apps={"acme": app}
    ) as here:

        async def send(client: str, ask=None, path_more: str = ""):
            before = len(seen)
            reply = await here.post(
                PATHS[client] + path_more, {**ASKS[client], **({"stream": True} if stream else {}), **(ask or {})}
            )
            row = (await rows_by_id(here, folder)).get(reply.headers["x-request-id"])
            return reply, row, [json.loads(each[3]) for each in seen[before:]]

        yield send


async def answered(folder, upstream: str, body, *, client: str | None = None, ask=None, path_more: str = "", **how):
    """One answer of an upstream through a gateway: the reply, its row and the request that the upstream received."""
    async with answering(folder, upstream, body, **how) as send:
        return await send(client or upstream, ask, path_more)


# ---- money ----------------------------------------------------------------------------------------------------------
PRICES = (
    '{prompt: "10", completion: "100", input_cache_read: "1", input_cache_write: "12", internal_reasoning: "%s", unit: '
    "1, currency: USD}"
)
USAGE = {
    "chat": {
        "prompt_tokens": 100,
        "completion_tokens": 30,
        "total_tokens": 130,
        "prompt_tokens_details": {"cached_tokens": 40},
        "completion_tokens_details": {"reasoning_tokens": 20},
    },
    "responses": {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 40},
        "output_tokens": 30,
        "output_tokens_details": {"reasoning_tokens": 20},
        "total_tokens": 130,
    },
    "messages": {
        "input_tokens": 50,
        "cache_read_input_tokens": 40,
        "cache_creation_input_tokens": 10,
        "output_tokens": 30,
    },
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("upstream", CLIENTS)
async def test_01_cached_tokens_are_charged_once_at_their_own_price(tmp_path, client, upstream):
    """40 of 100 prompt tokens came from a cache: two vendors count them inside, one beside."""
    reply, row, _ = await answered(
        tmp_path, upstream, whole(upstream, **USAGE[upstream]), client=client, price=PRICES % ""
    )
    written = 10 if upstream == "messages" else 0
    assert (row["input_tokens"], row["cache_read_tokens"], row["cache_write_tokens"]) == (60 - written, 40, written)
    assert row["cost"] == (60 - written) * 10 + 40 + written * 12 + 30 * 100
    reported = reply.json()["usage"]
    cached = {
        "chat": lambda: reported["prompt_tokens_details"]["cached_tokens"],
        "responses": lambda: reported["input_tokens_details"]["cached_tokens"],
        "messages": lambda: reported["cache_read_input_tokens"],
    }[client]()
    prompt = (
        reported["prompt_tokens"]
        if client == "chat"
        else reported["input_tokens"]
        + (cached + reported.get("cache_creation_input_tokens", 0) if client == "messages" else 0)
    )
    assert (prompt, cached) == (100, 40)


def usage_homes() -> dict[str, list[bytes]]:
    frame = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    text = {**frame, "choices": [{"index": 0, "delta": {"role": "assistant", "content": "hi"}, "finish_reason": None}]}
    end = {**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    late = {
        **frame,
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}],
        "usage": usage,
    }
    partly = {"prompt_tokens": 7, "completion_tokens": None, "total_tokens": None}
    cases = {
        "an extra chunk without choices": [text, end, {**frame, "choices": [], "usage": usage}],
        "the finishing chunk": [text, {**end, "usage": usage}],
        "a chunk with an empty delta after the finish": [text, end, late],
        "before the finish": [text, {**frame, "choices": [], "usage": usage}, end],
        "every chunk, partly null": [{**text, "usage": partly}, {**end, "usage": usage}],
        "a vendor's own member": [text, {**end, "x_groq": {"id": "r", "usage": usage}}],
        "the choice that ends": [text, {**end, "choices": [{**end["choices"][0], "usage": usage}]}],
        "not the last chunk": [
            text,
            end,
            {**frame, "choices": [], "usage": usage},
            {**frame, "choices": [], "usage": None, "moderation": {}},
        ],
    }
    return {
        name: [b"data: " + json.dumps(each).encode() + b"\n\n" for each in chunks] for name, chunks in cases.items()
    }


@pytest.mark.parametrize("done", [True, False], ids=["with DONE", "without DONE"])
@pytest.mark.parametrize("home", usage_homes())
async def test_02_streamed_usage_is_found_in_every_known_place(tmp_path, home, done):
    blocks = [*usage_homes()[home], *([b"data: [DONE]\n\n"] if done else [])]
    async with answering(tmp_path, "chat", blocks, stream=True) as send:
        for client in CLIENTS:
            reply, row, _ = await send(client)
            assert row, "our own id, never the provider's"
            assert (row["input_tokens"], row["output_tokens"], row["estimated"], row["outcome"]) == (
                7,
                3,
                False,
                "ok",
            ), client
            if client == "chat":
                last, mark = reply.text.strip().split("\n\n")[-2:]
                last = json.loads(last.removeprefix("data: "))
                with_usage = [
                    block
                    for block in reply.text.split("\n\n")
                    if '"finish_reason": "stop"' in block or '"finish_reason":"stop"' in block
                ]
                assert mark == "data: [DONE]" and len(with_usage) == 1
                assert (
                    json.loads(with_usage[0].removeprefix("data: "))["usage"]["total_tokens"] == 10
                    and last.get("usage")
                    or "moderation" in last
                )


@pytest.mark.parametrize("home", ["an extra chunk without choices", "the finishing chunk"])
async def test_02_usage_is_found_if_the_last_chunks_are_formatted_differently(tmp_path, home):
    first, *rest = usage_homes()[home]
    rest = [b"data: " + orjson.dumps(json.loads(block.removeprefix(b"data: "))) + b"\n\n" for block in rest]
    _, row, _ = await answered(tmp_path, "chat", [first, *rest, b"data: [DONE]\n\n"], client="chat", stream=True)
    assert (row["input_tokens"], row["output_tokens"], row["estimated"], row["outcome"]) == (7, 3, False, "ok")


@pytest.mark.parametrize("ending", ["response.incomplete", "response.failed"])
async def test_02_usage_of_an_incomplete_answer_is_billed(tmp_path, ending):
    blocks = events("responses")
    last = json.loads(blocks[-1].partition(b"data: ")[2])
    last["type"], last["response"]["status"] = ending, ending.partition(".")[2]
    if ending == "response.failed":
        last["response"]["error"] = {"code": "server_error", "message": "it broke"}
    else:
        last["response"]["incomplete_details"] = {"reason": "max_output_tokens"}
    blocks[-1] = f"event: {ending}\ndata: {json.dumps(last)}\n\n".encode()
    async with answering(tmp_path, "responses", blocks, stream=True) as send:
        for client in CLIENTS:
            _, row, _ = await send(client)
            assert (row["input_tokens"], row["output_tokens"], row["estimated"]) == (10, 5, False), client
            assert row["outcome"] == ("upstream_error" if ending == "response.failed" else "ok"), client


@pytest.mark.parametrize(
    ("price", "wanted"),
    [("", 100), ("0", 0), ("7", 7)],
    ids=["no price: as completion", "0 is free", "a price of its own"],
)
async def test_03_reasoning_tokens_are_part_of_the_output_and_charged_once(tmp_path, price, wanted):
    without_total = {name: count for name, count in USAGE["chat"].items() if name != "total_tokens"}
    for n, usage in enumerate((USAGE["chat"], without_total)):
        _, row, _ = await answered(tmp_path / str(n), "chat", whole("chat", **usage), price=PRICES % price)
        assert (row["output_tokens"], row["reasoning_tokens"]) == (10, 20)
        assert row["cost"] == 60 * 10 + 40 * 1 + 10 * 100 + 20 * wanted


async def test_08_the_database_is_not_on_the_hot_path(tmp_path, monkeypatch):
    """With the store's writer blocked, requests are answered as fast as before; their rows are safe in the journal."""
    import threading

    from tollgate.ledger.store import Store

    stuck = threading.Event()
    apply = Store.apply
    async with inprocess(tmp_path) as here:
        monkeypatch.setattr(Store, "apply", lambda self, entries: (stuck.wait(30), apply(self, entries))[1])
        body = {"model": "sandbox/echo", "messages": [{"role": "user", "content": "hi"}]}
        clock = asyncio.get_running_loop().time  # which excludes the time in which the process was suspended
        began = clock()
        replies = [await here.post(PATHS["chat"], body) for _ in range(50)]
        assert all(reply.status_code == 200 for reply in replies) and clock() - began < 25
        stuck.set()
        assert len(await rows_by_id(here, tmp_path)) == 50


# ---- conversion -----------------------------------------------------------------------------------------------------
TOOL = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
TOOLS = {
    "chat": [
        {"type": "function", "function": {"name": name, "parameters": schema}}
        for name, schema in (("weather", TOOL), ("now", {"type": "object", "properties": {}}))
    ],
    "responses": [
        {"type": "function", "name": name, "parameters": schema, "strict": False}
        for name, schema in (("weather", TOOL), ("now", {"type": "object", "properties": {}}))
    ],
    "messages": [
        {"name": name, "input_schema": schema}
        for name, schema in (("weather", TOOL), ("now", {"type": "object", "properties": {}}))
    ],
}
SPOKEN = {"chat": "/chat/completions", "responses": "/responses", "messages": "/messages"}


def split_streams(sandbox, seed: int):
    """The sandbox behind a network that splits its streams anywhere."""
    rng = random.Random(seed)

    async def app(method, path, headers, body):
        status, sent_headers, blocks = await sandbox(method, path, headers, body)

        async def pieces():
            async for block in blocks:
                while block:
                    size = rng.randint(1, 60)
                    yield block[:size]
                    block = block[size:]

        return status, sent_headers, pieces()

    return app


def tool_request(client: str, text: str, **more):
    body = {**ASKS[client], "model": "cut/echo", "tools": TOOLS[client], **more}
    body["input" if client == "responses" else "messages"] = (
        text if client == "responses" else [{"role": "user", "content": text}]
    )
    return body


@pytest.mark.parametrize(("client", "upstream"), [(c, u) for c in CLIENTS for u in CLIENTS], ids=lambda word: word)
async def test_09_streamed_tool_calls_equal_those_of_the_whole_answer(tmp_path, client, upstream):
    """Parallel calls, one without arguments, text before them, arguments full of quotes; split anywhere."""
    arguments = {"city": 'Zürich "Ö" \\ \n end', "days": 3}
    text = (
        f'[[tool=weather {json.dumps(arguments)}]] [[tool=now {{}}]] [[tool=weather {{"city": "Rom", "days": -1}}]] go'
    )
    wanted = [("weather", arguments), ("now", {}), ("weather", {"city": "Rom", "days": -1})]
    one = provider(f"app://cut/v1{SPOKEN[upstream]}", upstream, name="cut", model="cut/echo").replace("up-1", "echo")
    async with inprocess(tmp_path, providers={"cut": one}, apps={"cut": split_streams(Sandbox(), 7)}) as here:
        sdk = sdks.client_of(here, client)
        for preface in ("", "[[preface]] "):
            body = tool_request(client, preface + text)
            for found, words in (
                calls_of(client, await sdks.whole(sdk, client, body)),
                await streamed_calls(sdk, client, body),
            ):
                assert [(name, args) for _, name, args in found] == wanted
                assert len({each for each, _, _ in found}) == 3 and all(each for each, _, _ in found)
                assert bool(words) == bool(preface)


def calls_of(client: str, answer: dict):
    """((id, name, arguments), ...) and the text of a whole answer."""
    if client == "chat":
        message = answer["choices"][0]["message"]
        assert answer["choices"][0]["finish_reason"] == "tool_calls"
        return [
            (c["id"], c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message["tool_calls"]
        ], message["content"]
    if client == "responses":
        calls = [
            (i["call_id"], i["name"], json.loads(i["arguments"]))
            for i in answer["output"]
            if i["type"] == "function_call"
        ]
        return calls, "".join(p["text"] for i in answer["output"] if i["type"] == "message" for p in i["content"])
    assert answer["stop_reason"] == "tool_use"
    calls = [(b["id"], b["name"], b["input"]) for b in answer["content"] if b["type"] == "tool_use"]
    return calls, "".join(b["text"] for b in answer["content"] if b["type"] == "text")


async def streamed_calls(sdk, client: str, body: dict):
    """The same, collected by the SDK's own stream helper."""
    known = {name: value for name, value in body.items() if name != "stream"}
    if client == "chat":
        async with sdk.chat.completions.stream(**known) as stream:
            return calls_of(client, json.loads((await stream.get_final_completion()).to_json()))
    if client == "responses":
        async with sdk.responses.stream(**known) as stream:
            return calls_of(client, json.loads((await stream.get_final_response()).to_json()))
    async with sdk.messages.stream(**known) as stream:
        return calls_of(client, json.loads((await stream.get_final_message()).to_json()))


THOUGHT = [
    {"type": "thinking", "thinking": "", "signature": "only-signed=="},
    {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
    {"type": "redacted_thinking", "data": "opaque=="},
    {"type": "text", "text": "so"},
]


async def test_10_thinking_passes_a_native_route_byte_for_byte(tmp_path):
    history = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": THOUGHT},
        {"role": "user", "content": "b"},
    ]
    raw = json.dumps(
        {
            "model": "acme/one",
            "max_tokens": 10,
            "messages": history,
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "brand_new": [1.10, "\u00e9"],
        }
    )
    seen: list = []
    body = json.dumps({**whole("messages"), "content": THOUGHT}, indent=3).encode()
    async with inprocess(
        tmp_path,
        providers={"acme": provider("app://acme/v1/messages", "messages")},
        apps={"acme": replying(body=body, seen=seen)},
    ) as here:
        reply = await here.post(
            PATHS["messages"] + "?beta=true",
            raw.encode(),
            anthropic_beta="a-2026,b-2025",
            anthropic_version="2023-06-01",
        )
    assert seen[0][3] == raw.replace("acme/one", "up-1").encode() and reply.content == body
    assert (
        seen[0][1].endswith("?beta=true")
        and seen[0][2]["anthropic-beta"] == "a-2026,b-2025"
        and seen[0][2]["anthropic-version"] == "2023-06-01"
    )


@pytest.mark.parametrize("client", ["chat", "responses"])
async def test_10_thinking_round_trips_through_another_format(tmp_path, client):
    """Empty but signed, signed and redacted blocks return to the provider exactly as it sent them."""
    seen: list = []
    body = {
        **whole("messages"),
        "content": [*THOUGHT, {"type": "tool_use", "id": "toolu_1", "name": "now", "input": {}}],
        "stop_reason": "tool_use",
    }
    async with inprocess(
        tmp_path,
        providers={"acme": provider("app://acme/v1/messages", "messages")},
        apps={"acme": replying(body=json.dumps(body).encode(), seen=seen)},
    ) as here:
        first = (await here.post(PATHS[client], {**ASKS[client], "tools": TOOLS[client]})).json()
        if client == "chat":
            history = [
                *ASKS["chat"]["messages"],
                first["choices"][0]["message"],
                {"role": "tool", "tool_call_id": "toolu_1", "content": "noon"},
            ]
            again = {**ASKS["chat"], "messages": history, "tools": TOOLS["chat"]}
        else:
            history = [
                {"role": "user", "content": "hello"},
                *first["output"],
                {"type": "function_call_output", "call_id": "toolu_1", "output": "noon"},
            ]
            again = {**ASKS["responses"], "input": history, "tools": TOOLS["responses"]}
        assert (await here.post(PATHS[client], again)).status_code == 200
    back = json.loads(seen[1][3])["messages"][1]["content"]
    assert [block for block in back if "thinking" in block["type"]] == THOUGHT[:3]
    assert [block["type"] for block in back] == ["thinking", "thinking", "redacted_thinking", "text", "tool_use"]


async def test_11_cache_breakpoints_survive_a_conversion_and_cache_tokens_are_reported(tmp_path):
    mark = {"cache_control": {"type": "ephemeral"}}
    ask = {
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "long", **mark}]},
            {"role": "user", "content": [{"type": "text", "text": "q", **mark}]},
        ],
        "tools": [{**TOOLS["chat"][0], **mark}],
    }
    usage = {"input_tokens": 3, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 70, "output_tokens": 5}
    reply, row, (sent,) = await answered(tmp_path, "messages", whole("messages", **usage), client="chat", ask=ask)
    assert (
        sent["system"][0]["cache_control"]
        == sent["messages"][0]["content"][0]["cache_control"]
        == sent["tools"][0]["cache_control"]
        == mark["cache_control"]
    )
    assert (
        reply.json()["usage"]["prompt_tokens"] == 973
        and reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 900
    )
    assert (row["input_tokens"], row["cache_read_tokens"], row["cache_write_tokens"]) == (3, 900, 70)


@pytest.mark.parametrize("upstream", ["chat", "responses", "messages"])
async def test_12_messages_streams_start_and_end_with_usage(tmp_path, upstream):
    reply, row, _ = await answered(tmp_path, upstream, events(upstream), client="messages", stream=True)
    sent_events = [json.loads(block.partition("data: ")[2]) for block in reply.text.strip().split("\n\n")]
    start, last = (
        sent_events[0]["message"]["usage"],
        next(event for event in sent_events if event["type"] == "message_delta")["usage"],
    )
    assert isinstance(start["input_tokens"], int) and isinstance(start["output_tokens"], int)
    if upstream != "messages":
        assert (last["input_tokens"], last["output_tokens"]) == (10, 5)
    assert row["input_tokens"] == 10


PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n not much of a picture").decode()


@pytest.mark.parametrize("upstream", ["chat", "responses"])
async def test_13_an_image_inside_a_tool_result_is_carried(tmp_path, upstream):
    result = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [
            {"type": "text", "text": "see"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
        ],
    }
    history = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "now", "input": {}}]},
        {"role": "user", "content": [result]},
    ]
    reply, _, sent = await answered(
        tmp_path, upstream, whole(upstream), client="messages", ask={"messages": history, "tools": TOOLS["messages"]}
    )
    assert reply.status_code == 200 and PIXEL in json.dumps(sent[0]) and "see" in json.dumps(sent[0])


@pytest.mark.parametrize(
    ("client", "upstream", "part", "message"),
    [
        (
            "chat",
            "messages",
            {"type": "video_url", "video_url": {"url": "https://v.example/a.mp4"}},
            "video input is not supported by this model",
        ),
        (
            "chat",
            "messages",
            {"type": "input_audio", "input_audio": {"data": PIXEL, "format": "wav"}},
            "audio input is not supported by this model",
        ),
        ("responses", "messages", {"type": "input_file", "file_id": "file_own"}, "File with id 'file_own' not found"),
        (
            "messages",
            "chat",
            {"type": "document", "source": {"type": "file", "file_id": "file_own"}},
            "File with id 'file_own' not found",
        ),
    ],
    ids=["video", "audio", "a stored file from responses", "a stored file from messages"],
)
async def test_13_a_part_that_cannot_be_converted_is_rejected_by_name(tmp_path, client, upstream, part, message):
    content = [{"type": "input_text" if client == "responses" else "text", "text": "see"}, part]
    ask = {("input" if client == "responses" else "messages"): [{"role": "user", "content": content}]}
    reply, row, sent = await answered(tmp_path, upstream, whole(upstream), client=client, ask=ask)
    assert not sent and message in reply.text
    if client == "chat":
        assert (reply.status_code, row["outcome"], row["cost"]) == (400, "rejected", 0)
    else:  # no upload of this account has this id
        assert (reply.status_code, row) == (404, None)


@pytest.mark.parametrize(
    ("client", "upstream"),
    [("chat", "messages"), ("responses", "messages"), ("chat", "responses"), ("messages", "chat")],
)
async def test_14_structured_output_beside_tools_stays_structured_output(tmp_path, client, upstream):
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    ask = {
        "tools": TOOLS[client],
        **{
            "chat": {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "out", "schema": schema, "strict": True},
                }
            },
            "responses": {"text": {"format": {"type": "json_schema", "name": "out", "schema": schema, "strict": True}}},
            "messages": {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
        }[client],
    }
    reply, _, (sent,) = await answered(tmp_path, upstream, whole(upstream, '{"a": 1}'), client=client, ask=ask)
    wanted = {
        "chat": lambda: sent["response_format"]["json_schema"]["schema"],
        "responses": lambda: sent["text"]["format"]["schema"],
        "messages": lambda: sent["output_config"]["format"]["schema"],
    }[upstream]()
    assert wanted == schema and len(sent["tools"]) == 2, "no tool of our own making"
    assert (
        '{\\"a\\": 1}' in reply.text
        and "tool_use" not in reply.text
        and '"tool_calls":[' not in reply.text
        and 'function_call"' not in reply.text
    )


# ---- errors ---------------------------------------------------------------------------------------------------------
MATRIX = {
    "a broken request": (
        "[[error=400]] x",
        {"chat": (400, None), "responses": (400, "invalid_request_error"), "messages": (400, "invalid_request_error")},
    ),
    "unprocessable": (
        "[[error=422]] x",
        {"chat": (400, None), "responses": (422, "invalid_request_error"), "messages": (422, "invalid_request_error")},
    ),
    "our key is bad": (
        "[[error=401]] x",
        {"chat": (500, None), "responses": (500, "server_error"), "messages": (500, "api_error")},
    ),
    "our money is gone": (
        "[[error=402]] x",
        {"chat": (500, None), "responses": (500, "server_error"), "messages": (500, "api_error")},
    ),
    "forbidden": (
        "[[error=403]] x",
        {"chat": (500, None), "responses": (500, "server_error"), "messages": (500, "api_error")},
    ),
    "a rate limit there": (
        "[[error=429 retry-after=9]] x",
        {"chat": (500, None), "responses": (500, "server_error"), "messages": (500, "api_error")},
    ),
    "broken": (
        "[[error=500]] x",
        {"chat": (500, None), "responses": (500, "server_error"), "messages": (500, "api_error")},
    ),
    "overloaded": (
        "[[error=529]] x",
        {"chat": (500, None), "responses": (500, "server_error"), "messages": (529, "overloaded_error")},
    ),
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("case", MATRIX)
async def test_16_errors_have_the_shape_and_status_the_sdks_classify(tmp_path, client, case):
    text, wanted = MATRIX[case]
    status, kind = wanted[client]
    async with inprocess(tmp_path) as here:
        sdk = sdks.client_of(here, client)
        body = {**ASKS[client], "model": "sandbox/echo"}
        body["input" if client == "responses" else "messages"] = (
            text if client == "responses" else [{"role": "user", "content": text}]
        )
        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as caught:
            await sdks.whole(sdk, client, body)
        error = caught.value
        assert error.status_code == status and "None" not in error.response.text
        assert error.request_id and error.request_id.startswith("req_")
        if kind is None:
            assert error.response.headers["content-type"].startswith("text/plain")
        elif client == "responses":
            assert error.type == kind and set(error.response.json()["error"]) == {"message", "type", "param", "code"}
        else:
            assert error.body["error"]["type"] == kind and error.body["request_id"] == error.request_id
        if "retry-after" in text:
            assert error.response.headers["retry-after"] == "9"
        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as caught:
            await sdks.events(sdk, client, body)
        assert caught.value.status_code == status, "the same before a stream has begun"
        assert {row["status"] for row in (await rows_by_id(here, tmp_path)).values()} == {status}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (422, "invalid_request_error"),
    ],
)
async def test_16_a_messages_client_receives_error_types_it_knows(tmp_path, status, kind):
    """Whatever a provider of another format sends as type and code, `"None"` included."""
    for n, word in enumerate(("BadRequestError", None, "None", "invalid_request_message")):
        app = replying(status, json.dumps({"error": {"message": "odd", "type": word, "code": word}}).encode())
        async with inprocess(
            tmp_path / str(n), providers={"acme": provider("app://acme/v1", "chat")}, apps={"acme": app}
        ) as here:
            reply = await here.post(PATHS["messages"], ASKS["messages"])
            assert (reply.status_code, reply.json()["error"]) == (status, {"type": kind, "message": "odd"})
            error = (await here.post(PATHS["responses"], ASKS["responses"])).json()["error"]
            assert error["type"] not in (None, "None") and error["code"] != "None"


@pytest.mark.parametrize("upstream", ["chat", "responses", "messages"])
@pytest.mark.parametrize(
    ("status", "kind", "code"), [(413, "request_too_large", "request_too_large"), (404, "not_found_error", None)]
)
async def test_16_an_error_has_the_type_and_code_of_the_clients_format(tmp_path, upstream, status, kind, code):
    """A messages upstream has a type of its own for a request that is too large, the others use `invalid_request_error`
    for everything."""
    error_body = (
        {"type": "error", "error": {"type": kind, "message": "odd"}}
        if upstream == "messages"
        else {"error": {"message": "odd", "type": "invalid_request_error", "param": None, "code": None}}
    )
    acme = (
        provider("app://acme/v1", upstream)
        + f"errors: {{message: $.error.message, type: $.error.type, code: $.error.code, stop: [{status}]}}\n"
    )
    async with inprocess(
        tmp_path, providers={"acme": acme}, apps={"acme": replying(status, json.dumps(error_body).encode())}
    ) as here:
        reply = await here.post(PATHS["messages"], ASKS["messages"])
        assert (reply.status_code, reply.json()["error"]) == (status, {"type": kind, "message": "odd"})
        reply = await here.post(PATHS["responses"], ASKS["responses"])
        assert (reply.status_code, reply.json()["error"]) == (
            status,
            {"message": "odd", "type": "invalid_request_error", "param": None, "code": code},
        )


async def test_16_a_responses_stream_that_fails_during_keepalives_contains_a_failed_response(tmp_path):
    """The SDK requires a response before anything else, even an error (CLIENTS 3a), and the failure in it (3b)."""
    ask = {"model": "sandbox/echo", "stream": True, "input": "hi [[delay=500ms]][[error=503]]"}
    async with inprocess(tmp_path, settings="server: {keepalive_comment_seconds: 0.1}\n") as here:
        reply = await here.post(PATHS["responses"], ask)
        assert reply.status_code == 200 and reply.text.startswith(": keep-alive\n")
        assert 'endpoint="responses",status="200"' in (await here.get("/metrics")).text
        seen = [
            json.loads(line.removeprefix("data: ")) for line in reply.text.splitlines() if line.startswith("data: ")
        ]
        assert [(event["type"], event["sequence_number"]) for event in seen] == [
            ("response.created", 0),
            ("error", 1),
            ("response.failed", 2),
        ]
        failed = seen[2]["response"]
        assert (failed["status"], failed["error"]["code"], failed["error"]["message"]) == (
            "failed",
            "server_error",
            seen[1]["message"],
        )
        assert failed["id"] == seen[0]["response"]["id"] != ""
        complete_response(failed)
        async with sdks.client_of(here, "responses").responses.stream(
            model="sandbox/echo", input=ask["input"]
        ) as stream:
            assert [event.type async for event in stream] == ["response.created", "error", "response.failed"]
    published("Response", failed)
    for event in seen:
        published_event(event)


@pytest.mark.parametrize(
    ("wait_header", "seconds"),
    [
        ({"retry-after": "30"}, 30),
        ({"retry-after-ms": "30000"}, 30),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "30s"}, 30),
        ({"retry-after": "Fri, 01 Jan 2100 00:00:00 GMT"}, 120),
    ],
    ids=["seconds", "milliseconds", "a reset header", "a date far away"],
)
async def test_17_a_route_is_not_called_before_its_retry_after(tmp_path, wait_header, seconds):
    called: list = []

    def app(name, answer):
        async def call(method, path, headers, body):
            called.append(name)
            return await answer(method, path, headers, body)

        return call

    bad = replying(
        429, b'{"error": {"message": "slow down"}}', headers={"content-type": "application/json", **wait_header}
    )
    routes = {
        name: provider(f"app://{name}/v1", "chat", name=name, more=f"priority: {n}")
        for n, name in enumerate(("first", "second"))
    }
    async with inprocess(
        tmp_path,
        providers=routes,
        apps={"first": app("first", bad), "second": app("second", replying(body=json.dumps(whole("chat")).encode()))},
    ) as here:
        for n in range(3):  # separate conversations: one would stay with the route that answered it
            ask = {**ASKS["chat"], "messages": [{"role": "user", "content": f"hello {n}"}]}
            assert (await here.post(PATHS["chat"], ask)).status_code == 200
        assert called.count("second") == 3 and called.count("first") == 1
    called.clear()
    alone = {"first": routes["first"]}
    async with inprocess(tmp_path / "alone", providers=alone, apps={"first": app("first", bad)}) as here:
        for client in CLIENTS:
            reply = await here.post(PATHS[client], ASKS[client])
            assert reply.status_code == 500 and reply.headers["retry-after"] == str(seconds)
        assert len(called) == 3, "if all are cooling down, the one that recovers first is tried"


async def test_18_the_file_determines_what_is_retried_and_no_route_is_called_twice(tmp_path):
    called: list = []

    def app(name, status):
        async def call(method, path, headers, body):
            called.append(name)
            return await replying(
                status, json.dumps(whole("chat")).encode() if status == 200 else b'{"error": {"message": "no"}}'
            )(method, path, headers, body)

        return call

    async def tried(statuses, more=""):
        called.clear()
        routes = {
            f"r{n}": provider(f"app://r{n}/v1", "chat", name=f"r{n}", more=f"priority: {n}\n{more}")
            for n in range(len(statuses))
        }
        async with inprocess(
            tmp_path / f"{len(list(tmp_path.iterdir()))}",
            providers=routes,
            apps={f"r{n}": app(f"r{n}", status) for n, status in enumerate(statuses)},
        ) as here:
            return (await here.post(PATHS["chat"], ASKS["chat"])).status_code, list(called)

    assert await tried([504, 524, 200]) == (200, ["r0", "r1", "r2"])
    assert await tried([401, 403, 402, 200]) == (500, ["r0", "r1", "r2"])
    assert await tried([408, 200]) == (200, ["r0", "r1"])
    assert await tried([400, 200]) == (400, ["r0"])
    assert await tried([418, 200]) == (400, ["r0"])
    assert await tried([418, 200], "errors: {retry: [418]}") == (200, ["r0", "r1"])
    assert await tried([503, 200], "errors: {stop: [503]}") == (400, ["r0"])


async def test_20_counting_a_huge_answer_does_not_block_the_loop(tmp_path):
    """Eight megabytes without usage must be counted; meanwhile the loop answers other requests."""
    text = "word and another word, " * 350_000
    silent = json.dumps({name: value for name, value in whole("chat", text).items() if name != "usage"}).encode()
    async with inprocess(
        tmp_path, providers={"acme": provider("app://acme/v1", "chat")}, apps={"acme": replying(body=silent)}
    ) as here:
        worst = 0.0
        busy = asyncio.create_task(
            here.post(PATHS["chat"], {**ASKS["chat"], "messages": [{"role": "user", "content": text}]})
        )
        while not busy.done():
            began = time.process_time()  # CPU time, which excludes other processes
            await asyncio.sleep(0.005)
            worst = max(worst, time.process_time() - began)
        reply = await busy
        (row,) = (await rows_by_id(here, tmp_path)).values()
    assert reply.status_code == 200 and row["estimated"] and row["output_tokens"] > 1_000_000
    assert worst < 0.3, f"the loop stood still while {worst:.2f} s were computed"


async def test_21_no_network_is_required_to_start_or_to_count(tmp_path, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "nothing"))

    def refuse(*where, **how):
        raise AssertionError(f"a connection to {where}")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    silent = json.dumps({name: value for name, value in whole("chat").items() if name != "usage"}).encode()
    async with inprocess(
        tmp_path, providers={"acme": provider("app://acme/v1", "chat")}, apps={"acme": replying(body=silent)}
    ) as here:
        assert (await here.post(PATHS["chat"], ASKS["chat"])).json()["usage"]["completion_tokens"] == 2
        assert (await here.post("/v1/embeddings", {"model": "sandbox/embed", "input": "a"})).status_code == 200


async def test_26_invalid_keys_fill_no_table(tmp_path):
    async with inprocess(tmp_path) as here:
        for n in range(200):
            assert (await here.post(PATHS[CLIENTS[n % 3]], b"x" * 10, key=f"sk-{n}")).status_code == 401
        assert (await here.http.get("/.env")).status_code == 404
        assert await rows_by_id(here, tmp_path) == {}
        assert 'reason="invalid_api_key"} 200' in (await here.get("/metrics")).text
        text = (await here.get("/metrics")).text
        assert len(text.splitlines()) < 200, "labels are bounded"


async def test_27_nothing_stays_held_after_requests_were_cancelled(tmp_path):
    async with inprocess(tmp_path) as here:
        _, key = await here.services.ledger.create_key("default", rpm=1000, spend_cap=Decimal(1))
        body = {"model": "sandbox/echo", "messages": [{"role": "user", "content": "[[delay=60s]] x"}]}
        tasks = [
            asyncio.create_task(here.post(PATHS["chat"], {**body, "stream": bool(n % 2)}, key=key)) for n in range(30)
        ]
        await until(lambda: len(here.services.live) == len(tasks))
        assert await available_to(here.services.ledger, "default") < here.balance()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await until(lambda: not here.services.live)
        await here.services.settlements.drain(SECONDS)
        assert await available_to(here.services.ledger, "default") == here.balance()
        assert (
            await here.post(PATHS["chat"], {**body, "messages": [{"role": "user", "content": "x"}]}, key=key)
        ).status_code == 200


async def test_28_an_image_job_is_charged_once_however_often_it_is_polled(tmp_path):
    async with inprocess(tmp_path, providers={"sandbox-images": SANDBOX_IMAGES}) as here:
        job = (
            await here.post(
                "/v1/images/generations", {"model": "sandbox/draw", "input": {"prompt": "[[duration=300ms]] a cat"}}
            )
        ).json()["data"]["id"]
        polls = []

        async def succeeded() -> bool:
            polls[:] = await asyncio.gather(*(here.get(f"/v1/images/generations/{job}") for _ in range(10)))
            return all(poll.json()["data"]["status"] == "succeeded" for poll in polls)

        await until(succeeded)
        assert {poll.json()["data"]["cost"] for poll in polls} == {0.01}
        rows = await rows_by_id(here, tmp_path)
        assert [row["cost"] for row in rows.values()] == [Decimal("0.01")] and here.balance() == Decimal("99.99")
        failed = (
            await here.post(
                "/v1/images/generations",
                {"model": "sandbox/draw", "input": {"prompt": "[[fail=no]] [[duration=50ms]] a cat"}},
            )
        ).json()["data"]["id"]
        done = (await here.ended_job(failed)).json()["data"]
        assert done["status"] == "failed" and "no" in done["error"]
        assert here.balance() == Decimal("99.99"), "what failed costs nothing"


async def test_29_images_are_priced_by_what_was_produced(tmp_path):
    async with inprocess(tmp_path, providers={"sandbox-images": SANDBOX_IMAGES}) as here:
        for count in (1, 3):
            before = here.balance()
            done = (
                await here.post(
                    "/v1/images/generations", {"model": "sandbox/paint", "input": {"prompt": "a cat", "n": count}}
                )
            ).json()["data"]
            shown = (await here.get(f"/v1/images/generations/{done['id']}")).json()["data"]
            assert len(shown["images"]) == count and before - here.balance() == Decimal("0.02") * count


def test_31_few_dependencies_and_each_with_a_floor():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(project["dependencies"]) <= 18 and all(">=" in each for each in project["dependencies"])


@pytest.mark.parametrize("upstream", CLIENTS)
async def test_32_impossible_usage_is_replaced_by_a_marked_estimate(tmp_path, upstream):
    names = ("prompt_tokens", "completion_tokens") if upstream == "chat" else ("input_tokens", "output_tokens")
    counted = {
        (-5, 10): (8, 2),
        (10**15, 10): (8, 2),
        (10, "lots"): (10, 2),
        (True, None): (8, 2),
        (3.0, 4): (3, 4),
    }
    async with answering(
        tmp_path, upstream, *(whole(upstream, **dict(zip(names, reported, strict=True))) for reported in counted)
    ) as send:
        for reported, tokens in counted.items():
            reply, row, _ = await send(upstream)
            assert reply.status_code == 200
            assert (row["input_tokens"], row["output_tokens"]) == tokens, reported
            assert row["estimated"] is (reported != (3.0, 4)), reported
            assert row["cost"] == Decimal(tokens[0] + 2 * tokens[1]) / 1_000_000, reported


async def test_32_a_price_that_is_a_million_times_too_high_causes_a_warning(tmp_path):
    from tollgate.config.build import load_gateway

    path = tmp_path / "gateway.yaml"
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "acme.yaml").write_text(
        provider("https://a.example/v1", "chat", price='{prompt: "3", completion: "15", currency: USD}')
    )
    path.write_text("")
    warnings = load_gateway(path, environ={}).warnings
    assert any("per million" in warning.render() for warning in warnings)


# ---- what a converter must get right --------------------------------------------------------------------------------
@pytest.mark.parametrize("upstream", ["chat", "messages"])
async def test_responses_streams_have_event_names_gapless_numbers_and_usage_details(tmp_path, upstream):
    reply, _, _ = await answered(tmp_path, upstream, events(upstream), client="responses", stream=True)
    blocks = [block.split("\ndata: ") for block in reply.text.strip().split("\n\n")]
    bodies = [json.loads(data) for _, data in blocks]
    assert [name.removeprefix("event: ") for name, _ in blocks] == [body["type"] for body in bodies]
    assert [body["sequence_number"] for body in bodies] == list(range(len(bodies)))
    usage = bodies[-1]["response"]["usage"]
    assert (
        usage["input_tokens_details"]["cached_tokens"] == 0 and usage["output_tokens_details"]["reasoning_tokens"] == 0
    )


async def test_a_tool_without_strict_is_not_strict_in_responses(tmp_path):
    _, _, (sent,) = await answered(
        tmp_path, "responses", whole("responses"), client="chat", ask={"tools": TOOLS["chat"]}
    )
    assert [tool["strict"] for tool in sent["tools"]] == [False, False]


async def test_a_call_of_a_hosted_tool_is_never_left_to_the_client(tmp_path):
    content = [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "text", "text": "found"},
    ]
    for client in ("chat", "responses"):
        reply, _, _ = await answered(
            tmp_path / client, "messages", {**whole("messages"), "content": content}, client=client
        )
        body = reply.json()
        if client == "chat":
            assert not body["choices"][0]["message"].get("tool_calls") and body["choices"][0]["finish_reason"] == "stop"
        else:
            assert all(item["type"] != "function_call" for item in body["output"])


@pytest.mark.parametrize(("client", "upstream"), CELLS, ids=IDS)
async def test_an_empty_turn_stays_empty(tmp_path, client, upstream):
    """No invented text, and no `null` where a format does not allow it."""
    reply, row, _ = await answered(tmp_path, upstream, whole(upstream, ""), client=client)
    assert reply.status_code == 200 and row["outcome"] == "ok"
    text = {
        "chat": lambda b: b["choices"][0]["message"]["content"] or "",
        "messages": lambda b: "".join(x["text"] for x in b["content"]),
        "responses": lambda b: "".join(p["text"] for i in b["output"] for p in i["content"]),
    }[client](reply.json())
    assert text == ""


async def test_an_agents_large_request_is_converted_and_its_losses_are_reported(tmp_path):
    """The requests of two widely used command-line agents (CLIENTS 3f), for a provider of another format."""
    codex = {
        "model": "acme/one",
        "stream": True,
        "store": False,
        "instructions": "be good " * 5000,
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}],
        "client_metadata": {"a": "b"},
        "include": ["reasoning.encrypted_content"],
        "parallel_tool_calls": False,
        "prompt_cache_key": "k",
        "reasoning": {"effort": "medium", "summary": "auto"},
        "tools": TOOLS["responses"],
        "tool_choice": "auto",
    }
    reply, _, (sent,) = await answered(
        tmp_path / "1", "messages", events("messages"), client="responses", ask=codex, stream=True
    )
    assert (
        reply.status_code == 200
        and "response.completed" in reply.text
        and "be good be good" in json.dumps(sent["system"])
        and len(sent["tools"]) == 2
    )
    claude = {
        "model": "acme/one",
        "max_tokens": 32000,
        "stream": True,
        "system": [{"type": "text", "text": "be good", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "go"}]}],
        "metadata": {"user_id": "u"},
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "tools": TOOLS["messages"],
    }
    reply, row, (sent,) = await answered(
        tmp_path / "2", "chat", events("chat"), client="messages", ask=claude, stream=True, path_more="?beta=true"
    )
    assert (
        reply.status_code == 200 and "message_stop" in reply.text and row["end_user"] == "u" and len(sent["tools"]) == 2
    )
    assert "context_management" in reply.headers["x-tollgate-dropped"] and sent["stream_options"] == {
        "include_usage": True
    }


@pytest.mark.parametrize("client", CLIENTS)
async def test_an_error_as_the_first_event_is_an_error_status_in_every_format(tmp_path, client):
    """A 200 followed only by an error: no client may take it for an answer."""
    for upstream in CLIENTS:
        reply, row, _ = await answered(
            tmp_path / upstream, upstream, [b": hello\n\n", FAILURES[upstream]], client=client, stream=True
        )
        overloaded = client == upstream == "messages"
        assert (reply.status_code, row["outcome"]) == (529 if overloaded else 500, "upstream_error")
