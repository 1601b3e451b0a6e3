"""Invalid request bodies: valid ones with random damage, made from a seed so that each can be reproduced."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

RAW = "\x00raw:"
"""Text with this prefix is written unquoted into the body: numbers and tokens that `json.dumps` cannot write."""

ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**53 + 1,
    2**63,
    2**64,
    -(2**63) - 1,
    10**25,
    0.5,
    -0.0,
    1e308,
    "",
    " ",
    "\0",
    "text",
    "🙂",
    "\u202e\u2028",
    "x" * 300,
    "null",
    "None",
    "$secret.X",
    "{{ $ }}",
    "a\r\nx-injected: yes",
    "user",
    "auto",
    "ephemeral",
    "data:,",
    "data:image/png;base64,",
    "data:image/png;base64,####",
    "http://",
    "http://127.0.0.1:1/x.png",
    "file:///etc/passwd",
    [],
    {},
    [None],
    [[]],
    [{}],
    {"": ""},
    {"type": None},
    {"type": "text"},
    {"type": "nonsense", "x": 1},
    {"type": "text", "text": None},
    [{"type": "text", "text": 3}],
    {"cache_control": 5},
    [1, "a", None, {}],
    RAW + "NaN",
    RAW + "-Infinity",
    RAW + "1e400",
    RAW + "1E-400",
    RAW + '"\\ud800"',
    RAW + '"\\udc00x\\ud83d"',
    RAW + '{"a": 1, "a": 2}',
    RAW + "9" * 400,
    RAW + "0.1" + "1" * 300,
    RAW + "[" * 150 + "]" * 150,
    RAW + "01",
    RAW + '"\\x"',
    RAW + "{",
)
_FIELDS = (
    "type",
    "text",
    "content",
    "role",
    "name",
    "id",
    "tool_call_id",
    "tool_calls",
    "function",
    "arguments",
    "input",
    "thinking",
    "signature",
    "cache_control",
    "image_url",
    "url",
    "source",
    "media_type",
    "data",
    "call_id",
    "output",
    "summary",
    "encrypted_content",
    "annotations",
    "logprobs",
    "refusal",
    "strict",
    "parameters",
    "input_schema",
    "description",
    "budget_tokens",
    "effort",
    "max_tokens",
    "stream",
    "stop",
    "n",
    "user",
    "metadata",
    "system",
    "tools",
    "file_id",
    "file",
    "file_data",
    "filename",
    "file_ids",
    "vector_store_ids",
    "container",
    "conversation",
    "prompt",
    "item_reference",
    "audio",
    "input_audio",
    "tool_use_id",
    "is_error",
    "title",
    "context",
    "citations",
    "ttl",
    "detail",
    "id",
    "index",
    "reasoning_details",
    "reasoning_content",
    "functions",
    "function_call",
    "modalities",
    "service_tier",
    "allowed_tools",
    "mode",
    "status",
    "phase",
    "action",
    "thinking",
    "context_management",
    "output_config",
    "mcp_servers",
    "betas",
    "tool_choice",
    "response_format",
    "json_schema",
    "schema",
    "format",
    "verbosity",
    "previous_response_id",
    "store",
    "reasoning",
    "stream_options",
    "model",
    "\ud83d\ude42",
    "a\nb",
    "__class__",
    "constructor",
    "$ref",
)


_TYPES = (
    "text",
    "image_url",
    "input_audio",
    "file",
    "refusal",
    "input_text",
    "input_image",
    "input_file",
    "output_text",
    "summary_text",
    "reasoning",
    "reasoning_text",
    "message",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "item_reference",
    "computer_call_output",
    "web_search_call",
    "image_generation_call",
    "mcp_call",
    "mcp_list_tools",
    "local_shell_call",
    "shell_call_output",
    "apply_patch_call",
    "compaction",
    "image",
    "document",
    "search_result",
    "tool_use",
    "tool_result",
    "thinking",
    "redacted_thinking",
    "server_tool_use",
    "web_search_tool_result",
    "container_upload",
    "base64",
    "url",
    "content",
    "function",
    "custom",
    "web_search",
    "file_search",
    "code_interpreter",
    "mcp",
    "namespace",
    "allowed_tools",
    "json_schema",
    "json_object",
    "enabled",
    "adaptive",
    "disabled",
    "any",
    "none",
    "tool",
    "grammar",
    "ephemeral",
    "bash_20250124",
    "text_editor_20250728",
    "computer_20250124",
    "tool_search_call",
    "video_url",
    "reasoning.encrypted",
)


def _made(rng: random.Random, depth: int = 0) -> Any:
    """An object of a known type with unsuitable members, or any odd value."""
    if depth > 2 or rng.random() < 0.4:
        return copy.deepcopy(rng.choice(ODD))
    if rng.random() < 0.2:
        return [_made(rng, depth + 1) for _ in range(rng.choice((1, 1, 2)))]
    kind = rng.choice(_TYPES)
    made: dict[str, Any] = {"type": kind}
    for _ in range(rng.choice((0, 1, 2, 3))):
        made[rng.choice(_FIELDS)] = _made(rng, depth + 1)
    if rng.random() < 0.3:
        made[kind] = _made(rng, depth + 1)
    return made


def mutated(body: dict[str, Any], rng: random.Random) -> bytes:
    """The body with one to three kinds of damage, as bytes; rarely the bytes themselves are damaged."""
    body = copy.deepcopy(body)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        _damage(body, rng)
    raw = written(body)
    if rng.random() < 0.03:
        at = rng.randrange(len(raw) + 1)
        raw = rng.choice(
            (
                raw[:at],
                raw[:at] + b"\xff" + raw[at:],
                b"\xef\xbb\xbf" + raw,
                raw + b"{}",
                raw.decode().encode("utf-16"),
            )
        )
    return raw


def written(body: Any) -> bytes:
    """JSON with its raw pieces unquoted."""
    text = json.dumps(body)
    marker = json.dumps(RAW)[1:-1]
    for value in {value for value in ODD if isinstance(value, str) and value.startswith(RAW)}:
        text = text.replace(json.dumps(value), value[len(RAW) :])
    assert marker not in text
    return text.encode()


def _places(node: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        found.append((node, key))
        if isinstance(value, (dict, list)):
            _places(value, found)
    return found


def _damage(body: dict[str, Any], rng: random.Random) -> None:
    places = _places(body, [])
    if not places:
        return
    holder, key = rng.choice([place for place in places if place != (body, "model")] or places)
    how = rng.random()
    if how < 0.55:
        holder[key] = _made(rng)
    elif how < 0.68:
        del holder[key]
    elif how < 0.84:
        target = holder[key] if isinstance(holder[key], dict) else holder if isinstance(holder, dict) else body
        target[rng.choice(_FIELDS)] = _made(rng)
    elif how < 0.92:
        other = rng.choice(places)
        holder[key] = copy.deepcopy(other[0][other[1]])
    elif isinstance(holder, list):
        holder.insert(key, _made(rng))
    else:
        holder[key] = [copy.deepcopy(holder[key])] * rng.choice((1, 2, 40))
