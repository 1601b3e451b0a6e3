"""Gives tool calls unique ids and one result each, and puts the results directly after them: what every hub request
needs, whatever the client sent.

Some upstreams give every call the same id, or start again in every turn. Clients send these ids back, and upstreams for
messages answer 400 to a repeated id. Every vendor answers 400 to a call whose result comes late. A client may send
something between the two (an instruction, a message of the user), and where instructions are moved to the top, the
turns around them become neighbours. A client that ran a tool twice sends two results, a 400 for messages and Bedrock.
"""

from __future__ import annotations

from collections import deque
from typing import Any

Turn = dict[str, Any]
Part = dict[str, Any]


def tidy_calls(turns: list[Turn]) -> list[Turn]:
    """The turns of a request with unique call ids, and one result directly after each call. Anything but objects is
    ignored."""
    if _tidy(turns):
        return turns
    return results_behind_calls(single_results(distinct_calls([turn for turn in turns if type(turn) is dict])))


def _tidy(turns: list[Any]) -> bool:
    """A quick check that is true for most requests: every id is used once, and its only result is in the next turn."""
    called: dict[str, int] = {}
    answered: set[str] = set()
    for number, turn in enumerate(turns):
        if type(turn) is not dict:
            return False
        parts = turn.get("parts")
        for part in parts if type(parts) is list else ():
            if type(part) is not dict:
                return False
            kind = part.get("kind")
            if kind == "tool_call":
                name = part.get("id")
                if type(name) is not str or name in called:
                    return False
                called[name] = number
            elif kind == "tool_result":
                name = part.get("id")
                if type(name) is not str or name in answered or called.get(name, number) < number - 1:
                    return False
                answered.add(name)
    return True


def distinct_calls(turns: list[Turn]) -> list[Turn]:
    """The same turns, in which a call with an id that was used before gets a new one, and so does its result.

    [call a, call a] [result a, result a] -> [call a, call a_2] [result a, result a_2]
    """
    seen: set[str] = set()
    for turn in turns:
        for part in _parts(turn):
            if part.get("kind") == "tool_call" and type(name := part.get("id")) is str:
                if name in seen:
                    return _renamed(turns)
                seen.add(name)
    return turns


def _renamed(turns: list[Turn]) -> list[Turn]:
    ids = _Ids({name for turn in turns for part in _parts(turn) if type(name := part.get("id")) is str})
    made = []
    for turn in turns:
        parts: list[Part] = []
        for part in _parts(turn):
            kind, name = part.get("kind"), part.get("id")
            if kind == "tool_call" and type(name) is str:
                new = ids.of_call(name)
                before = parts[-1] if parts else {}
                if before.get("kind") == "reasoning" and before.get("id") == name:
                    parts[-1] = {**before, "id": new}  # the signature belongs to the call
                part = {**part, "id": new}
            elif kind == "tool_result" and type(name) is str:
                part = {**part, "id": ids.of_result(name)}
            parts.append(part)
        made.append({**turn, "parts": parts})
    return made


class _Ids:
    """New ids for calls that share one, in the order of the conversation."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken
        self._used: set[str] = set()
        self._counts: dict[str, int] = {}
        self._waiting: dict[str, deque[str]] = {}
        """By the original id: the new ids of calls that have no result yet."""

    def of_call(self, name: str) -> str:
        """The id of the next call named `name`: unchanged for the first, a new one for the others."""
        new = name
        while new in self._used or new != name and new in self._taken:
            self._counts[name] = self._counts.get(name, 1) + 1
            new = f"{name}_{self._counts[name]}"
        self._used.add(new)
        self._waiting.setdefault(name, deque()).append(new)
        return new

    def of_result(self, name: str) -> str:
        """The id of the next result for `name`: that of the earliest call without one."""
        waiting = self._waiting.get(name)
        return waiting.popleft() if waiting else name


def single_results(turns: list[Turn]) -> list[Turn]:
    """The same turns, in which further results of a call are joined with its first; an equal one adds nothing.

    [call a] [result a: x, result a: y] -> [call a] [result a: x y]
    """
    called: set[str] = set()
    results: dict[str, list[Part]] = {}
    for turn in turns:
        for part in _parts(turn):
            kind, name = part.get("kind"), part.get("id")
            if type(name) is str and kind == "tool_call":
                called.add(name)
            elif name in called and kind == "tool_result":
                results.setdefault(name, []).append(part)
    repeated = [parts for parts in results.values() if len(parts) > 1]
    if not repeated:
        return turns
    joined = {id(parts[0]): _as_one(parts) for parts in repeated}
    again = {id(part) for parts in repeated for part in parts[1:]}
    return _rebuilt([{**turn, "parts": [joined.get(id(part), part) for part in _parts(turn)]} for turn in turns], again)


def _as_one(results: list[Part]) -> Part:
    different: list[Part] = []
    for result in results:
        if all(result.get("parts") != other.get("parts") for other in different):
            different.append(result)
    if len(different) == 1:
        return results[0]
    content = [part for result in different if type(parts := result.get("parts")) is list for part in parts]
    return {**results[0], "parts": content}


def results_behind_calls(turns: list[Turn]) -> list[Turn]:
    """The same turns, in which a late result is moved to the front of the user's turn after its call.

    [call a] [user: hm] [system: s] [result a] -> [call a] [user: result a, hm] [system: s]
    """
    late = _late(turns)
    return _moved(turns, late) if late else turns


def _late(turns: list[Turn]) -> dict[int, list[Part]]:
    """The results that are not in the turn directly after their call, by the index of the call's turn.

    If two calls have the same id, its results belong to the later one.
    """
    called: dict[str, int] = {}
    late: dict[int, list[Part]] = {}
    for number, turn in enumerate(turns):
        for part in _parts(turn):
            kind, name = part.get("kind"), part.get("id")
            if type(name) is not str:
                continue
            if kind == "tool_call":
                called[name] = number
            elif kind == "tool_result":
                caller = called.pop(name, number)
                if number > caller + 1:
                    late.setdefault(caller, []).append(part)
    return late


def _moved(turns: list[Turn], late: dict[int, list[Part]]) -> list[Turn]:
    moved = {id(part) for parts in late.values() for part in parts}
    return _rebuilt(turns, moved, {caller + 1: parts for caller, parts in late.items()})


def _rebuilt(turns: list[Turn], removed: set[int], before: dict[int, list[Part]] | None = None) -> list[Turn]:
    """The turns without the parts whose `id()` is in `removed`, and with these parts of the user before a turn, by its
    index. Neighbours of one role become one turn."""
    made: list[Turn] = []
    for number, turn in enumerate(turns):
        if before and number in before:
            made.append({"role": "user", "parts": before[number]})
        rest = [part for part in _parts(turn) if id(part) not in removed]
        if not rest:
            continue
        if made and made[-1].get("role") == turn.get("role"):
            made[-1] = {**made[-1], "parts": [*_parts(made[-1]), *rest]}
        else:
            made.append({**turn, "parts": rest})
    return made


def _parts(turn: Turn) -> list[Part]:
    parts = turn.get("parts")
    return [part for part in parts if type(part) is dict] if type(parts) is list else []
