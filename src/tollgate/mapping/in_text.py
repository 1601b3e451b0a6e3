"""`in_text:`: text between marks in an answer (`<think>...</think>`) becomes parts of its own.

Owns the compiled marks of a mapping or provider file, and their use on a whole answer. Finding them in a text that
arrives in pieces is `in_text_scan.py`; streamed answers are `streams/marked.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tollgate.config.load import Document, List, Map, Node, Scalar, lookup, one_or_many, text_in
from tollgate.mapping import hub, templates
from tollgate.mapping.context import Context
from tollgate.mapping.failures import Fault
from tollgate.mapping.in_text_scan import PLACES, STREAMED_KINDS, Found, Marks, Scanner, TextMark
from tollgate.mapping.names import ENGINE, document_var
from tollgate.mapping.pieces import Functions, built_with, unit_with
from tollgate.mapping.reads import Reads
from tollgate.mapping.scalars import is_literal
from tollgate.mapping.scope import Scope, Unit, known_words
from tollgate.mapping.values import text_of

KEYS = ("from", "to", "kind", "parts", "at", "unclosed", "native")
ENDS = ("part", "text")
"""What happens to a mark that is never closed."""
_CALLED = re.compile(r"\{\{\s*([a-z_]\w*)\([^()]*\)\s*\}\}")
"""A template that is what a function makes."""
_TAG = re.compile(r"([<\[])(\w+[>\]])")
"""A mark that looks like the opening of a pair, in two pieces between which a closing one has its slash."""
NATIVE = ("convert", "keep")
"""Whether answers to clients of the upstream's own format are converted for a mark, or stay as they are."""


@dataclass(frozen=True, slots=True, eq=False)
class InText:
    """The compiled marks of one place; `scanner` gives the state for one answer's text."""

    _marks: Marks
    _makers: Mapping[TextMark, Callable[[str, Context], Any]]
    native: bool = True
    """Answers to clients of the upstream's own format are converted, too. If not, they are passed through."""

    def scanner(self, context: Context) -> Scanner:
        """A new scanner, for one answer."""
        return Scanner(self._marks, lambda mark, text: self._made(mark, text, context))

    def split(self, parts: Any, context: Context) -> Any:
        """The parts of a whole answer, with its texts split at marks. Anything but a list of parts stays as it is."""
        if type(parts) is not list:
            return parts
        scanner = self.scanner(context)
        made: list[Any] = []
        for part in parts:
            text = part.get("text") if type(part) is dict and part.get("kind") == "text" else None
            if type(text) is not str or not text:
                made.append(part)
                continue
            beside = {key: value for key, value in part.items() if key not in ("kind", "text", "id")}
            made += _pieces([*scanner.feed(text), *scanner.finish()], beside)
        return made

    def _made(self, mark: TextMark, text: str, context: Context) -> list[dict[str, Any]] | None:
        """The parts that a mark's template makes of the text inside; None if it makes no valid part."""
        try:
            made = self._makers[mark](text, context)
        except (Fault, RecursionError):
            return None
        listed = made if type(made) is list else [made]
        parts = [part for part in listed if _is_part(part)]
        return [_tidy(part) for part in parts] if parts and len(parts) == len(listed) else None


