"""Validates converted requests with the vendors' own types: openai and anthropic TypedDicts, google-genai models."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, get_type_hints

from anthropic.types import message_create_params
from google.genai import types as google
from openai.types.chat import completion_create_params
from openai.types.responses import response_create_params
from pydantic import TypeAdapter

_TYPES = {
    ("chat", False): completion_create_params.CompletionCreateParamsNonStreaming,
    ("chat", True): completion_create_params.CompletionCreateParamsStreaming,
    ("responses", False): response_create_params.ResponseCreateParamsNonStreaming,
    ("responses", True): response_create_params.ResponseCreateParamsStreaming,
    ("messages", False): message_create_params.MessageCreateParamsNonStreaming,
    ("messages", True): message_create_params.MessageCreateParamsStreaming,
}
EXTENSIONS = {"chat": {"top_k"}, "responses": set(), "messages": {"temperature", "top_p", "top_k"}}
"""Members that the vendor (or its older models) accepts but its SDK's types no longer list."""


@functools.cache
def _adapter(target: str, stream: bool) -> tuple[TypeAdapter[Any], frozenset[str]]:
    kind = _TYPES[(target, stream)]
    return TypeAdapter(kind), frozenset(get_type_hints(kind))


def consume(value: Any) -> None:
    """pydantic checks `Iterable[...]` members lazily: iterating over the result validates them."""
    if isinstance(value, dict):
        for v in value.values():
            consume(v)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for v in value:
            consume(v)


def check(target: str, body: dict[str, Any]) -> None:
    """Raises if the vendor's own types reject the request, or do not know one of its members."""
    if target == "gemini":
        check_gemini(body)
        return
    adapter, names = _adapter(target, bool(body.get("stream")))
    unknown = set(body) - names - EXTENSIONS[target]
    if unknown:
        raise ValueError(f"unknown members {sorted(unknown)}")
    consume(adapter.validate_python({**body, "model": body.get("model") or "m"}))


def check_gemini(body: dict[str, Any]) -> None:
    known = {
        "contents",
        "systemInstruction",
        "tools",
        "toolConfig",
        "generationConfig",
        "safetySettings",
        "cachedContent",
        "serviceTier",
    }
    if set(body) - known:
        raise ValueError(f"unknown members {sorted(set(body) - known)}")
    if not body.get("contents"):
        raise ValueError("no contents")
    for content in body["contents"]:
        if content["role"] not in ("user", "model") or not content.get("parts"):
            raise ValueError(f"a content of role {content['role']} with parts {content.get('parts')}")
        google.Content.model_validate(content)
    for content in body["contents"]:
        if len({"functionResponse" in part for part in content["parts"]}) > 1:
            raise ValueError("a result of a tool beside something else")
    for before, after in zip(body["contents"], body["contents"][1:], strict=False):
        if before["role"] == after["role"] and "functionResponse" not in before["parts"][0]:
            raise ValueError("two contents of one role in a row")
    if "systemInstruction" in body:
        google.Content.model_validate(body["systemInstruction"])
    for tool in body.get("tools") or []:
        google.Tool.model_validate(tool)
    if "toolConfig" in body:
        google.ToolConfig.model_validate(body["toolConfig"])
    if "generationConfig" in body:
        google.GenerationConfig.model_validate(body["generationConfig"])
