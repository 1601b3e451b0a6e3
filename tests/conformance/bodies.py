"""Valid requests with every field, from which the fuzzed ones are made."""

from __future__ import annotations

from typing import Any

_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "description": "where"}}, "required": ["city"]}

CHAT: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": "hello"}]},
    {
        "messages": [
            {
                "role": "system",
                "content": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PNG}", "detail": "low"}},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "reasoning": "hm",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
            {"role": "user", "name": "eve", "content": "and now?"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "weather", "description": "the weather", "parameters": _SCHEMA, "strict": True},
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 60,
        "stop": ["END"],
        "seed": 4,
        "frequency_penalty": 0.1,
        "presence_penalty": 0.1,
        "user": "u-1",
        "parallel_tool_calls": False,
        "metadata": {"a": "b"},
        "reasoning_effort": "low",
        "n": 1,
        "logit_bias": {"50256": -100},
    },
    {
        "messages": [{"role": "developer", "content": "json only"}, {"role": "user", "content": "give json"}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": {**_SCHEMA, "additionalProperties": False}, "strict": True},
        },
        "max_completion_tokens": 80,
        "logprobs": True,
        "top_logprobs": 2,
        "stream_options": {"include_usage": True},
        "service_tier": "auto",
        "verbosity": "low",
        "reasoning": {"effort": "high"},
        "store": False,
        "modalities": ["text"],
    },
]

CHAT.append(
    {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "hear"},
                    {"type": "input_audio", "input_audio": {"data": "UklGRgAA", "format": "wav"}},
                    {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,aGk="}},
                    {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}},
                ],
            },
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "no"}],
                "refusal": None,
                "audio": None,
                "annotations": [
                    {
                        "type": "url_citation",
                        "url_citation": {"url": "https://e.org", "title": "t", "start_index": 0, "end_index": 1},
                    }
                ],
                "reasoning_details": [
                    {"type": "reasoning.text", "text": "hm", "signature": "s", "format": "x", "index": 0}
                ],
                "reasoning_content": "hm",
                "function_call": {"name": "old", "arguments": "{}"},
            },
            {"role": "function", "name": "old", "content": "1"},
            {
                "role": "assistant",
                "tool_calls": [{"id": "c2", "type": "custom", "custom": {"name": "sh", "input": "ls"}}],
            },
            {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "out"}]},
        ],
        "functions": [{"name": "old", "parameters": {"type": "object"}}],
        "function_call": "auto",
        "audio": {"voice": "alloy", "format": "wav"},
        "tools": [
            {
                "type": "custom",
                "custom": {
                    "name": "sh",
                    "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "s: A"}},
                },
            },
            {"type": "web_search"},
        ],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [{"type": "custom", "custom": {"name": "sh"}}]},
        },
        "prediction": {"type": "content", "content": "x"},
        "web_search_options": {
            "search_context_size": "low",
            "user_location": {"type": "approximate", "approximate": {"city": "Oslo"}},
        },
        "plugins": [{"id": "web"}],
        "provider": {"order": ["x"]},
        "models": ["a"],
        "transforms": [],
        "min_p": 0.1,
        "top_k": 5,
        "repetition_penalty": 1.1,
        "thinking": {"type": "enabled"},
        "prompt_cache_key": "k",
        "prompt_cache_retention": "24h",
        "safety_identifier": "s",
    }
)

RESPONSES: list[dict[str, Any]] = [
    {"input": "hello"},
    {
        "instructions": "be brief",
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "look"},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{_PNG}", "detail": "auto"},
                ],
            },
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "call_1",
                "name": "weather",
                "arguments": '{"city": "Oslo"}',
                "status": "completed",
            },
            {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
            {
                "role": "assistant",
                "content": [{"type": "output_text", "text": "rain", "annotations": [], "logprobs": []}],
            },
            {"role": "user", "content": "and now?"},
        ],
        "tools": [
            {
                "type": "function",
                "name": "weather",
                "description": "the weather",
                "parameters": _SCHEMA,
                "strict": False,
            }
        ],
        "tool_choice": "auto",
        "temperature": 0.5,
        "top_p": 1,
        "max_output_tokens": 80,
        "metadata": {"a": "b"},
        "user": "u-1",
        "parallel_tool_calls": True,
        "reasoning": {"effort": "low", "summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "truncation": "disabled",
    },
    {
        "input": [{"role": "user", "content": "give json"}],
        "text": {
            "format": {
                "type": "json_schema",
                "name": "answer",
                "schema": {**_SCHEMA, "additionalProperties": False},
                "strict": True,
            },
            "verbosity": "low",
        },
        "max_output_tokens": 90,
        "service_tier": "auto",
        "prompt_cache_key": "k",
        "safety_identifier": "s",
    },
]

