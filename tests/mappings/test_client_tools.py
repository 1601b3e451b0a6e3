"""The vendor's tools that a responses client runs itself (shell, patches, searches for tools): every model receives
them as functions, and their calls become the items that the client knows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import Response

from mappings.support import context, converted, mapping
from support.sdks import response_events
from tollgate.mapping import convert_request, convert_response

TOOLS: list[dict[str, Any]] = [
    {"type": "shell", "environment": {"type": "local"}},
    {"type": "local_shell"},
    {"type": "apply_patch"},
    {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}},
]
PATCH = {"type": "update_file", "path": "a.txt", "diff": "@@\n-a\n+b"}
SHELL = {"commands": ["ls", "pwd"], "timeout_ms": 5, "max_output_length": None}
LOCAL = {"type": "exec", "command": ["ls"], "env": {}}
SEARCH = {"execution": "client", "arguments": {"query": "books"}}
CALLS = [
    ("tool_search", '{"query":"books"}', "tool_search_call", "tsc_", SEARCH),
    ("tool_search", "", "tool_search_call", "tsc_", {"arguments": {}}),
    ("shell", '{"commands":["ls","pwd"],"timeout_ms":5}', "shell_call", "sh_", {"action": SHELL}),
    (
        "shell",
        '{"commands":"ls"}',
        "shell_call",
        "sh_",
        {"action": {"commands": ["ls"], "timeout_ms": None, "max_output_length": None}},
    ),
    ("local_shell", '{"command":["ls"]}', "local_shell_call", "lsh_", {"action": LOCAL}),
    ("local_shell", '{"command":"ls"}', "local_shell_call", "lsh_", {"action": LOCAL}),
    ("apply_patch", json.dumps(PATCH), "apply_patch_call", "apc_", {"operation": PATCH}),
    (
        "apply_patch",
        '{"type":"delete_file","path":"a"}',
        "apply_patch_call",
        "apc_",
        {"operation": {"type": "delete_file", "path": "a"}},
    ),
    (
        "shell",
        '["no object"]',
        "shell_call",
        "sh_",
        {"action": {"commands": [], "timeout_ms": None, "max_output_length": None}},
    ),
]


def context_of_request_with(tools: list[dict[str, Any]]) -> Any:
    run = context()
    convert_request(mapping("responses"), mapping("chat"), {"model": "m", "input": "Hi", "tools": tools}, run)
    return run


def call(name: str, arguments: str) -> dict[str, Any]:
    return {"index": 0, "id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("name", "arguments", "kind", "prefix", "fields"), CALLS)
def test_a_call_becomes_the_item_of_the_clients_own_tool(
    name: str, arguments: str, kind: str, prefix: str, fields: dict[str, Any], streamed: bool
) -> None:
    run, made = context_of_request_with(TOOLS), call(name, arguments)
    if streamed:
        chunk = {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"tool_calls": [made]}}]}
        end = {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
        events = [data for _, data in converted("chat", "responses", [chunk, end, "[DONE]"], run)]
        for event in events:
            response_events().validate_python(event)
        added, done = [event["item"] for event in events if event["type"].startswith("response.output_item.")]
        assert added["type"] == kind and added["status"] == "in_progress" and added["id"] == done["id"]
        assert not [event for event in events if "arguments" in event["type"]]
        body = events[-1]["response"]
        assert body["output"][0] == done
    else:
        choice = {"index": 0, "message": {"role": "assistant", "tool_calls": [made]}, "finish_reason": "tool_calls"}
        body = convert_response(mapping("chat"), mapping("responses"), {"id": "x", "choices": [choice]}, run).body
    item = body["output"][0]
    assert item["type"] == kind and item["id"].startswith(prefix)
    assert item["call_id"] == "c1" and item["status"] == "completed"
    assert {key: item[key] for key in fields} == fields
    assert Response.model_validate(json.loads(json.dumps(body))).output[0].type == kind


def test_a_search_that_the_provider_runs_is_no_function() -> None:
    run = context_of_request_with([{"type": "tool_search"}])
    assert "hosted tool tool_search" in run.lost
    choice = {"index": 0, "message": {"tool_calls": [call("tool_search", "{}")]}, "finish_reason": "tool_calls"}
    made = convert_response(mapping("chat"), mapping("responses"), {"id": "x", "choices": [choice]}, run)
    assert made.body["output"][0]["type"] == "function_call"


def test_a_function_with_the_name_of_such_a_tool_stays_a_function() -> None:
    run = context_of_request_with(
        [
            {"type": "function", "name": "shell", "parameters": {"type": "object"}},
            {"type": "shell", "environment": {"type": "container_auto"}},
        ]
    )
    choice = {"index": 0, "message": {"tool_calls": [call("shell", "{}")]}, "finish_reason": "tool_calls"}
    made = convert_response(mapping("chat"), mapping("responses"), {"id": "x", "choices": [choice]}, run)
    assert made.body["output"][0]["type"] == "function_call"
