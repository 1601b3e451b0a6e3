"""Whole numbers beyond 64 bits in the arguments of calls (an amount in wei) keep their digits."""

import json
from typing import Any

import pytest

from completions.invented import ASK, JSON
from support.inprocess import inprocess, replying

WEI = 1234567890123456789012
ARGUMENTS = f'{{"wei":{WEI}}}'
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
CALL = {"id": "t1", "type": "function", "function": {"name": "pay", "arguments": ARGUMENTS}}
BLOCK = {"type": "tool_use", "id": "t1", "name": "pay", "input": {"wei": WEI}}
ANSWERS: dict[str, dict[str, Any]] = {
    "chat": {
        "id": "c",
        "model": "up-1",
        "choices": [{"index": 0, "message": {"tool_calls": [CALL]}, "finish_reason": "tool_calls"}],
        "usage": USAGE,
    },
    "messages": {
        "id": "m",
        "type": "message",
        "model": "up-1",
        "content": [BLOCK],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 10, "output_tokens": 5},
    },
}
TURNS: dict[str, list[dict[str, Any]]] = {
    "chat": [{"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "t1", "content": "paid"}],
    "messages": [
        {"role": "assistant", "content": [BLOCK]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "paid"}]},
    ],
}
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages"}
PROVIDER = """
provider: acme
url: app://acme
speaks: {FORMAT: /answer}
request: [{set: {note: edited}}]
response: [{set: {note: edited}}]
models:
  acme/one: {upstream: up-1, price: {prompt: "0.001", completion: "0.002"}}
"""


def sent(client: str, body: Any) -> str:
    """The arguments in the last call of a client's answer or an upstream's request."""
    text = json.dumps(body, separators=(",", ":"))
    return text.replace("\\", "") if client == "chat" else text


@pytest.mark.parametrize("padding", ["", "x" * 5000], ids=["short", "long"])
@pytest.mark.parametrize(
    ("client", "upstream"), [("chat", "messages"), ("messages", "chat"), ("chat", "chat"), ("messages", "messages")]
)
async def test_arguments_keep_their_digits(tmp_path, client, upstream, padding):
    seen: list[Any] = []
    turns = [{"role": "user", "content": "pay " + padding}, *TURNS[client]]
    async with inprocess(
        tmp_path,
        providers={"acme": PROVIDER.replace("FORMAT", upstream)},
        apps={"acme": replying(body=json.dumps(ANSWERS[upstream]).encode(), headers=JSON, seen=seen)},
    ) as here:
        tools = {
            "chat": {"type": "function", "function": {"name": "pay"}},
            "messages": {"name": "pay", "input_schema": {}},
        }
        body = {**ASK, "max_tokens": 99, "messages": turns, "tools": [tools[client]]}
        reply = await here.post(PATHS[client], body)
    assert reply.status_code == 200
    assert ARGUMENTS in sent(upstream, json.loads(seen[0][3]))
    assert ARGUMENTS in sent(client, reply.json())
