"""Upstream events that differ from the one before only in a text: the bytes around the text are compared, and only the
text is parsed.

A mapping's rule promises with `steady: true` that nothing but the delta depends on its text. The rest is checked on the
event that becomes the pattern: the text is in it once, and the rules make exactly this one delta of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import orjson

from tollgate.mapping.context import Context
from tollgate.mapping.failures import Fault
from tollgate.mapping.streams.part import Details, Part

if TYPE_CHECKING:
    from tollgate.mapping.streams.run import Run

_MARK = " \ue000Text\ue000 "
_MARKED = orjson.dumps(_MARK)

_TEXT = {str}

Rules = Callable[..., Any]
Sent = tuple[bytes, int]
"""The client's events as they are sent, and how many there are."""
Lead = Callable[[str | None], bytes]
"""The bytes before the JSON of an event with this SSE name."""


@dataclass(slots=True, eq=False)
class Alike:
    """One pattern: events with more text of one part. They have this SSE name, and this JSON before and after the
    text."""

    _part: Part
    name: str | None
    before: bytes
    after: bytes
    used: bool = False
    """An event fitted this pattern."""

    def take(self, run: Run, written: list[bytes], lead: Lead) -> Sent:
        """Send the client the texts of events that fit, given as the events write them in JSON: all, or those before
        the first that cannot be handled this way."""
        part = self._part
        frame = part.frame
        if part is not run.open_part or not frame or part.fresh or not part.told:
            return b"", 0
        texts = _texts(written)
        count = len(texts)
        if not count:
            return b"", 0
        self.used = True
        part.pieces += texts
        written = written[:count]
        name, before, between, after, behind = frame
        before = lead(name) + before
        if behind is not None:
            end = behind + b"\n\n" + before
            return before + end.join([each + after + each for each in written]) + end[: -len(before)], count
        after += b"\n\n"
        if between is None:
            return before + (after + before).join(written) + after, count
        numbers = range(run.seq, run.seq + count)
        run.seq += count
        pattern = b"%b%%d%b%%b%b" % tuple([piece.replace(b"%", b"%%") for piece in (before, between, after)])
        return pattern * count % (*chain.from_iterable(zip(numbers, written, strict=True)),), count


def _texts(written: list[bytes]) -> list[str]:
    """These JSON texts, parsed, up to the first that is no text or is empty. Where all are good they are parsed at
    once: JSON texts have no line breaks, so one cannot be mistaken for a piece of another."""
    with contextlib.suppress(orjson.JSONDecodeError):
        texts = orjson.loads(b"[%b]" % b",\n".join(written))
        if len(texts) == len(written) and {*map(type, texts)} == _TEXT and "" not in texts:
            return texts  # type: ignore[no-any-return]
    texts = []
    for one in written:
        try:
            text = orjson.loads(one)
        except orjson.JSONDecodeError:
            break
        if type(text) is not str or not text:
            break
        texts.append(text)
    return texts


def alike(rules: Rules, run: Run, context: Context, name: str | None, data: bytes) -> Alike | None:
    """The pattern for events like the one that the run has just handled; None where it cannot be one."""
    part = run.open_part
    if part is None or not part.pieces or not part.frame:
        return None
    before, found, after = data.rpartition(orjson.dumps(part.pieces[-1]))
    if not found:
        return None
    listener = _Listener()
    try:
        rules(orjson.loads(before + _MARKED + after), listener, context)
    except (_NotSteady, Fault, RecursionError, orjson.JSONDecodeError):
        return None
    return Alike(part, name, before, after) if listener.only(part) else None


class _NotSteady(Exception):
    """The rules do more with an event than make a steady delta."""


class _Listener:
    """Takes the place of a run to record what the rules do with an event. Raises `_NotSteady` for all but a steady
    delta."""

    known = True

    def __init__(self) -> None:
        self._deltas: list[tuple[str, object, object]] = []

    def steady(self, kind: str, key: object = None, text: object = None, details: Details | None = None) -> None:
        """As `Run.steady`."""
        if details or kind == "tool_call" and key is None:
            raise _NotSteady
        self._deltas.append((kind, key, text))

    def only(self, part: Part) -> bool:
        """Whether there was one delta, with the mark as its text, for this part."""
        if len(self._deltas) != 1:
            return False
        kind, key, text = self._deltas[0]
        return text == _MARK and kind == part.kind and (key is None or key == part.key)

    def __getattr__(self, name: str) -> Any:
        raise _NotSteady
