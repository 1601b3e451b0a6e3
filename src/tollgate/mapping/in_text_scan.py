"""Finds marks in a text that arrives in pieces; the result does not depend on where the text was cut.

Pure: pieces in, findings out. Text is only held back while it may be the beginning of a mark, or, for a mark with a
template, until the mark is closed. Blanks beside a mark belong to the mark.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

STREAMED_KINDS = ("reasoning", "text", "refusal")
"""Kinds of parts that can be sent while they arrive."""
PLACES = ("anywhere", "start", "inside")
"""Where a mark counts: anywhere; only before any other text (`start`); or, for answers that begin inside the mark,
whether they write its opening or not (`inside`)."""

Found = tuple[str, str | None, list[dict[str, Any]] | None]
"""(kind, text, None) for more text; (kind, None, None) for the end of a part; ("", None, parts) for parts of a
template."""
Make = Callable[["TextMark", str], list[dict[str, Any]] | None]


@dataclass(frozen=True, slots=True)
class TextMark:
    """A pair of marks: `kind` is the kind of part between them, empty if a template makes the parts."""

    opening: str
    closing: str | None
    kind: str = ""
    at: str = PLACES[0]
    unclosed_is_text: bool = False
    keeps_native: bool = False
    """Answers to clients of the upstream's own format stay unchanged."""


class Marks:
    """Marks that are prepared for searching."""

    __slots__ = ("anywhere", "beginnings", "inside", "search", "start")

    def __init__(self, marks: tuple[TextMark, ...]) -> None:
        self.anywhere = {mark.opening: mark for mark in marks if mark.at == "anywhere"}
        self.start = tuple(mark for mark in marks if mark.at != "anywhere")
        self.inside = next((mark for mark in marks if mark.at == "inside"), None)
        self.search = re.compile("|".join(map(re.escape, self.anywhere))).search if self.anywhere else None
        self.beginnings = _beginnings(*self.anywhere)


def _beginnings(*marks: str | None) -> frozenset[str]:
    """All texts that could continue to one of the marks."""
    return frozenset(mark[:length] for mark in marks if mark for length in range(1, len(mark)))


