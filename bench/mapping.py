"""What a mapping costs beside hand-written Python, and what the shipped files cost: `python bench/mapping.py [--json]`.

Two questions. *The engine*: a pair of small protocol files is compared with a converter a careful engineer writes for
the same two hops over the same hub; results are asserted equal. Goal: at most 1.3 times. *The product*: the shipped
mappings, which know far more, in absolute time; goals: 60 µs a typical request with its loss list, 2 µs a stream event,
300 ms to compile all files. Times are the best of many interleaved rounds of this process's CPU.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import orjson

from tollgate.config.load import read_file, read_text
from tollgate.mapping import (
    CompiledMapping,
    Context,
    StreamConverter,
    Tap,
    compile_mapping,
    convert_request,
    convert_response,
)
from tollgate.process.garbage_collector import collector_paused

CHAT = """
mapping: chat
define:
  part($p):
    $match: $p.type
    $absent: {kind: text, text: $p}
    text: {kind: text, text: $p.text}
    image_url:
      $let: {inline: "{{ $p.image_url.url | data_url }}"}
      kind: image
      mime: $inline.mime
      data: $inline.data
      url: "{{ $p.image_url.url if $inline is absent }}"
    $else: {kind: opaque, of: chat, raw: $p}
  usage_out($u): {prompt_tokens: $u.input, completion_tokens: $u.output, total_tokens: "{{ [$u.input, $u.output] | total }}"}
  stop_out($r): {$match: $r, end|sequence: stop, length: length, tool: tool_calls, $else: stop}
request:
  to_hub:
    $copy: [model, stream, temperature, top_p, user]
    max_tokens: {$first: [$.max_completion_tokens, $.max_tokens]}
    stop: [{$each: $s in $.stop}]
    system:
      - $each: $m in $.messages
        $when: $m.role in ['system', 'developer']
        $value: [{$each: $p in $m.content, $value: "{{ part($p) }}"}]
    turns:
      $join_by: role
      $value:
        - $each: $m in $.messages
          $match: $m.role
          user: {role: user, parts: [{$each: $p in $m.content, $value: "{{ part($p) }}"}]}
          assistant:
            role: assistant
            parts:
              - {$each: $p in $m.content, $value: "{{ part($p) }}"}
              - {$each: $c in $m.tool_calls, kind: tool_call, id: $c.id, name: $c.function.name, args: $c.function.arguments}
          tool:
            role: user
            parts: [{kind: tool_result, id: $m.tool_call_id, parts: [{$each: $p in $m.content, $value: "{{ part($p) }}"}]}]
          $else: $nothing
    tools: [{$each: $t in $.tools, name: $t.function.name, description: $t.function.description, schema: $t.function.parameters}]
response:
  from_hub:
    id: $.id
    object: chat.completion
    created: {$first: [$.created, 0]}
    model: $.model
    choices:
      - index: 0
        message:
          role: assistant
          content: {$first: ["{{ $.parts[?(@.kind == 'text')].text | join }}", null]}
          reasoning: "{{ $.parts[?(@.kind == 'reasoning')].text | join }}"
          tool_calls:
            - $each: $p in $.parts
              $when: $p.kind == 'tool_call'
              id: $p.id
              type: function
              function: {name: $p.name, arguments: $p.args}
        logprobs: null
        finish_reason: "{{ stop_out($.stop) }}"
    usage: "{{ usage_out($.usage) }}"
stream:
  to_hub:
    always:
      - {start: {id: $.id, model: $.model, created: $.created}}
      - $let: {d: "$.choices[0].delta"}
        $when: $d
        do:
          - {delta: {kind: text, text: $d.content}}
          - $each: $c in $d.tool_calls
            delta: {kind: tool_call, key: $c.index, id: $c.id, name: $c.function.name, text: $c.function.arguments}
      - {$when: "$.choices[0].finish_reason", stop: {reason: "$.choices[0].finish_reason"}}
      - {$when: $.usage, usage: {input: $.usage.prompt_tokens, output: $.usage.completion_tokens}}
  from_hub:
    stamp: {id: $run.id, object: chat.completion.chunk, created: $run.created, model: $run.model}
    start: [{choices: [{index: 0, delta: {role: assistant, content: ""}, finish_reason: null}]}]
    text: {delta: [{choices: [{index: 0, delta: {content: $delta}, finish_reason: null}]}]}
