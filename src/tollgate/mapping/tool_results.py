"""Tool calls with ids of their own, their results directly behind them: what holds for every hub request,
whatever a client sent.

Some upstreams give every call the same id, or begin anew in every turn; clients send that on, and messages upstreams
answer 400 to an id that comes twice. Every vendor answers 400 to a call whose result comes later. A client may send
something between the two (an instruction, words of the user), and where instructions move up, what stood around them
becomes neighbours.
"""

from __future__ import annotations

from collections import deque
from typing import Any

Turn = dict[str, Any]
Part = dict[str, Any]


def tidy_calls(turns: list[Turn]) -> list[Turn]:
    """The turns of a request, each call with an id of its own and its result behind it; what is no object is none."""
    if _tidy(turns):
        return turns
    return results_behind_calls(distinct_calls([turn for turn in turns if type(turn) is dict]))


def _tidy(turns: list[Any]) -> bool:
    """The quick look that most requests need only: every id is called once, and its result is in the next turn."""
    called: dict[str, int] = {}
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
                if type(name) is not str or called.get(name, number) < number - 1:
                    return False
    return True


def distinct_calls(turns: list[Turn]) -> list[Turn]:
    """The same turns, where a call whose id was used before has another one, and so has its result.

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
                    parts[-1] = {**before, "id": new}  # a signature that is tied to its call
                part = {**part, "id": new}
            elif kind == "tool_result" and type(name) is str:
                part = {**part, "id": ids.of_result(name)}
            parts.append(part)
        made.append({**turn, "parts": parts})
    return made


class _Ids:
    """New ids for calls that share one, given out in the order of the conversation."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken
        self._used: set[str] = set()
        self._counts: dict[str, int] = {}
        self._waiting: dict[str, deque[str]] = {}
        """By the id as it was: the calls that have no result yet, by their new ids."""

    def of_call(self, name: str) -> str:
        """The id of the next call named `name`: the same for the first, one that nobody has for those after it."""
        new = name
        while new in self._used or new != name and new in self._taken:
            self._counts[name] = self._counts.get(name, 1) + 1
            new = f"{name}_{self._counts[name]}"
        self._used.add(new)
        self._waiting.setdefault(name, deque()).append(new)
        return new

    def of_result(self, name: str) -> str:
        """The id of the next result of `name`: that of the earliest call without one."""
        waiting = self._waiting.get(name)
        return waiting.popleft() if waiting else name


def results_behind_calls(turns: list[Turn]) -> list[Turn]:
    """The same turns, where a result that came late stands at the front of the user's turn behind its call.

    [call a] [user: hm] [system: s] [result a] -> [call a] [user: result a, hm] [system: s]
    """
    late = _late(turns)
    return _moved(turns, late) if late else turns


def _late(turns: list[Turn]) -> dict[int, list[Part]]:
    """The results that stand later than in the turn right after their call, by the place of the call's turn.

    Where two calls have the same id, its results belong to the later one.
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
    made: list[Turn] = []
    for number, turn in enumerate(turns):
        results = late.get(number - 1, [])
        if results:
            made.append({"role": "user", "parts": results})
        rest = [part for part in _parts(turn) if id(part) not in moved]
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
