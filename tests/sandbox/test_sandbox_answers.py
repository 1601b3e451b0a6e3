"""The sandbox's answers in each protocol."""

from __future__ import annotations

import asyncio
import json
import re
import tracemalloc

import jsonschema
import pytest
import yaml
from sandbox_talk import PROTOCOLS, TOOLS, body_of, calls_of, exchange, finish_of, text_of, usage_of

from support.places import ROOT
from support.waiting import until
from tollgate.sandbox import Sandbox, counting, embeddings, signing
from tollgate.sandbox.samples import sample


def assembled(protocol: str, received) -> dict:
    """Assembles the whole answer from a stream."""
    if protocol == "responses":
        return received.objects[-1]["response"]
    if protocol == "messages":
        return _assembled_messages(received)
    message: dict = {"content": None}
    body: dict = {"choices": [{"message": message}]}
    for chunk in received.objects:
        if chunk.get("usage"):
            body["usage"] = chunk["usage"]
        for choice in chunk["choices"]:
            for name in ("content", "reasoning", "refusal"):
                if choice["delta"].get(name):
                    message[name] = (message.get(name) or "") + choice["delta"][name]
            for call in choice["delta"].get("tool_calls", []):
                known = message.setdefault("tool_calls", [])
                if call["index"] == len(known):
                    known.append(call)
                else:
                    known[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
            if choice["finish_reason"]:
                body["choices"][0]["finish_reason"] = choice["finish_reason"]
    return body


def _assembled_messages(received) -> dict:
    body: dict = {}
    for event in received.objects:
        kind = event["type"]
        if kind == "message_start":
            body = event["message"]
        elif kind == "content_block_start":
            body["content"].append({**event["content_block"], "json": ""})
        elif kind == "content_block_delta":
            block, delta = body["content"][event["index"]], event["delta"]
            for name in ("text", "thinking", "signature"):
                block[name] = block.get(name, "") + delta.get(name, "")
            block["json"] += delta.get("partial_json", "")
        elif kind == "content_block_stop":
            block = body["content"][event["index"]]
            if block["type"] == "tool_use":
                block["input"] = json.loads(block["json"] or "{}")
        elif kind == "message_delta":
            body.update(event["delta"])
            body["usage"].update(event.get("usage", {}))
    return body


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_answer_echoes_the_last_user_text(send, protocol):
    received = await send(protocol, "hi")
    assert (received.status, text_of(protocol, received.json)) == (200, "You said: hi")
    assert usage_of(protocol, received.json) == (1 + counting.PER_MESSAGE, 4)


WORDS = [
    "hi",
    "hi [[tool]]",
    "hi [[tools=3]] [[preface]]",
    "hi [[tokens=30]]",
    "hi [[refuse]]",
    "[[tool=nothing {}]]",
    "[[finish=length]] hi",
    "hi [[think]]",
    "hi [[empty]]",
]


@pytest.mark.parametrize("text", WORDS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_stream_adds_up_to_the_whole_answer(send, protocol, text):
    more = {"tools": TOOLS[protocol]}
    options = {"stream_options": {"include_usage": True}} if protocol == "chat" else {}
    whole = (await send(protocol, text, **more)).json
    stream = assembled(protocol, await send(protocol, text, stream=True, **more, **options))
    assert text_of(protocol, stream) == text_of(protocol, whole)
    assert calls_of(protocol, stream) == calls_of(protocol, whole)
    assert finish_of(protocol, stream) == finish_of(protocol, whole)
    assert usage_of(protocol, stream) == usage_of(protocol, whole)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_same_request_has_the_same_answer(protocol):
    async def once() -> str:
        received = await exchange(
            Sandbox(), *body_of(protocol, "hi [[tools=2]] [[preface]] [[think]]", tools=TOOLS[protocol])
        )
        return text_of(protocol, received.json) + str(calls_of(protocol, received.json)) + str(received.json["usage"])

    assert await once() == await once()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_tool_loop_ends_with_text(sandbox, protocol):
    path, body = body_of(protocol, "weather [[tools=2]]", tools=TOOLS[protocol])
    first = (await exchange(sandbox, path, body)).json
    assert [name for name, _ in calls_of(protocol, first)] == ["get", "put"]
    assert calls_of(protocol, first)[0][1] == {"city": "weather", "days": 3}
    if protocol == "chat":
        message = first["choices"][0]["message"]
        body["messages"] += [
            message,
            *({"role": "tool", "tool_call_id": c["id"], "content": "sunny"} for c in message["tool_calls"]),
        ]
    elif protocol == "responses":
        body["input"] += [
            *first["output"],
            *({"type": "function_call_output", "call_id": i["call_id"], "output": "sunny"} for i in first["output"]),
        ]
    else:
        body["messages"] += [
            {"role": "assistant", "content": first["content"]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": b["id"], "content": "sunny"} for b in first["content"]
                ],
            },
        ]
    second = (await exchange(sandbox, path, body)).json
    assert text_of(protocol, second) == "The tool said: sunny; sunny"
    assert calls_of(protocol, second) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_call_without_a_result_is_rejected(sandbox, protocol):
    path, body = body_of(protocol, "x [[tool]]", tools=TOOLS[protocol])
    first = (await exchange(sandbox, path, body)).json
    if protocol == "responses":
        body["input"] += [*first["output"], {"role": "user", "content": "well?"}]
    else:
        turn = (
            first["choices"][0]["message"] if protocol == "chat" else {"role": "assistant", "content": first["content"]}
        )
        body["messages"] += [turn, {"role": "user", "content": "well?"}]
    assert (await exchange(sandbox, path, body)).status == 400


FORCED = {
    "chat": [{"tool_choice": "required"}, {"tool_choice": {"type": "function", "function": {"name": "put"}}}],
    "responses": [{"tool_choice": "required"}, {"tool_choice": {"type": "function", "name": "put"}}],
    "messages": [{"tool_choice": {"type": "any"}}, {"tool_choice": {"type": "tool", "name": "put"}}],
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_tool_choice_is_obeyed(send, protocol):
    names = [
        [n for n, _ in calls_of(protocol, (await send(protocol, "x", tools=TOOLS[protocol], **choice)).json)]
        for choice in FORCED[protocol]
    ]
    assert names == [["get"], ["put"]]
    none = {"type": "none"} if protocol == "messages" else "none"
    assert calls_of(protocol, (await send(protocol, "x [[tool]]", tools=TOOLS[protocol], tool_choice=none)).json) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_only_one_call_is_made_if_parallel_calls_are_off(send, protocol):
    off = (
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
        if protocol == "messages"
        else {"parallel_tool_calls": False}
    )
    assert len(calls_of(protocol, (await send(protocol, "x [[tools=3]]", tools=TOOLS[protocol], **off)).json)) == 1


SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "age", "tags", "kind", "next", "when"],
    "properties": {
        "name": {"type": "string", "minLength": 3},
        "age": {"type": "integer", "exclusiveMinimum": 17, "multipleOf": 4},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2},
        "kind": {"const": "x"},
        "ok": {"type": ["boolean", "null"]},
        "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
        "when": {"type": "string", "format": "date-time"},
    },
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["next"],
        }
    },
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_structured_output_fits_the_schema(send, protocol):
    wanted = {
        "chat": {"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": SCHEMA}}},
        "responses": {"text": {"format": {"type": "json_schema", "name": "p", "schema": SCHEMA}}},
        "messages": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    }[protocol]
    jsonschema.validate(json.loads(text_of(protocol, (await send(protocol, "hello", **wanted)).json)), SCHEMA)


