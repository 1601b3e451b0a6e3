"""Usage told in odd ways: zeros, beside an error, counted in the provider's own manner. The row and the client hear the
same."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from conformance.upstreams import ASKS, PATHS, provider
from support.inprocess import SSE, inprocess, replying
from support.usage_files import rows

FAILS = "errors: {rules: [{when: $.type == 'response.failed', verdict: next, message: $.response.error.message}]}"
ZERO = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
XAI = {
    "prompt_tokens": 291,
    "completion_tokens": 26,
    "total_tokens": 513,
    "completion_tokens_details": {"reasoning_tokens": 196},
}


def chat(usage: object) -> bytes:
    return json.dumps(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "up-1",
            "usage": usage,
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": "four words of text"}, "finish_reason": "stop"}
            ],
        }
    ).encode()


def chunks(*events: dict) -> list[bytes]:
    frame = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "up-1"}
    return [*(b"data: " + json.dumps({**frame, **event}).encode() + b"\n\n" for event in events), b"data: [DONE]\n\n"]


def said(text: str, finish: str | None = None) -> dict:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


def named(events: list[dict]) -> list[bytes]:
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


def streaming(blocks: list[bytes]):
    return replying(blocks=blocks, headers=SSE)


def reporting(usage: object, stream: bool):
    """A provider that speaks chat, says four words and tells `usage`."""
    if stream:
        return streaming(chunks(said("four words of text", "stop"), {"choices": [], "usage": usage}))
    return replying(body=chat(usage))


async def answered(tmp_path, client: str, app, *, spoken: str = "chat", more: str = "", stream: bool = False):
    """The reply to a client of the format `client` where the provider `app` speaks `spoken`, and the row of usage."""
    providers = {"acme": provider("app://acme/v1", spoken, more=more)}
    async with inprocess(tmp_path, providers=providers, apps={"acme": app}) as here:
        reply = await here.post(PATHS[client], {**ASKS[client], "stream": stream})
        (row,) = await rows(here, tmp_path)
    return reply, row


@pytest.mark.parametrize("client", PATHS)
@pytest.mark.parametrize("stream", [False, True])
async def test_nothing_but_zeros_is_no_report(tmp_path, client, stream):
    app = reporting(ZERO, stream)
    reply, row = await answered(tmp_path, client, app, stream=stream)
    assert reply.status_code == 200
    assert row["estimated"] and row["input_tokens"] > 0 and row["output_tokens"] == 4 and row["cost"] > 0


@pytest.mark.parametrize("client", ["chat", "messages"])
@pytest.mark.parametrize("stream", [False, True])
async def test_zeros_are_a_report_where_the_provider_says_that_no_model_ran(tmp_path, client, stream):
    call = {
        "type": "tool_use",
        "id": "toolu_1",
        "name": "f",
        "input": {},
        "caller": {"type": "code_execution_20250825", "tool_id": "s"},
    }
    answer = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "up-1",
        "content": [call],
        "container": {"id": "c"},
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }
    events = [{"type": "message_start", "message": answer}, {"type": "message_stop"}]
    app = streaming(named(events)) if stream else replying(body=json.dumps(answer).encode())
    reply, row = await answered(tmp_path, client, app, spoken="messages", stream=stream)
    assert reply.status_code == 200
    assert (row["estimated"], row["input_tokens"], row["output_tokens"], row["cost"]) == (False, 0, 0, 0)


@pytest.mark.parametrize("client", ["chat", "responses"])
@pytest.mark.parametrize("stream", [False, True])
async def test_zeros_are_a_report_where_a_program_called_and_no_model_ran(tmp_path, client, stream):
    call = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "f",
        "arguments": "{}",
        "status": "in_progress",
        "caller": {"type": "program", "caller_id": "call_0"},
    }
    usage = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    answer = {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "model": "up-1",
        "status": "completed",
        "output": [call],
        "usage": usage,
    }
    events = [
        {"type": "response.created", "response": {**answer, "status": "in_progress", "output": [], "usage": None}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**call, "arguments": ""}},
        {"type": "response.output_item.done", "output_index": 0, "item": call},
        {"type": "response.completed", "response": answer},
    ]
    app = streaming(named(events)) if stream else replying(body=json.dumps(answer).encode())
    reply, row = await answered(tmp_path, client, app, spoken="responses", stream=stream)
    assert reply.status_code == 200
    assert (row["estimated"], row["input_tokens"], row["output_tokens"], row["cost"]) == (False, 0, 0, 0)


@pytest.mark.parametrize(("client", "stream"), [("chat", False), ("chat", True), ("messages", True)])
@pytest.mark.parametrize(
    "absurd",
    [
        {"completion_tokens": 25_000_000},
        {"prompt_tokens": 1e30},
        {"total_tokens": "9999999999"},
        {"prompt_tokens_details": {"cached_tokens": 10**15}},
        {"prompt_tokens": 1.5, "completion_tokens": 2.7},
        {"prompt_tokens": -1000},
        {"completion_tokens": -5},
    ],
    ids=["output", "input", "total", "cache", "fractions", "negative input", "negative output"],
)
async def test_more_tokens_than_a_request_can_have_are_not_billed_but_counted_here(tmp_path, client, stream, absurd):
    usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18, **absurd}
    app = reporting(usage, stream)
    reply, row = await answered(tmp_path, client, app, stream=stream)
    assert reply.status_code == 200
    assert (
        row["estimated"]
        and 0 < row["input_tokens"] < 100
        and (row["cache_read_tokens"], row["output_tokens"], row["reasoning_tokens"]) == (0, 4, 0)
    )


@pytest.mark.parametrize(
    "usage",
    [
        XAI,
        {
            "prompt_tokens": 10,
            "completion_tokens": 10,
            "total_tokens": 20,
            "completion_tokens_details": {"reasoning_tokens": 11},
        },
        {
            "prompt_tokens": 2168,
            "completion_tokens": 5,
            "total_tokens": 2173,
            "prompt_tokens_details": {"cached_tokens": 2161, "cache_write_tokens": 2161},
        },
    ],
)
@pytest.mark.parametrize("client", ["messages", "responses"])
async def test_clients_of_other_formats_are_told_what_is_billed(tmp_path, client, usage):
    reply, row = await answered(tmp_path, client, replying(body=chat(usage)))
    told = reply.json()["usage"]
    prompt = [row["input_tokens"], row["cache_read_tokens"], row["cache_write_tokens"]]
    answer = row["output_tokens"] + row["reasoning_tokens"]
    if client == "messages":
        assert [
            told["input_tokens"],
            told["cache_read_input_tokens"],
            told["cache_creation_input_tokens"],
            told["output_tokens"],
        ] == [*prompt, answer]
    else:
        assert (told["input_tokens"], told["output_tokens"], told["total_tokens"]) == (
            sum(prompt),
            answer,
            sum(prompt) + answer,
        )
        assert told["output_tokens_details"]["reasoning_tokens"] == row["reasoning_tokens"] <= answer


@pytest.mark.parametrize("client", PATHS)
async def test_usage_told_beside_an_error_is_billed(tmp_path, client):
    error = {
        "error": {"code": 502, "message": "broke"},
        "choices": [],
        "usage": {"prompt_tokens": 43, "completion_tokens": 10, "total_tokens": 53},
    }
    app = streaming(chunks(said("hi"), error))
    _, row = await answered(tmp_path, client, app, stream=True)
    assert (row["outcome"], row["estimated"], row["input_tokens"], row["output_tokens"]) == (
        "upstream_error",
        False,
        43,
        10,
    )
    assert row["cost"] == Decimal(43 + 20) / 10**6


async def test_the_usage_of_a_failed_response_is_billed(tmp_path):
    failed = {
        "type": "response.failed",
        "sequence_number": 2,
        "response": {
            "id": "r",
            "object": "response",
            "status": "failed",
            "error": {"code": "server_error", "message": "broke"},
            "output": [],
            "usage": {"input_tokens": 43, "output_tokens": 10, "total_tokens": 53},
        },
    }
    events = [
        {
            "type": "response.created",
            "sequence_number": 0,
            "response": {"id": "r", "object": "response", "status": "in_progress", "output": []},
        },
        {
            "type": "response.output_text.delta",
            "sequence_number": 1,
            "item_id": "m",
            "output_index": 0,
            "content_index": 0,
            "delta": "hi",
            "logprobs": [],
        },
        failed,
    ]
    app = streaming(named(events))
    _, row = await answered(tmp_path, "responses", app, spoken="responses", more=FAILS, stream=True)
    assert (row["outcome"], row["estimated"], row["input_tokens"], row["output_tokens"]) == (
        "upstream_error",
        False,
        43,
        10,
    )


async def test_counts_written_as_floats_are_counts(tmp_path):
    usage = {"prompt_tokens": 12.0, "completion_tokens": 3.0, "total_tokens": 15.0}
    _, row = await answered(tmp_path, "chat", replying(body=chat(usage)))
    assert (row["estimated"], row["input_tokens"], row["output_tokens"]) == (False, 12, 3)


@pytest.mark.parametrize("client", PATHS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("half", "expected"),
    [({"prompt_tokens": 10, "completion_tokens": None}, (10, 4)), ({"completion_tokens": 5}, (None, 5))],
)
async def test_half_a_report_is_completed_with_what_is_counted_here(tmp_path, client, stream, half, expected):
    """Nobody's answer is free because its provider told the prompt alone (DESIGN section 5: never recorded as 0)."""
    app = reporting(half, stream)
    reply, row = await answered(tmp_path, client, app, stream=stream)
    assert reply.status_code == 200
    assert (
        row["estimated"]
        and row["input_tokens"] > 0
        and expected in {(row["input_tokens"], row["output_tokens"]), (None, row["output_tokens"])}
    )


