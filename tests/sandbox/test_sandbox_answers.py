"""What the sandbox answers in each protocol, and what each marker changes."""

from __future__ import annotations

import asyncio
import json
import re
import time
import tracemalloc

import jsonschema
import pytest
from sandbox_talk import body_of, hear

from tollgate.sandbox import MARKERS, Sandbox, counting, embeddings, signing
from tollgate.sandbox.samples import sample

PROTOCOLS = ("chat", "responses", "messages")
GET = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 3}},
    "required": ["city"],
}
TOOLS = {
    "chat": [{"type": "function", "function": {"name": n, "parameters": GET}} for n in ("get", "put")],
    "responses": [{"type": "function", "name": n, "parameters": GET} for n in ("get", "put")],
    "messages": [{"name": n, "input_schema": GET} for n in ("get", "put")],
}


def text_of(protocol: str, body: dict) -> str:
    if protocol == "chat":
        return body["choices"][0]["message"]["content"] or ""
    if protocol == "responses":
        return "".join(p.get("text", "") for i in body["output"] if i["type"] == "message" for p in i["content"])
    return "".join(b["text"] for b in body["content"] if b["type"] == "text")


def calls_of(protocol: str, body: dict) -> list[tuple[str, dict]]:
    if protocol == "chat":
        return [
            (c["function"]["name"], json.loads(c["function"]["arguments"]))
            for c in body["choices"][0]["message"].get("tool_calls", [])
        ]
    if protocol == "responses":
        return [(i["name"], json.loads(i["arguments"])) for i in body["output"] if i["type"] == "function_call"]
    return [(b["name"], b["input"]) for b in body["content"] if b["type"] == "tool_use"]


def finish_of(protocol: str, body: dict) -> str:
    if protocol == "chat":
        return body["choices"][0]["finish_reason"]
    if protocol == "responses":
        return (body["incomplete_details"] or {}).get("reason") or body["status"]
    return body["stop_reason"]


def usage_of(protocol: str, body: dict) -> tuple[int, int]:
    """Input and output tokens, cached and reasoning ones included."""
    usage = body["usage"]
    if protocol == "chat":
        return usage["prompt_tokens"], usage["completion_tokens"]
    if protocol == "responses":
        return usage["input_tokens"], usage["output_tokens"]
    parts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(usage[p] for p in parts), usage["output_tokens"]


def joined(protocol: str, heard) -> dict:
    """A stream put together again as the whole answer it stands for."""
    if protocol == "responses":
        return heard.objects[-1]["response"]
    if protocol == "messages":
        return _joined_messages(heard)
    message: dict = {"content": None}
    body: dict = {"choices": [{"message": message}]}
    for chunk in heard.objects:
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


