"""Fields of a template that were probably meant as directives: `match: $.type` is a field called `match`. Quotes
around the name mark it as a field."""

from __future__ import annotations

import re
from collections.abc import Callable

from tollgate.config.load import Document, List, Map, Mark, Node, Scalar, text_in
from tollgate.mapping.scalars import path_of
from tollgate.mapping.scope import Site, Unit

_CONTENT = frozenset({"text", "args", "so_far", "url", "data", "content", "arguments", "input"})
"""Fields whose value hardly is a single word that is always the same."""
_EXPRESSIONS = ("each", "when", "match")
_OTHER_FIELD = re.compile(r"\$\w*(?:\.\w+)*(?<!\.copy)\Z")
"""A path, but not that of a field of the same name."""
_LOOP = re.compile(r"\$\w+(\s*,\s*\$\w+)?\s+in\b")


def check_directive(unit: Unit, node: Map, key: str) -> None:
    """Report a field that, by its name and value, was probably meant as the directive of that name. Where the value
    is an expression, it would not compile there."""
    looks = _LOOKS.get(key)
    if looks is not None and looks(node.entries[key], node) and not quoted(unit.document, node.keys[key]):
        note = unit.mistake if key in _EXPRESSIONS and path_of(node.entries[key]) is None else unit.warn
        note(
            node.keys[key],
            f"`{key}` without the `$` is a field of that name",
            f"write ${key}, or quotes around the name of a field",
        )


def check_bare_name(site: Site, key: str, value: Node) -> None:
    """Warn of a content that is a text and the name of data that the file defines: `text: t` beside `$each: $t`."""
    if key not in _CONTENT or not isinstance(value, Scalar) or value.quoted or not isinstance(value.value, str):
        return
    var = site.scope.names.get(value.value)
    if var is not None and var.own:
        site.unit.warn(value, f"`{value.value}` is a text here", f"write ${value.value}, or quotes around the text")


def quoted(document: Document, mark: Mark) -> bool:
    """Whether the key at this position is quoted."""
    lines = document.holding(mark).lines
    line = lines[mark.line - 1] if mark.line <= len(lines) else ""
    return line[mark.column - 1 : mark.column] in ("'", '"')


def _chosen(value: Node, node: Map) -> bool:
    return any(key in node.entries for key in ("$when", "$match", "when", "match"))


def _alone(value: Node, node: Map) -> bool:
    return any(key in node.entries for key in ("$each", "$when", "$let", "$join_by")) and all(
        key.startswith("$") or key in ("value", "else") for key in node.entries
    )


_LOOKS: dict[str, Callable[[Node, Map], bool]] = {
    "each": lambda value, node: bool(_LOOP.match(text_in(value) or "")),
    "let": lambda value, node: isinstance(value, Map),
    "when": lambda value, node: (text_in(value) or "").startswith("$"),
    "match": lambda value, node: (text_in(value) or "").startswith("$") and len(node.entries) > 1,
    "else": _chosen,
    "absent": _chosen,
    "first": lambda value, node: isinstance(value, List) and len(value.items) > 1,
    "copy": lambda value, node: (
        isinstance(value, List)
        and all(text_in(item) for item in value.items)
        or bool(_OTHER_FIELD.match(text_in(value) or ""))
    ),
    "value": _alone,
    "join_by": lambda value, node: isinstance(value, Scalar),
    "lost": lambda value, node: (
        isinstance(value, Scalar) and (not value.quoted or len(node.entries) == 1 and "{{" in value.text)
    ),
    "refuse": lambda value, node: (
        isinstance(value, List) and all(isinstance(item, Map) and "say" in item.entries for item in value.items)
    ),
}
"""What the value of each directive looks like, to recognise its name without the `$`."""