@pytest.mark.parametrize(
    "half", [{"prompt_tokens": 0, "completion_tokens": 5}, {"prompt_tokens": 5, "completion_tokens": 0}]
)
async def test_a_zero_beside_a_count_is_meant(tmp_path, half):
    """As recorded: a provider that told no prompt tokens charged none, and said so in its own cost."""
    _, row = await answered(tmp_path, "chat", replying(body=chat(half)))
    assert (row["estimated"], row["input_tokens"], row["output_tokens"]) == (
        False,
        half["prompt_tokens"],
        half["completion_tokens"],
    )


async def test_an_answer_without_text_has_no_output_to_count(tmp_path):
    empty = json.loads(chat({"prompt_tokens": 10}))
    empty["choices"][0] |= {"message": {"role": "assistant", "content": ""}, "finish_reason": "length"}
    _, row = await answered(tmp_path, "chat", replying(body=json.dumps(empty).encode()))
    assert (row["estimated"], row["input_tokens"], row["output_tokens"]) == (False, 10, 0)


@pytest.mark.parametrize("client", PATHS)
async def test_usage_told_in_pieces_is_billed_alike_whatever_the_client_speaks(tmp_path, client):
    pieces = chunks(
        {**said("hi", "stop"), "usage": {"prompt_tokens": 10, "completion_tokens": None}},
        {"choices": [], "usage": {"completion_tokens": 5}},
    )
    _, row = await answered(tmp_path, client, streaming(pieces), stream=True)
    assert (row["estimated"], row["input_tokens"], row["output_tokens"]) == (False, 10, 5)


@pytest.mark.parametrize("client", PATHS)
async def test_zeros_after_counts_tell_nothing(tmp_path, client):
    events = chunks(
        {**said("hi", "stop"), "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}},
        {"choices": [], "usage": ZERO},
    )
    _, row = await answered(tmp_path, client, streaming(events), stream=True)
    assert (row["estimated"], row["input_tokens"], row["output_tokens"]) == (False, 10, 5)


@pytest.mark.parametrize("client", PATHS)
async def test_chunks_without_choices_pass_to_chat_clients_and_are_no_trouble_to_others(tmp_path, client):
    """What a vendor's filters found in the prompt, before the answer, in it and behind it (FACTS 5)."""
    found = {"id": "", "model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
    events = chunks(
        found,
        said("hi "),
        found,
        said("there", "stop"),
        {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}},
        found,
    )
    reply, row = await answered(tmp_path, client, streaming(events), stream=True)
    assert reply.text.count("prompt_filter_results") == (3 if client == "chat" else 0)
    assert "hi " in reply.text and "there" in reply.text and "error" not in reply.text.replace('"error":null', "")
    assert (row["outcome"], row["estimated"], row["input_tokens"], row["output_tokens"]) == ("ok", False, 10, 5)
    assert row["lost"] is None