"""  # noqa: E501
MESSAGES = """
mapping: messages
define:
  block($p):
    $match: $p.kind
    text: {type: text, text: $p.text}
    image:
      type: image
      source: {$when: $p.data, type: base64, media_type: $p.mime, data: $p.data, $else: {type: url, url: $p.url}}
    tool_call: {type: tool_use, id: $p.id, name: $p.name, input: "{{ $p.args | parse_json }}"}
    tool_result: {type: tool_result, tool_use_id: $p.id, content: [{$each: $c in $p.parts, $value: "{{ block($c) }}"}]}
    $else: {$lost: "part {{ $p.kind }}"}
  part($b):
    $match: $b.type
    text: {kind: text, text: $b.text}
    thinking: {kind: reasoning, text: $b.thinking, token: $b.signature, origin: anthropic}
    tool_use: {kind: tool_call, id: $b.id, name: $b.name, args: "{{ $b.input | json }}"}
    $else: {kind: opaque, of: messages, raw: $b}
  stop_in($r): {$match: $r, end_turn: end, stop_sequence: sequence, max_tokens: length, tool_use: tool, $else: $r}
request:
  from_hub:
    model: $model.upstream
    max_tokens: {$first: [$.max_tokens, $model.max_output, 4096]}
    $copy: [stream, temperature, top_p]
    stop_sequences: $.stop
    metadata: {user_id: $.user}
    system: [{$each: $p in $.system, $value: "{{ block($p) }}"}]
    messages: [{$each: $t in $.turns, role: $t.role, content: [{$each: $p in $t.parts, $value: "{{ block($p) }}"}]}]
    tools: [{$each: $t in $.tools, name: $t.name, description: $t.description, input_schema: {$first: [$t.schema, {type: object}]}}]
response:
  to_hub:
    $copy: [id, model]
    parts: [{$each: $b in $.content, $value: "{{ part($b) }}"}]
    stop: "{{ stop_in($.stop_reason) }}"
    usage: {input: "{{ [$.usage.input_tokens, $.usage.cache_read_input_tokens] | total }}", output: $.usage.output_tokens}
stream:
  to_hub:
    $match: $.type
    message_start: [{start: {id: $.message.id, model: $.message.model}}]
    content_block_start:
      $match: $.content_block.type
      text: [{open: {kind: text, key: $.index}}]
      tool_use: [{open: {kind: tool_call, key: $.index, id: $.content_block.id, name: $.content_block.name}}]
    content_block_delta:
      $match: $.delta.type
      text_delta: [{delta: {kind: text, key: $.index, text: $.delta.text}}]
      input_json_delta: [{delta: {kind: tool_call, key: $.index, text: $.delta.partial_json}}]
    content_block_stop: [{close: {key: $.index}}]
    message_delta: [{stop: {reason: "{{ stop_in($.delta.stop_reason) }}"}}]
    $else: []
  from_hub:
    event: type
    start: [{type: message_start, message: {id: $run.id, type: message, role: assistant, content: []}}]
    text:
      open: [{type: content_block_start, index: $part.index, content_block: {type: text, text: ""}}]
      delta: [{type: content_block_delta, index: $part.index, delta: {type: text_delta, text: $delta}}]
      close: [{type: content_block_stop, index: $part.index}]
