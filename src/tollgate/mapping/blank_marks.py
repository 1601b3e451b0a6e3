"""Moves cache marks away from blank texts, to the content before them.

Some clients mark the last part of a message, whatever it is. Claude answers 400 to a mark on a blank text, and formats
that send no blank texts would lose the mark.
"""

from __future__ import annotations

from typing import Any

from tollgate.mapping.context import Context

Part = dict[str, Any]

_TEXTS = ("text", "refusal")


def move_marks(hub: dict[str, Any], context: Context) -> None:
    """Moves the marks in the instructions and turns of a hub request. One without a place is named in `context.lost`.

    [hi, "" marked] -> [hi marked, ""]
    """
    _move_in(hub, "system", context)
    turns = hub.get("turns")
    for turn in turns if type(turns) is list else ():
        if type(turn) is dict:
            _move_in(turn, "parts", context)


def _move_in(holder: dict[str, Any], key: str, context: Context) -> None:
    parts = holder.get(key)
    if type(parts) is not list:
        return
    for part in parts:
        if type(part) is dict and (part.get("cache") or part.get("kind") == "tool_result") and _needs_move(part):
            holder[key] = _moved(parts, context)
            return


def _needs_move(part: Part) -> bool:
    if part.get("kind") != "tool_result":
        return _is_blank(part)
    inner = part.get("parts")
    return type(inner) is list and any(type(one) is dict and one.get("cache") and _is_blank(one) for one in inner)


def _moved(parts: list[Any], context: Context) -> list[Any]:
    made: list[Any] = []
    for part in parts:
        if type(part) is not dict or not _needs_move(part):
            made.append(part)
        elif part.get("kind") == "tool_result":
            made.append(_moved_in_result(part))
        elif not (mark := part.get("cache")):
            made.append(part)
        else:
            if not _mark_last(made, mark):
                context.lose("a cache mark with nothing before it")
            made.append({name: value for name, value in part.items() if name != "cache"})
    return made


def _moved_in_result(result: Part) -> Part:
    """A mark with nothing before it inside the result applies to the result."""
    inner: list[Any] = []
    own = result.get("cache")
    for part in result["parts"]:
        if type(part) is dict and (mark := part.get("cache")) and _is_blank(part):
            if not _mark_last(inner, mark):
                own = own or mark
            part = {name: value for name, value in part.items() if name != "cache"}
        inner.append(part)
    return {**result, "parts": inner, **({"cache": own} if own else {})}


def _mark_last(parts: list[Any], mark: object) -> bool:
    """Marks the last part that can have a mark; one that it has already stays. Whether there is such a part."""
    for number in range(len(parts) - 1, -1, -1):
        part = parts[number]
        if type(part) is not dict or _is_blank(part):
            continue
        if part.get("kind") == "reasoning":
            return False
        if not part.get("cache"):
            parts[number] = {**part, "cache": mark}
        return True
    return False


def _is_blank(part: Part) -> bool:
    text = part.get("text")
    return part.get("kind") in _TEXTS and (text is None or type(text) is str and not text.strip())