def _pieces(findings: list[Found], beside: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts that a scanner found in one text. What is beside the text (annotations, a token) stays with the first
    piece of plain text."""
    parts: list[dict[str, Any]] = []
    open_kind = ""
    for kind, text, made in findings:
        if text is None:
            parts += made or ()
            open_kind = ""
        elif kind == open_kind:
            parts[-1]["text"] += text
        else:
            open_kind = kind
            parts.append({"kind": kind, "text": text})
            if kind == "text":
                parts[-1] |= beside
                beside = {}
    return [*parts, {"kind": "text", "text": "", **beside}] if beside else parts


def _is_part(part: Any) -> bool:
    if type(part) is not dict or part.get("kind") not in hub.KINDS or len(part) < 2:
        return False
    return part["kind"] != "tool_call" or type(part.get("name")) is str and part["name"] != ""


def _tidy(part: dict[str, Any]) -> dict[str, Any]:
    arguments = part.get("args")
    return part if arguments is None or type(arguments) is str else {**part, "args": text_of(arguments)}


# -- compiling


def declare_marks(unit: Unit, node: Node | None) -> dict[TextMark, str]:
    """The marks of an `in_text:` list, with the names of the generated functions that make their parts ("" for none).

    Mistakes are noted in the unit.
    """
    if node is None:
        return {}
    if not isinstance(node, List):
        unit.mistake(node, "`in_text` is a list of marks", "- {from: <think>, to: </think>, kind: reasoning}")
        return {}
    marks: dict[TextMark, str] = {}
    for item in node.items:
        mark = _read(unit, item)
        if mark is None:
            continue
        if any(mark.opening.startswith(other.opening) or other.opening.startswith(mark.opening) for other in marks):
            unit.mistake(item, f'"{mark.opening}" and another mark begin alike, so that one would hide the other')
        if mark.at == "inside" and any(other.at == "inside" for other in marks):
            unit.mistake(item, "an answer can begin inside one mark only")
        marks[mark] = _maker(unit, lookup(item, "parts"), len(marks))
    return marks


def _read(unit: Unit, item: Node) -> TextMark | None:
    before = len(unit.problems)
    if not isinstance(item, Map):
        unit.mistake(item, "a mark has keys", "{from: <think>, to: </think>, kind: reasoning}")
        return None
    unit.check_keys(item, KEYS)
    opening, closing = (_text(unit, item, key) for key in ("from", "to"))
    kind = _word(unit, item, "kind", STREAMED_KINDS)
    if ("kind" in item.entries) == ("parts" in item.entries):
        found = "both" if "kind" in item.entries else "neither"
        unit.mistake(
            item,
            f"a mark says what stands in it by `kind` or by `parts`, found {found}",
            f"kind: one of {', '.join(STREAMED_KINDS)}, sent as it comes; or parts: a template over the text",
        )
    if kind and "unclosed" in item.entries:
        unit.mistake(item.keys["unclosed"], "`unclosed` is for `parts`: what has a `kind` was sent as it came")
    ends = _word(unit, item, "unclosed", ENDS) or ENDS[0]
    at = _word(unit, item, "at", PLACES) or PLACES[0]
    keeps = _word(unit, item, "native", NATIVE) == "keep"
    if "from" not in item.entries and len(unit.problems) == before:
        unit.mistake(item, "a mark needs `from`", "from: <think>")
    if opening is None or len(unit.problems) > before:
        return None
    if opening == closing and (tag := _TAG.fullmatch(opening)):
        message = f"`to` is the same as `from`: text behind {tag[1]}/{tag[2]} would still be inside"
        unit.warn(item.entries["to"], message, f"to: {tag[1]}/{tag[2]}")
    return TextMark(opening, closing, kind or "", at, ends == "text", keeps)


def _text(unit: Unit, item: Map, key: str) -> str | None:
    node = item.get(key)
    if node is None or (text := text_in(node)) and text.strip() == text:
        return text_in(node)
    unit.mistake(node, f"`{key}` is a text without blanks at its ends, found {_shown(node)}", f"{key}: <think>")
    return None


def _word(unit: Unit, item: Map, key: str, known: tuple[str, ...]) -> str | None:
    node = item.get(key)
    if node is None:
        return None
    if isinstance(node, Scalar) and node.value in known:
        return str(node.value)
    found = _shown(node)
    unit.mistake(node, f"`{key}` cannot be {found}", known_words(found.strip("`"), known))
    return None


def _shown(node: Node) -> str:
    return f"`{node.text}`" if isinstance(node, Scalar) else "a list" if isinstance(node, List) else "a map"


def _maker(unit: Unit, node: Node | None, place: int) -> str:
    """The function of (text, context) that makes parts of the text between the marks; "" for none."""
    if node is None:
        return ""
    for item in one_or_many(node):
        called = _CALLED.fullmatch(text_in(item) or "")
        function = unit.functions.get(called[1]) if called else None
        for part in one_or_many(function.node if function is not None else item):
            if isinstance(part, Map):
                _check_fields(unit, part)
    name = f"in_text_{place}"
    templates.function(unit, f"{name}(D, C)", node, Scope({**ENGINE, "": document_var(Reads())}))
    return name


def _check_fields(unit: Unit, part: Map) -> None:
    """Note names that no part has: the result would be no part, and all of it would stay text."""
    if "$match" in part.entries:
        return  # its keys are cases
    known = ("kind", *hub.PART_FIELDS)
    for key, mark in part.keys.items():
        if not key.startswith("$") and key not in known:
            unit.mistake(mark, f"a part has no field `{key}`", known_words(key, known))
    kind = part.get("kind")
    if kind is None and part.entries and part.entries.keys() <= {*known, "$when", "$let", "$each"}:
        unit.mistake(part, "a part without a `kind` is none, so all of it would stay text", "such as kind: tool_call")
    if isinstance(kind, Scalar) and is_literal(kind) and kind.value not in hub.KINDS:
        unit.mistake(kind, f"unknown kind of part `{kind.text}`", known_words(kind.text, hub.KINDS))


def linked(marks: Mapping[TextMark, str], namespace: Mapping[str, Any]) -> InText | None:
    """The marks with their functions; None if there are none."""
    if not marks:
        return None
    makers = {mark: namespace[name] for mark, name in marks.items() if name}
    return InText(Marks(tuple(marks)), makers, not all(mark.keeps_native for mark in marks))


def compile_in_text(document: Document, node: Node, *, defines: Functions | None = None) -> InText | None:
    """The marks of a provider file's `in_text:`. `ConfigErrors` with all mistakes; None for an empty list."""
    unit = unit_with(document.holding(node.mark), defines)
    marks = declare_marks(unit, node)
    return linked(marks, built_with(unit, defines))
