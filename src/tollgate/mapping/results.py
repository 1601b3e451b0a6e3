"""Tool results directly behind the calls they answer: what holds for every hub request, whatever order a client sent.

Every vendor answers 400 to a call whose result comes later. A client may send something between the two (an instruction,
words of the user), and where instructions move up, what stood around them becomes neighbours.
"""

from __future__ import annotations

from typing import Any

Turn = dict[str, Any]
Part = dict[str, Any]


def results_behind_calls(turns: list[Turn]) -> list[Turn]:
    """The same turns, where a result that came late stands at the front of the user's turn behind its call.

    [call a] [user: hm] [system: s] [result a] -> [call a] [user: result a, hm] [system: s]
    """
    late = _late(turns)
    return _moved(turns, late) if late else turns


def _late(turns: list[Turn]) -> dict[int, list[Part]]:
    """Results that stand further back than the turn behind their call: the call's turn -> the results. A later call takes an id over."""
    called: dict[object, int] = {}
    late: dict[int, list[Part]] = {}
    for number, turn in enumerate(turns):
        for part in _parts(turn):
            kind = part.get("kind")
            if kind == "tool_call":
                called[part.get("id")] = number
            elif kind == "tool_result":
                caller = called.pop(part.get("id"), number)
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
