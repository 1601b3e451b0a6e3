"""Whether the arguments of a call, which come in pieces, are a whole JSON value by now: then nothing can follow.

While there are few pieces, it is fastest to parse all of them again after each one. That becomes quadratic where an
upstream sends several calls in turns, so after some failed attempts only the brackets in new pieces are followed.
"""

from __future__ import annotations

import re

import orjson

_MOST_VAIN = 16
_ANY = re.compile(r"[^ \t\r\n]")
_BRACKET = re.compile(r'["{}\[\]]')
_IN_TEXT = re.compile(r'["\\]')


class JsonEnd:
    """The state for one text in pieces. Call `joined` before the pieces are put together."""

    __slots__ = ("_begun", "_broken", "_depth", "_escaped", "_quoted", "_read", "_sure", "_vain")

    def __init__(self) -> None:
        self._vain = 0
        self._read = 0
        """How many pieces have been followed."""
        self._depth = 0
        self._begun = self._quoted = self._escaped = False
        self._sure = False
        """The text between the brackets was parsed, and is JSON."""
        self._broken = False
        """The text is not JSON and cannot become JSON."""

    def whole(self, pieces: list[str]) -> bool:
        """Whether the pieces together are an object or a list: ['{"a":', '1}'] -> True"""
        if self._vain < _MOST_VAIN:
            whole = _is_whole("".join(pieces))
            self._vain += not whole
            return whole
        self._follow(pieces)
        if self._broken or self._depth or not self._begun:
            return False
        if not self._sure:
            self._sure = _is_whole("".join(pieces))
            self._broken = not self._sure
        return self._sure

    def joined(self, pieces: list[str]) -> None:
        """These pieces become one."""
        if self._vain >= _MOST_VAIN:
            self._follow(pieces)
            self._read = 1

    def _follow(self, pieces: list[str]) -> None:
        for at in range(self._read, len(pieces)):
            if self._broken:
                break
            self._take(pieces[at])
        self._read = len(pieces)

    def _take(self, piece: str) -> None:
        at, end = 0, len(piece)
        while at < end:
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            found = (_IN_TEXT if self._quoted else _BRACKET if self._depth else _ANY).search(piece, at)
            if found is None:
                return
            at, mark = found.end(), found[0]
            if self._quoted:
                self._quoted = mark != '"'
                self._escaped = mark == "\\"
            elif not self._depth and (self._begun or mark not in "{["):
                self._broken = True
                return
            elif mark == '"':
                self._quoted = True
            else:
                self._begun = True
                self._depth += 1 if mark in "{[" else -1


def _is_whole(text: str) -> bool:
    if not text.rstrip().endswith(("}", "]")):
        return False
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True
