"""Upstream events that are the one before but for a text: what stands around the text is compared, byte by byte, and only the
text is read.

A mapping's rule promises with `steady: true` that nothing but the delta itself depends on its text. Everything else is
seen on the event that is the pattern: that the text stands in it once, and that the rules say this one delta of it and no more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson

from tollgate.mapping.context import Context
from tollgate.mapping.failures import Fault
from tollgate.mapping.stream_part import Part

if TYPE_CHECKING:
    from tollgate.mapping.stream_run import Run

_MARK = " \ue000Text\ue000 "
_MARKED = orjson.dumps(_MARK)

Rules = Callable[..., Any]
Pairs = list[tuple[str | None, bytes]]
"""Events as they came: SSE name and data."""


class Alike:
    """One pattern: the events that say more of `part`, by their name and their bytes before and after the text."""

    __slots__ = ("_after", "_before", "_name", "_part", "used")

    def __init__(self, part: Part, name: str | None, before: bytes, after: bytes) -> None:
        self._part = part
        self._name = name
        self._before = before
        self._after = after
        self.used = False
        """An event was alike."""

    def take(self, run: Run, pairs: Pairs, at: int) -> int:
        """Say the events from `pairs[at]` on that are alike; the number of the first that is not."""
        part = self._part
        frame = part.frame
        if part is not run.open_part or not frame or part.fresh or not part.told:
            return at
        name, before, after = self._name, self._before, self._after
        said, head, middle, tail = frame
        start, rest = len(before), -len(after)
        say, hear, known = run.out.append, part.pieces.append, len(part.pieces)
        for each, data in pairs[at:] if at else pairs:
            if each != name or not data.startswith(before) or not data.endswith(after):
                break
            written = data[start:rest]
            try:
                text = orjson.loads(written)
            except orjson.JSONDecodeError:
                break
            if text.__class__ is not str or not text:
                break
            hear(text)
            if middle is None:
                say((said, head + written + tail))
            else:
                say((said, b"%b%d%b%b%b" % (head, run.seq, middle, written, tail)))
                run.seq += 1
            at += 1
        if len(part.pieces) > known:
            self.used = True
            run.received_chars += sum(map(len, part.pieces[known:]))
        return at


def alike(rules: Rules, run: Run, context: Context, name: str | None, data: bytes) -> Alike | None:
    """The pattern of an event that the run has just taken; None where it is none."""
    part = run.open_part
    if part is None or not part.pieces or not part.frame:
        return None
    before, found, after = data.rpartition(orjson.dumps(part.pieces[-1]))
    if not found:
        return None
    heard = _Heard()
    try:
        rules(orjson.loads(before + _MARKED + after), heard, context)
    except (_Otherwise, Fault, RecursionError, orjson.JSONDecodeError):
        return None
    return Alike(part, name, before, after) if heard.only(part) else None


class _Otherwise(Exception):
    """The rules do more with an event than to say a steady delta."""


class _Heard:
    """Stands in for a run, to hear what the rules say of an event. Whatever is no steady delta is `_Otherwise`."""

    known = True

    def __init__(self) -> None:
        self._deltas: list[tuple[str, object, object]] = []

    def steady(self, kind: str, key: object = None, text: object = None, token: object = None, id: object = None, name: object = None,
               origin: object = None, more: dict[str, Any] | None = None) -> None:
        """As `Run.steady`."""
        if token or id or name or more or kind == "tool_call" and key is None:
            raise _Otherwise
        self._deltas.append((kind, key, text))

    def only(self, part: Part) -> bool:
        """Whether one delta was all, the mark was its text, and the part is the one it speaks of."""
        if len(self._deltas) != 1:
            return False
        kind, key, text = self._deltas[0]
        return text == _MARK and kind == part.kind and (key is None or key == part.key)

    def __getattr__(self, name: str) -> Any:
        raise _Otherwise
