"""Writes the YAML text of a models file; the same entries always give the same text.

Prices are quoted, so that no parser reads them as binary fractions; a list that many entries share is written once,
with an anchor.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tollgate.catalog_import.entries import Import


class Quoted(str):
    """Text that is written in quotes."""


class Flow(dict[str, Any]):
    """A map written on one line."""


_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9 ._/()+*-]*[A-Za-z0-9.)+]\Z|[A-Za-z]\Z")
"""Text that needs no quotes."""
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off"})
"""Plain words that YAML parsers do not read as text."""
NAMES_SCHEMA = "# yaml-language-server: $schema="
"""The comment by which a file's first line names its schema for editors."""
SCHEMA = NAMES_SCHEMA + "../../src/tollgate/schemas/models.schema.json"
"""That line in the repository's own files."""
_WIDTH = 140
"""Columns of the file, where a list can be wrapped."""


def write(made: Import, name: str, schema: str = SCHEMA) -> str:
    """The text of a models file, `schema` its first line; the same entries always give the same text."""
    source = made.source
    head = {"provider": source.provider, "only": list(source.only), "without": list(source.without)}
    lines = [
        schema,
        f"# Models of `{name}`, written by `tollgate catalog import`. "
        + "Entries of the same id in the provider's own file win.",
        f"from: {_flow(Flow({key: value for key, value in head.items() if value}))}",
        "models:",
    ]
    counts = Counter(_shared(entry) for entry in made.models.values())
    anchors: dict[str, str] = {}
    for model, entry in made.models.items():
        lines.append(f"  {model}:")
        for key, value in entry.items():
            text = _shared(entry) if key == "parameters" else ""
            if text in anchors:
                lines.append(f"    {key}: *{anchors[text]}")
            elif counts[text] > 1:
                anchors[text] = f"parameters-{len(anchors) + 1}"
                lines.extend(_wrapped(f"    {key}: &{anchors[text]} {text}", 6))
            else:
                lines.extend(_lines(key, value, 4))
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def _shared(entry: Mapping[str, Any]) -> str:
    """The text of a list that many entries share: written once, with an anchor."""
    return _flow(entry["parameters"]) if entry.get("parameters") else "-"


def _lines(key: str, value: Any, indent: int) -> list[str]:
    pad = " " * indent
    if isinstance(value, dict) and not isinstance(value, Flow):
        line = f"{pad}{key}: {_flow(value)}"
        if len(line) <= _WIDTH and not any(isinstance(inner, (dict, list)) for inner in value.values()):
            return [line]
        return [f"{pad}{key}:", *(line for name, inner in value.items() for line in _lines(name, inner, indent + 2))]
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [f"{pad}{key}:", *(f"{pad}  - {_flow(item)}" for item in value)]
    return _wrapped(f"{pad}{key}: {_flow(value)}", indent + 2)


def _wrapped(line: str, indent: int) -> list[str]:
    lines = []
    while len(line) > _WIDTH and (cut := line.rfind(", ", 0, _WIDTH)) > indent and line.rstrip().endswith("]"):
        lines.append(line[: cut + 1])
        line = " " * indent + line[cut + 2 :]
    return [*lines, line]


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(inner) for inner in value) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, (int, Decimal)):
        return str(value)
    text = str(value)
    if not isinstance(value, Quoted) and _PLAIN.match(text) and text.lower() not in _WORDS:
        return text
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character if character.isprintable() else f"\\U{ord(character):08x}"