@dataclass(slots=True, eq=False)
class Scanner:
    """The state of one answer's text. After `finish` another text of the same answer may follow."""

    _marks: Marks
    _make: Make
    _held: str = ""
    """Text that may be the beginning of a mark, or is beside one."""
    _blanks: list[str] = field(default_factory=list)
    """More of it, if all of it is blank: a model that is stuck may write line breaks without end."""
    _mark: TextMark | None = None
    _unopened: bool = False
    """The answer begins inside a mark, and may still write the opening of it."""
    _written: bool = False
    """The opening of the mark was written."""
    _fresh: bool = False
    """No text has come yet: marks of the start count."""
    _lead: bool = False
    """A mark came last: blanks after it belong to it."""
    _gap: str = ""
    _inside: list[str] = field(default_factory=list)
    _closings: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._fresh = bool(self._marks.start)
        if (mark := self._marks.inside) is not None:
            self._mark, self._unopened, self._lead, self._closings = mark, True, True, _beginnings(mark.closing)

    @property
    def held(self) -> str:
        """The text that was received and not yet sent, as the upstream wrote it."""
        opening = self._mark.opening if self._mark is not None and self._written and not self._mark.kind else ""
        return "".join([opening, *self._inside, self._held, *self._blanks])

    def feed(self, piece: str) -> list[Found]:
        """What is certain after this piece."""
        out: list[Found] = []
        if not self._held:
            self._held = piece
        elif self._held.isspace() and piece.isspace():
            self._blanks.append(piece)
            return out
        else:
            self._hold(piece)
        while self._held and (self._outside(out) if self._mark is None else self._within(out)):
            pass
        return out

    def finish(self) -> list[Found]:
        """What was held back, because the text has ended."""
        out: list[Found] = []
        self._hold("")
        rest, mark = self._held, self._mark
        self._held = ""
        if mark is None:
            self._emit_text(out, rest)
        else:
            if mark.kind:
                self._emit_inside(out, mark, rest, last=True)
                out.append((mark.kind, None, None))
            else:
                self._inside.append(rest)
                self._settle(out, mark, closed=False)
            self._mark = None
        self._fresh = self._lead = self._unopened = False
        return out

    def _hold(self, piece: str) -> None:
        self._held = "".join([self._held, *self._blanks, piece])
        self._blanks.clear()

    def _outside(self, out: list[Found]) -> bool:
        """One step outside of marks; False if more text is needed."""
        text = self._held.lstrip() if self._lead else self._held
        self._held = text
        if self._fresh:
            bare = text.lstrip()
            for mark in self._marks.start:
                if bare.startswith(mark.opening):
                    self._open(mark, text[: len(text) - len(bare)], bare[len(mark.opening) :])
                    return True
            if not bare or any(mark.opening.startswith(bare) for mark in self._marks.start):
                return False
            self._fresh = False
        search = self._marks.search
        found = search(text) if search is not None else None
        if found is not None:
            before = text[: found.start()]
            trimmed = before.rstrip()
            self._emit_text(out, trimmed)
            self._open(self._marks.anywhere[found[0]], before[len(trimmed) :], text[found.end() :])
            return True
        keep = _withheld(text, self._marks.beginnings) if search is not None else 0
        self._held = text[len(text) - keep :]
        self._emit_text(out, text[: len(text) - keep])
        return False

    def _within(self, out: list[Found]) -> bool:
        """One step inside a mark; False if more text is needed."""
        mark, text = self._mark, self._held
        assert mark is not None
        if self._unopened:
            bare = text.lstrip()
            if not bare or bare != mark.opening and mark.opening.startswith(bare):
                return False
            self._unopened = False
            if bare.startswith(mark.opening):
                self._open(mark, "", bare[len(mark.opening) :])
                return True
        at = text.find(mark.closing) if mark.closing else -1
        if at < 0:
            keep = _withheld(text, self._closings)
            self._held = text[len(text) - keep :]
            self._emit_inside(out, mark, text[: len(text) - keep], last=False)
            return False
        self._held = text[at + len(mark.closing or "") :]
        self._emit_inside(out, mark, text[:at], last=True)
        self._mark = None
        if mark.kind:
            out.append((mark.kind, None, None))
            self._lead = True
        else:
            self._settle(out, mark, closed=True)
        return True

    def _open(self, mark: TextMark, gap: str, rest: str) -> None:
        self._mark, self._gap, self._held = mark, gap, rest
        self._written = self._lead = True
        self._closings = _beginnings(mark.closing)

    def _emit_text(self, out: list[Found], text: str) -> None:
        if self._lead:
            text = text.lstrip()
        if text:
            out.append(("text", text, None))
            self._lead = self._fresh = False

    def _emit_inside(self, out: list[Found], mark: TextMark, text: str, *, last: bool) -> None:
        """Send more of the text inside a mark."""
        if not mark.kind:
            self._inside.append(text)
            return
        if self._lead:
            text = text.lstrip()
        if last:
            text = text.rstrip()
        if text:
            out.append((mark.kind, text, None))
            self._lead = False

    def _settle(self, out: list[Found], mark: TextMark, *, closed: bool) -> None:
        """Turn all text inside a mark into parts; if its template makes none, it stays text."""
        text = "".join(self._inside)
        self._inside.clear()
        parts = None if mark.unclosed_is_text and not closed else self._make(mark, text.strip())
        if parts is not None:
            out.append(("", None, parts))
            self._lead = True
            return
        self._lead = False
        opening = mark.opening if self._written else ""
        self._emit_text(out, f"{self._gap}{opening}{text}{mark.closing if closed else ''}")


def _withheld(text: str, beginnings: frozenset[str]) -> int:
    """How many characters at the end may belong to a mark: the beginning of one, and the blanks before it."""
    longest = max(map(len, beginnings), default=0)
    start = len(text)
    for length in range(min(longest, len(text)), 0, -1):
        if text[-length:] in beginnings:
            start -= length
            break
    return len(text) - len(text[:start].rstrip())
