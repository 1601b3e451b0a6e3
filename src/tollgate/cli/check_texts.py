"""A stage of `tollgate check`: texts of a conversation that a mapping leaves out without naming them as lost.

A field that no line reads is in the loss list; an item that a condition, an index or a slice skips is not. So each text
is replaced by another one: if the result stays the same, and nothing is named as lost, that text does not arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tollgate.cli.check_content import converted, warning
from tollgate.config.load import Problem
from tollgate.mapping import CompiledMapping


def _turn(role: str, *parts: Any) -> dict[str, Any]:
    return {"role": role, "parts": [_text(part) if isinstance(part, str) else part for part in parts]}


def _text(text: str) -> dict[str, Any]:
    return {"kind": "text", "text": text}


def _call(number: int, city: str) -> dict[str, Any]:
    args = f'{{"city":"{city}"}}'
    return {"kind": "tool_call", "id": f"call_{number}", "name": "get_weather", "args": args}


def _result(number: int, *texts: str) -> dict[str, Any]:
    return {"kind": "tool_result", "id": f"call_{number}", "parts": [_text(text) for text in texts]}


_CONVERSATIONS: list[dict[str, Any]] = [
    {"turns": [_turn("user", "a question without instructions")]},
    {
        "system": [_text("the instructions"), _text("a second text of the instructions")],
        "turns": [
            _turn("user", "an earlier turn of the user", "a second text of an earlier turn of the user"),
            _turn("assistant", "an earlier answer", "a second text of an earlier answer"),
            _turn("user", "the last turn", "a second text of the last turn"),
        ],
    },
    {"turns": [_turn("assistant", "an answer before the first turn of the user"), _turn("user", "Hi")]},
    {
        "turns": [
            _turn("user", "Hi"),
            _turn("assistant", "Hello"),
            _turn("system", "instructions between two turns"),
            _turn("user", "Go on"),
        ]
    },
    {
        "turns": [
            _turn("user", "Compare them"),
            _turn("assistant", "a text beside a call", _call(1, "Oslo"), _call(2, "a second call")),
            _turn("user", _result(1, "a result", "a second text of a result"), _result(2, "a second result")),
        ]
    },
    {
        "turns": [
            _turn("user", "Look"),
            _turn("assistant", _call(1, "a call")),
            _turn("user", _result(1, "Rain"), "a text beside a result"),
        ]
    },
]
"""Conversations in which each text says what it is."""
_NAMED = ("a", "an", "the", "instructions")
"""The first words of texts that are replaced; the others only make a conversation of them."""


def problems(mappings: Iterable[CompiledMapping]) -> Iterator[Problem]:
    """A warning about every mapping that leaves out a text of a conversation unnoticed."""
    for mapping in mappings:
        if mapping.hub or "request.from_hub" not in mapping.sections:
            continue
        plain = converted(mapping, {})
        known = set(plain[1]) if plain is not None else set()
        left_out = [text for hub in _CONVERSATIONS for text in _left_out(mapping, hub, known)]
        if left_out:
            words = f"leaves out {', '.join(left_out)}, and does not name that as lost"
            yield warning(mapping, words, "carry it, or name it where it is skipped: `$else: {$lost: ...}`")


def _left_out(mapping: CompiledMapping, hub: dict[str, Any], known: set[str]) -> Iterator[str]:
    made = converted(mapping, hub)
    if made is None or not made[0] or not known.issuperset(made[1]):
        return
    for text in _texts(hub):
        if text.split()[0] in _NAMED and converted(mapping, _replaced(hub, text)) == made:
            yield text


def _texts(value: Any) -> Iterator[str]:
    """The texts of parts, and the city in the arguments of calls."""
    if isinstance(value, dict):
        if isinstance(text := value.get("text"), str):
            yield text
        if isinstance(args := value.get("args"), str):
            yield args.split('"')[3]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in inner:
        yield from _texts(item)


def _replaced(value: Any, text: str) -> Any:
    """A copy in which this text is another one."""
    if isinstance(value, dict):
        return {name: _replaced(inner, text) for name, inner in value.items()}
    if isinstance(value, list):
        return [_replaced(inner, text) for inner in value]
    if isinstance(value, str):
        return "Something else" if value == text else value.replace(f'"{text}"', '"Something else"')
    return value
