"""Valid requests with everything in them, from which the fuzzed ones are made."""

from __future__ import annotations

from typing import Any

_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "description": "where"}}, "required": ["city"]}

CHAT: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": "hello"}]},
    {
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}]},
            {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PNG}", "detail": "low"}}]},
            {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
            {"role": "user", "name": "eve", "content": "and now?"},
        ],
        "tools": [{"type": "function", "function": {"name": "weather", "description": "the weather", "parameters": _SCHEMA, "strict": True}}],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "temperature": 0.5, "top_p": 0.9, "max_tokens": 60, "stop": ["END"], "seed": 4, "frequency_penalty": 0.1, "presence_penalty": 0.1, "user": "u-1",
        "parallel_tool_calls": False, "metadata": {"a": "b"}, "reasoning_effort": "low", "n": 1, "logit_bias": {"50256": -100},
    },
    {
        "messages": [{"role": "developer", "content": "json only"}, {"role": "user", "content": "give json"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {**_SCHEMA, "additionalProperties": False}, "strict": True}},
        "max_completion_tokens": 80, "logprobs": True, "top_logprobs": 2, "stream_options": {"include_usage": True}, "service_tier": "auto", "verbosity": "low",
        "reasoning": {"effort": "high"}, "store": False, "modalities": ["text"],
    },
]

RESPONSES: list[dict[str, Any]] = [
    {"input": "hello"},
    {
        "instructions": "be brief",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": f"data:image/png;base64,{_PNG}", "detail": "auto"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather", "arguments": '{"city": "Oslo"}', "status": "completed"},
            {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "rain", "annotations": [], "logprobs": []}]},
            {"role": "user", "content": "and now?"},
        ],
        "tools": [{"type": "function", "name": "weather", "description": "the weather", "parameters": _SCHEMA, "strict": False}],
        "tool_choice": "auto", "temperature": 0.5, "top_p": 1, "max_output_tokens": 80, "metadata": {"a": "b"}, "user": "u-1", "parallel_tool_calls": True,
        "reasoning": {"effort": "low", "summary": "auto"}, "store": False, "include": ["reasoning.encrypted_content"], "truncation": "disabled",
    },
    {
        "input": [{"role": "user", "content": "give json"}],
        "text": {"format": {"type": "json_schema", "name": "answer", "schema": {**_SCHEMA, "additionalProperties": False}, "strict": True}, "verbosity": "low"},
        "max_output_tokens": 90, "service_tier": "auto", "prompt_cache_key": "k", "safety_identifier": "s",
    },
]

MESSAGES: list[dict[str, Any]] = [
    {"max_tokens": 50, "messages": [{"role": "user", "content": "hello"}]},
    {
        "max_tokens": 3000,
        "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _PNG}}]},
            {"role": "assistant", "content": [{"type": "text", "text": "I ask"}, {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "is_error": False,
                                          "content": [{"type": "text", "text": "rain", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]},
                                         {"type": "text", "text": "and now?"}]},
        ],
        "tools": [{"name": "weather", "description": "the weather", "input_schema": _SCHEMA, "cache_control": {"type": "ephemeral"}}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}, "thinking": {"type": "enabled", "budget_tokens": 1024}, "metadata": {"user_id": "u-1"},
        "stop_sequences": ["END"], "service_tier": "auto",
    },
    {
        "max_tokens": 40, "temperature": 0.2, "top_k": 5, "top_p": 0.9, "system": "short",
        "messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a text"}, "title": "t"}]}],
        "output_config": {"effort": "low"},
    },
]

EMBEDDINGS: list[dict[str, Any]] = [
    {"input": "hello"},
    {"input": ["hello", "there", "🙂"], "encoding_format": "base64", "dimensions": 256, "user": "u-1"},
    {"input": [[1, 2, 3], [4, 5]], "encoding_format": "float"},
]

IMAGES: list[dict[str, Any]] = [
    {"input": {"prompt": "a cat"}},
    {"input": {"prompt": "a cat", "count": 2, "aspect_ratio": "1:1"}, "webhook": "https://example.org/hook"},
]
