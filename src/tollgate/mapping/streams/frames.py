"""Text deltas of one part whose events differ only in the text: the first event is made in full, and the JSON around
its text (the frame) is used again for all that follow.

That works for a handler whose generated code reads nothing but the text that changes while a part is open
(`is_steady`). The event of a delta with more than text is always made in full.
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
"""What a steady handler may read: what is fixed once a part is open, and (the last five) what `describe` sets, which
drops the frame."""
_NAME = re.compile(r"\b\w+\b")
_MARK = "\ue000text\ue000"
_MARKED = orjson.dumps(_MARK)
_PLACE = 7_000_000_000_000_007
"""Stands for the event's number while a frame is made."""

Frame = tuple[()] | tuple[str | None, bytes, bytes | None, bytes, bytes | None]
"""An event's SSE name and the pieces of its JSON: before the text (or before its number, where it has one), between
number and text, after the text, and after the second text where it is there twice. Empty when there is no frame: the
handler must make every event."""


def is_steady(lines: Iterable[str]) -> bool:
    """Whether the events of a delta handler differ only in the text and the event's number, and both are whole values
    of fields."""
    code = "\n".join(lines).replace("R.seq += 1", "")
    read = {f"{owner}.{name}" for owner, name in _STATE.findall(code)}
    return read <= _STEADY and "V" in _NAME.findall(code) and _stands_whole("V", code) and _stands_whole("R.seq", code)


def _stands_whole(name: str, code: str) -> bool:
    """Whether a variable is used only as the whole value of a field, so that nothing is computed from it."""
    name = re.escape(name)
    fields = re.findall(rf"(?:: |\] = ){name}(?=[,}}]|$)", code, re.MULTILINE)
    return len(re.findall(rf"\b{name}\b", code)) == len(fields)


def framed(handler: Callable[..., None]) -> Callable[..., None]:
    """The same handler, if steady, with JSON bytes instead of an object as the event of a text."""

    def write(run: Any, part: Any, text: str, context: Any) -> None:
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

    return write


def _frame(handler: Callable[..., None], run: Any, part: Any, context: Any) -> Frame:
    """The frame of the handler's events for text. Empty unless it makes one event, with the text in one place, or in
    two and without a number."""
    out, number = run.out, run.seq
    made: list[tuple[str | None, Any]] = []
    run.out, run.seq = made, _PLACE
    try:
        handler(run, part, _MARK, context)
        counted = run.seq != _PLACE
    finally:
        run.out, run.seq = out, number
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