def _joined_messages(heard) -> dict:
    body: dict = {}
    for event in heard.objects:
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
async def test_the_answer_echoes_the_last_user_text(ask, protocol):
    heard = await ask(protocol, "hi")
    assert (heard.status, text_of(protocol, heard.json)) == (200, "You said: hi")
    assert usage_of(protocol, heard.json) == (1 + counting.PER_MESSAGE, 4)


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
async def test_a_stream_adds_up_to_the_whole_answer(ask, protocol, text):
    more = {"tools": TOOLS[protocol]}
    options = {"stream_options": {"include_usage": True}} if protocol == "chat" else {}
    whole = (await ask(protocol, text, **more)).json
    stream = joined(protocol, await ask(protocol, text, stream=True, **more, **options))
    assert text_of(protocol, stream) == text_of(protocol, whole)
    assert calls_of(protocol, stream) == calls_of(protocol, whole)
    assert finish_of(protocol, stream) == finish_of(protocol, whole)
    assert usage_of(protocol, stream) == usage_of(protocol, whole)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_same_question_same_answer(protocol):
    async def once() -> str:
        heard = await hear(Sandbox(), *body_of(protocol, "hi [[tools=2]] [[preface]] [[think]]", tools=TOOLS[protocol]))
        return text_of(protocol, heard.json) + str(calls_of(protocol, heard.json)) + str(heard.json["usage"])

    assert await once() == await once()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_tool_loop_ends_with_text(sandbox, protocol):
    path, body = body_of(protocol, "weather [[tools=2]]", tools=TOOLS[protocol])
    first = (await hear(sandbox, path, body)).json
    assert [name for name, _ in calls_of(protocol, first)] == ["get", "put"]
    assert calls_of(protocol, first)[0][1] == {"city": "weather", "days": 3}
    if protocol == "chat":
        asked = first["choices"][0]["message"]
        body["messages"] += [
            asked,
            *({"role": "tool", "tool_call_id": c["id"], "content": "sunny"} for c in asked["tool_calls"]),
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
    second = (await hear(sandbox, path, body)).json
    assert text_of(protocol, second) == "The tool said: sunny; sunny"
    assert calls_of(protocol, second) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_call_without_a_result_is_refused(sandbox, protocol):
    path, body = body_of(protocol, "x [[tool]]", tools=TOOLS[protocol])
    first = (await hear(sandbox, path, body)).json
    if protocol == "responses":
        body["input"] += [*first["output"], {"role": "user", "content": "well?"}]
    else:
        turn = (
            first["choices"][0]["message"] if protocol == "chat" else {"role": "assistant", "content": first["content"]}
        )
        body["messages"] += [turn, {"role": "user", "content": "well?"}]
    assert (await hear(sandbox, path, body)).status == 400


FORCED = {
    "chat": [{"tool_choice": "required"}, {"tool_choice": {"type": "function", "function": {"name": "put"}}}],
    "responses": [{"tool_choice": "required"}, {"tool_choice": {"type": "function", "name": "put"}}],
    "messages": [{"tool_choice": {"type": "any"}}, {"tool_choice": {"type": "tool", "name": "put"}}],
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_tool_choice_is_obeyed(ask, protocol):
    names = [
        [n for n, _ in calls_of(protocol, (await ask(protocol, "x", tools=TOOLS[protocol], **choice)).json)]
        for choice in FORCED[protocol]
    ]
    assert names == [["get"], ["put"]]
    none = {"type": "none"} if protocol == "messages" else "none"
    assert calls_of(protocol, (await ask(protocol, "x [[tool]]", tools=TOOLS[protocol], tool_choice=none)).json) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_one_call_at_a_time_when_parallel_calls_are_off(ask, protocol):
    off = (
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
        if protocol == "messages"
        else {"parallel_tool_calls": False}
    )
    assert len(calls_of(protocol, (await ask(protocol, "x [[tools=3]]", tools=TOOLS[protocol], **off)).json)) == 1


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
async def test_structured_output_fits_the_schema(ask, protocol):
    wanted = {
        "chat": {"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": SCHEMA}}},
        "responses": {"text": {"format": {"type": "json_schema", "name": "p", "schema": SCHEMA}}},
        "messages": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    }[protocol]
    jsonschema.validate(json.loads(text_of(protocol, (await ask(protocol, "hello", **wanted)).json)), SCHEMA)


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
async def test_the_limit_ends_the_answer(ask, protocol):
    name = {"chat": "max_completion_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}[protocol]
    body = (await ask(protocol, "a b c d e f", **{name: 5})).json
    assert counting.count(text_of(protocol, body)) == 5
    assert finish_of(protocol, body) in ("length", "max_output_tokens", "max_tokens")


async def test_stop_sequences_end_the_answer(ask):
    chat = (await ask("chat", "one two three", stop=["two"])).json
    assert (text_of("chat", chat), finish_of("chat", chat)) == ("You said: one ", "stop")
    messages = (await ask("messages", "one two three", stop_sequences=["two"])).json
    assert (messages["stop_reason"], messages["stop_sequence"]) == ("stop_sequence", "two")


async def test_several_choices_share_one_prompt(ask):
    one, three = (await ask("chat", "hi")).json, (await ask("chat", "hi", n=3)).json
    assert [c["message"]["content"] for c in three["choices"]] == [
        "You said: hi",
        "You said: hi (choice 2)",
        "You said: hi (choice 3)",
    ]
    assert three["usage"]["prompt_tokens"] == one["usage"]["prompt_tokens"]


async def test_logprobs_cover_the_text(ask):
    body = (await ask("chat", "hi", logprobs=True, top_logprobs=2)).json
    entries = body["choices"][0]["logprobs"]["content"]
    assert "".join(e["token"] for e in entries) == "You said: hi"
    assert all(len(e["top_logprobs"]) == 2 and e["logprob"] < 0 for e in entries)
    chunks = (await ask("chat", "hi", stream=True, logprobs=True)).objects
    tokens = [e["token"] for c in chunks for ch in c["choices"] if ch["logprobs"] for e in ch["logprobs"]["content"]]
    assert "".join(tokens) == "You said: hi"


PICTURES = {
    "chat": {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
    "responses": {"type": "input_image", "image_url": "data:image/png;base64,AA"},
    "messages": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_pictures_are_acknowledged_and_counted(ask, protocol):
    text = {"type": "input_text" if protocol == "responses" else "text", "text": "look"}
    body = (await ask(protocol, [text, PICTURES[protocol]])).json
    assert text_of(protocol, body) == "You said: look (with 1 attachment)"
    assert usage_of(protocol, body)[0] == 1 + counting.PER_MESSAGE + counting.PER_IMAGE


async def test_the_reasoner_reasons_in_each_protocols_way(ask):
    chat = (await ask("chat", "hi", model="reasoner")).json
    assert chat["choices"][0]["message"]["reasoning"].startswith("The user says")
    assert chat["usage"]["completion_tokens_details"]["reasoning_tokens"] == counting.count(
        chat["choices"][0]["message"]["reasoning"]
    )
    responses = (
        await ask(
            "responses", "hi", model="reasoner", reasoning={"summary": "auto"}, include=["reasoning.encrypted_content"]
        )
    ).json
    item = responses["output"][0]
    assert (item["type"], item["summary"][0]["text"][:13]) == ("reasoning", "The user says")
    assert signing.is_sealed(item["encrypted_content"])
    messages = (await ask("messages", "hi", max_tokens=3000, thinking={"type": "enabled", "budget_tokens": 1024})).json
    assert messages["content"][0]["type"] == "thinking"
    assert signing.is_signed(messages["content"][0]["thinking"], messages["content"][0]["signature"])


async def test_effort_none_switches_reasoning_off(ask):
    assert (
        "reasoning"
        not in (await ask("chat", "hi", model="reasoner", reasoning_effort="none")).json["choices"][0]["message"]
    )


async def test_thinking_may_be_omitted_but_is_signed(ask):
    heard = await ask(
        "messages", "hi", stream=True, max_tokens=3000, thinking={"type": "adaptive", "display": "omitted"}
    )
    deltas = [e["delta"]["type"] for e in heard.objects if e["type"] == "content_block_delta" and e["index"] == 0]
    assert deltas == ["signature_delta"]


@pytest.mark.parametrize("altered", [False, True])
async def test_altered_signatures_are_refused(sandbox, altered):
    path, body = body_of("messages", "x [[tool]] [[think]]", tools=TOOLS["messages"])
    first = (await hear(sandbox, path, body)).json["content"]
    if altered:
        first[0]["thinking"] += " "
    body["messages"] += [
        {"role": "assistant", "content": first},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": first[1]["id"], "content": "ok"}]},
    ]
    assert (await hear(sandbox, path, body)).status == (400 if altered else 200)


@pytest.mark.parametrize("altered", [False, True])
async def test_altered_encrypted_content_is_refused(sandbox, altered):
    path, body = body_of(
        "responses", "x [[tool]]", tools=TOOLS["responses"], model="reasoner", include=["reasoning.encrypted_content"]
    )
    first = (await hear(sandbox, path, body)).json["output"]
    if altered:
        first[0]["encrypted_content"] = "AAAA" + first[0]["encrypted_content"][4:]
    body["input"] += [*first, {"type": "function_call_output", "call_id": first[1]["call_id"], "output": "ok"}]
    assert (await hear(sandbox, path, body)).status == (400 if altered else 200)


async def test_stored_responses_are_remembered(sandbox, ask):
    first = (await ask("responses", "x [[tool]]", tools=TOOLS["responses"])).json
    output = [{"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "sunny"}]
    second = await hear(
        sandbox, "/v1/responses", {"model": "echo", "input": output, "previous_response_id": first["id"]}
    )
    assert text_of("responses", second.json) == "The tool said: sunny"
    assert second.json["previous_response_id"] == first["id"]
    unstored = (await ask("responses", "x", store=False)).json
    third = await hear(
        sandbox, "/v1/responses", {"model": "echo", "input": "y", "previous_response_id": unstored["id"]}
    )
    assert (third.status, third.json["error"]["code"]) == (400, "previous_response_not_found")


async def test_marked_prefixes_are_written_then_read(ask):
    system = [{"type": "text", "text": "rules " * 50, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    first, second = [(await ask("messages", "hi", system=system)).json["usage"] for _ in range(2)]
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
    one = (await hear(sandbox, "/v1/messages", {"model": "echo", "max_tokens": 9, "messages": [first]})).json["usage"]
    turn = [
        {"role": "user", "content": [{"type": "text", "text": "a " * 40, **mark}]},
        answer,
        {"role": "user", "content": [{"type": "text", "text": "more", **mark}]},
    ]
    two = (await hear(sandbox, "/v1/messages", {"model": "echo", "max_tokens": 9, "messages": turn})).json["usage"]
    assert two["cache_read_input_tokens"] == one["cache_creation_input_tokens"]
    assert two["cache_creation_input_tokens"] == (1 + counting.PER_MESSAGE) * 2


async def test_long_prefixes_are_cached_unasked(ask):
    text = "word " * 1200
    cached = [(await ask("chat", text)).json["usage"]["prompt_tokens_details"]["cached_tokens"] for _ in range(2)]
    assert cached[0] == 0
    assert cached[1] > 1024


async def test_usage_chunk_comes_only_when_asked(ask):
    silent = (await ask("chat", "hi", stream=True)).objects
    assert not any("usage" in chunk for chunk in silent)
    asked = (await ask("chat", "hi", stream=True, stream_options={"include_usage": True})).objects
    assert [chunk["usage"] for chunk in asked[:-1]] == [None] * (len(asked) - 1)
    assert (asked[-1]["choices"], asked[-1]["usage"]["total_tokens"]) == ([], 9)


async def test_chat_streams_end_with_done(ask):
    assert (await ask("chat", "hi", stream=True)).events[-1] == (None, "[DONE]")


async def test_message_streams_have_the_published_order(ask):
    heard = await ask("messages", "hi [[tool=get {}]] [[preface]] [[think]]", stream=True)
    order = [name for name, _ in heard.events if name != "content_block_delta"]
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
    assert heard.objects[0]["message"]["usage"]["output_tokens"] == 1
    assert [name for name, data in heard.events if data["type"] != name] == []


async def test_responses_events_are_numbered_without_gaps(ask):
    for text in ("hi", "hi [[stream-error=4]]"):
        numbers = [e["sequence_number"] for e in (await ask("responses", text, stream=True)).objects]
        assert numbers == list(range(len(numbers)))


async def test_tokens_can_be_counted_beforehand(sandbox):
    path, body = body_of("messages", "hi there")
    counted = (await hear(sandbox, path + "/count_tokens", {k: v for k, v in body.items() if k != "max_tokens"})).json
    assert counted == {"input_tokens": (await hear(sandbox, path, body)).json["usage"]["input_tokens"]}


async def test_the_model_list_has_every_model(sandbox):
    listed = (await hear(sandbox, "/v1/models", None)).json
    assert [m["id"] for m in listed["data"]] == ["draw", "echo", "echo-mini", "embed", "paint", "reasoner"]


async def test_paths_without_the_version_and_with_a_query_work(sandbox):
    path, body = body_of("chat", "hi")
    assert (await hear(sandbox, path.removeprefix("/v1") + "?beta=true", body)).status == 200


async def test_a_key_may_be_required():
    sandbox = Sandbox(key="secret")
    path, body = body_of("chat", "hi")
    statuses = [
        (await hear(sandbox, path, body, headers)).status
        for headers in ({}, {"authorization": "Bearer no"}, {"authorization": "Bearer secret"}, {"x-api-key": "secret"})
    ]
    assert statuses == [401, 401, 200, 200]


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
async def test_bad_requests_are_named(sandbox, protocol, body, param):
    heard = await hear(sandbox, {"chat": "/v1/chat/completions", "responses": "/v1/responses"}[protocol], body)
    assert heard.status == (404 if param is None else 400)
    assert heard.json["error"]["param"] == param
    assert heard.json["error"]["message"]
    assert not re.search("None|dict", heard.json["error"]["message"])  # PITFALLS 16


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
async def test_messages_refuses_in_its_own_shape(sandbox, body):
    heard = await hear(sandbox, "/v1/messages", body)
    assert (heard.status, heard.json["type"], heard.json["error"]["type"]) == (400, "error", "invalid_request_error")
    assert heard.json["request_id"] == heard.headers["request-id"]


async def test_bodies_that_are_no_json_object_are_refused(sandbox):
    for raw in (b"", b"{", b"[]", b"\xff"):
        status, _, _ = await sandbox("POST", "/v1/chat/completions", {}, raw)
        assert status == 400


# Every marker, each shown once.


async def _marker_tokens(ask):
    assert usage_of("chat", (await ask("chat", "hi [[tokens=50]]")).json)[1] == 50
    assert len((await ask("chat", "hi [[tokens=50]]", stream=True)).objects) == 52


async def _marker_pace(ask):
    began = time.perf_counter()
    await ask("chat", "hi [[pace=5ms]]", stream=True)
    assert time.perf_counter() - began >= 0.03


async def _marker_delay(ask):
    began = time.perf_counter()
    await ask("chat", "hi [[delay=30ms]]")
    assert time.perf_counter() - began >= 0.03


async def _marker_duration(ask):
    sandbox = Sandbox()
    statuses = [
        (await hear(sandbox, "/v1/images", {"model": "draw", "input": {"prompt": f"x [[duration={d}]]"}})).json[
            "status"
        ]
        for d in ("9s", "0s")
    ]
    assert statuses == ["starting", "succeeded"]


async def _marker_tool(ask):
    assert calls_of("chat", (await ask("chat", '[[tool=any {"a": 1}]]')).json) == [("any", {"a": 1})]


async def _marker_tools(ask):
    body = (await ask("messages", "x [[tools=3]]", tools=TOOLS["messages"])).json
    assert [n for n, _ in calls_of("messages", body)] == ["get", "put", "get"]
    assert body["stop_reason"] == "tool_use"


async def _marker_preface(ask):
    body = (await ask("chat", "x [[tool=a]] [[preface]]")).json
    assert (text_of("chat", body), len(calls_of("chat", body))) == ("You said: x", 1)


async def _marker_think(ask):
    assert (await ask("messages", "x [[think]]")).json["content"][0]["type"] == "thinking"


async def _marker_redacted(ask):
    assert (await ask("messages", "x [[think]] [[redacted]]")).json["content"][0]["type"] == "redacted_thinking"


async def _marker_error(ask):
    heard = await ask("chat", "x [[error=429 retry-after=2 code=slow_down]]")
    assert (heard.status, heard.headers["retry-after"], heard.json["error"]["code"]) == (429, "2", "slow_down")
    heard = await ask("messages", "x [[error=529]]")
    assert (heard.status, heard.json["error"]["type"]) == (529, "overloaded_error")
    assert [(await ask("chat", "y [[error=500 times=2]]")).status for _ in range(3)] == [500, 500, 200]


async def _marker_error_in_200(ask):
    heard = await ask("chat", "x [[error-in-200]]")
    assert (heard.status, heard.json["error"]["type"]) == (200, "server_error")
    heard = await ask("messages", "x [[error-in-200]]", stream=True)
    assert (heard.status, [name for name, _ in heard.events]) == (200, ["error"])


async def _marker_stream_error(ask):
    chat = await ask("chat", "x [[stream-error=3]]", stream=True)
    assert (len(chat.events), "error" in chat.objects[-1], chat.dropped) == (4, True, False)
    responses = await ask("responses", "x [[stream-error=3]]", stream=True)
    assert [n for n, _ in responses.events][-2:] == ["error", "response.failed"]
    assert responses.objects[-2]["code"] == responses.objects[-1]["response"]["error"]["code"] == "server_error"
    nested = await ask("responses", "x [[stream-error=3 nested]]", stream=True)
    assert nested.objects[-2]["error"]["code"] == "server_error"


async def _marker_cut(ask):
    heard = await ask("chat", "x [[cut=2]]", stream=True)
    assert (len(heard.events), heard.dropped) == (2, True)
    tidy = await ask("chat", "x [[cut=2 clean]]", stream=True)
    assert (len(tidy.events), tidy.dropped) == (2, False)
    whole = await ask("chat", "x [[cut]]")
    assert whole.dropped and whole.raw.startswith(b'{"id"')


async def _marker_cut_mid(ask):
    heard = await ask("messages", "x [[cut-mid=2]]", stream=True)
    assert (heard.raw.count(b"\n\n"), heard.raw.endswith(b"\n\n"), heard.dropped) == (2, False, True)


async def _marker_stall(ask):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await ask("chat", "x [[stall=2]]", stream=True)


async def _marker_reset(ask):
    heard = await ask("chat", "x [[reset]]", stream=True)
    assert (heard.raw, heard.dropped) == (b"", True)


async def _marker_html(ask):
    heard = await ask("chat", "x [[html]]", stream=True)
    assert (heard.status, heard.headers["content-type"], heard.raw[:15]) == (
        200,
        "text/html; charset=utf-8",
        b"<!doctype html>",
    )
    assert (await ask("chat", "x [[html=502]]")).status == 502


async def _marker_bad_utf8(ask):
    for stream in (False, True):
        with pytest.raises(UnicodeDecodeError):
            (await ask("chat", "x [[bad-utf8]]", stream=stream)).raw.decode()


async def _marker_empty(ask):
    assert (await ask("chat", "x [[empty]]")).json["choices"][0]["message"]["content"] == ""
    assert (await ask("responses", "x [[empty]]")).json["output"] == []
    assert (await ask("messages", "x [[empty]]")).json["content"] == []


async def _marker_refuse(ask):
    assert "can't help" in (await ask("chat", "x [[refuse]]")).json["choices"][0]["message"]["refusal"]
    assert (await ask("responses", "x [[refuse]]")).json["output"][0]["content"][0]["type"] == "refusal"
    assert (await ask("messages", "x [[refuse]]")).json["stop_reason"] == "refusal"


async def _marker_finish(ask):
    found = [finish_of(p, (await ask(p, "x [[finish=length]]")).json) for p in PROTOCOLS]
    assert found == ["length", "max_output_tokens", "max_tokens"]


async def _marker_no_usage(ask):
    assert "usage" not in (await ask("chat", "x [[no-usage]]")).json
    assert (await ask("responses", "x [[no-usage]]")).json["usage"] is None
    assert all(
        "usage" not in e and "usage" not in e.get("message", {})
        for e in (await ask("messages", "x [[no-usage]]", stream=True)).objects
    )


async def _marker_late_usage(ask):
    chunks = (await ask("chat", "x [[late-usage]]", stream=True, stream_options={"include_usage": True})).objects
    assert [bool(c.get("usage")) for c in chunks if c["choices"][0]["finish_reason"]] == [True]


async def _marker_prompt_tokens(ask):
    assert (
        usage_of("messages", (await ask("messages", "x [[prompt-tokens=1000]] [[cached-tokens=300]]")).json)[0] == 1000
    )
    heard = await hear(Sandbox(), "/v1/embeddings", {"model": "embed", "input": "x [[prompt-tokens=77]]"})
    assert heard.json["usage"]["prompt_tokens"] == 77


async def _marker_completion_tokens(ask):
    assert usage_of("responses", (await ask("responses", "x [[completion-tokens=77]]")).json)[1] == 77


async def _marker_cached_tokens(ask):
    assert (await ask("chat", "x [[prompt-tokens=9]] [[cached-tokens=5]]")).json["usage"]["prompt_tokens_details"][
        "cached_tokens"
    ] == 5


async def _marker_cache_write_tokens(ask):
    usage = (await ask("messages", "x [[prompt-tokens=9]] [[cache-write-tokens=5]]")).json["usage"]
    assert (usage["input_tokens"], usage["cache_creation_input_tokens"]) == (4, 5)


async def _marker_reasoning_tokens(ask):
    usage = (await ask("chat", "x [[completion-tokens=9]] [[reasoning-tokens=5]]")).json["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 5


async def _marker_fail(ask):
    sandbox = Sandbox()
    heard = await hear(
        sandbox, "/v1/images", {"model": "draw", "input": {"prompt": "x [[fail=no_way]] [[duration=0s]]"}}
    )
    assert (heard.json["status"], heard.json["error"], heard.json["images"]) == ("failed", "no way", [])


@pytest.mark.parametrize("marker", MARKERS)
async def test_a_marker_does_what_it_says(ask, marker):
    await globals()["_marker_" + marker.split("=")[0].replace("-", "_")](ask)


# Embeddings and images.


def test_vectors_are_unit_length_and_repeat():
    one, two = embeddings.vector("hi", 256), embeddings.vector("ho", 256)
    assert sum(x * x for x in one) == pytest.approx(1, abs=1e-5)
    assert one == embeddings.vector("hi", 256) != two


@pytest.mark.parametrize(
    ("given", "rows", "tokens"),
    [("hi you", 1, 2), (["a", "b c"], 2, 3), ([1, 2, 3], 1, 3), ([[1, 2], [3]], 2, 3)],
    ids=["string", "strings", "tokens", "token arrays"],
)
async def test_every_kind_of_embedding_input_is_counted(sandbox, given, rows, tokens):
    body = (await hear(sandbox, "/v1/embeddings", {"model": "embed", "input": given, "dimensions": 256})).json
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
async def test_a_bad_embedding_request_is_a_400(sandbox, body):
    assert (await hear(sandbox, "/v1/embeddings", {"model": "embed", **body})).status == 400


async def test_an_image_job_runs_by_the_clock():
    now = 0.0
    sandbox = Sandbox(clock=lambda: now)
    given = {"model": "draw", "input": {"prompt": "a cat [[duration=10s]]", "count": 2, "aspect_ratio": "16:9"}}
    job = (await hear(sandbox, "/v1/images", given, {"host": "box:1"})).json
    seen = [job["status"]]
    for now in (1.9, 2.0, 9.9, 10.0):
        job = (await hear(sandbox, f"/v1/images/{job['id']}", None, {"host": "box:1"})).json
        seen.append(job["status"])
    assert seen == ["starting", "starting", "processing", "processing", "succeeded"]
    assert [(i["url"], i["width"], i["height"]) for i in job["images"]] == [
        (f"http://box:1/v1/images/{job['id']}/{n}.png", 16, 9) for n in (0, 1)
    ]
    picture = await hear(sandbox, f"/v1/images/{job['id']}/1.png", None)
    assert (picture.headers["content-type"], picture.raw[:8]) == ("image/png", b"\x89PNG\r\n\x1a\n")


async def test_pictures_come_as_data_when_asked_or_when_there_is_no_address(sandbox):
    for output, name in (("url", "url"), ("base64", "data")):
        body = {"model": "draw", "input": {"prompt": "x [[duration=0s]]", "output": output}}
        image = (await hear(sandbox, "/v1/images", body)).json["images"][0]
        assert image[name].removeprefix("data:image/png;base64,").startswith("iVBORw0KGgo")


async def test_pictures_asked_for_at_once_come_with_their_usage(sandbox):
    body = (await hear(sandbox, "/v1/images/generations", {"model": "draw", "prompt": "x", "n": 2})).json
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
async def test_a_bad_image_request_is_a_400(sandbox, body):
    assert (await hear(sandbox, "/v1/images", body)).status == 400


async def test_unknown_paths_and_jobs_are_404(sandbox):
    assert [
        (await hear(sandbox, p, b)).status for p, b in (("/v1/images/none", None), ("/v1/what", None), ("/v1/what", {}))
    ] == [404] * 3


# Who leaves is counted.


async def test_leaving_early_is_an_abort_and_reading_to_the_end_is_not(sandbox, ask):
    await ask("chat", "hi", stream=True)
    await ask("chat", "hi")
    assert (sandbox.stats.requests, sandbox.stats.running, sandbox.stats.aborted) == (2, 0, 0)
    path, body = body_of("chat", "hi [[pace=1ms]]", stream=True)
    _, _, chunks = await sandbox("POST", path, {}, json.dumps(body).encode())
    await anext(chunks)
    assert sandbox.stats.running == 1
    await chunks.aclose()
    assert (sandbox.stats.running, sandbox.stats.aborted) == (0, 1)


async def test_leaving_after_the_last_event_is_no_abort(sandbox):
    path, body = body_of("chat", "hi", stream=True)
    _, _, chunks = await sandbox("POST", path, {}, json.dumps(body).encode())
    assert (await anext(chunks)).endswith(b"data: [DONE]\n\n")
    await chunks.aclose()
    assert sandbox.stats.aborted == 0


async def test_leaving_while_waiting_is_an_abort(sandbox, ask):
    waiting = asyncio.ensure_future(ask("chat", "hi [[delay=5s]]"))
    await asyncio.sleep(0.02)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert (sandbox.stats.running, sandbox.stats.aborted) == (0, 1)


async def test_stored_responses_take_little_more_memory_than_they_hold(ask):
    await ask("responses", "hello")
    tracemalloc.start()
    try:
        for number in range(200):
            last = (await ask("responses", f"hello {number}")).json["id"]
        here = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/sandbox/service.py")])
    finally:
        tracemalloc.stop()
    assert (await ask("responses", "and then?", previous_response_id=last)).status == 200
    assert sum(trace.size for trace in here.traces) < 200 * 2_000
