"""Reading the chunks of a chat stream."""

from __future__ import annotations

from typing import Any

from tollgate.wire import index_of


def merged_usage(before: dict[str, Any] | None, usage: dict[str, Any]) -> dict[str, Any]:
    """Usage after one more report: members that are missing or null keep their earlier value, and a report with only
    zeros after real counts is ignored."""
    if not isinstance(before, dict) or not isinstance(usage, dict):
        return usage
    if usage.get("prompt_tokens") == usage.get("completion_tokens") == 0 and before.get("prompt_tokens"):
        return before
    return {**before, **{name: value for name, value in usage.items() if value is not None}}


def is_empty(choices: list[Any]) -> bool:
    """Whether the deltas of these choices hold nothing but a role."""
    for choice in choices:
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if isinstance(delta, dict) and any(value for key, value in delta.items() if key != "role"):
            return False
    return True


def is_without_content(chunk: Any) -> bool:
    """Whether a chunk's choices hold nothing but a role."""
    choices = chunk.get("choices") if isinstance(chunk, dict) else None
    return (
        isinstance(choices, list)
        and is_empty(choices)
        and not any(
            value
            for choice in choices
            if isinstance(choice, dict)
            for name, value in choice.items()
            if name not in ("index", "delta")
        )
    )


def finishes(chunk: dict[str, Any]) -> bool:
    """Whether a chunk has a choice with a finish reason."""
    choices = chunk.get("choices")
    return isinstance(choices, list) and any(
        isinstance(choice, dict) and bool(choice.get("finish_reason")) for choice in choices
    )


def are_of_others(choices: list[Any], finish: dict[str, Any]) -> bool:
    """Whether none of `choices` (by `index`) is one that the `finish` chunk ended."""
    ended = {index_of(choice) for choice in finish["choices"] if isinstance(choice, dict)}
    return bool(choices) and not any(isinstance(choice, dict) and index_of(choice) in ended for choice in choices)
