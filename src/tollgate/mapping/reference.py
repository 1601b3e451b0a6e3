"""The tables of the reference page (docs/mapping-reference.md), made from those that the compiler itself uses.

The text between `<!-- name -->` and `<!-- end -->` is made here, the rest is written on the page. A test compares the
two, so the page cannot say something that the compiler does not do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tollgate.mapping import examples, hub, reply_headers
from tollgate.mapping.directive_table import DIRECTIVES
from tollgate.mapping.edits.reading import BESIDE, VERBS
from tollgate.mapping.filter_table import FILTERS, TESTS
from tollgate.mapping.in_text_scan import STREAMED_KINDS
from tollgate.mapping.names import ABOUT, PART, RUN
from tollgate.mapping.scope import Var
from tollgate.mapping.streams.from_hub import MOMENTS, STEPS
from tollgate.mapping.streams.operations import OPERATIONS

_MADE = re.compile(r"(<!-- (\w+) -->\n*)(.*?)(\n*<!-- end -->)", re.DOTALL)


def renewed(page: str) -> str:
    """The page with all generated parts made again. ValueError if it does not have each of them once."""
    made = _made()
    if sorted(found[2] for found in _MADE.finditer(page)) != sorted(made):
        raise ValueError(f"the page has each of these once, as <!-- name --> <!-- end -->: {', '.join(made)}")
    return _MADE.sub(lambda found: found[1] + made[found[2]] + found[4], page)


def _made() -> dict[str, str]:
    return {
        "directives": _directives(),
        "filters": _table(
            ("Filter", "Gives", "Example"),
            (
                (f"`{name}({entry.arguments})`".replace("()", ""), entry.about, entry.example and f"`{entry.example}`")
                for name, entry in FILTERS.items()
            ),
        ),
        "tests": _table(("Test", "True for"), ((f"`is {entry.name}`", entry.about) for entry in TESTS.values())),
        "names": _table(("Name", "Is"), ((f"`${name}`", about) for name, about in ABOUT.items())),
        "run": _fields(RUN),
        "part": _fields(PART),
        "hub": _hub(),
        "operations": _table(
            ("Operation", "Fields", "Means"),
            ((f"`{entry.name}`", _listed(entry.fields), entry.about) for entry in OPERATIONS.values()),
        ),
        "told_as": _listed(STREAMED_KINDS),
        "moments": _listed(f"{moment}:" for moment in MOMENTS),
        "kinds": _listed(hub.KINDS),
        "steps": _listed(STEPS),
        "edits": _table(
            ("Edit", "Takes", "Does", "Example"),
            ((f"`{verb.name}`", verb.takes, verb.about, f"`{verb.example}`") for verb in VERBS.values()),
        ),
        "beside": "; ".join(f"`{name}`, {about}" for name, about in BESIDE.items()),
        "limits": _listed(f"{kind}: {{{', '.join(reply_headers.FACTS)}}}" for kind in reply_headers.KINDS),
        "example_keys": ", ".join(examples.KEYS),
        "sections": _listed(examples.SECTIONS),
        "with": _listed(examples.WITH),
    }


def _directives() -> str:
    rows = ((f"`{entry.name}`", entry.takes, entry.about) for entry in DIRECTIVES.values())
    each = (
        f"### `{entry.name}`\n\n```yaml\n{entry.example}\n# {entry.given}\n# -> {entry.makes}\n```"
        for entry in DIRECTIVES.values()
    )
    return "\n\n".join((_table(("Directive", "Takes", "Does"), rows), *each))


def _fields(record: Var) -> str:
    return ", ".join(
        f"`{name}`{f' ({field.about})' if field.about else ''}" for name, field in (record.fields or {}).items()
    )


_HUB = {
    "request": "A request",
    "turn": "A turn",
    "tool": "A tool",
    "tool_choice": "`tool_choice`",
    "format": "`format`",
    "reasoning": "`reasoning`",
    "response": "An answer",
    "usage": "`usage`",
    "error": "An error",
}


def _hub() -> str:
    """The fields of the hub, from its schema."""
    defined = hub.schema()["$defs"]
    rows = [(about, defined[name]) for name, about in _HUB.items()]
    rows += [(f"A part of kind `{kind}`", part) for kind, part in hub.PARTS.items()]
    rows.append(("One of `annotations`", defined["note"]))
    return _table(("Where", "Fields"), ((about, _members(definition)) for about, definition in rows))


def _members(definition: dict[str, Any]) -> str:
    def shown(name: str, of: dict[str, Any]) -> str:
        words = f" ({', '.join(of['enum'])})" if "enum" in of else ""
        return f"`{name}{'[]' if 'items' in of else ''}`{words}"

    return ", ".join(shown(name, of) for name, of in definition["properties"].items() if name != "kind" or "enum" in of)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    cells = (" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows)
    return "\n".join((f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {row} |" for row in cells)))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
