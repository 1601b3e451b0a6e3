"""Usage reported in unusual ways: zeros, beside an error, counted in the provider's own manner. The row and the client
receive the same numbers."""

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


def text_choice(text: str, finish: str | None = None) -> dict:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


def sse_events(events: list[dict]) -> list[bytes]:
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


def streaming(blocks: list[bytes]):
    return replying(blocks=blocks, headers=SSE)


def reporting(usage: object, stream: bool):
    """A provider of the chat format that answers four words and reports `usage`."""
    if stream:
        return streaming(chunks(text_choice("four words of text", "stop"), {"choices": [], "usage": usage}))
    return replying(body=chat(usage))


async def answered(tmp_path, client: str, app, *, spoken: str = "chat", more: str = "", stream: bool = False):
    """The reply to a client of the format `client` from the provider `app` that speaks `spoken`, and the usage row."""
    providers = {"acme": provider("app://acme/v1", spoken, more=more)}
    async with inprocess(tmp_path, providers=providers, apps={"acme": app}) as here:
        reply = await here.post(PATHS[client], {**ASKS[client], "stream": stream})
        (row,) = await rows(here, tmp_path)
    return reply, row


@pytest.mark.parametrize("client", PATHS)
@pytest.mark.parametrize("stream", [False, True])
async def test_usage_of_only_zeros_counts_as_not_reported(tmp_path, client, stream):
    app = reporting(ZERO, stream)
    reply, row = await answered(tmp_path, client, app, stream=stream)
    assert reply.status_code == 200
    assert row["estimated"] and row["input_tokens"] > 0 and row["output_tokens"] == 4 and row["cost"] > 0


@pytest.mark.parametrize("client", ["chat", "messages"])
@pytest.mark.parametrize("stream", [False, True])
async def test_zeros_count_if_the_provider_reports_that_no_model_ran(tmp_path, client, stream):
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
    app = streaming(sse_events(events)) if stream else replying(body=json.dumps(answer).encode())
    reply, row = await answered(tmp_path, client, app, spoken="messages", stream=stream)
    assert reply.status_code == 200
    assert (row["estimated"], row["input_tokens"], row["output_tokens"], row["cost"]) == (False, 0, 0, 0)


@pytest.mark.parametrize("client", ["chat", "responses"])
@pytest.mark.parametrize("stream", [False, True])
async def test_zeros_count_for_a_programmatic_tool_call_without_a_model_run(tmp_path, client, stream):
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
    app = streaming(sse_events(events)) if stream else replying(body=json.dumps(answer).encode())
    reply, row = await answered(tmp_path, client, app, spoken="responses", stream=stream)
    assert reply.status_code == 200
    assert (row["estimated"], row["input_tokens"], row["output_tokens"], row["cost"]) == (False, 0, 0, 0)


@pytest.mark.parametrize("choices", [5, True, "none", {"index": 0}, None])
async def test_usage_in_a_chunk_whose_choices_are_no_list_is_estimated(tmp_path, choices):
    app = streaming(chunks(text_choice("four words of text", "stop"), {"choices": choices, "x_usage": {"tokens": 9}}))
    reply, row = await answered(tmp_path, "chat", app, stream=True)
    assert reply.status_code == 200 and '"x_usage"' in reply.text
    assert (row["outcome"], row["estimated"], row["output_tokens"]) == ("ok", True, 4)


@pytest.mark.parametrize(("client", "stream"), [("chat", False), ("chat", True), ("messages", True)])
@pytest.mark.parametrize(
    "counts",
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
async def test_impossible_token_counts_are_replaced_by_an_estimate(tmp_path, client, stream, counts):
    usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18, **counts}
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
async def test_clients_of_other_formats_receive_the_billed_usage(tmp_path, client, usage):
    reply, row = await answered(tmp_path, client, replying(body=chat(usage)))
    reported = reply.json()["usage"]
    prompt = [row["input_tokens"], row["cache_read_tokens"], row["cache_write_tokens"]]
    answer = row["output_tokens"] + row["reasoning_tokens"]
    if client == "messages":
        assert [
            reported["input_tokens"],
            reported["cache_read_input_tokens"],
            reported["cache_creation_input_tokens"],
            reported["output_tokens"],
        ] == [*prompt, answer]
    else:
        assert (reported["input_tokens"], reported["output_tokens"], reported["total_tokens"]) == (
            sum(prompt),
            answer,
            sum(prompt) + answer,
        )
        assert reported["output_tokens_details"]["reasoning_tokens"] == row["reasoning_tokens"] <= answer


@pytest.mark.parametrize("client", PATHS)
async def test_usage_reported_beside_an_error_is_billed(tmp_path, client):
    error = {
        "error": {"code": 502, "message": "broke"},
        "choices": [],
        "usage": {"prompt_tokens": 43, "completion_tokens": 10, "total_tokens": 53},
    }
    app = streaming(chunks(text_choice("hi"), error))
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
    app = streaming(sse_events(events))
    _, row = await answered(tmp_path, "responses", app, spoken="responses", more=FAILS, stream=True)
    assert (row["outcome"], row["estimated"], row["input_tokens"], row["output_tokens"]) == (
        "upstream_error",
        False,
        43,
        10,
    )


async def test_counts_reported_as_floats_are_used(tmp_path):
    usage = {"prompt_tokens": 12.0, "completion_tokens": 3.0, "total_tokens": 15.0}
    _, row = await answered(tmp_path, "chat", replying(body=chat(usage)))
    assert (row["estimated"], row["input_tokens"], row["output_tokens"]) == (False, 12, 3)


