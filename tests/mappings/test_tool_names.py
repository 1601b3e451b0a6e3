"""Tool names that a format does not accept are replaced, no two by the same name, and restored in the answer."""

from __future__ import annotations

from typing import Any

import pytest

from mappings.support import context, converted, mapping
from tollgate.mapping import StreamConverter, convert_request, convert_response, request_from_hub

LONG = "mcp__a_server_of_some_length__" + "a" * 120
NAMES = ["a.b", "a_b", "a/b", "files.read", "plain", f"{LONG}.x", f"{LONG}_x"]
BODY: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": "{}"}}
                for n, name in enumerate(NAMES)
            ],
        },
        *({"role": "tool", "tool_call_id": f"c{n}", "content": "42"} for n in range(len(NAMES))),
    ],
    "tools": [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in NAMES],
    "tool_choice": {"type": "function", "function": {"name": "a/b"}},
}


def sent(target: str) -> tuple[list[str], list[str], str]:
    """The names of the tools, of earlier calls, and of the required tool, as the upstream receives them."""
    choice = BODY["tool_choice"] if target != "cohere" else "required"  # a single tool is sent alone there
    made = convert_request(mapping("chat"), mapping(target), {**BODY, "tool_choice": choice}, context()).body
    if target == "gemini":
        calls = [part["functionCall"]["name"] for part in made["contents"][1]["parts"]]
        chosen = made["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"]
        return [tool["name"] for tool in made["tools"][0]["functionDeclarations"]], calls, chosen[0]
    if target == "messages":
        calls = [block["name"] for block in made["messages"][1]["content"]]
        return [tool["name"] for tool in made["tools"]], calls, made["tool_choice"]["name"]
    if target == "cohere":
        calls = [call["function"]["name"] for call in made["messages"][1]["tool_calls"]]
        return [tool["function"]["name"] for tool in made["tools"]], calls, made["tool_choice"]
    tools = [tool["toolSpec"]["name"] for tool in made["toolConfig"]["tools"]]
    calls = [block["toolUse"]["name"] for block in made["messages"][1]["content"]]
    return tools, calls, made["toolConfig"]["toolChoice"]["tool"]["name"]


@pytest.mark.parametrize(("target", "most"), [("messages", 128), ("bedrock", 64)])
def test_no_two_tools_are_sent_with_the_same_name(target: str, most: int) -> None:
    tools, calls, chosen = sent(target)
    assert len(set(tools)) == len(NAMES) and calls == tools and chosen == tools[2]
    assert tools[1] == "a_b" and tools[3:5] == ["files_read", "plain"]  # only ambiguous names get a suffix
    assert all(len(name) <= most and name.replace("-", "_").isidentifier() for name in tools)


def test_google_accepts_dots_and_colons_but_no_leading_digit() -> None:
    names = ["1c_probe", "_1c_probe", "-x", "a.b:c-d", "é/b", "y" * 130]
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    run = context()
    made = convert_request(mapping("chat"), mapping("gemini"), {**BODY, "tools": tools, "tool_choice": "auto"}, run)
    sent_names = [tool["name"] for tool in made.body["tools"][0]["functionDeclarations"]]
    assert sent_names[0].startswith("_1c_probe_") and sent_names[1:5] == ["_1c_probe", "_-x", "a.b:c-d", "__b"]
    assert len(sent_names[5]) == 128
    answer_of_gemini = whole("gemini", list(enumerate(sent_names)))
    answer = convert_response(mapping("gemini"), mapping("chat"), answer_of_gemini, run).body
    assert [call["function"]["name"] for call in answer["choices"][0]["message"]["tool_calls"]] == names


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("upstream", ["messages", "bedrock", "gemini", "cohere"])
def test_each_tool_name_is_restored(upstream: str, streamed: bool) -> None:
    run = context()
    convert_request(mapping("chat"), mapping(upstream), BODY, run)
    calls = list(enumerate(sent(upstream)[0]))
    if streamed:
        events_sent = converted(upstream, "responses", streams(upstream, calls), run)
        names = [item["name"] for item in events_sent[-1][1]["response"]["output"]]
    else:
        answer = convert_response(mapping(upstream), mapping("chat"), whole(upstream, calls), run).body
        names = [call["function"]["name"] for call in answer["choices"][0]["message"]["tool_calls"]]
    assert names == NAMES


