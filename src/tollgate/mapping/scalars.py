"""Scalars of a template: literals, `$paths`, and text with `{{ expressions }}` in it.

The type of the result depends on how it is written, never on the value: a single hole keeps its type, a hole beside
text gives text, everything else is the literal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

from tollgate.config.forgotten_dollar import forgotten_path
from tollgate.config.load import Node, Scalar, text_in
from tollgate.config.provider_warnings import loose_name
from tollgate.mapping.expressions import BEYOND_NUMBERS, TOO_LARGE, lower
from tollgate.mapping.filter_table import Filter
from tollgate.mapping.grammar import nodes, parse_expression
from tollgate.mapping.operators import one_text
from tollgate.mapping.path_code import read_text
from tollgate.mapping.paths import ParseError, Path, closing, extent, parse_path
from tollgate.mapping.scope import NOTHING, Lowered, Site, Spot, Unit, written
from tollgate.mapping.values import in_json

NOTHING_WORD = "$nothing"
_FILTERED = re.compile(r"\|\s*(\w+)(?:\([^()]*\))?\s*\}\}\Z")
"""The last filter of a text that is one hole."""
_CHOOSES = re.compile(r"\b(?:if|or|and)\b")
UNNAMED = "(unnamed)"
"""The text of an absent hole in a `$lost`: a loss is reported even if its name is not known."""


def is_literal(node: Scalar) -> bool:
    """True for a scalar that reads no data."""
    text = node.value
    return not isinstance(text, str) or not (text.startswith("$") and not text.startswith("$$") or "{{" in text)


def literal(node: Scalar) -> str | float | None:
    """The value of a literal scalar: numbers as int or float, `$$` as `$`."""
    value = node.value
    if type(value) is int:
        return in_json(value)
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, str) and value.startswith("$$"):
        return value[1:]
    return value


def kind_by_form(text: str, filters: Mapping[str, Filter]) -> str:
    """The kind of value that a text with holes gives whatever they hold, as in `Lowered`; "" if it may be any.

    '{{ $.a }} tokens' -> 'text'; '{{ $.a | length }}' -> 'number'; '{{ $.a }}' -> ''
    """
    if "{{" not in text or text.startswith("$"):
        return ""
    if text.count("{{") > 1 or not (text.startswith("{{") and text.endswith("}}")):
        return "text"
    found = _FILTERED.search(text)
    used = filters.get(found[1]) if found and not _CHOOSES.search(text) else None
    return used.kind if used is not None else ""


def path_of(node: Node | None) -> Path | None:
    """The path that a scalar consists of, or None if it is something else (or cannot be parsed)."""
    text = text_in(node) or ""
    if not text.startswith("$") or text.startswith("$$") or text == NOTHING_WORD or extent(text, 0) != len(text):
        return None
    try:
        return parse_path(text)
    except ParseError:
        return None


def lower_scalar(site: Site, node: Scalar, *, named: bool = False) -> Lowered:
    """A scalar as Python. Its value does not count as read yet: the caller decides that with `Lowered.take`. For one
    that is `named` by `$let`, neither does what the value is computed from."""
    text = node.value
    if not isinstance(text, str):
        value = literal(node)
        if value in BEYOND_NUMBERS:
            site.unit.mistake(node, TOO_LARGE)
            return NOTHING
        return written(value)
    spot = Spot(site.unit, node)
    if text.startswith("$$"):
        return lower_text(site, text[1:], spot.moved(1))
    if text.startswith("$"):
        return _path(site, text, spot)
    return lower_text(site, text, spot, named=named)


def lower_text(site: Site, text: str, spot: Spot, *, named: bool = False) -> Lowered:
    """Text with holes; a single hole keeps its type."""
    if text.endswith('"') and text.count('"') == 1 and not spot.node.quoted:
        site.unit.warn(spot.mark(0), "this text ends in a quotation mark that nothing opens", "put one before it")
    if "{{" not in text:
        if "{%" in text:
            spot.mistake("`{% %}` is not part of this language", text.index("{%"), "choose with $when or $match")
        if not _warn_of_loose_name(site, text, spot) and "}}" in text and "{" not in text:
            site.unit.warn(spot.mark(text.index("}}")), "`}}` closes nothing", "write `{{` before the expression")
        warn_of_nothing(site.unit, spot.node)
        if path := forgotten_path(text, site.scope.names, answer=site.scope.of_answer):
            site.unit.warn(spot.mark(0), f"`{text}` stays as it stands", f"write {path}")
        return written(text)
    pieces = split(text, spot)
    if pieces is None:
        return NOTHING
    _warn_of_loose_name(site, text, spot)
    if len(pieces) == 1 and not pieces[0][0]:
        return lower(site, pieces[0][1], spot.moved(pieces[0][2]), named=named)
    lowered = [written(body) if plain else lower(site, body, spot.moved(at)).take() for plain, body, at in pieces]
    return one_text(site, lowered)


def _warn_of_loose_name(site: Site, text: str, spot: Spot) -> bool:
    """Warn of a name outside of braces: of one that the file itself defines, or of a field below another. Whether it
    did."""
    name = loose_name(text)
    var = site.scope.names.get(name[1:].partition(".")[0])
    loose = name.startswith("$.") or var is not None and (var.own or "." in name)
    if loose:
        site.unit.warn(
            spot.mark(text.index(name)), f"`{name}` inside a text stays as it stands", f"write {{{{ {name} }}}}"
        )
    return loose


def warn_of_nothing(unit: Unit, node: Scalar) -> None:
    """Warn of `$nothing` without its `$`, which is sent as a text."""
    if node.value == NOTHING_WORD[1:] and not node.quoted:
        unit.warn(node, "`nothing` without the `$` is a text", f"write {NOTHING_WORD}, or quotes around the text")


def warn_of_path(unit: Unit, node: Node | None) -> None:
    """Warn of a path or a hole where the name of a field is wanted, which is sent as it is written."""
    if isinstance(node, Scalar) and not is_literal(node):
        unit.warn(node, f"`{node.text}` stays as it stands", "a field is named without `$`, such as messages")


def lower_words(site: Site, node: Scalar) -> Lowered:
    """The text of `$lost` or `say`: an absent path or hole is written as `(unnamed)`, so the text is always present."""
    text = node.value
    if not isinstance(text, str) or not text:
        site.unit.mistake(node, "words are wanted here", "say what is lost, in text")
        return written("")
    spot = Spot(site.unit, node)
    if text.startswith("$") and not text.startswith("$$"):
        return one_text(site, [_named(site, _path(site, text, spot))])
    if text.startswith("$$"):
        text, spot = text[1:], spot.moved(1)
    _warn_of_loose_name(site, text, spot)
    lowered = [
        written(body) if plain else _named(site, lower(site, body, spot.moved(offset)))
        for plain, body, offset in split(text, spot) or []
    ]
    return one_text(site, lowered) if lowered else NOTHING


def _named(site: Site, value: Lowered) -> Lowered:
    if value.present:
        return value
    name = site.temp()
    return Lowered(f"({UNNAMED!r} if ({name} := {value.py}) is None else {name})", True)


def paths_in(node: Scalar) -> list[str]:
    """The `$paths` in the holes of a text that is known to be correct, or the one it consists of."""
    if (path := path_of(node)) is not None:
        return [path.text]
    text = text_in(node) or ""
    found: list[str] = []
    position = text.find("{{")
    while position >= 0 and (start := text.find("$", position)) >= 0:
        position = extent(text, start)
        found.append(text[start:position])
    return found


def split(text: str, spot: Spot) -> list[tuple[bool, str, int]] | None:
    """A text cut at its holes, as (is it literal, the piece, its offset). None (and a mistake) for a hole that is not
    closed.

    `a {{ b }} c` -> [(True, 'a ', 0), (False, ' b ', 4), (True, ' c', 9)]
    """
    pieces: list[tuple[bool, str, int]] = []
    position = 0
    while (start := text.find("{{", position)) >= 0:
        if start > position:
            pieces.append((True, text[position:start], position))
        end = closing(text, start + 2, "{}")
        if not text.startswith("}}", end):
            spot.mistake("`{{` is not closed", start, "write `}}` after the expression")
            return None
        pieces.append((False, text[start + 2 : end], start + 2))
        position = end + 2
    if position < len(text):
        pieces.append((True, text[position:], position))
    return pieces


def _path(site: Site, text: str, spot: Spot) -> Lowered:
    end = extent(text, 0)
    if text == NOTHING_WORD:
        spot.mistake("`$nothing` makes no sense here", 0, "it leaves out a field, an item or a case")
        return NOTHING
    if end != len(text):
        hint = "a literal that starts with a dollar is written `$$`"
        if text[end] == "[" and "]" not in text[end:]:
            spot.mistake(f"`[` is not closed in `{text}`", end)
            return NOTHING
        if text[end] == "[":
            hint = 'a computed index needs braces: "{{ ' + text + ' }}"'
        elif text.startswith(".$", end):
            hint = "a name after a dot has no $"
        elif text[end] in "-" and "." in text[:end]:
            hint = f"a name with a dash is written {text[:end].rpartition('.')[0]}['...']"
        elif _is_expression(text):
            hint = 'an expression needs braces: "{{ ' + text + ' }}"'
        spot.mistake(
            f"`{text if len(text) < 40 else text[:37] + '...'}` reads as a path, which ends after `{text[:end]}`",
            end,
            hint,
        )
        return NOTHING
    return read_text(site, text, spot)


def _is_expression(text: str) -> bool:
    try:
        return not isinstance(parse_expression(text).tree, nodes.Name)
    except ParseError:
        return False