@pytest.mark.parametrize("client", PATHS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("partial", "expected"),
    [({"prompt_tokens": 10, "completion_tokens": None}, (10, 4)), ({"completion_tokens": 5}, (None, 5))],
)
async def test_partial_usage_is_completed_with_an_estimate(tmp_path, client, stream, partial, expected):
    """No answer is free because its provider only reported the prompt (DESIGN section 5: never recorded as 0)."""
    app = reporting(partial, stream)
    reply, row = await answered(tmp_path, client, app, stream=stream)
    assert reply.status_code == 200
    assert (
        row["estimated"]
        and row["input_tokens"] > 0
        and expected in {(row["input_tokens"], row["output_tokens"]), (None, row["output_tokens"])}
    )


@pytest.mark.parametrize(
    "partial", [{"prompt_tokens": 0, "completion_tokens": 5}, {"prompt_tokens": 5, "completion_tokens": 0}]
)
async def test_a_zero_beside_another_count_is_used(tmp_path, partial):
    """As recorded: a provider that reported no prompt tokens charged for none, as its own cost showed."""
    _, row = await answered(tmp_path, "chat", replying(body=chat(partial)))
    assert (row["estimated"], row["input_tokens"], row["output_tokens"]) == (
        False,
        partial["prompt_tokens"],
        partial["completion_tokens"],
    )


async def test_an_answer_without_text_has_no_output_to_estimate(tmp_path):
    empty = json.loads(chat({"prompt_tokens": 10}))
    empty["choices"][0] |= {"message": {"role": "assistant", "content": ""}, "finish_reason": "length"}
    _, row = await answered(tmp_path, "chat", replying(body=json.dumps(empty).encode()))
    assert (row["estimated"], row["input_tokens"], row["output_tokens"]) == (False, 10, 0)


@pytest.mark.parametrize("client", PATHS)
async def test_usage_reported_in_pieces_is_billed_the_same_for_every_client_format(tmp_path, client):
    pieces = chunks(
        {**text_choice("hi", "stop"), "usage": {"prompt_tokens": 10, "completion_tokens": None}},
        {"choices": [], "usage": {"completion_tokens": 5}},
    )
    _, row = await answered(tmp_path, client, streaming(pieces), stream=True)
    assert (row["estimated"], row["input_tokens"], row["output_tokens"]) == (False, 10, 5)


@pytest.mark.parametrize("client", PATHS)
async def test_zeros_after_counts_are_ignored(tmp_path, client):
    events = chunks(
        {**text_choice("hi", "stop"), "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}},
        {"choices": [], "usage": ZERO},
    )
    _, row = await answered(tmp_path, client, streaming(events), stream=True)
    assert (row["estimated"], row["input_tokens"], row["output_tokens"]) == (False, 10, 5)


@pytest.mark.parametrize("client", PATHS)
@pytest.mark.parametrize(
    "end", [{"input_tokens": 0}, {"input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}]
)
async def test_zeros_at_the_end_of_a_messages_stream_do_not_replace_the_prompt(tmp_path, client, end):
    begun = {"input_tokens": 30, "cache_read_input_tokens": 50, "cache_creation_input_tokens": 20, "output_tokens": 1}
    events = sse_events(
        [
            {"type": "message_start", "message": {"id": "m", "model": "up-1", "content": [], "usage": begun}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {**end, "output_tokens": 5}},
            {"type": "message_stop"},
        ]
    )
    _, row = await answered(tmp_path, client, streaming(events), spoken="messages", stream=True)
    assert (row["estimated"], row["input_tokens"], row["output_tokens"]) == (False, 30, 5)
    assert (row["cache_read_tokens"], row["cache_write_tokens"]) == (50, 20)


@pytest.mark.parametrize("client", PATHS)
async def test_chunks_without_choices_reach_chat_clients_and_do_not_disturb_others(tmp_path, client):
    """A vendor's filter results for the prompt, before, within and after the answer (FACTS 5)."""
    found = {"id": "", "model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
    events = chunks(
        found,
        text_choice("hi "),
        found,
        text_choice("there", "stop"),
        {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}},
        found,
    )
    reply, row = await answered(tmp_path, client, streaming(events), stream=True)
    assert reply.text.count("prompt_filter_results") == (3 if client == "chat" else 0)
    assert "hi " in reply.text and "there" in reply.text and "error" not in reply.text.replace('"error":null', "")
    assert (row["outcome"], row["estimated"], row["input_tokens"], row["output_tokens"]) == ("ok", False, 10, 5)
    assert row["lost"] is None


@pytest.mark.parametrize("client", PATHS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_provider_s_own_usage_is_read_after_its_edits(tmp_path, client, stream):
    """Those of streams were read after them, those of whole answers before: one rule could not read both."""
    unwrapped = "".join(f"{kind}: [{{set: {{meter: $.usage.own}}}}]\n" for kind in ("response", "stream"))
    more = unwrapped + "usage: {read: {input: $.meter.in, output: $.meter.out}}"
    app = reporting({**ZERO, "own": {"in": 70, "out": 80}}, stream)
    _, row = await answered(tmp_path, client, app, more=more, stream=stream)
    assert (row["input_tokens"], row["output_tokens"], row["estimated"]) == (70, 80, False)