SCHEMAS = [
    {"type": "number", "maximum": -5},
    {"type": "integer", "minimum": 7},
    {"type": "number", "exclusiveMaximum": 1},
    {"type": "string", "maxLength": 2},
    {"type": "array", "items": {"type": "null"}, "minItems": 3},
    {"type": "object"},
    {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"properties": {"b": {"type": "boolean"}}, "required": ["b"]},
        ]
    },
    {"oneOf": [{"type": "string"}, {"type": "integer"}]},
    {"type": "string", "format": "uuid"},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2},
    {},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=[json.dumps(s)[:50] for s in SCHEMAS])
def test_samples_fit_their_schema(schema):
    jsonschema.validate(sample(schema, "some words"), schema)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_token_limit_ends_the_answer(send, protocol):
    name = {"chat": "max_completion_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}[protocol]
    body = (await send(protocol, "a b c d e f", **{name: 5})).json
    assert counting.count(text_of(protocol, body)) == 5
    assert finish_of(protocol, body) in ("length", "max_output_tokens", "max_tokens")


async def test_stop_sequences_end_the_answer(send):
    chat = (await send("chat", "one two three", stop=["two"])).json
    assert (text_of("chat", chat), finish_of("chat", chat)) == ("You said: one ", "stop")
    messages = (await send("messages", "one two three", stop_sequences=["two"])).json
    assert (messages["stop_reason"], messages["stop_sequence"]) == ("stop_sequence", "two")


async def test_several_choices_share_one_prompt(send):
    one, three = (await send("chat", "hi")).json, (await send("chat", "hi", n=3)).json
    assert [c["message"]["content"] for c in three["choices"]] == [
        "You said: hi",
        "You said: hi (choice 2)",
        "You said: hi (choice 3)",
    ]
    assert three["usage"]["prompt_tokens"] == one["usage"]["prompt_tokens"]


async def test_logprobs_cover_the_text(send):
    body = (await send("chat", "hi", logprobs=True, top_logprobs=2)).json
    entries = body["choices"][0]["logprobs"]["content"]
    assert "".join(e["token"] for e in entries) == "You said: hi"
    assert all(len(e["top_logprobs"]) == 2 and e["logprob"] < 0 for e in entries)
    chunks = (await send("chat", "hi", stream=True, logprobs=True)).objects
    tokens = [e["token"] for c in chunks for ch in c["choices"] if ch["logprobs"] for e in ch["logprobs"]["content"]]
    assert "".join(tokens) == "You said: hi"


IMAGES = {
    "chat": {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
    "responses": {"type": "input_image", "image_url": "data:image/png;base64,AA"},
    "messages": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_images_are_acknowledged_and_counted(send, protocol):
    text = {"type": "input_text" if protocol == "responses" else "text", "text": "look"}
    body = (await send(protocol, [text, IMAGES[protocol]])).json
    assert text_of(protocol, body) == "You said: look (with 1 attachment)"
    assert usage_of(protocol, body)[0] == 1 + counting.PER_MESSAGE + counting.PER_IMAGE


async def test_the_reasoner_reasons_in_each_protocol(send):
    chat = (await send("chat", "hi", model="reasoner")).json
    assert chat["choices"][0]["message"]["reasoning"].startswith("The user says")
    assert chat["usage"]["completion_tokens_details"]["reasoning_tokens"] == counting.count(
        chat["choices"][0]["message"]["reasoning"]
    )
    responses = (
        await send(
            "responses", "hi", model="reasoner", reasoning={"summary": "auto"}, include=["reasoning.encrypted_content"]
        )
    ).json
    item = responses["output"][0]
    assert (item["type"], item["summary"][0]["text"][:13]) == ("reasoning", "The user says")
    assert signing.is_sealed(item["encrypted_content"])
    messages = (await send("messages", "hi", max_tokens=3000, thinking={"type": "enabled", "budget_tokens": 1024})).json
    assert messages["content"][0]["type"] == "thinking"
    assert signing.is_signed(messages["content"][0]["thinking"], messages["content"][0]["signature"])


async def test_effort_none_disables_reasoning(send):
    assert (
        "reasoning"
        not in (await send("chat", "hi", model="reasoner", reasoning_effort="none")).json["choices"][0]["message"]
    )


async def test_omitted_thinking_is_still_signed(send):
    received = await send(
        "messages", "hi", stream=True, max_tokens=3000, thinking={"type": "adaptive", "display": "omitted"}
    )
    deltas = [e["delta"]["type"] for e in received.objects if e["type"] == "content_block_delta" and e["index"] == 0]
    assert deltas == ["signature_delta"]


@pytest.mark.parametrize("altered", [False, True])
async def test_altered_signatures_are_rejected(sandbox, altered):
    path, body = body_of("messages", "x [[tool]] [[think]]", tools=TOOLS["messages"])
    first = (await exchange(sandbox, path, body)).json["content"]
    if altered:
        first[0]["thinking"] += " "
    body["messages"] += [
        {"role": "assistant", "content": first},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": first[1]["id"], "content": "ok"}]},
    ]
    assert (await exchange(sandbox, path, body)).status == (400 if altered else 200)


@pytest.mark.parametrize("altered", [False, True])
async def test_altered_encrypted_content_is_rejected(sandbox, altered):
    path, body = body_of(
        "responses", "x [[tool]]", tools=TOOLS["responses"], model="reasoner", include=["reasoning.encrypted_content"]
    )
    first = (await exchange(sandbox, path, body)).json["output"]
    if altered:
        first[0]["encrypted_content"] = "AAAA" + first[0]["encrypted_content"][4:]
    body["input"] += [*first, {"type": "function_call_output", "call_id": first[1]["call_id"], "output": "ok"}]
    assert (await exchange(sandbox, path, body)).status == (400 if altered else 200)


async def test_stored_responses_are_remembered(sandbox, send):
    first = (await send("responses", "x [[tool]]", tools=TOOLS["responses"])).json
    output = [{"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "sunny"}]
    second = await exchange(
        sandbox, "/v1/responses", {"model": "echo", "input": output, "previous_response_id": first["id"]}
    )
    assert text_of("responses", second.json) == "The tool said: sunny"
    assert second.json["previous_response_id"] == first["id"]
    unstored = (await send("responses", "x", store=False)).json
    third = await exchange(
        sandbox, "/v1/responses", {"model": "echo", "input": "y", "previous_response_id": unstored["id"]}
    )
    assert (third.status, third.json["error"]["code"]) == (400, "previous_response_not_found")


async def test_marked_prefixes_are_written_to_the_cache_then_read(send):
    system = [{"type": "text", "text": "rules " * 50, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    first, second = [(await send("messages", "hi", system=system)).json["usage"] for _ in range(2)]
    assert (
        first["cache_creation"]["ephemeral_1h_input_tokens"]
        == first["cache_creation_input_tokens"]
        == second["cache_read_input_tokens"]
        > 50
    )
    assert (first["cache_read_input_tokens"], second["cache_creation_input_tokens"]) == (0, 0)
    assert first["input_tokens"] == second["input_tokens"] == 1 + counting.PER_MESSAGE


async def test_a_moved_mark_reads_the_old_prefix_and_writes_the_rest(sandbox):
    mark = {"cache_control": {"type": "ephemeral"}}
    first = {"role": "user", "content": [{"type": "text", "text": "a " * 40, **mark}]}
    answer = {"role": "assistant", "content": "well"}
    one = (await exchange(sandbox, "/v1/messages", {"model": "echo", "max_tokens": 9, "messages": [first]})).json[
        "usage"
    ]
    turn = [
        {"role": "user", "content": [{"type": "text", "text": "a " * 40, **mark}]},
        answer,
        {"role": "user", "content": [{"type": "text", "text": "more", **mark}]},
    ]
    two = (await exchange(sandbox, "/v1/messages", {"model": "echo", "max_tokens": 9, "messages": turn})).json["usage"]
    assert two["cache_read_input_tokens"] == one["cache_creation_input_tokens"]
    assert two["cache_creation_input_tokens"] == (1 + counting.PER_MESSAGE) * 2


async def test_long_prefixes_are_cached_automatically(send):
    text = "word " * 1200
    cached = [(await send("chat", text)).json["usage"]["prompt_tokens_details"]["cached_tokens"] for _ in range(2)]
    assert cached[0] == 0
    assert cached[1] > 1024


async def test_a_usage_chunk_is_sent_only_on_request(send):
    default = (await send("chat", "hi", stream=True)).objects
    assert not any("usage" in chunk for chunk in default)
    requested = (await send("chat", "hi", stream=True, stream_options={"include_usage": True})).objects
    assert [chunk["usage"] for chunk in requested[:-1]] == [None] * (len(requested) - 1)
    assert (requested[-1]["choices"], requested[-1]["usage"]["total_tokens"]) == ([], 9)


async def test_chat_streams_end_with_done(send):
    assert (await send("chat", "hi", stream=True)).events[-1] == (None, "[DONE]")


async def test_message_streams_have_the_published_order(send):
    received = await send("messages", "hi [[tool=get {}]] [[preface]] [[think]]", stream=True)
    order = [name for name, _ in received.events if name != "content_block_delta"]
    block = ["content_block_start", "content_block_stop"]
    assert order == [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_stop",
        *block,
        *block,
        "message_delta",
        "message_stop",
    ]
    assert received.objects[0]["message"]["usage"]["output_tokens"] == 1
    assert [name for name, data in received.events if data["type"] != name] == []


async def test_responses_events_are_numbered_without_gaps(send):
    for text in ("hi", "hi [[stream-error=4]]"):
        numbers = [e["sequence_number"] for e in (await send("responses", text, stream=True)).objects]
        assert numbers == list(range(len(numbers)))


async def test_count_tokens_returns_the_input_tokens(sandbox):
    path, body = body_of("messages", "hi there")
    counted = (
        await exchange(sandbox, path + "/count_tokens", {k: v for k, v in body.items() if k != "max_tokens"})
    ).json
    assert counted == {"input_tokens": (await exchange(sandbox, path, body)).json["usage"]["input_tokens"]}


async def test_the_model_list_has_every_model(sandbox):
    listed = (await exchange(sandbox, "/v1/models", None)).json
    assert [m["id"] for m in listed["data"]] == ["draw", "echo", "echo-mini", "embed", "paint", "reasoner"]


async def test_paths_without_the_version_and_with_a_query_work(sandbox):
    path, body = body_of("chat", "hi")
    assert (await exchange(sandbox, path.removeprefix("/v1") + "?beta=true", body)).status == 200


async def test_a_key_may_be_required():
    sandbox = Sandbox(key="secret")
    path, body = body_of("chat", "hi")
    statuses = [
        (await exchange(sandbox, path, body, headers)).status
        for headers in ({}, {"authorization": "Bearer no"}, {"authorization": "Bearer secret"}, {"x-api-key": "secret"})
    ]
    assert statuses == [401, 401, 200, 200]
    request = {"model": "draw", "input": {"prompt": "a cat [[duration=0s]]"}}
    job = (await exchange(sandbox, "/v1/images", request, {"host": "box:1", "x-api-key": "secret"})).json
    assert (await exchange(sandbox, f"/v1/images/{job['id']}", None)).status == 401
    picture = await exchange(sandbox, job["images"][0]["url"].removeprefix("http://box:1"), None)
    assert (picture.status, picture.headers["content-type"]) == (200, "image/png")  # its URL is for everybody


BAD = {
    "no model": ("chat", {"messages": []}, "model"),
    "no messages": ("chat", {"model": "echo"}, "messages"),
    "empty messages": ("chat", {"model": "echo", "messages": []}, "messages"),
    "messages are a string": ("chat", {"model": "echo", "messages": "x"}, "messages"),
    "unknown role": ("chat", {"model": "echo", "messages": [{"role": "bot", "content": "x"}]}, "messages.[0].role"),
    "null content": (
        "chat",
        {"model": "echo", "messages": [{"role": "user", "content": None}]},
        "messages.[0].content",
    ),
    "unknown part": (
        "chat",
        {"model": "echo", "messages": [{"role": "user", "content": [{"type": "x"}]}]},
        "messages.[0].content.[0].type",
    ),
    "orphan result": (
        "chat",
        {"model": "echo", "messages": [{"role": "tool", "tool_call_id": "a", "content": "x"}]},
        "messages.[0]",
    ),
    "tool without name": (
        "chat",
        {"model": "echo", "messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]},
        "tools[0].function.name",
    ),
    "limit is text": (
        "chat",
        {"model": "echo", "messages": [{"role": "user", "content": "x"}], "max_tokens": "5"},
        "max_tokens",
    ),
    "limit is zero": (
        "chat",
        {"model": "echo", "messages": [{"role": "user", "content": "x"}], "max_tokens": 0},
        "max_tokens",
    ),
    "unknown model": ("chat", {"model": "missing-1", "messages": []}, None),
    "no input": ("responses", {"model": "echo"}, "input"),
    "an item that says nothing": ("responses", {"model": "echo", "input": [{}]}, "input[0].role"),
    "a role that is no word": ("chat", {"model": "echo", "messages": [{"role": {}}]}, "messages.[0].role"),
    "orphan output": (
        "responses",
        {"model": "echo", "input": [{"type": "function_call_output", "call_id": "c", "output": ""}]},
        "input",
    ),
    "unknown content": (
        "responses",
        {"model": "echo", "input": [{"role": "user", "content": [{"type": "image"}]}]},
        "input[0].content[0].type",
    ),
}


@pytest.mark.parametrize(("protocol", "body", "param"), BAD.values(), ids=BAD.keys())
async def test_invalid_requests_name_the_parameter(sandbox, protocol, body, param):
    received = await exchange(sandbox, {"chat": "/v1/chat/completions", "responses": "/v1/responses"}[protocol], body)
    assert received.status == (404 if param is None else 400)
    assert received.json["error"]["param"] == param
    assert received.json["error"]["message"]
    assert not re.search("None|dict", received.json["error"]["message"])  # PITFALLS 16


@pytest.mark.parametrize(
    "body",
    [
        {"model": "echo", "messages": [{"role": "user", "content": "x"}]},
        {"model": "echo", "max_tokens": 5, "messages": [{"role": "user", "content": ""}]},
        {
            "model": "echo",
            "max_tokens": 5,
            "messages": [{"role": "user", "content": "x"}],
            "thinking": {"type": "enabled", "budget_tokens": 1024},
        },
    ],
    ids=["no limit", "empty text", "budget over limit"],
)
async def test_invalid_messages_requests_have_that_api_s_error_shape(sandbox, body):
    received = await exchange(sandbox, "/v1/messages", body)
    assert (received.status, received.json["type"], received.json["error"]["type"]) == (
        400,
        "error",
        "invalid_request_error",
    )
    assert received.json["request_id"] == received.headers["request-id"]


async def test_bodies_that_are_no_json_object_are_rejected(sandbox):
    for raw in (b"", b"{", b"[]", b"\xff"):
        status, _, _ = await sandbox("POST", "/v1/chat/completions", {}, raw)
        assert status == 400


# Embeddings and images.


def test_vectors_have_unit_length_and_are_deterministic():
    one, two = embeddings.vector("hi", 256), embeddings.vector("ho", 256)
    assert sum(x * x for x in one) == pytest.approx(1, abs=1e-5)
    assert one == embeddings.vector("hi", 256) != two


@pytest.mark.parametrize(
    ("value", "rows", "tokens"),
    [("hi you", 1, 2), (["a", "b c"], 2, 3), ([1, 2, 3], 1, 3), ([[1, 2], [3]], 2, 3)],
    ids=["string", "strings", "tokens", "token arrays"],
)
async def test_every_kind_of_embedding_input_is_counted(sandbox, value, rows, tokens):
    body = (await exchange(sandbox, "/v1/embeddings", {"model": "embed", "input": value, "dimensions": 256})).json
    assert (len(body["data"]), [len(d["embedding"]) for d in body["data"]]) == (rows, [256] * rows)
    assert body["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"input": []},
        {"input": ""},
        {"input": [""]},
        {"input": {}},
        {"input": ["a"] * 2049},
        {"input": "a", "dimensions": 7},
        {"input": "a", "encoding_format": "hex"},
    ],
    ids=lambda b: str(b)[:40],
)
async def test_an_invalid_embedding_request_is_400(sandbox, body):
    assert (await exchange(sandbox, "/v1/embeddings", {"model": "embed", **body})).status == 400


def test_the_catalog_lists_every_size_of_the_sandbox_s_embeddings():
    entry = yaml.safe_load((ROOT / "providers" / "sandbox.yaml").read_text("utf-8"))["models"]["sandbox/embed"]
    assert tuple(entry["dimensions"]) == embeddings.DIMENSIONS


async def test_an_image_job_progresses_by_the_clock():
    now = 0.0
    sandbox = Sandbox(clock=lambda: now)
    request = {"model": "draw", "input": {"prompt": "a cat [[duration=10s]]", "count": 2, "aspect_ratio": "16:9"}}
    job = (await exchange(sandbox, "/v1/images", request, {"host": "box:1"})).json
    seen = [job["status"]]
    for now in (1.9, 2.0, 9.9, 10.0):
        job = (await exchange(sandbox, f"/v1/images/{job['id']}", None, {"host": "box:1"})).json
        seen.append(job["status"])
    assert seen == ["starting", "starting", "processing", "processing", "succeeded"]
    assert [(i["url"], i["width"], i["height"]) for i in job["images"]] == [
        (f"http://box:1/v1/images/{job['id']}/{n}.png", 16, 9) for n in (0, 1)
    ]
    image = await exchange(sandbox, f"/v1/images/{job['id']}/1.png", None)
    assert (image.headers["content-type"], image.raw[:8]) == ("image/png", b"\x89PNG\r\n\x1a\n")


async def test_images_are_returned_as_url_or_data(sandbox):
    for output, name in (("url", "url"), ("base64", "data")):
        body = {"model": "draw", "input": {"prompt": "x [[duration=0s]]", "output": output}}
        image = (await exchange(sandbox, "/v1/images", body)).json["images"][0]
        assert image[name].removeprefix("data:image/png;base64,").startswith("iVBORw0KGgo")


async def test_images_of_the_synchronous_endpoint_have_usage(sandbox):
    body = (await exchange(sandbox, "/v1/images/generations", {"model": "draw", "prompt": "x", "n": 2})).json
    assert [set(d) for d in body["data"]] == [{"b64_json"}, {"b64_json"}]
    assert body["usage"]["output_tokens"] == 128


@pytest.mark.parametrize(
    "body",
    [
        {"model": "p"},
        {"input": {"prompt": "x"}},
        {"model": "p", "input": {}},
        {"model": "p", "input": {"prompt": "x", "count": 99}},
        {"model": "p", "input": {"prompt": "x", "aspect_ratio": "2"}},
    ],
)
async def test_an_invalid_image_request_is_400(sandbox, body):
    assert (await exchange(sandbox, "/v1/images", body)).status == 400


async def test_unknown_paths_and_jobs_are_404(sandbox):
    assert [
        (await exchange(sandbox, p, b)).status
        for p, b in (("/v1/images/none", None), ("/v1/what", None), ("/v1/what", {}))
    ] == [404] * 3


# Disconnects are counted.


async def test_a_disconnect_is_an_abort_and_a_complete_answer_is_not(sandbox, send):
    await send("chat", "hi", stream=True)
    await send("chat", "hi")
    assert (sandbox.stats.requests, sandbox.stats.running, sandbox.stats.aborted) == (2, 0, 0)
    path, body = body_of("chat", "hi [[pace=1ms]]", stream=True)
    _, _, chunks = await sandbox("POST", path, {}, json.dumps(body).encode())
    await anext(chunks)
    assert sandbox.stats.running == 1
    await chunks.aclose()
    assert (sandbox.stats.running, sandbox.stats.aborted) == (0, 1)


async def test_closing_after_the_last_event_is_no_abort(sandbox):
    path, body = body_of("chat", "hi", stream=True)
    _, _, chunks = await sandbox("POST", path, {}, json.dumps(body).encode())
    assert (await anext(chunks)).endswith(b"data: [DONE]\n\n")
    await chunks.aclose()
    assert sandbox.stats.aborted == 0


async def test_a_disconnect_while_waiting_is_an_abort(sandbox, send):
    waiting = asyncio.ensure_future(send("chat", "hi [[delay=5s]]"))
    await until(lambda: sandbox.stats.running)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert (sandbox.stats.running, sandbox.stats.aborted) == (0, 1)


async def test_stored_responses_use_little_extra_memory(send):
    await send("responses", "hello")
    tracemalloc.start()
    try:
        for number in range(200):
            last = (await send("responses", f"hello {number}")).json["id"]
        here = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/sandbox/service.py")])
    finally:
        tracemalloc.stop()
    assert (await send("responses", "and then?", previous_response_id=last)).status == 200
    assert sum(trace.size for trace in here.traces) < 200 * 2_000