RESPONSES.append(
    {
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "a"}]},
            {
                "role": "user",
                "content": [
                    {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGk="},
                    {"type": "input_audio", "input_audio": {"data": "UklGRgAA", "format": "wav"}},
                ],
            },
            {
                "type": "reasoning",
                "id": "rs_2",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "hm"}],
                "encrypted_content": "tg1.abc",
                "status": "completed",
            },
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "phase": "final_answer",
                "content": [
                    {"type": "refusal", "refusal": "no"},
                    {
                        "type": "output_text",
                        "text": "ab",
                        "annotations": [
                            {
                                "type": "url_citation",
                                "url": "https://e.org",
                                "title": "t",
                                "start_index": 0,
                                "end_index": 1,
                            }
                        ],
                        "logprobs": [],
                    },
                ],
            },
            {"type": "custom_tool_call", "call_id": "c2", "name": "sh", "input": "ls"},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "o"}]},
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "q"},
            },
            {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AA=="},
            {
                "type": "local_shell_call",
                "id": "ls_1",
                "call_id": "c3",
                "status": "completed",
                "action": {"type": "exec", "command": ["ls"], "env": {}},
            },
            {"type": "local_shell_call_output", "id": "c3", "output": "x"},
            {"type": "mcp_call", "id": "m1", "name": "n", "server_label": "l", "arguments": "{}", "output": "o"},
            {"type": "item_reference", "id": "msg_9"},
        ],
        "tools": [
            {"type": "custom", "name": "sh", "format": {"type": "grammar", "syntax": "lark", "definition": "s: A"}},
            {"type": "web_search", "filters": {"allowed_domains": ["e.org"]}},
            {"type": "file_search", "vector_store_ids": ["vs_1"]},
            {"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["file_1"]}},
            {"type": "mcp", "server_label": "l", "server_url": "https://e.org", "require_approval": "never"},
            {"type": "image_generation", "input_image_mask": {"file_id": "file_2"}},
            {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "f", "parameters": {}}]},
        ],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "sh"}]},
        "previous_response_id": "resp_1",
        "conversation": {"id": "conv_1"},
        "prompt": {"id": "pmpt_1", "variables": {"a": {"type": "input_file", "file_id": "file_3"}}},
        "max_tool_calls": 3,
        "stream_options": {"include_obfuscation": False},
        "background": False,
        "context_management": [{"type": "compaction", "compact_threshold": 1000}],
        "client_metadata": {"a": "b"},
    }
)
RESPONSES.append(
    {
        **{
            k: v
            for k, v in RESPONSES[-1].items()
            if k not in ("previous_response_id", "conversation", "prompt", "tools")
        },
        "input": [item for item in RESPONSES[-1]["input"] if item.get("type") != "item_reference"],
        "tools": [tool for tool in RESPONSES[-1]["tools"] if tool["type"] in ("custom", "web_search", "namespace")],
    }
)

MESSAGES: list[dict[str, Any]] = [
    {"max_tokens": 50, "messages": [{"role": "user", "content": "hello"}]},
    {
        "max_tokens": 3000,
        "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _PNG}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I ask"},
                    {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "is_error": False,
                        "content": [
                            {"type": "text", "text": "rain", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
                        ],
                    },
                    {"type": "text", "text": "and now?"},
                ],
            },
        ],
        "tools": [
            {
                "name": "weather",
                "description": "the weather",
                "input_schema": _SCHEMA,
                "cache_control": {"type": "ephemeral"},
            }
        ],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "metadata": {"user_id": "u-1"},
        "stop_sequences": ["END"],
        "service_tier": "auto",
    },
    {
        "max_tokens": 40,
        "temperature": 0.2,
        "top_k": 5,
        "top_p": 0.9,
        "system": "short",
        "messages": [
            {
                "role": "user",
                "content": [
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "a text"},
                        "title": "t",
                    }
                ],
            }
        ],
        "output_config": {"effort": "low"},
    },
]

MESSAGES.append(
    {
        "max_tokens": 2000,
        "system": [{"type": "text", "text": "s", "citations": None}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {
                        "type": "document",
                        "source": {"type": "content", "content": [{"type": "text", "text": "c"}]},
                        "citations": {"enabled": True},
                        "context": "c",
                    },
                    {
                        "type": "document",
                        "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
                    },
                    {
                        "type": "search_result",
                        "source": "https://e.org",
                        "title": "t",
                        "content": [{"type": "text", "text": "r"}],
                    },
                    {"type": "image", "source": {"type": "url", "url": "data:image/png;base64," + _PNG}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "tg1.x"},
                    {"type": "redacted_thinking", "data": "tg1.y"},
                    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
                    {
                        "type": "web_search_tool_result",
                        "tool_use_id": "srvtoolu_1",
                        "content": [
                            {
                                "type": "web_search_result",
                                "url": "https://e.org",
                                "title": "t",
                                "encrypted_content": "e",
                                "page_age": None,
                            }
                        ],
                    },
                    {
                        "type": "text",
                        "text": "a",
                        "citations": [
                            {
                                "type": "char_location",
                                "cited_text": "c",
                                "document_index": 0,
                                "document_title": "t",
                                "start_char_index": 0,
                                "end_char_index": 1,
                            }
                        ],
                    },
                    {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_2",
                        "content": [
                            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _PNG}},
                            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}},
                        ],
                    }
                ],
            },
        ],
        "tools": [
            {"type": "custom", "name": "look", "input_schema": {"type": "object"}, "strict": True},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 1},
            {"type": "bash_20250124", "name": "bash"},
        ],
        "tool_choice": {"type": "tool", "name": "look"},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
        "mcp_servers": [],
        "container": None,
        "service_tier": "auto",
        "betas": ["x"],
    }
)

EMBEDDINGS: list[dict[str, Any]] = [
    {"input": "hello"},
    {"input": ["hello", "there", "🙂"], "encoding_format": "base64", "dimensions": 256, "user": "u-1"},
    {"input": [[1, 2, 3], [4, 5]], "encoding_format": "float"},
]

IMAGES: list[dict[str, Any]] = [
    {"input": {"prompt": "a cat"}},
    {"input": {"prompt": "a cat", "count": 2, "aspect_ratio": "1:1"}, "webhook": "https://example.org/hook"},
]