"""  # noqa: E501

REQUEST: dict[str, Any] = {
    "model": "m",
    "max_tokens": 500,
    "temperature": 0.5,
    "user": "u1",
    "tools": [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": "does it",
                "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
            },
        }
        for name in ("f", "g")
    ],
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is in this picture?"},
        {"role": "assistant", "content": "Which one?"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "This one."},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":"x"}'}},
                {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
        {"role": "tool", "tool_call_id": "c2", "content": "43"},
        {"role": "user", "content": "Go on."},
    ],
}
ANSWER: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "x",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "Here."},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": "x"}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 10, "output_tokens": 20, "cache_read_input_tokens": 3},
}
CHUNK = {
    "id": "c",
    "object": "chat.completion.chunk",
    "created": 5,
    "model": "m",
    "choices": [{"index": 0, "delta": {"content": "lo"}, "logprobs": None, "finish_reason": None}],
}
EVENT = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}}


# -- by hand: the same two hops


def hand_request(body: Any, model: dict[str, Any]) -> dict[str, Any]:
    """chat -> hub -> messages, as a careful engineer writes it: wrong kinds are absent, empty is left out."""
    return _hand_from_hub(_hand_to_hub(body), model)


def _hand_part(part: Any) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind is None:
        return {"kind": "text", "text": part}
    if kind == "text":
        made = {"kind": "text"}
        if part.get("text") is not None:
            made["text"] = part["text"]
        return made
    if kind == "image_url":
        holder = part.get("image_url")
        url = holder.get("url") if isinstance(holder, dict) else None
        made = {"kind": "image"}
        if isinstance(url, str) and url.startswith("data:") and ";base64," in url:
            mime, _, data = url[5:].partition(";base64,")
            made["mime"], made["data"] = mime, data
        elif url is not None:
            made["url"] = url
        return made
    return {"kind": "opaque", "of": "chat", "raw": part}


def _hand_parts(content: Any) -> list[Any]:
    if content is None:
        return []
    return [_hand_part(part) for part in (content if isinstance(content, list) else [content]) if part is not None]


def _hand_to_hub(body: Any) -> dict[str, Any]:
    hub: dict[str, Any] = {
        name: body[name] for name in ("model", "stream", "temperature", "top_p", "user") if body.get(name) is not None
    }
    limit = body.get("max_completion_tokens")
    if limit is None:
        limit = body.get("max_tokens")
    if limit is not None:
        hub["max_tokens"] = limit
    stop = body.get("stop")
    if stop:
        hub["stop"] = stop if isinstance(stop, list) else [stop]
    system: list[Any] = []
    turns: list[dict[str, Any]] = []
    for message in body.get("messages") or []:
        if not isinstance(message, dict):
            continue
        role = message.get("role")
        if role in ("system", "developer"):
            system += _hand_parts(message.get("content"))
            continue
        if role == "user":
            parts = _hand_parts(message.get("content"))
        elif role == "assistant":
            parts = _hand_parts(message.get("content"))
            for call in message.get("tool_calls") or []:
                function = call.get("function") if isinstance(call, dict) else None
                made = {"kind": "tool_call"}
                if call.get("id") is not None:
                    made["id"] = call["id"]
                if isinstance(function, dict):
                    if function.get("name") is not None:
                        made["name"] = function["name"]
                    if function.get("arguments") is not None:
                        made["args"] = function["arguments"]
                parts.append(made)
        elif role == "tool":
            role = "user"
            result: dict[str, Any] = {"kind": "tool_result"}
            if message.get("tool_call_id") is not None:
                result["id"] = message["tool_call_id"]
            inner = _hand_parts(message.get("content"))
            if inner:
                result["parts"] = inner
            parts = [result]
        else:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["parts"] = turns[-1]["parts"] + parts
        else:
            turns.append({"role": role, "parts": parts})
    if system:
        hub["system"] = system
    if turns:
        hub["turns"] = turns
    tools = []
    for tool in body.get("tools") or []:
        function = tool.get("function") if isinstance(tool, dict) else None
        made = {}
        if isinstance(function, dict):
            for name, field in (("name", "name"), ("description", "description"), ("schema", "parameters")):
                if function.get(field) is not None:
                    made[name] = function[field]
        if made:
            tools.append(made)
    if tools:
        hub["tools"] = tools
    return hub


def _hand_block(part: Any) -> dict[str, Any] | None:
    kind = part.get("kind")
    if kind == "text":
        made = {"type": "text"}
        if part.get("text") is not None:
            made["text"] = part["text"]
        return made
    if kind == "image":
        if part.get("data"):
            source = {"type": "base64", "media_type": part.get("mime"), "data": part["data"]}
        else:
            source = {"type": "url", "url": part.get("url")}
        return {"type": "image", "source": {name: value for name, value in source.items() if value is not None}}
    if kind == "tool_call":
        made = {"type": "tool_use"}
        if part.get("id") is not None:
            made["id"] = part["id"]
        if part.get("name") is not None:
            made["name"] = part["name"]
        if part.get("args") is not None:
            made["input"] = orjson.loads(part["args"]) if part["args"].strip() else {}
        return made
    if kind == "tool_result":
        made = {"type": "tool_result"}
        if part.get("id") is not None:
            made["tool_use_id"] = part["id"]
        content = [block for inner in part.get("parts") or [] if (block := _hand_block(inner)) is not None]
        if content:
            made["content"] = content
        return made
    return None


def _hand_from_hub(hub: dict[str, Any], model: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"model": model["upstream"]}
    limit = hub.get("max_tokens")
    made["max_tokens"] = limit if limit is not None else model.get("max_output") or 4096
    for name in ("stream", "temperature", "top_p"):
        if hub.get(name) is not None:
            made[name] = hub[name]
    if hub.get("stop") is not None:
        made["stop_sequences"] = hub["stop"]
    if hub.get("user") is not None:
        made["metadata"] = {"user_id": hub["user"]}
    system = [block for part in hub.get("system") or [] if (block := _hand_block(part)) is not None]
    if system:
        made["system"] = system
    messages = []
    for turn in hub.get("turns") or []:
        message = {"role": turn["role"]}
        content = [block for part in turn.get("parts") or [] if (block := _hand_block(part)) is not None]
        if content:
            message["content"] = content
        messages.append(message)
    if messages:
        made["messages"] = messages
    tools = []
    for tool in hub.get("tools") or []:
        entry = {}
        if tool.get("name") is not None:
            entry["name"] = tool["name"]
        if tool.get("description") is not None:
            entry["description"] = tool["description"]
        schema = tool.get("schema")
        entry["input_schema"] = schema if schema is not None else {"type": "object"}
        tools.append(entry)
    if tools:
        made["tools"] = tools
    return made


_STOPS_IN = {"end_turn": "end", "stop_sequence": "sequence", "max_tokens": "length", "tool_use": "tool"}
_STOPS_OUT = {"end": "stop", "sequence": "stop", "length": "length", "tool": "tool_calls"}


def hand_answer(body: Any) -> dict[str, Any]:
    """messages -> hub -> chat."""
    hub: dict[str, Any] = {}
    for name in ("id", "model"):
        if body.get(name) is not None:
            hub[name] = body[name]
    parts: list[dict[str, Any]] = []
    for block in body.get("content") or []:
        kind = block.get("type")
        if kind == "text":
            part = {"kind": "text", "text": block.get("text")}
        elif kind == "thinking":
            part = {
                "kind": "reasoning",
                "text": block.get("thinking"),
                "token": block.get("signature"),
                "origin": "anthropic",
            }
        elif kind == "tool_use":
            part = {"kind": "tool_call", "id": block.get("id"), "name": block.get("name")}
            if block.get("input") is not None:
                part["args"] = orjson.dumps(block["input"]).decode()
        else:
            part = {"kind": "opaque", "of": "messages", "raw": block}
        parts.append({name: value for name, value in part.items() if value is not None})
    hub["parts"] = parts
    reason = body.get("stop_reason")
    hub["stop"] = _STOPS_IN.get(reason, reason)
    usage = body.get("usage")
    if isinstance(usage, dict):
        counts = [
            count for count in (usage.get("input_tokens"), usage.get("cache_read_input_tokens")) if count is not None
        ]
        hub["usage"] = {"input": sum(counts), "output": usage.get("output_tokens")}
    message: dict[str, Any] = {"role": "assistant"}
    texts = [part["text"] for part in hub["parts"] if part["kind"] == "text" and part.get("text") is not None]
    message["content"] = "".join(texts) if texts else None
    thoughts = [part["text"] for part in hub["parts"] if part["kind"] == "reasoning" and part.get("text") is not None]
    if thoughts:
        message["reasoning"] = "".join(thoughts)
    calls = [
        {"id": part["id"], "type": "function", "function": {"name": part["name"], "arguments": part["args"]}}
        for part in hub["parts"]
        if part["kind"] == "tool_call"
    ]
    if calls:
        message["tool_calls"] = calls
    made: dict[str, Any] = {
        "id": hub["id"],
        "object": "chat.completion",
        "created": hub.get("created", 0),
        "model": hub["model"],
        "choices": [
            {"index": 0, "message": message, "logprobs": None, "finish_reason": _STOPS_OUT.get(hub["stop"], "stop")}
        ],
    }
    if "usage" in hub:
        counts = hub["usage"]
        made["usage"] = {
            "prompt_tokens": counts["input"],
            "completion_tokens": counts["output"],
            "total_tokens": counts["input"] + counts["output"],
        }
    return made


class HandMessages:
    """chat chunks -> hub operations -> messages events, text only: what the bench sends."""

    def __init__(self) -> None:
        self.kind = ""
        self.index = -1
        self.id = self.model = None
        self.text: list[str] = []
        self.stop = None
        self.usage: dict[str, Any] = {}

    def feed(self, chunk: Any) -> list[tuple[str, dict[str, Any]]]:
        out: list[tuple[str, dict[str, Any]]] = []
        if not isinstance(chunk, dict):
            return out
        if self.id is None and chunk.get("id"):
            self.id, self.model = chunk["id"], chunk.get("model")
            out.append(
                (
                    "message_start",
                    {
                        "type": "message_start",
                        "message": {"id": self.id, "type": "message", "role": "assistant", "content": []},
                    },
                )
            )
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if isinstance(choice, dict):
            delta = choice.get("delta")
            if isinstance(delta, dict):
                text = delta.get("content")
                if text:
                    if self.kind != "text":
                        self.kind = "text"
                        self.index += 1
                        out.append(
                            (
                                "content_block_start",
                                {
                                    "type": "content_block_start",
                                    "index": self.index,
                                    "content_block": {"type": "text", "text": ""},
                                },
                            )
                        )
                    self.text.append(text)
                    out.append(
                        (
                            "content_block_delta",
                            {
                                "type": "content_block_delta",
                                "index": self.index,
                                "delta": {"type": "text_delta", "text": text},
                            },
                        )
                    )
                for _ in delta.get("tool_calls") or ():
                    raise NotImplementedError
            if choice.get("finish_reason"):
                self.stop = choice["finish_reason"]
        usage = chunk.get("usage")
        if usage:
            self.usage = {"input": usage.get("prompt_tokens"), "output": usage.get("completion_tokens")}
        return out


class HandChat:
    """messages events -> hub operations -> chat chunks, text only."""

    def __init__(self) -> None:
        self.stamp: dict[str, Any] = {}
        self.open: dict[Any, str] = {}
        self.text: list[str] = []

    def feed(self, event: Any) -> list[tuple[None, dict[str, Any]]]:
        if not isinstance(event, dict):
            return []
        kind = event.get("type")
        if kind == "message_start":
            message = event["message"]
            self.stamp = {
                "id": message.get("id"),
                "object": "chat.completion.chunk",
                "created": 7,
                "model": message.get("model"),
            }
            return [
                (
                    None,
                    {
                        **self.stamp,
                        "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}],
                    },
                )
            ]
        if kind == "content_block_start":
            self.open[event.get("index")] = event["content_block"]["type"]
        elif kind == "content_block_delta":
            delta = event.get("delta")
            if (
                isinstance(delta, dict)
                and delta.get("type") == "text_delta"
                and self.open.get(event.get("index")) == "text"
            ):
                text = delta.get("text")
                if text:
                    self.text.append(text)
                    return [
                        (
                            None,
                            {
                                **self.stamp,
                                "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}],
                            },
                        )
                    ]
        return []


# -- measuring


def best(calls: dict[str, Callable[[], Any]], rounds: int = 40, times: int = 200) -> dict[str, float]:
    """Microseconds of CPU per call, the best of interleaved rounds."""
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            began = time.process_time_ns()
            for _ in range(times):
                call()
            found[name] = min(found[name], (time.process_time_ns() - began) / times / 1000)
    return found


def warm(converter: Any, *events: Any) -> Any:
    """A converter in the middle of a text."""
    for event in events:
        converter.feed(event)
    return converter


def small(text: str) -> CompiledMapping:
    """One of the bench's own files, compiled."""
    return compile_mapping(read_text(text, "bench.yaml"))


