"""Three small agents, one for each client format, written as users of the official SDKs write them: send a prompt, run
tools, continue.

Each keeps its history as its API requires, including reasoning, and sends all of it with every request.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

TOOLS = {
    "look": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    "rest": {"type": "object", "properties": {}},
}


@dataclass
class Call:
    id: str
    name: str
    arguments: Any


@dataclass
class Agent:
    """`sdk` is an async client of the format, `model` the requested model, and `stream` whether to stream."""

    sdk: Any
    model: str
    stream: bool
    history: list[Any] = field(default_factory=list)
    reasoned: list[str] = field(default_factory=list)
    """The readable reasoning of every turn so far."""

    async def prompt(self, text: str) -> tuple[str, list[Call]]:
        """Sends a prompt; returns the answer's text and tool calls."""
        self.history.append(self.user(text))
        return await self.turn()

    async def send_results(self, results: dict[str, str]) -> tuple[str, list[Call]]:
        """Sends tool results by call id; returns the next answer's text and tool calls."""
        self.history.extend(self.results(results))
        return await self.turn()

    def user(self, text: str) -> Any:
        return {"role": "user", "content": text}

    def results(self, results: dict[str, str]) -> list[Any]:
        raise NotImplementedError

    async def turn(self) -> tuple[str, list[Call]]:
        raise NotImplementedError


class ChatAgent(Agent):
    def results(self, results):
        return [{"role": "tool", "tool_call_id": name, "content": text} for name, text in results.items()]

    async def turn(self):
        tools = [
            {"type": "function", "function": {"name": name, "description": name, "parameters": schema}}
            for name, schema in TOOLS.items()
        ]
        request = {"model": self.model, "messages": self.history, "tools": tools}
        if self.stream:
            async with self.sdk.chat.completions.stream(**request) as stream:
                async for _ in stream:
                    pass
                done = await stream.get_final_completion()
        else:
            done = await self.sdk.chat.completions.create(**request)
        message = done.choices[0].message
        history_entry = {
            name: value
            for name, value in message.to_dict().items()
            if name not in ("parsed", "function_call") and value is not None
        }
        for call in history_entry.get("tool_calls", ()):
            call.get("function", {}).pop("parsed_arguments", None)
            call.pop("index", None)
        self.history.append(history_entry)
        self.reasoned.append(history_entry.get("reasoning") or "")
        calls = [
            Call(call.id, call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or ()
        ]
        assert done.choices[0].finish_reason == ("tool_calls" if calls else "stop")
        assert done.usage.total_tokens > 0
        return message.content or "", calls


class ResponsesAgent(Agent):
    def results(self, results):
        return [{"type": "function_call_output", "call_id": name, "output": text} for name, text in results.items()]

    async def turn(self):
        tools = [
            {"type": "function", "name": name, "description": name, "parameters": schema, "strict": False}
            for name, schema in TOOLS.items()
        ]
        request = {
            "model": self.model,
            "input": self.history,
            "tools": tools,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "reasoning": {"summary": "auto"},
        }
        if self.stream:
            async with self.sdk.responses.stream(**request) as stream:
                async for _ in stream:
                    pass
                done = await stream.get_final_response()
        else:
            done = await self.sdk.responses.create(**request)
        items = [item.to_dict() for item in done.output]
        for item in items:
            item.pop("parsed_arguments", None)
            for part in item.get("content") or ():
                part.pop("parsed", None)
        self.history.extend(items)
        self.reasoned.append(
            "".join(
                part["text"]
                for item in items
                if item["type"] == "reasoning"
                for part in item.get("summary") or item.get("content") or ()
            )
        )
        assert done.status == "completed" and done.usage.total_tokens > 0
        return done.output_text, [
            Call(item.call_id, item.name, json.loads(item.arguments))
            for item in done.output
            if item.type == "function_call"
        ]


class MessagesAgent(Agent):
    def results(self, results):
        return [
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": name, "content": text} for name, text in results.items()
                ],
            }
        ]

    async def turn(self):
        tools = [{"name": name, "description": name, "input_schema": schema} for name, schema in TOOLS.items()]
        request = {"model": self.model, "max_tokens": 4000, "messages": self.history, "tools": tools}
        if self.stream:
            async with self.sdk.messages.stream(**request) as stream:
                done = await stream.get_final_message()
        else:
            done = await self.sdk.messages.create(**request)
        blocks = [block.to_dict() for block in done.content]
        for block in blocks:
            block.pop("parsed_output", None)
        self.history.append({"role": "assistant", "content": blocks})
        self.reasoned.append("".join(block["thinking"] for block in blocks if block["type"] == "thinking"))
        calls = [Call(block.id, block.name, block.input) for block in done.content if block.type == "tool_use"]
        assert done.stop_reason == ("tool_use" if calls else "end_turn")
        assert done.usage.input_tokens > 0 and done.usage.output_tokens > 0
        return "".join(block.text for block in done.content if block.type == "text"), calls


AGENTS: dict[str, type[Agent]] = {"chat": ChatAgent, "responses": ResponsesAgent, "messages": MessagesAgent}


async def three_rounds(agent: Agent, *, readable: bool = True) -> None:
    """Runs three rounds of three parallel calls, one of them without arguments; each result must refer to its call.
    `readable` tells whether this client receives the provider's reasoning as text."""
    for round in range(1, 4):
        text, calls = await agent.prompt(
            f'round {round} [[tool=look {{"place": "zone {round}"}}]] [[tool=rest {{}}]] [[tool=look {{"place": '
            f'"ü{round}"}}]]'
        )
        assert [(call.name, call.arguments) for call in calls] == [
            ("look", {"place": f"zone {round}"}),
            ("rest", {}),
            ("look", {"place": f"ü{round}"}),
        ]
        assert len({call.id for call in calls}) == 3 and all(call.id for call in calls)
        text, more = await agent.send_results({call.id: f"{round}.{n} {call.name}" for n, call in enumerate(calls)})
        assert text == f"The tool said: {round}.0 look; {round}.1 rest; {round}.2 look" and not more
    assert len(agent.reasoned) == 6 and all(agent.reasoned) is readable, "reasoning was lost on its way to the client"
