"""No request makes the sandbox itself fail: every invalid request is answered with a 4xx."""

from __future__ import annotations

import asyncio
import copy
import time
import tracemalloc

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sandbox_talk import exchange

from tollgate.sandbox import Sandbox
from tollgate.sandbox.prompt import Gather

JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["type", "text", "name", "role", "id"]), inner, max_size=2)
    ),
    max_leaves=3,
)
SCHEMA = {
    "type": "object",
    "properties": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, {"type": "null"}]}},
    "required": ["a"],
    "$defs": {"b": {"type": "integer"}},
}
GOOD = {
    "/chat/completions": {
        "model": "reasoner",
        "stream": True,
        "n": 1,
        "logprobs": True,
        "top_logprobs": 1,
        "stop": ["x"],
        "max_tokens": 50,
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "r"},
            {"role": "user", "content": "hi [[tool]] [[preface]]"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
        "reasoning": {"effort": "low"},
    },
    "/responses": {
        "model": "reasoner",
        "stream": True,
        "instructions": "i",
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low", "summary": "auto"},
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "r"},
            {"role": "user", "content": "hi [[tool]]"},
        ],
        "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}],
        "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}},
        "previous_response_id": None,
        "top_logprobs": 1,
        "max_output_tokens": 50,
    },
    "/messages": {
        "model": "echo",
        "stream": True,
        "max_tokens": 2000,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "r"}]},
                    {"type": "text", "text": "hi [[tool]]"},
                ],
            },
        ],
        "tools": [{"name": "f", "input_schema": SCHEMA}],
        "tool_choice": {"type": "auto"},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    },
    "/embeddings": {"model": "embed", "input": ["a", [1]], "dimensions": 256, "encoding_format": "base64"},
    "/images": {"model": "draw", "input": {"prompt": "x", "count": 1, "aspect_ratio": "1:1", "output": "url"}},
    "/images/generations": {"model": "draw", "prompt": "x", "n": 1, "response_format": "url"},
}


def places(node: object, path: tuple = ()) -> list[tuple]:
    """Every place in a body, as a path of keys."""
    found = [path] if path else []
    for key in node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
        found += places(node[key], (*path, key))
    return found


@pytest.mark.parametrize("route", GOOD)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_junk_at_any_place_is_answered(route, data):
    body = copy.deepcopy(GOOD[route])
    *way, last = data.draw(st.sampled_from(places(body)))
    node = body
    for key in way:
        node = node[key]
    node[last] = data.draw(JUNK)
    received = asyncio.run(exchange(Sandbox(), route, body))
    assert received.status in (200, 400, 404)


@pytest.mark.parametrize("route", GOOD)
def test_the_unchanged_body_is_valid(route):
    assert asyncio.run(exchange(Sandbox(), route, GOOD[route])).status == 200


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"},
        {"$ref": "#/nowhere"},
        "text",
        5,
    ],
)
def test_odd_schemas_are_answered(schema):
    body = {
        "model": "echo",
        "messages": [{"role": "user", "content": "x"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
    }
    assert asyncio.run(exchange(Sandbox(), "/chat/completions", body)).status in (200, 400)


async def test_deep_nesting_is_rejected():
    raw = (
        b'{"model":"echo","max_tokens":9,"messages":[{"role":"user","content":[{"type":"odd","x":'
        + b"[" * 400
        + b"]" * 400
        + b"}]}]}"
    )
    status, _, _ = await Sandbox()("POST", "/messages", {}, raw)
    assert status == 400


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/chat/completions", {"messages": [{"role": "user", "content": "a," * 70_000}]}),
        (
            "/messages",
            {
                "max_tokens": 9,
                "messages": [{"role": "user", "content": [{"type": "text", "text": "word" * 200_000}] * 2}],
            },
        ),
        ("/responses", {"input": "word" * 400_000}),
        ("/embeddings", {"input": ["hi", "a" * 80_000]}),
    ],
    ids=["tokens", "characters of several parts", "characters", "an embedding"],
)
async def test_a_prompt_longer_than_the_context_is_rejected(path, body):
    """Within a gateway, counting it would block other requests."""
    received = await exchange(Sandbox(), path, {"model": "echo", **body})
    assert received.status == 400 and "maximum context length" in received.raw.decode()


