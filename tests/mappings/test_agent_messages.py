"""Codex' agents (multi-agent v2) send each other tasks as arguments that only OpenAI's own service encrypts: calls by
other models are marked as plain, and what Codex took for encrypted all the same reaches the other agent as text."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.responses import Response

from mappings.support import context, converted, mapping
from support.sdks import response_events
from tollgate.mapping import convert_request, convert_response

TEXT = {"type": "string", "encrypted": True}
SPAWN = {"type": "function", "name": "spawn_agent", "parameters": {"type": "object", "properties": {"message": TEXT}}}
WAIT = {"type": "function", "name": "wait_agent", "parameters": {"type": "object", "properties": {}}}
TEAM = {"type": "namespace", "name": "collaboration", "description": "Agents.", "tools": [SPAWN, WAIT]}
PLACES = {"top": [SPAWN, WAIT], "namespace": [TEAM]}
CALLS = [
    {"index": 0, "id": "c1", "function": {"name": "spawn_agent", "arguments": '{"message":"Count the files."}'}},
    {"index": 1, "id": "c2", "function": {"name": "wait_agent", "arguments": "{}"}},
]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("tools", PLACES.values(), ids=PLACES)
def test_a_message_that_only_openai_encrypts_is_marked_as_plain(tools: list[dict[str, Any]], streamed: bool) -> None:
    run = context()
    convert_request(mapping("responses"), mapping("chat"), {"model": "m", "input": "Hi", "tools": tools}, run)
    choice = {"index": 0, "finish_reason": "tool_calls"}
    if streamed:
        sent = converted(
            "chat", "responses", [{"id": "x", "choices": [{**choice, "delta": {"tool_calls": CALLS}}]}], run
        )
        events = [data for _, data in sent]
        for event in events:
            response_events().validate_python(event)
        items = [data["item"] for data in events if data["type"] == "response.output_item.done"]
        assert [data["item"].get("encrypted_function_args") for data in events if "added" in data["type"]] == [[], None]
        assert events[-1]["response"]["output"] == items
    else:
        answer = {"id": "x", "choices": [{**choice, "message": {"role": "assistant", "tool_calls": CALLS}}]}
        body = convert_response(mapping("chat"), mapping("responses"), answer, run).body
        Response.model_validate(body)
        items = body["output"]
    assert [item.get("encrypted_function_args") for item in items] == [[], None]


@pytest.mark.parametrize("target", ["chat", "messages", "gemini", "bedrock"])
def test_the_task_of_an_agent_is_the_users_text(target: str) -> None:
    task = {
        "type": "agent_message",
        "author": "/team",
        "recipient": "/team/count",
        "content": [
            {"type": "input_text", "text": "Message Type: NEW_TASK\nPayload:\n"},
            {"type": "encrypted_content", "encrypted_content": "Count the files."},
        ],
    }
    made = convert_request(mapping("responses"), mapping(target), {"model": "m", "input": [task]}, context())
    assert "Count the files." in str(made.body)
    assert made.lost == []
