"""Tool loops across formats: two parallel calls, their results, another call, the end; reasoning is kept throughout.

The client is what an SDK user writes: it appends what it received and answers the calls. The upstream must receive
exactly what it sent: its signatures and encrypted content, the ids, the arguments. Whole answers and streams.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message
from openai import omit
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response

from mappings.support import context, converted, mapping
from support.sdks import message_events, response_events
from tollgate.mapping import convert_request, convert_response

CAN: dict[str, dict[str, Any]] = {"chat": {"reasoning_details": True}, "messages": {}, "responses": {}, "gemini": {}}
PAIRS = [
    (c, u) for c in ("chat", "responses", "messages") for u in ("chat", "responses", "messages", "gemini") if c != u
]
IDS = [f"{c}-client-{u}-upstream" for c, u in PAIRS]

# ---- what an upstream sends: rounds 1 (calls f and g) and 2 (calls f again) with reasoning, round 3 ends with "done"
CALLS: list[list[tuple[str, str, dict[str, Any]]]] = [
    [("c1", "f", {"a": 1}), ("c2", "g", {})],
    [("c3", "f", {"a": 2})],
    [],
]


def chat_answer(n: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None if CALLS[n] else "done"}
    if CALLS[n]:
        message["reasoning_details"] = [
            {
                "type": "reasoning.text",
                "text": f"t{n}",
                "signature": f"SIG{n}",
                "format": "anthropic-claude-v1",
                "index": 0,
            }
        ]
        message["tool_calls"] = [
            {"id": i, "type": "function", "function": {"name": f, "arguments": json.dumps(a)}} for i, f, a in CALLS[n]
        ]
    return {
        "id": f"x{n}",
        "model": "m",
        "created": 5,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 3},
    }


def responses_answer(n: int) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if CALLS[n]:
        output.append(
            {
                "id": f"rs_{n}",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": f"t{n}"}],
                "encrypted_content": f"ENC{n}",
            }
        )
    output += [
        {"id": f"fc_{i}", "type": "function_call", "call_id": i, "name": f, "arguments": json.dumps(a)}
        for i, f, a in CALLS[n]
    ]
    if not CALLS[n]:
        output.append(
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "done", "annotations": []}],
            }
        )
    return {
        "id": f"resp_{n}",
        "model": "m",
        "created_at": 5,
        "status": "completed",
        "output": output,
        "usage": {"input_tokens": 5, "output_tokens": 3},
    }


def messages_answer(n: int) -> dict[str, Any]:
    content: list[dict[str, Any]] = (
        [
            {"type": "thinking", "thinking": f"t{n}", "signature": f"SIG{n}"},
            {"type": "redacted_thinking", "data": f"RED{n}"},
        ]
        if CALLS[n]
        else []
    )
    content += [{"type": "tool_use", "id": i, "name": f, "input": a} for i, f, a in CALLS[n]] or [
        {"type": "text", "text": "done"}
    ]
    return {
        "id": f"msg_{n}",
        "model": "m",
        "content": content,
        "stop_reason": "tool_use" if CALLS[n] else "end_turn",
        "usage": {"input_tokens": 5, "output_tokens": 3},
    }


def gemini_answer(n: int) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"text": f"t{n}", "thought": True}] if CALLS[n] else [{"text": "done"}]
    for k, (i, f, a) in enumerate(CALLS[n]):
        parts.append(
            {
                "functionCall": {"id": i, "name": f, "args": a},
                **({"thoughtSignature": f"SIG{n}"} if k == 0 else {}),
            }
        )
    return {
        "responseId": f"r{n}",
        "modelVersion": "m",
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 3},
    }


WHOLE = {"chat": chat_answer, "responses": responses_answer, "messages": messages_answer, "gemini": gemini_answer}


def streamed_answer(upstream: str, n: int) -> list[Any]:
    """The same answer as a stream of the upstream."""
    answer: Any = WHOLE[upstream](n)
    if upstream == "gemini":
        parts = answer["candidates"][0]["content"]["parts"]
        events: list[Any] = [{**answer, "candidates": [{"content": {"parts": [p]}}]} for p in parts]
        return [*events, {**answer, "candidates": [{"content": {"parts": [{"text": ""}]}, "finishReason": "STOP"}]}]
    if upstream == "chat":
        m = answer["choices"][0]["message"]
        base = {"id": answer["id"], "model": "m", "created": 5}
        deltas = [
            {"role": "assistant", "content": ""},
            *([{"reasoning_details": m["reasoning_details"]}] if CALLS[n] else [{"content": "done"}]),
        ]
        for k, call in enumerate(m.get("tool_calls", [])):
            text = call["function"]["arguments"]
            deltas.append(
                {"tool_calls": [{**call, "index": k, "function": {"name": call["function"]["name"], "arguments": ""}}]}
            )
            deltas += [
                {"tool_calls": [{"index": k, "function": {"arguments": piece}}]} for piece in (text[:3], text[3:])
            ]
        events = [{**base, "choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas]
        return [
            *events,
            {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {**base, "choices": [], "usage": answer["usage"]},
            "[DONE]",
        ]
    if upstream == "responses":
        events = [{"type": "response.created", "response": {"id": answer["id"], "model": "m", "created_at": 5}}]
        for k, item in enumerate(answer["output"]):
            events.append(
                {
                    "type": "response.output_item.added",
                    "output_index": k,
                    "item": {**item, "summary": [], "arguments": "", "content": [], "encrypted_content": "early"},
                }
            )
            if item["type"] == "reasoning":
                events.append(
                    {
                        "type": "response.reasoning_summary_text.delta",
                        "output_index": k,
                        "summary_index": 0,
                        "item_id": item["id"],
                        "delta": item["summary"][0]["text"],
                    }
                )
            elif item["type"] == "function_call":
                events += [
                    {
                        "type": "response.function_call_arguments.delta",
                        "output_index": k,
                        "item_id": item["id"],
                        "delta": piece,
                    }
                    for piece in (item["arguments"][:3], item["arguments"][3:])
                ]
            else:
                events.append(
                    {
                        "type": "response.output_text.delta",
                        "output_index": k,
                        "content_index": 0,
                        "item_id": item["id"],
                        "delta": "done",
                    }
                )
            events.append({"type": "response.output_item.done", "output_index": k, "item": item})
        return [*events, {"type": "response.completed", "response": answer}]
    events = [{"type": "message_start", "message": {**answer, "content": [], "stop_reason": None}}]
    for k, block in enumerate(answer["content"]):
        kind = block["type"]
        empty = {"thinking": {"thinking": "", "signature": ""}, "tool_use": {"input": {}}, "text": {"text": ""}}.get(
            kind, {}
        )
        events.append({"type": "content_block_start", "index": k, "content_block": {**block, **empty}})
        deltas = {
            "thinking": lambda b: [
                {"type": "thinking_delta", "thinking": b["thinking"]},
                {"type": "signature_delta", "signature": b["signature"]},
            ],
            "tool_use": lambda b: [
                {"type": "input_json_delta", "partial_json": json.dumps(b["input"]) if b["input"] else ""}
            ],
            "text": lambda b: [{"type": "text_delta", "text": b["text"]}],
        }.get(kind, lambda b: [])(block)
        events += [{"type": "content_block_delta", "index": k, "delta": d} for d in deltas]
        events.append({"type": "content_block_stop", "index": k})
    return [
        *events,
        {
            "type": "message_delta",
            "delta": {"stop_reason": answer["stop_reason"], "stop_sequence": None},
            "usage": {"output_tokens": 3},
        },
        {"type": "message_stop"},
    ]


# ---- what a client does
def opening(client: str) -> dict[str, Any]:
    if client == "chat":
        return {
            "model": "m",
            "max_completion_tokens": 9000,
            "reasoning_effort": "low",
            "messages": [{"role": "user", "content": "go"}],
            "tools": [
                {"type": "function", "function": {"name": n, "parameters": {"type": "object"}}} for n in ("f", "g")
            ],
        }
    if client == "responses":
        return {
            "model": "m",
            "max_output_tokens": 9000,
            "reasoning": {"effort": "low"},
            "input": [{"role": "user", "content": "go"}],
            "tools": [
                {"type": "function", "name": n, "parameters": {"type": "object"}, "strict": False} for n in ("f", "g")
            ],
        }
    return {
        "model": "m",
        "max_tokens": 9000,
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "messages": [{"role": "user", "content": "go"}],
        "tools": [{"name": n, "input_schema": {"type": "object"}} for n in ("f", "g")],
    }


def received_whole(client: str, body: dict[str, Any]) -> Any:
    body = json.loads(json.dumps(body))
    return {"chat": ChatCompletion, "responses": Response, "messages": Message}[client].model_validate(body)


def received_stream(client: str, events: list[tuple[str | None, Any]]) -> Any:
    events = json.loads(json.dumps(events))
    if client == "chat":
        state = ChatCompletionStreamState()
        for _, chunk in events:
            if chunk != "[DONE]":
                list(state.handle_chunk(ChatCompletionChunk.model_validate(chunk)))
        return state.get_final_completion()
    if client == "responses":
        responses = ResponseStreamState(input_tools=omit, text_format=omit)
        for _, event in events:
            responses.handle_event(response_events().validate_python(event))
        return Response.model_validate(events[-1][1]["response"])
    snapshot, bufs = None, {}
    for _, event in events:
        snapshot = accumulate_event(
            event=message_events().validate_python(event), current_snapshot=snapshot, json_bufs=bufs
        )
    return snapshot


def append(client: str, request: dict[str, Any], answer: Any) -> list[tuple[str, str]]:
    """Appends an answer to the conversation, with the result of every call in it -> (id, name) of the calls."""
    if client == "chat":
        message = answer.choices[0].message
        request["messages"].append(message.to_dict(exclude_none=True))
        calls = [(c.id, c.function.name) for c in message.tool_calls or []]
        request["messages"] += [{"role": "tool", "tool_call_id": i, "content": f"result of {i}"} for i, _ in calls]
    elif client == "responses":
        request["input"] += [item.to_dict() for item in answer.output]
        calls = [(i.call_id, i.name) for i in answer.output if i.type == "function_call"]
        request["input"] += [
            {"type": "function_call_output", "call_id": i, "output": f"result of {i}"} for i, _ in calls
        ]
    else:
        request["messages"].append({"role": "assistant", "content": [b.to_dict() for b in answer.content]})
        calls = [(b.id, b.name) for b in answer.content if b.type == "tool_use"]
        if calls:
            request["messages"].append(
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": i, "content": f"result of {i}"} for i, _ in calls
                    ],
                }
            )
    return calls


# ---- what the upstream must receive
def expect_chat(body: dict[str, Any], rounds: int) -> None:
    assistants = [m for m in body["messages"] if m["role"] == "assistant"]
    for n in range(rounds):
        assert [(d["text"], d["signature"], d["format"]) for d in assistants[n]["reasoning_details"]] == [
            (f"t{n}", f"SIG{n}", "anthropic-claude-v1")
        ]
        assert [
            (c["id"], c["function"]["name"], json.loads(c["function"]["arguments"]))
            for c in assistants[n]["tool_calls"]
        ] == CALLS[n]
    results = [(m["tool_call_id"], m["content"]) for m in body["messages"] if m["role"] == "tool"]
    assert results == [(i, f"result of {i}") for n in range(rounds) for i, _, _ in CALLS[n]]


def expect_responses(body: dict[str, Any], rounds: int) -> None:
    thoughts = [
        (i["id"], [s["text"] for s in i["summary"]], i["encrypted_content"])
        for i in body["input"]
        if i["type"] == "reasoning"
    ]
    assert thoughts == [(f"rs_{n}", [f"t{n}"], f"ENC{n}") for n in range(rounds)]
    calls = [
        (i["call_id"], i["name"], json.loads(i["arguments"])) for i in body["input"] if i["type"] == "function_call"
    ]
    assert calls == [c for n in range(rounds) for c in CALLS[n]]
    results = [(i["call_id"], i["output"]) for i in body["input"] if i["type"] == "function_call_output"]
    assert results == [(c[0], f"result of {c[0]}") for n in range(rounds) for c in CALLS[n]]


def expect_messages(body: dict[str, Any], rounds: int) -> None:
    assistants = [m["content"] for m in body["messages"] if m["role"] == "assistant"]
    assert assistants == [messages_answer(n)["content"] for n in range(rounds)]
    results = [
        (b["tool_use_id"], b["content"][0]["text"])
        for m in body["messages"]
        if m["role"] == "user"
        for b in m["content"]
        if b["type"] == "tool_result"
    ]
    assert results == [(i, f"result of {i}") for n in range(rounds) for i, _, _ in CALLS[n]]
    assert body["thinking"]["type"] == "enabled", "the last tool turn is signed, so thinking stays enabled"


def expect_gemini(body: dict[str, Any], rounds: int) -> None:
    models = [c["parts"] for c in body["contents"] if c["role"] == "model"]
    for n in range(rounds):
        calls = [p for p in models[n] if "functionCall" in p]
        assert [
            (p["functionCall"]["id"], p["functionCall"]["name"], p["functionCall"]["args"]) for p in calls
        ] == CALLS[n]
        assert [p.get("thoughtSignature") for p in calls] == [f"SIG{n}"] + [None] * (len(calls) - 1)
    results = [
        (p["functionResponse"]["id"], p["functionResponse"]["name"], p["functionResponse"]["response"]["output"])
        for c in body["contents"]
        for p in c["parts"]
        if "functionResponse" in p
    ]
    assert results == [(i, f, f"result of {i}") for n in range(rounds) for i, f, _ in CALLS[n]]


EXPECT = {"chat": expect_chat, "responses": expect_responses, "messages": expect_messages, "gemini": expect_gemini}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("client", "upstream"), PAIRS, ids=IDS)
def test_a_tool_loop_of_three_rounds_returns_everything_to_the_upstream(
    client: str, upstream: str, stream: bool
) -> None:
    request = opening(client)
    for n in range(3):
        run = context(can=CAN[upstream])
        sent = convert_request(mapping(client), mapping(upstream), json.loads(json.dumps(request)), run)
        EXPECT[upstream](sent.body, n)
        if stream:
            answer = received_stream(client, converted(upstream, client, streamed_answer(upstream, n), run))
        else:
            answer = received_whole(
                client, convert_response(mapping(upstream), mapping(client), WHOLE[upstream](n), run).body
            )
        assert append(client, request, answer) == [(i, f) for i, f, _ in CALLS[n]]


@pytest.mark.parametrize(("client", "upstream"), PAIRS, ids=IDS)
def test_a_conversation_that_changes_its_upstream_reports_its_reasoning_as_lost(client: str, upstream: str) -> None:
    other = {"chat": "messages", "responses": "messages", "messages": "responses", "gemini": "messages"}[upstream]
    if other == client:
        pytest.skip("the other upstream speaks the client's own format")
    request = opening(client)
    append(
        client,
        request,
        received_whole(
            client, convert_response(mapping(upstream), mapping(client), WHOLE[upstream](0), context()).body
        ),
    )
    sent = convert_request(mapping(client), mapping(other), request, context())
    assert any("reasoning" in words for words in sent.lost) or upstream == "chat"
    assert "SIG0" not in json.dumps(sent.body) or upstream == "chat"
    assert "ENC0" not in json.dumps(sent.body)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", ["chat", "responses", "messages"])
def test_services_that_reject_each_others_signatures_receive_only_their_own(client: str, stream: bool) -> None:
    services = [{"signed_calls": True, "signatures_of": "vertex"}, {"signed_calls": True}]
    request = opening(client)
    for n in range(2):  # the first answer is from one service, the second from the other
        run = context(can=services[n])
        convert_request(mapping(client), mapping("gemini"), json.loads(json.dumps(request)), run)
        if stream:
            answer = received_stream(client, converted("gemini", client, streamed_answer("gemini", n), run))
        else:
            made = convert_response(mapping("gemini"), mapping(client), gemini_answer(n), run)
            answer = received_whole(client, made.body)
        append(client, request, answer)
    skip = "skip_thought_signature_validator"
    for can, expected in zip(services, (["SIG0", skip], [skip, "SIG1"]), strict=True):
        sent = convert_request(mapping(client), mapping("gemini"), json.loads(json.dumps(request)), context(can=can))
        models = [c["parts"] for c in sent.body["contents"] if c["role"] == "model"]
        assert [next(p["thoughtSignature"] for p in parts if "functionCall" in p) for parts in models] == expected
        assert any("of another provider" in words for words in sent.lost)