def tree(width: int) -> dict:
    """A recursive schema that asks for `width` to the 12th objects."""
    properties = {f"p{i}": {"$ref": "#/$defs/n"} for i in range(width)}
    return {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": properties}}}


def schema_format(schema: dict) -> dict:
    return {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}


DOUBLED = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(60)}
LARGE = {
    "a recursive schema": tree(10),
    "a doubling schema": {"$ref": "#/$defs/d0", "$defs": DOUBLED},
    "a long list": {"type": "array", "minItems": 10**9, "items": {}},
    "lists in a list": {"type": "array", "minItems": 3000, "items": {"type": "array", "minItems": 3000}},
    "long texts": {"type": "array", "minItems": 1000, "items": {"type": "string", "minLength": 40_000}},
    "a long constant": {"type": "array", "minItems": 1000, "items": {"const": "a" * 10_000}},
}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *(
            (
                "/chat/completions",
                {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": s}}},
            )
            for s in LARGE.values()
        ),
        ("/chat/completions", {"text": "[[tools=128]]", "tools": [{"function": {"name": "a", "parameters": tree(2)}}]}),
        ("/chat/completions", {"text": "[[tokens=200000]]", "logprobs": True, "top_logprobs": 20}),
        ("/chat/completions", {"text": "[[tokens=200000]]", "n": 16}),
        ("/chat/completions", {"stop": [f"stop {i}" for i in range(101)]}),
        (
            "/responses",
            {"text": "[[tokens=200000]]", "include": ["message.output_text.logprobs"], "top_logprobs": 20},
        ),
    ],
    ids=[*LARGE, "many calls", "logprobs", "choices", "stop sequences", "logprobs of responses"],
)
async def test_an_answer_that_would_take_the_gateway_s_memory_or_time_is_refused(path, body):
    """Requests of 300 bytes took minutes and gigabytes, in the event loop of the gateway."""
    text = body.pop("text", "hi")
    for tool in body.get("tools", ()):
        tool["type"] = "function"
    given = {"input": text} if path == "/responses" else {"messages": [{"role": "user", "content": text}]}
    began = time.process_time()
    assert (await exchange(Sandbox(), path, {"model": "echo", **given, **body})).status == 400
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "content", ["[[cut=" * 12_000, "[[tool]]" * 12_000, "[[tool a b c "], ids=["unclosed", "many", "one"]
)
async def test_many_markers_take_linear_time(content):
    began = time.process_time()
    body = {"model": "echo", "messages": [{"role": "user", "content": content}]}
    assert (await exchange(Sandbox(), "/chat/completions", body)).status == 200
    assert time.process_time() - began < 2  # it used to take many


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/embeddings", {"input": "[[" * 2_000_000}),
        ("/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}] * 200_000}]}),
        ("/responses", {"input": [{"role": "user", "content": [{"type": "input_text", "text": ""}] * 200_000}]}),
        (
            "/messages",
            {"max_tokens": 9, "messages": [{"role": "user", "content": [{"type": "text", "text": ""}] * 200_000}]},
        ),
    ],
    ids=["brackets in an embedding input", "parts of chat", "parts of responses", "parts of messages"],
)
async def test_a_prompt_that_would_take_long_to_read_is_rejected(path, body):
    began = time.process_time()
    assert (await exchange(Sandbox(), path, {"model": "echo", **body})).status == 400
    assert time.process_time() - began < 1.5  # it used to take two to four


def test_many_open_calls_take_linear_time():
    gather = Gather()
    gather.open_calls.update(f"c{i}" for i in range(20_000))
    began = time.process_time()
    for i in reversed(range(20_000)):
        gather.result(f"c{i}", "", "here")
    gather.closed("here")
    assert time.process_time() - began < 1  # it used to take 5


@pytest.mark.parametrize("path", ["/chat/completions", "/messages", "/responses"])
async def test_a_stream_that_nobody_reads_does_not_hold_its_events(path):
    """100 bytes of such a request took 60 MB of the gateway's memory."""
    text = "[[tokens=200000]]"
    given = {"input": text} if path == "/responses" else {"messages": [{"role": "user", "content": text}]}
    body = orjson.dumps({"model": "echo", "max_tokens": 200_000, "stream": True, **given})
    tracemalloc.start()
    try:
        _, _, events = await Sandbox()("POST", path, {}, body)
        await anext(events)
        assert tracemalloc.get_traced_memory()[0] < 8_000_000
    finally:
        tracemalloc.stop()
    await events.aclose()


async def test_an_image_job_does_not_keep_its_prompt():
    sandbox = Sandbox()
    prompt = "cat " * 1000
    await exchange(sandbox, "/images", {"model": "draw", "input": {"prompt": f"{prompt}[[fail={'no_' * 1000}]]"}})
    (job, _), *_ = sandbox._jobs._jobs._kept.values()
    assert len(repr(job)) < 1000


async def test_stored_conversations_are_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr("tollgate.sandbox.service._MOST_STORED", 5000)
    sandbox = Sandbox()
    ids = [(await exchange(sandbox, "/responses", {"model": "echo", "input": "x" * 1000})).json["id"] for _ in range(5)]
    again = [
        (await exchange(sandbox, "/responses", {"model": "echo", "input": "and", "previous_response_id": each})).status
        for each in (ids[0], ids[-1])
    ]
    assert again == [400, 200]
