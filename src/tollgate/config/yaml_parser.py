"""The YAML parser, and hints for its usual error messages about files written by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from yaml.parser import Parser as _Parser
from yaml.reader import Reader as _Reader
from yaml.scanner import Scanner as _Scanner


class PlainParser(_Reader, _Scanner, _Parser):
    """PyYAML's own parser, ten times slower than libyaml. On its own it ends a value between brackets at a question
    mark (`{key: $secret.NAME?}`); YAML (1.2, section 7.3.3) and libyaml do not."""

    def __init__(self, text: str) -> None:
        self._in_plain = False
        _Reader.__init__(self, text)
        _Scanner.__init__(self)
        _Parser.__init__(self)

    def scan_plain(self) -> Any:
        """The next unquoted value, as a token."""
        self._in_plain = True
        try:
            return super().scan_plain()
        finally:
            self._in_plain = False

    def peek(self, index: int = 0) -> str:
        """The character `index` places ahead; in an unquoted value a question mark is read like a letter."""
        character: str = super().peek(index)
        return "x" if self._in_plain and character == "?" else character


_ODD_BLANKS = re.compile("[\u00a0\u2000-\u200d\u202f\u205f\u2060\u3000]")
"""Invisible characters that come with text copied from web pages."""
_RUN_ON = re.compile(r"\s*(?:- +)?([\w-]+):[^\s/:]\S*\s*$")

_UNUSUAL_START = "put quotes around a value that begins with such a character"
_HINTS = {
    "another document": "a file is one document: take the line --- out",
    "unexpected end of stream": "a quotation mark is not closed",
    "expected ',' or": "a bracket before it is not closed, or a value with , [ ] { } wants quotes",
    "cannot start any token": _UNUSUAL_START,
    "undefined alias": _UNUSUAL_START,
    "alphabetic or numeric": "a `*` or `&` begins an alias or anchor here: put quotes around the key or value",
    "unknown escape character": "between double quotes a backslash is written twice; between single ones it is itself",
}
"""Hints by words of the parser's message."""

try:
    Parser: Any = import_module("yaml._yaml").CParser
except ImportError:  # PyYAML was built without libyaml, as on a Python that is newer than its wheels
    Parser = PlainParser
"""The parser of all configuration files: created with a text, it gives YAML events."""


def hint_for(lines: Sequence[str], line: int, column: int, what: str) -> str:
    """How to fix what the parser found at `line` and `column` (from 1), or ""."""
    here = lines[line - 1] if 0 < line <= len(lines) else ""
    if "\t" in here[: max(column, 1)]:
        return "indent with spaces, not tabs"
    before = lines[line - 2] if 1 < line <= len(lines) else ""
    for number, text in ((line, here), (line - 1, before)):
        if odd := _ODD_BLANKS.search(text):
            return f"line {number} has a character that only looks like a blank (U+{ord(odd[0]):04X}): type it anew"
    if what.startswith(("did not find expected", "expected ")):  # libyaml and PyYAML
        left = here[: column - 1].rstrip()
        if left and here[column - 1 : column] in ("[", "{"):
            return "put quotes around a value with brackets inside { } or [ ]"
        if left.count('"') % 2 or here.count('"') % 2:
            opened = next((number for number in range(line - 1, 0, -1) if lines[number - 1].count('"') % 2), None)
            return "a quotation mark is not closed" + (f", probably that in line {opened}" if opened else "")
        if left.endswith(("'", '"')):
            return "a value ends with its closing quotation mark: put all of it inside"
    if re.search(r"(^|[:,[{-])\s*\{\{", here) or re.search(r"[:-]\s+\{\{", before):
        return "put quotes around a value with {{ }}"
    if "mapping values are not allowed" in what:
        key = re.match(r"\s*(- +)?[\w./$\"'-]+:", here)
        if key and here[:column] == here[: here.index(":") + 1]:
            if run_on := _RUN_ON.match(before):
                return f"the line before has no blank behind its `:`, as in `{run_on[1]}: ...`"
            return "the line before has no `:`, or the two are indented differently"
        return "put quotes around a value that holds `: `"
    if "could not find expected ':'" in what:
        run_on = _RUN_ON.match(before)
        return "the line before has no " + (f"blank behind its `:`, as in `{run_on[1]}: ...`" if run_on else "`:`")
    known = next((hint for words, hint in _HINTS.items() if words in what), "")
    if (
        not known
        and what.startswith(("did not find expected", "expected <block end>"))
        and not here[: column - 1].strip()
    ):
        return "this line is indented unlike the lines that it belongs to"
    return known
