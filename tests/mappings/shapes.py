"""The requests these dialects accept, as closed shapes: an unknown member, or a value outside its set, is a fault.

Written from the vendors' published models; members that no conversion uses are left out, so that a stray one fails. A
shape is a type, a set of allowed values, a pattern, `[shape]`, `{member: shape}` (`!` marks a required member), `OneOf`
or ANY.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

ANY = object()
NUMBER = (int, float)


@dataclass(frozen=True)
class OneOf:
    """Exactly one of these members."""

    members: dict[str, Any]


CACHE = {"type!": {"default"}, "ttl": {"5m", "1h"}}
BYTES = {"bytes!": re.compile(r".+", re.DOTALL)}
IMAGE = {"format!": {"png", "jpeg", "gif", "webp"}, "source!": BYTES}
VIDEO = {"format!": {"mkv", "mov", "mp4", "webm", "flv", "mpeg", "mpg", "wmv", "three_gp"}, "source!": BYTES}
AUDIO = {
    "format!": {
        "mp3",
        "opus",
        "wav",
        "aac",
        "flac",
        "mp4",
        "ogg",
        "mkv",
        "mka",
        "x-aac",
        "m4a",
        "mpeg",
        "mpga",
        "pcm",
        "webm",
    },
    "source!": BYTES,
}
DOCUMENT = {
    "name!": re.compile(r"[\w()\[\]-]+( [\w()\[\]-]+)*"),
    "format!": {"pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"},
    "source!": BYTES,
    "context": str,
}
FILLED = re.compile(r".*\S.*", re.DOTALL)
"""A text block may not be blank."""
CALL_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
RESULT = {
    "toolUseId!": CALL_ID,
    "status": {"success", "error"},
    "content!": [OneOf({"text": str, "image": IMAGE, "document": DOCUMENT, "video": VIDEO})],
}
BEDROCK = {
    "system": [OneOf({"text": FILLED, "cachePoint": CACHE})],
    "messages!": [
        {
            "role!": {"user", "assistant"},
            "content!": [
                OneOf(
                    {
                        "text": FILLED,
                        "image": IMAGE,
                        "document": DOCUMENT,
                        "video": VIDEO,
                        "audio": AUDIO,
                        "cachePoint": CACHE,
                        "toolResult": RESULT,
                        "toolUse": {"toolUseId!": CALL_ID, "name!": str, "input!": ANY},
                        "reasoningContent": OneOf(
                            {
                                "reasoningText": {"text!": str, "signature": str},
                                "redactedContent": str,
                            }
                        ),
                    }
                )
            ],
        }
    ],
    "inferenceConfig": {"maxTokens": int, "temperature": NUMBER, "topP": NUMBER, "stopSequences": [str]},
    "toolConfig": {
        "tools!": [
            OneOf(
                {
                    "cachePoint": CACHE,
                    "toolSpec": {"name!": str, "description": FILLED, "inputSchema!": {"json!": dict}, "strict": bool},
                }
            )
        ],
        "toolChoice": OneOf({"auto": {}, "any": {}, "tool": {"name!": str}}),
    },
    "outputConfig": {
        "textFormat!": {
            "type!": {"json_schema"},
            "structure!": {"jsonSchema!": {"name": str, "description": str, "schema!": str}},
        }
    },
    "additionalModelRequestFields": {
        "top_k": NUMBER,
        "output_config": {"effort": str},
        "thinking": {"type!": {"enabled", "adaptive"}, "budget_tokens": int},
        "tool_choice": {"type!": {"auto", "none"}, "disable_parallel_tool_use": bool},
    },
    "additionalModelResponseFieldPaths": [str],
    "serviceTier": {"type!": {"priority", "default", "flex", "reserved"}},
}
FUNCTION = {"type!": {"function"}, "function!": {"name!": str, "description": str, "parameters!": dict}}
COHERE = {
    "model!": str,
    "stream": bool,
    "max_tokens": int,
    "temperature": NUMBER,
    "seed": int,
    "presence_penalty": NUMBER,
    "frequency_penalty": NUMBER,
    "p": NUMBER,
    "k": NUMBER,
    "logprobs": bool,
    "stop_sequences": [str],
    "tools": [FUNCTION],
    "strict_tools": bool,
    "tool_choice": {"REQUIRED", "NONE"},
    "response_format": {"type!": {"json_object"}, "json_schema": dict},
    "thinking": {"type!": {"enabled", "disabled"}, "token_budget": int},
    "messages!": [
        {
            "role!": {"system", "user", "assistant", "tool"},
            "tool_plan": str,
            "tool_call_id": str,
            "content": ANY,
            "tool_calls": [{"id!": str, "type!": {"function"}, "function!": {"name!": str, "arguments!": str}}],
        }
    ],
}
OLLAMA = {
    "model!": str,
    "stream!": bool,
    "think": {True, False, "low", "medium", "high"},
    "format": ANY,
    "logprobs": bool,
    "top_logprobs": int,
    "tools": [FUNCTION],
    "messages!": [
        {
            "role!": {"system", "user", "assistant", "tool"},
            "content!": str,
            "thinking": str,
            "images": [str],
            "tool_name": str,
            "tool_call_id": str,
            "tool_calls": [{"id": str, "function!": {"name!": str, "arguments!": dict}}],
        }
    ],
    "options": {
        "num_predict": int,
        "temperature": NUMBER,
        "top_p": NUMBER,
        "top_k": NUMBER,
        "seed": int,
        "stop": [str],
        "presence_penalty": NUMBER,
        "frequency_penalty": NUMBER,
    },
}
SHAPES = {"bedrock": BEDROCK, "cohere": COHERE, "ollama": OLLAMA}


def check(dialect: str, body: Any) -> list[str]:
    """The faults of a request against its format; the turns of Converse must alternate."""
    found = list(faults(SHAPES[dialect], body, dialect))
    if dialect == "bedrock":
        roles = [m["role"] for m in body.get("messages") or []]
        found += [f"two turns of {a} in a row" for a, b in pairwise(roles) if a == b]
    return found


def faults(shape: Any, value: Any, at: str) -> Iterator[str]:
    if shape is ANY:
        return
    if isinstance(shape, OneOf):
        if not isinstance(value, dict) or len(value) != 1 or not value.keys() <= shape.members.keys():
            yield f"{at}: not one of {sorted(shape.members)}: {str(value)[:80]}"
            return
        [(name, inner)] = value.items()
        yield from faults(shape.members[name], inner, f"{at}.{name}")
    elif isinstance(shape, dict):
        members = {name.removesuffix("!"): inner for name, inner in shape.items()}
        if not isinstance(value, dict):
            yield f"{at}: no object: {str(value)[:80]}"
            return
        yield from (f"{at}: lacks {name[:-1]}" for name in shape if name.endswith("!") and name[:-1] not in value)
        for name, inner in value.items():
            if name not in members:
                yield f"{at}: unknown member {name}"
            else:
                yield from faults(members[name], inner, f"{at}.{name}")
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield f"{at}: no list: {str(value)[:80]}"
            return
        for place, inner in enumerate(value):
            yield from faults(shape[0], inner, f"{at}[{place}]")
    elif isinstance(shape, re.Pattern):
        if not isinstance(value, str) or not shape.fullmatch(value):
            yield f"{at}: does not fit: {str(value)[:80]!r}"
    elif isinstance(shape, set):
        if not isinstance(value, str | bool) or value not in shape:
            yield f"{at}: none of {sorted(map(str, shape))}: {str(value)[:80]!r}"
    elif not isinstance(value, shape) or isinstance(value, bool) and shape is not bool:
        yield f"{at}: of another type: {str(value)[:80]!r}"
