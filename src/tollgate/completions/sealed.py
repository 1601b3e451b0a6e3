"""Sealed tokens on the native path: removed when a conversation continues with another provider.

A conversion gives the client a provider's reasoning token in a sealed form (MAPPING b.7). If the client continues with
a model that speaks the client's own format, the sealed token would reach a provider that cannot read it and answers
400. So the reasoning that carries it is left out, and reported as lost.
"""

from __future__ import annotations

from typing import Any

from tollgate.mapping import Context
from tollgate.mapping.seal import IN_BASE64, PREFIX, unseal

_MARK = '"' + PREFIX
_MARK_IN_BASE64 = '"' + IN_BASE64
_LOST = "reasoning of another provider"
_LOST_SIGNATURE = "signature of another provider"


def holds_sealed(outline: str) -> bool:
    """Whether a body may hold a sealed token; `outline` is that of `body.outline_of`."""
    return _MARK in outline or _MARK_IN_BASE64 in outline


def without_sealed(
    dialect: str, body: dict[str, Any], context: Context, foreign: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """A copy of a chat, messages or responses body without sealed reasoning and without sealed signatures of chat's
    tool calls. `foreign` are unsealed texts that another service of the same format encrypted (`minters.py`); reasoning
    with one of them is left out, too. The losses are noted in `context`."""
    if dialect == "chat":
        turns = body.get("messages")
        if isinstance(turns, list):
            return {**body, "messages": [_message(turn, context) for turn in turns]}
    elif dialect == "messages":
        turns = body.get("messages")
        if isinstance(turns, list):
            return {**body, "messages": [kept for turn in turns if (kept := _turn(turn, context)) is not None]}
    elif dialect == "responses":
        items = body.get("input")
        if isinstance(items, list):
            kept = [item for item in items if not _sealed(item, ("encrypted_content",), context, foreign)]
            return {**body, "input": kept}
    return body


def _turn(turn: Any, context: Context) -> Any:
    content = turn.get("content") if isinstance(turn, dict) else None
    if not isinstance(content, list):
        return turn
    kept = [block for block in content if not _sealed(block, ("signature", "data"), context)]
    if len(kept) == len(content):
        return turn
    return {**turn, "content": kept} if kept else None


def _message(message: Any, context: Context) -> Any:
    """The chat message itself, or a copy without sealed `reasoning_details` and sealed signatures of tool calls."""
    if not isinstance(message, dict):
        return message
    changed: dict[str, Any] = {}
    details, calls = message.get("reasoning_details"), message.get("tool_calls")
    if isinstance(details, list):
        kept = [each for each in details if not _foreign_detail(each, context)]
        if len(kept) < len(details):
            changed["reasoning_details"] = kept
    if isinstance(calls, list):
        unsigned = [_call(each, context) for each in calls]
        if any(new is not old for new, old in zip(unsigned, calls, strict=True)):
            changed["tool_calls"] = unsigned
    return {**message, **changed} if changed else message


def _foreign_detail(detail: Any, context: Context) -> bool:
    if not isinstance(detail, dict) or not any(unseal(detail.get(field)) for field in ("signature", "data")):
        return False
    context.lose(_LOST)
    return True


def _call(call: Any, context: Context) -> Any:
    extra = call.get("extra_content") if isinstance(call, dict) else None
    vendors = [each for each in extra.values() if isinstance(each, dict)] if isinstance(extra, dict) else []
    if not any(unseal(value) for each in vendors for value in each.values()):
        return call
    context.lose(_LOST_SIGNATURE)
    return {name: value for name, value in call.items() if name != "extra_content"}


def _sealed(block: Any, fields: tuple[str, ...], context: Context, foreign: frozenset[str] = frozenset()) -> bool:
    if not isinstance(block, dict) or block.get("type") not in ("thinking", "redacted_thinking", "reasoning"):
        return False
    if not any(
        unseal(text := block.get(field)) or foreign and isinstance(text, str) and text in foreign for field in fields
    ):
        return False
    context.lose(_LOST)
    return True
