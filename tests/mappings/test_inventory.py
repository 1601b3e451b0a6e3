"""Every block, item, part and tool type in the vendors' SDKs is carried, rejected by name, or reported as lost.

The types are read from the SDKs, so that a type added there fails here until its handling is decided.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin

import pytest
from anthropic.types import ContentBlockParam, ToolUnionParam
from anthropic.types.tool_result_block_param import Content as ToolResultContent
from openai.types.chat import ChatCompletionContentPartParam
from openai.types.responses import ResponseInputItemParam, ToolParam
from openai.types.responses.response_create_params import ToolChoice
from typing_extensions import get_type_hints, is_typeddict

from mappings.support import context, mapping
from tollgate.errors import BadRequest
from tollgate.mapping import convert_request

TARGETS = ("chat", "responses", "messages", "gemini")


def members(union: Any) -> list[Any]:
    """The TypedDicts of a (nested) union."""
    if is_typeddict(union):
        return [union]
    found = []
    for inner in get_args(union):
        found += members(inner)
    return found


def least(kind: Any, depth: int = 0) -> Any:
    """The smallest value of a type: required members only, a word for every string."""
    origin = get_origin(kind)
    if origin in (Required, NotRequired) or origin is typing.Annotated:
        return least(get_args(kind)[0], depth)
    if origin is Literal:
        return get_args(kind)[0]
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        needed = [n for n, h in hints.items() if get_origin(h) is Required or (n in kind.__required_keys__)]
        made = {n: least(hints[n], depth + 1) for n in needed}
        if "type" in hints and "type" not in made:
            made["type"] = least(hints["type"], depth + 1)
        return made
    if origin is Union or str(origin) == "<class 'types.UnionType'>":
        choices = [a for a in get_args(kind) if a is not type(None)]
        return least(choices[0], depth + 1)
    if origin in (list, tuple, Iterable, typing.Iterable) or "Iterable" in str(origin) or "Sequence" in str(kind):
        inner = (get_args(kind) or (str,))[0]
        return [least(inner, depth + 1)] if depth < 6 else []
    if origin is dict or kind is dict or "Dict" in str(kind):
        return {}
    if kind is int:
        return 1
    if kind is float:
        return 1.0
    if kind is bool:
        return True
    return "word"


def name_of(kind: Any) -> str:
    hints = get_type_hints(kind, include_extras=True)
    hint = hints.get("type")
    while get_origin(hint) in (Required, NotRequired):
        hint = get_args(hint)[0]
    words = [w for w in get_args(hint) if isinstance(w, str)] or [
        w for a in get_args(hint) for w in get_args(a) if isinstance(w, str)
    ]
    return words[0] if words else kind.__name__


def outcome_of(client: str, target: str, body: dict[str, Any]) -> str:
    """`refused`, `lost`, or `carried` without a report."""
    try:
        done = convert_request(mapping(client), mapping(target), body, context())
    except BadRequest:
        return "refused"
    return "lost" if done.lost else "carried"


CARRIED = {
    "text",
    "image",
    "document",
    "search_result",
    "thinking",
    "redacted_thinking",
    "tool_use",
    "tool_result",
    "tool_reference",
    "image_url",
    "input_audio",
    "file",
    "refusal",
    "message",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "local_shell_call",
    "local_shell_call_output",
    "reasoning",
    "image_generation_call",
    "additional_tools",
    "tool_search_output",
    "configuration_update",
    "custom",
    "function",
    "namespace",
    "Message",
    "EasyInputMessageParam",
    "ToolParam",
    "FunctionToolParam",
    "allowed_tools",
    "output_text",
    "input_text",
    "input_image",
    "input_file",
    "bash_20241022",
    "bash_20250124",
    "text_editor_20241022",
    "text_editor_20250124",
    "text_editor_20250429",
    "text_editor_20250728",
    "memory_20250818",
    "local_shell",
    "shell",
    "shell_call",
    "shell_call_output",
    "apply_patch",
    "apply_patch_call",
    "apply_patch_call_output",
}
"""Types whose content is converted. Any other must be rejected or reported."""


def check(outcome: str, name: str) -> None:
    if name not in CARRIED:
        assert outcome in ("refused", "lost"), f"{name} is lost without a report"


def cases(union: Any) -> list[Any]:
    return [pytest.param(kind, id=f"{name_of(kind)}-{kind.__name__}") for kind in members(union)]


@pytest.mark.parametrize("target", [t for t in TARGETS if t != "messages"])
@pytest.mark.parametrize("kind", cases(ContentBlockParam))
def test_a_messages_block_is_carried_or_reported(kind: Any, target: str) -> None:
    role = (
        "user"
        if name_of(kind) in ("tool_result", "image", "document", "search_result", "container_upload")
        else "assistant"
    )
    block = least(kind)
    body = {
        "model": "m",
        "max_tokens": 5,
        "messages": [{"role": role, "content": [block, {"type": "text", "text": "and"}]}],
    }
    check(outcome_of("messages", target, body), name_of(kind))


@pytest.mark.parametrize("target", [t for t in TARGETS if t != "messages"])
@pytest.mark.parametrize("kind", cases(ToolResultContent))
def test_a_part_of_a_messages_tool_result_is_carried_or_reported(kind: Any, target: str) -> None:
    block = {"type": "tool_result", "tool_use_id": "c1", "content": [least(kind)]}
    body = {
        "model": "m",
        "max_tokens": 5,
        "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}]},
            {"role": "user", "content": [block]},
        ],
    }
    check(outcome_of("messages", target, body), name_of(kind))


@pytest.mark.parametrize("target", [t for t in TARGETS if t != "messages"])
@pytest.mark.parametrize("kind", cases(ToolUnionParam))
def test_a_messages_tool_is_carried_or_reported(kind: Any, target: str) -> None:
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}], "tools": [least(kind)]}
    check(outcome_of("messages", target, body), name_of(kind))


@pytest.mark.parametrize("target", [t for t in TARGETS if t != "chat"])
@pytest.mark.parametrize("kind", cases(ChatCompletionContentPartParam))
def test_a_chat_part_is_carried_or_reported(kind: Any, target: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": [least(kind), {"type": "text", "text": "and"}]}]}
    check(outcome_of("chat", target, body), name_of(kind))


@pytest.mark.parametrize("target", [t for t in TARGETS if t != "responses"])
@pytest.mark.parametrize("kind", cases(ResponseInputItemParam))
def test_a_responses_item_is_carried_or_reported(kind: Any, target: str) -> None:
    item = least(kind)
    body = {"model": "m", "input": [{"role": "user", "content": "Hi"}, item]}
    check(outcome_of("responses", target, body), name_of(kind))


@pytest.mark.parametrize("target", [t for t in TARGETS if t != "responses"])
@pytest.mark.parametrize("kind", cases(ToolParam))
def test_a_responses_tool_is_carried_or_reported(kind: Any, target: str) -> None:
    body = {"model": "m", "input": "Hi", "tools": [least(kind)]}
    check(outcome_of("responses", target, body), name_of(kind))


@pytest.mark.parametrize("target", [t for t in TARGETS if t != "responses"])
@pytest.mark.parametrize("kind", cases(ToolChoice))
def test_a_responses_tool_choice_is_carried_or_reported(kind: Any, target: str) -> None:
    tools = [{"type": "function", "name": "word", "parameters": {"type": "object"}}]
    body = {"model": "m", "input": "Hi", "tools": tools, "tool_choice": least(kind)}
    check(outcome_of("responses", target, body), name_of(kind))