START = (
    {"type": "message_start", "message": {"id": "m1", "model": "x"}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
)


def engine() -> dict[str, tuple[float, float]]:
    """The engine beside code by hand: (mapping, hand) in µs."""
    chat, messages = small(CHAT), small(MESSAGES)
    context = Context({"upstream": "up"}, now=7)
    to_hub, from_hub = chat.sections["request.to_hub"], messages.sections["request.from_hub"]
    in_answer, out_answer = messages.sections["response.to_hub"], chat.sections["response.from_hub"]
    forward, backward = StreamConverter(chat, messages, Context()), StreamConverter(messages, chat, Context(now=7))
    hand_forward, hand_backward = HandMessages(), HandChat()
    assert from_hub(to_hub(REQUEST, context), context) == hand_request(REQUEST, context.model)
    assert out_answer(in_answer(ANSWER, context), context) == hand_answer(ANSWER)
    for _ in range(2):
        assert forward.feed(CHUNK) == hand_forward.feed(CHUNK)
    for event in (*START, EVENT):
        assert backward.feed(event) == hand_backward.feed(event), event
    times = best(
        {
            "request chat -> messages": lambda: from_hub(to_hub(REQUEST, context), context),
            "request by hand": lambda: hand_request(REQUEST, context.model),
            "answer messages -> chat": lambda: out_answer(in_answer(ANSWER, context), context),
            "answer by hand": lambda: hand_answer(ANSWER),
            "event chat -> messages": lambda: forward.feed(CHUNK),
            "forward by hand": lambda: hand_forward.feed(CHUNK),
            "event messages -> chat": lambda: backward.feed(EVENT),
            "backward by hand": lambda: hand_backward.feed(EVENT),
        }
    )
    figures = list(times.items())
    return {figures[i][0]: (figures[i][1], figures[i + 1][1]) for i in range(0, len(figures), 2)}


def product() -> dict[str, float]:
    """The shipped mappings in µs (compiling in ms)."""
    files = sorted((ROOT / "mappings").glob("*.yaml"))
    documents = [read_file(file, file.name) for file in files]
    compiling: list[float] = []
    mappings: dict[str, CompiledMapping] = {}
    for _ in range(3):
        with collector_paused():
            began = time.process_time_ns()
            mappings = {mapping.name: mapping for mapping in map(compile_mapping, documents)}
            compiling.append((time.process_time_ns() - began) / 1e6)
    chat, messages, responses = mappings["chat"], mappings["messages"], mappings["responses"]
    facts = {"upstream": "up"}
    forward = warm(StreamConverter(chat, messages, Context()), CHUNK)
    wide = warm(StreamConverter(chat, responses, Context()), CHUNK)
    backward = warm(StreamConverter(messages, chat, Context()), *START)
    tap = warm(Tap(chat), CHUNK)
    quiet = Tap(messages)
    times = best(
        {
            "request chat -> messages, loss list included": lambda: convert_request(
                chat, messages, REQUEST, Context(facts)
            ),
            "answer messages -> chat, loss list included": lambda: convert_response(
                messages, chat, ANSWER, Context(facts)
            ),
            "event chat -> messages": lambda: forward.feed(CHUNK),
            "event chat -> responses": lambda: wide.feed(CHUNK),
            "event messages -> chat": lambda: backward.feed(EVENT),
            "tap on a chat event": lambda: tap.feed(CHUNK),
            "tap on a messages event": lambda: quiet.feed(EVENT),
        }
    )
    return {**times, f"compile all {len(files)} files (ms)": min(compiling)}


def main() -> None:
    """Print both tables."""
    one, two = engine(), product()
    if "--json" in sys.argv:
        print(
            json.dumps(
                {
                    "engine": {name: {"mapping_us": a, "hand_us": b, "ratio": a / b} for name, (a, b) in one.items()},
                    "product": two,
                },
                indent=1,
            )
        )
        return
    print("the engine beside code by hand, both over the hub     mapping    hand   ratio")
    for name, (mapped, hand) in one.items():
        print(f"  {name:50} {mapped:8.2f} {hand:7.2f}   x{mapped / hand:.2f}")
    print("the shipped mappings                                      µs")
    for name, value in two.items():
        print(f"  {name:50} {value:8.2f}")


if __name__ == "__main__":
    main()
