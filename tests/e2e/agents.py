"""Three small agents, one for each client format, as people write them with the official SDKs: ask, run tools, go on.

Each keeps its history the way its API wants it, reasoning included, and sends all of it back every time.
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
    """`sdk` an async client of the right kind, `model` what to ask for, `stream` how."""

    sdk: Any
    model: str
    stream: bool
    history: list[Any] = field(default_factory=list)
    reasoned: list[str] = field(default_factory=list)
    """Readable reasoning of every turn so far."""

    async def ask(self, text: str) -> tuple[str, list[Call]]:
        """Say something; the answer's text and calls."""
        self.history.append(self.user(text))
        return await self.turn()

    async def give(self, results: dict[str, str]) -> tuple[str, list[Call]]:
        """Tool results by call id; the answer that follows."""
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
        asked = {"model": self.model, "messages": self.history, "tools": tools}
        if self.stream:
            async with self.sdk.chat.completions.stream(**asked) as stream:
                async for _ in stream:
                    pass
                done = await stream.get_final_completion()
        else:
            done = await self.sdk.chat.completions.create(**asked)
        message = done.choices[0].message
        kept = {
            name: value
            for name, value in message.to_dict().items()
            if name not in ("parsed", "function_call") and value is not None
        }
        for call in kept.get("tool_calls", ()):
            call.get("function", {}).pop("parsed_arguments", None)
            call.pop("index", None)
        self.history.append(kept)
        self.reasoned.append(kept.get("reasoning") or "")
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
        asked = {
            "model": self.model,
            "input": self.history,
            "tools": tools,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "reasoning": {"summary": "auto"},
        }
        if self.stream:
            async with self.sdk.responses.stream(**asked) as stream:
                async for _ in stream:
                    pass
                done = await stream.get_final_response()
        else:
            done = await self.sdk.responses.create(**asked)
        kept = [item.to_dict() for item in done.output]
        for item in kept:
            item.pop("parsed_arguments", None)
            for part in item.get("content") or ():
                part.pop("parsed", None)
        self.history.extend(kept)
        self.reasoned.append(
            "".join(
                part["text"]
                for item in kept
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
        asked = {"model": self.model, "max_tokens": 4000, "messages": self.history, "tools": tools}
        if self.stream:
            async with self.sdk.messages.stream(**asked) as stream:
                done = await stream.get_final_message()
        else:
            done = await self.sdk.messages.create(**asked)
        kept = [block.to_dict() for block in done.content]
        for block in kept:
            block.pop("parsed_output", None)
        self.history.append({"role": "assistant", "content": kept})
        self.reasoned.append("".join(block["thinking"] for block in kept if block["type"] == "thinking"))
        calls = [Call(block.id, block.name, block.input) for block in done.content if block.type == "tool_use"]
        assert done.stop_reason == ("tool_use" if calls else "end_turn")
        assert done.usage.input_tokens > 0 and done.usage.output_tokens > 0
        return "".join(block.text for block in done.content if block.type == "text"), calls


AGENTS: dict[str, type[Agent]] = {"chat": ChatAgent, "responses": ResponsesAgent, "messages": MessagesAgent}


async def three_rounds(agent: Agent, *, readable: bool = True) -> None:
    """Three rounds of three parallel calls, one of them without arguments; every result must come back to its call.
    `readable`: whether the provider tells its reasoning in words to this client."""
    for round in range(1, 4):
        text, calls = await agent.ask(
            f'round {round} [[tool=look {{"place": "zone {round}"}}]] [[tool=rest {{}}]] [[tool=look {{"place": '
            f'"ü{round}"}}]]'
        )
        assert [(call.name, call.arguments) for call in calls] == [
            ("look", {"place": f"zone {round}"}),
            ("rest", {}),
            ("look", {"place": f"ü{round}"}),
        ]
        assert len({call.id for call in calls}) == 3 and all(call.id for call in calls)
        text, more = await agent.give({call.id: f"{round}.{n} {call.name}" for n, call in enumerate(calls)})
        assert text == f"The tool said: {round}.0 look; {round}.1 rest; {round}.2 look" and not more
    assert len(agent.reasoned) == 6 and all(agent.reasoned) is readable, "reasoning was lost on the way to the client"
