"""The types of fields inside the turns of a request that is about to be converted, where another type would be dropped
in silence, or end as nonsense in another format: `tool_call_id: 7` was a result without its call.

Not here: what a conversion reads in either form (`image_url` as an address, the arguments of a call as an object), what
it refuses or names as lost itself, and what `body.py` has refused in every request (a text part without text).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tollgate.completions.field_types import (
    ANY_TEXT,
    BOOLEAN,
    OBJECT,
    OBJECTS,
    TEXT_OR_LIST,
    TEXT_OR_OBJECT,
    Fields,
    Rule,
    Wrong,
    wrong_field,
)

_LEAST = 2
"""A turn with no more fields than these, and a text, has only `role` and `content`; a part `type` and `text`."""
_FieldRules = dict[str, Rule | Fields]


def wrong_in_turns(client_format: str, body: dict[str, Any]) -> Wrong | None:
    """The first field with a wrong type inside the turns: its path, its value, and what is wanted."""
    field = "input" if client_format == "responses" else "messages"
    turns = body.get(field)
    if type(turns) is not list:
        return None
    in_turn, in_parts = _TURNS[client_format], _PARTS[client_format]
    for at, turn in enumerate(turns):
        if type(turn) is not dict:
            continue
        content = turn.get("content")
        if len(turn) <= _LEAST and type(content) is str:
            continue
        rules = in_turn
        if client_format == "responses" and type(kind := turn.get("type")) is str:
            rules = _ITEMS.get(kind, in_turn)
        if rules and (wrong := wrong_field(turn, rules)):
            return f"{field}[{at}].{wrong[0]}", *wrong[1:]
        if type(content) is list and (wrong := _wrong_part(content, in_parts)):
            return f"{field}[{at}].content{wrong[0]}", *wrong[1:]
        output = turn.get("output")
        if type(output) is list and (wrong := _wrong_part(output, in_parts)):
            return f"{field}[{at}].output{wrong[0]}", *wrong[1:]
    return None


def _wrong_part(parts: list[Any], rules: Mapping[str, _FieldRules]) -> Wrong | None:
    for at, part in enumerate(parts):
        if type(part) is not dict:
            continue
        kind = part.get("type")
        if type(kind) is not str and kind is not None:
            return f"[{at}].type", kind, "text"
        if len(part) <= _LEAST and kind in _TEXTS:
            continue
        if wrong := wrong_field(part, rules.get(kind or "", _ANY_PART)):
            return f"[{at}].{wrong[0]}", *wrong[1:]
        inner = part.get("content")
        if type(inner) is list and kind == "tool_result" and (wrong := _wrong_part(inner, rules)):
            return f"[{at}].content{wrong[0]}", *wrong[1:]
    return None


_TEXTS = frozenset({"text", "input_text", "output_text"})
_ANY_PART: _FieldRules = {"cache_control": OBJECT, "text": ANY_TEXT}
_REFUSAL: _FieldRules = {"refusal": ANY_TEXT}
_AUDIO: _FieldRules = {"input_audio": Fields({"data": ANY_TEXT, "format": ANY_TEXT}, only=False)}
_SOURCE = Fields({"data": ANY_TEXT, "url": ANY_TEXT, "media_type": ANY_TEXT, "file_id": ANY_TEXT}, only=False)
_MESSAGES_PARTS: dict[str, _FieldRules] = {
    "image": {"source": _SOURCE},
    "document": {"source": _SOURCE, "title": ANY_TEXT, "context": ANY_TEXT},
    "search_result": {"source": ANY_TEXT, "title": ANY_TEXT},
    "thinking": {"thinking": ANY_TEXT, "signature": ANY_TEXT},
    "redacted_thinking": {"data": ANY_TEXT},
    "tool_use": {"input": TEXT_OR_OBJECT},
    "tool_result": {"tool_use_id": ANY_TEXT, "is_error": BOOLEAN},
}
_URL = Fields({"url": ANY_TEXT, "detail": ANY_TEXT}, only=False)
_FILE: _FieldRules = {"file_data": ANY_TEXT, "file_id": ANY_TEXT, "filename": ANY_TEXT}
_CHAT_PARTS: dict[str, _FieldRules] = {
    **_MESSAGES_PARTS,  # which some clients send in chat requests, too
    "image_url": {"image_url": _URL},
    "audio_url": {"audio_url": _URL},
    "video_url": {"video_url": _URL},
    "file": {"file": Fields(_FILE, only=False)},
    "input_audio": _AUDIO,
    "refusal": _REFUSAL,
    "thinking": {"thinking": TEXT_OR_LIST, "signature": ANY_TEXT},
}
_PARTS: dict[str, Mapping[str, _FieldRules]] = {
    "chat": {name: _ANY_PART | rules for name, rules in _CHAT_PARTS.items()},
    "responses": {
        "input_image": {"image_url": ANY_TEXT, "file_id": ANY_TEXT, "detail": ANY_TEXT},
        "input_file": {**_FILE, "file_url": ANY_TEXT},
        "input_audio": _AUDIO,
        "refusal": _REFUSAL,
    },
    "messages": {name: _ANY_PART | rules for name, rules in _MESSAGES_PARTS.items()},
}
_CALL: _FieldRules = {"type": ANY_TEXT, "call_id": ANY_TEXT, "id": ANY_TEXT}
_ITEMS: dict[str, _FieldRules] = {
    "custom_tool_call": _CALL | {"name": ANY_TEXT, "input": ANY_TEXT},
    "function_call": _CALL | {"arguments": TEXT_OR_OBJECT},
    "local_shell_call": _CALL | {"action": OBJECT},
    "shell_call": _CALL | {"action": OBJECT},
    "apply_patch_call": _CALL | {"operation": OBJECT},
    "reasoning": {"summary": OBJECTS, "content": OBJECTS, "encrypted_content": ANY_TEXT},
}
_TURNS: dict[str, _FieldRules] = {
    "chat": {
        "name": ANY_TEXT,
        "tool_call_id": ANY_TEXT,
        "refusal": ANY_TEXT,
        "function_call": Fields({"arguments": TEXT_OR_OBJECT}),
        "reasoning_details": OBJECTS,
        "thinking_blocks": OBJECTS,
        "audio": OBJECT,
        "cache_control": OBJECT,
    },
    "responses": _CALL,
    "messages": {},
}