@pytest.mark.parametrize("client", ["messages", "responses"])
@pytest.mark.parametrize("cuts", [(64,), (8,), (32, 40), (63,), (1, 2, 3)], ids=str)
def test_a_shortened_name_is_restored_also_if_it_arrives_in_pieces(client: str, cuts: tuple[int, ...]) -> None:
    other = LONG + "b"  # starts like the name of the called tool
    run = context(request={"tools": [{"name": "mcp"}, {"name": other}, {"name": LONG}]})
    body = {"turns": [{"role": "user", "parts": [{"kind": "text", "text": "Hi"}]}], **(run.request or {})}
    sent_name = request_from_hub(mapping("chat"), body, run)["tools"][2]["function"]["name"]
    ends = (*cuts, len(sent_name))
    pieces = [sent_name[start:end] for start, end in zip((0, *cuts), ends, strict=True) if start < end]
    calls = [{"index": 0, "function": {"name": piece}} for piece in pieces]
    calls[0]["id"] = "c1"
    calls.append({"index": 0, "function": {"arguments": '{"a":1}'}})
    chunks: list[Any] = [{"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]} for call in calls]
    chunks.append({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    converter = StreamConverter(mapping("chat"), mapping(client), run)
    events_sent = [event for chunk in chunks for _, event in converter.feed(chunk)] + [e for _, e in converter.finish()]
    assert [(part["name"], part["args"]) for part in converter.parts()] == [(LONG, '{"a":1}')] and not run.lost
    assert any(
        LONG in (event.get(key) or {}).get("name", "") for event in events_sent for key in ("item", "content_block")
    )


def whole(upstream: str, calls: list[tuple[int, str]]) -> dict[str, Any]:
    if upstream == "messages":
        blocks = [{"type": "tool_use", "id": f"t{n}", "name": name, "input": {}} for n, name in calls]
        return {"id": "m", "content": blocks, "stop_reason": "tool_use"}
    if upstream == "gemini":
        parts = [{"functionCall": {"id": f"t{n}", "name": name, "args": {}}} for n, name in calls]
        content = {"role": "model", "parts": parts}
        return {"responseId": "r", "candidates": [{"content": content, "finishReason": "STOP"}]}
    if upstream == "cohere":
        tool_calls = [{"id": f"t{n}", "function": {"name": name, "arguments": "{}"}} for n, name in calls]
        return {"id": "r", "message": {"role": "assistant", "tool_calls": tool_calls}, "finish_reason": "TOOL_CALL"}
    uses = [{"toolUse": {"toolUseId": f"t{n}", "name": name, "input": {}}} for n, name in calls]
    return {"output": {"message": {"role": "assistant", "content": uses}}, "stopReason": "tool_use"}


def streams(upstream: str, calls: list[tuple[int, str]]) -> list[Any]:
    if upstream == "messages":
        events: list[Any] = [{"type": "message_start", "message": {"id": "m", "model": "m"}}]
        for n, name in calls:
            block = {"type": "tool_use", "id": f"t{n}", "name": name, "input": {}}
            events += [
                {"type": "content_block_start", "index": n, "content_block": block},
                {"type": "content_block_stop", "index": n},
            ]
        return [*events, {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"}]
    if upstream == "gemini":
        return [whole(upstream, [call]) for call in calls]
    if upstream == "cohere":
        starts = [
            {
                "type": "tool-call-start",
                "index": n,
                "delta": {"message": {"tool_calls": {"id": f"t{n}", "function": {"name": name}}}},
            }
            for n, name in calls
        ]
        ends = [{"type": "message-end", "delta": {"finish_reason": "TOOL_CALL"}}]
        return [{"type": "message-start", "id": "r", "delta": {}}, *starts, *ends]
    events = [{"role": "assistant"}]
    for n, name in calls:
        events += [
            {"contentBlockIndex": n, "start": {"toolUse": {"toolUseId": f"t{n}", "name": name}}},
            {"contentBlockIndex": n},
        ]
    return [*events, {"stopReason": "tool_use"}]
