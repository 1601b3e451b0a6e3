"""Every part of an earlier answer, of any format, is accepted when a client sends it back: it is carried or reported as
lost."""

from __future__ import annotations

import typing
from typing import Any

import pytest
from anthropic.types.beta import BetaContentBlock
from openai.types.responses import ResponseOutputItem

from mappings.support import context, mapping
from tollgate.mapping import Refused, convert_request

TARGETS = ("chat", "responses", "messages", "gemini", "bedrock", "cohere", "ollama")
CHAT_PARTS: tuple[dict[str, Any], ...] = (
    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
    {"type": "reference", "reference_ids": [1]},
    {"type": "tool_file", "tool": "image_generation", "file_id": "f"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    {"type": "file", "file": {"filename": "a.csv", "file_data": "data:text/csv;base64,AAAA"}},
    {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}},
    {"type": "document_url", "document_url": "https://x/a.pdf"},
)
CARRIED = {
    "message",
    "reasoning",
    "function_call",
    "custom_tool_call",
    "local_shell_call",
    "local_shell_call_output",
    "shell_call",
    "shell_call_output",
    "apply_patch_call",
    "apply_patch_call_output",
    "text",
    "thinking",
    "redacted_thinking",
    "tool_use",
    "compaction",
}
"""Kinds of items and blocks with tests of their own."""
STATE = {"compaction", "function_call_output", "custom_tool_call_output", "tool_search_output", "additional_tools"}
"""Items that are provider-side state, or that clients create."""


def types(union: Any) -> set[str]:
    """The `type` of every member of a union in the clients' libraries."""
    return {
        name
        for member in typing.get_args(typing.get_args(union)[0])
        for name in typing.get_args(member.model_fields["type"].annotation)
    }


def lost(client: str, target: str, part: Any) -> list[str]:
    if client == "responses":
        body: dict[str, Any] = {
            "input": [{"role": "user", "content": "Hi"}, part, {"role": "user", "content": "go on"}]
        }
    else:
        answer = {"role": "assistant", "content": [{"type": "text", "text": "Here"}, part]}
        body = {
            "max_tokens": 64000,
            "messages": [{"role": "user", "content": "Hi"}, answer, {"role": "user", "content": "go on"}],
        }
    return convert_request(mapping(client), mapping(target), {"model": "m", **body}, context()).lost


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "chat"])
@pytest.mark.parametrize("part", CHAT_PARTS, ids=lambda part: part["type"])
def test_every_content_part_of_a_chat_answer_can_be_sent_back(part: dict[str, Any], target: str) -> None:
    named = lost("chat", target, part)
    assert named or target == "gemini" or target == "ollama" and part["type"] == "thinking"  # these carry it


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "messages"])
@pytest.mark.parametrize("kind", sorted(types(BetaContentBlock) - CARRIED))
def test_every_block_of_a_messages_answer_can_be_sent_back(kind: str, target: str) -> None:
    assert lost("messages", target, {"type": kind, "content": []})


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "responses"])
@pytest.mark.parametrize("kind", sorted(types(ResponseOutputItem) - CARRIED - STATE))
def test_every_item_of_a_responses_answer_can_be_sent_back(kind: str, target: str) -> None:
    assert lost("responses", target, {"type": kind, "id": "x"})


@pytest.mark.parametrize(
    ("client", "part"),
    [
        ("chat", {"type": "reference"}),
        ("responses", {"type": "hologram"}),
        ("messages", {"type": "container_upload", "file_id": "f"}),
    ],
)
def test_the_same_part_is_rejected_in_a_user_turn(client: str, part: dict[str, Any]) -> None:
    body = {
        "model": "m",
        "max_tokens": 9,
        "input" if client == "responses" else "messages": [{"role": "user", "content": [part]}],
    }
    with pytest.raises(Refused):
        convert_request(mapping(client), mapping("gemini"), body, context())
