"""Text deltas of one part, whose events differ in nothing but the text: the event of the first one is made in full, and
the JSON around its text is used again for all that follow.

A handler can be used so when its generated code reads nothing, beside the text, that changes while a part is open
(`is_steady`). A delta that comes with more than text is always made in full.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import orjson

_STATE = re.compile(r"\b([RPC])\.(\w+)")
_STEADY = frozenset(
    {
        "R.id",
        "R.model",
        "R.created",
        "R.out",
        "R.seq",
        "C.model",
        "C.can",
        "C.request",
        "C.asked",
        "C.now",
        "P.index",
        "P.nth",
        "P.item",
        "P.kind",
        "P.fresh",
        "P.told",
        "P.id",
        "P.name",
        "P.origin",
        "P.token",
        "P.more",
    }
)
"""What a handler may read: settled once a part is open, or (the last five) set by `describe`, which takes the frame
away."""
_NAME = re.compile(r"\b\w+\b")
_MARK = "\ue000text\ue000"
_MARKED = orjson.dumps(_MARK)
_PLACE = 7_000_000_000_000_007
"""Stands for the number of an event where a frame is made."""

Frame = tuple[()] | tuple[str | None, bytes, bytes | None, bytes, bytes | None]
"""An event's name and its JSON: before the text (or its number), between number and text where it has one, after the
text, and behind the second one where the text stands there twice. Empty: the handler must be asked every time."""


def is_steady(lines: Iterable[str]) -> bool:
    """Whether a delta handler's code makes events whose fields do not change, but for the text and the event's number,
    which stand in them whole."""
    code = "\n".join(lines).replace("R.seq += 1", "")
    read = {f"{owner}.{name}" for owner, name in _STATE.findall(code)}
    return read <= _STEADY and "V" in _NAME.findall(code) and _stands_whole("V", code) and _stands_whole("R.seq", code)


def _stands_whole(name: str, code: str) -> bool:
    """Whether a value is a field wherever it stands, so that nothing is made of it."""
    name = re.escape(name)
    fields = re.findall(rf"(?:: |\] = ){name}(?=[,}}]|$)", code, re.MULTILINE)
    return len(re.findall(rf"\b{name}\b", code)) == len(fields)


def framed(handler: Callable[..., None]) -> Callable[..., None]:
    """The handler again, for a steady one: what it says of a text alone goes out as JSON bytes instead of an object."""

    def say(run: Any, part: Any, text: str, context: Any) -> None:
        if part.fresh or not part.told:
            handler(run, part, text, context)
            return
        frame = part.frame
        if frame is None:
            frame = part.frame = _frame(handler, run, part, context)
        if not frame:
            handler(run, part, text, context)
            return
        name, before, between, after, behind = frame
        if behind is not None:
            written = orjson.dumps(text)
            run.out.append((name, before + written + after + written + behind))
        elif between is None:
            run.out.append((name, before + orjson.dumps(text) + after))
        else:
            run.out.append((name, b"%b%d%b%b%b" % (before, run.seq, between, orjson.dumps(text), after)))
            run.seq += 1

    return say


def _frame(handler: Callable[..., None], run: Any, part: Any, context: Any) -> Frame:
    """What the handler says of any text; empty where that is not one event with the text in one place, or in two and
    without a number."""
    said, number = run.out, run.seq
    made: list[tuple[str | None, Any]] = []
    run.out, run.seq = made, _PLACE
    try:
        handler(run, part, _MARK, context)
        counted = run.seq != _PLACE
    finally:
        run.out, run.seq = said, number
    if len(made) != 1:
        return ()
    name, event = made[0]
    before, *rest = orjson.dumps(event).split(_MARKED)
    if not rest or len(rest) > 2 or counted and len(rest) > 1:
        return ()
    if not counted:
        return name, before, None, rest[0], rest[1] if len(rest) == 2 else None
    around = before.split(b"%d" % _PLACE)
    return (name, around[0], around[1], rest[0], None) if len(around) == 2 else ()
