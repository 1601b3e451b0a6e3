"""Compiles the `errors:` blocks of a provider and of one of its endpoints to `ErrorRules`; the endpoint's come
first."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tollgate.config.fields import Fields
from tollgate.config.load import Map, Node, Scalar, items_of, one_or_many, text_in
from tollgate.config.provider_schema import ERROR_FIELDS, ERROR_LISTS
from tollgate.errors import AlarmKind
from tollgate.mapping.compiler import CompiledMapping
from tollgate.mapping.convert import error_section
from tollgate.mapping.provider.errors import ErrorRules, Kind, Rule
from tollgate.mapping.provider.pieces import Pieces, Read

HEADERS = "answer_headers"
"""The name, besides the body (`$`), that rules and fields read."""
_MEANINGS: dict[str, tuple[Kind, AlarmKind | None]] = {
    "retry": ("later", None),
    "next": ("next", None),
    "stop": ("stop", None),
    "credit": ("next", "balance"),
    "key": ("next", "key"),
}
"""The verdict and the alarm of each of `ERROR_LISTS`."""
_BEYOND_FIELDS = re.compile(r"\$\.\.|\$(?!\.)")
"""Reads of a body other than named fields."""
_FIELD = re.compile(r"\$\.(\w+)")
_ONE_WORD = re.compile(r"\$\.[\w.\[\]]+ == '([\w-]+)'", re.ASCII)


def compile_errors(pieces: Pieces, blocks: list[Map | None], mapping: CompiledMapping | None = None) -> ErrorRules:
    """The rules of several `errors:` blocks, the nearest first. The format `mapping` has words of its own
    (`CompiledMapping.too_long`, `CompiledMapping.spent`), and may say where its errors are. Mistakes go to `pieces`."""
    rules: list[Rule] = []
    by_status: dict[int, tuple[Kind, AlarmKind | None]] = {}
    reads: dict[str, Read] = {}
    for block in blocks:
        if block is None:
            continue
        for name, read in _reads(pieces, block).items():
            reads.setdefault(name, read)
        for name in ERROR_LISTS:
            for status in _statuses(block.get(name)):
                by_status.setdefault(status, _MEANINGS[name])
        for place, node in enumerate(items_of(block.get("rules"))):
            if isinstance(node, Map) and (rule := _rule(pieces, node, f"errors.rules[{place}]")) is not None:
                rules.append(rule)
                if mapping is not None and mapping.stream_in is not None:
                    _warn_of_silence(pieces, node, rule, f"errors.rules[{place}]")
    own = (mapping.too_long, mapping.spent, _format_reads(mapping)) if mapping is not None else ()
    return ErrorRules(tuple(rules), by_status, reads, pieces.redact, pieces.retry_statuses, *own)


def _format_reads(mapping: CompiledMapping) -> Callable[[Any], dict[str, Any]] | None:
    """What `error.to_hub` of a format reads in an error body, as a total function; None where the format has none.

    The formats of clients have none here: servers of every kind claim to speak them, and their errors have many shapes.
    """
    if "error.to_hub" not in mapping.sections or "error.from_hub" in mapping.sections:
        return None

    def read(body: Any) -> dict[str, Any]:
        is_page = not isinstance(body, (dict, list))  # an HTML page, or plain text
        return {} if is_page else error_section(mapping, "error.to_hub", body, None)

    return read


def _rule(pieces: Pieces, node: Map, path: str) -> Rule | None:
    when, statuses = node.get("when"), _statuses(node.get("status"))
    if when is None and not statuses:
        if not node.incomplete:  # else its condition was removed as wrong, and reported
            pieces.mistake(node, "a rule needs `when` or `status`: without one it would match every answer", path)
        return None
    test = pieces.condition(when, HEADERS)
    if when is not None and test is None:
        return None
    at = Fields(node)
    text = text_in(when)
    marks = _marks_of(text, test) if text is not None and test is not None else None
    return Rule(
        at.text("verdict", "next"),  # type: ignore[arg-type]
        at.text("alarm", None),  # type: ignore[arg-type]
        frozenset(statuses) or None,
        test,
        at.integer("as", None),
        _reads(pieces, node),
        marks,
    )


def _marks_of(expression: str, holds: Read) -> tuple[bytes, ...] | None:
    """Byte strings of which a JSON text must contain at least one for the expression, compiled as `holds`, to be true;
    None if that is not known.

    "$.base_resp.status_code" -> (b'"base_resp"',); "$.choices[0].why == 'broken'" -> (b'"broken"',), which is rarer.
    A body without any of the fields gives the same result as an empty object: a condition that is true for one has no
    marks.
    """
    if word := _ONE_WORD.fullmatch(expression.strip()):
        return (f'"{word[1]}"'.encode(),)
    names = set(_FIELD.findall(expression))
    if _BEYOND_FIELDS.search(expression) or not names or not all(name.isascii() for name in names):
        return None
    return None if holds({}, answer_headers={}) else tuple(sorted(b'"' + name.encode() + b'"' for name in names))


def _warn_of_silence(pieces: Pieces, node: Map, rule: Rule, path: str) -> None:
    """Warn of a rule for successes that is also true for an empty body: it is asked for the events of a stream too,
    and most of these have none of the fields of a whole answer (`!=` with an absent value is true)."""
    if rule.judges_success and rule.when is not None and rule.when({}, **{HEADERS: {}}):
        pieces.warn(
            node.get("when") or node,
            "this holds where what it looks at is absent, so an event of a stream without it is an error",
            f"{path}.when",
            "`$.code is present and $.code != 0`",
        )


def _reads(pieces: Pieces, node: Map) -> dict[str, Read]:
    readers = {
        name: pieces.reader(node.get(name), HEADERS, *(("now",) if name == "retry_after" else ()))
        for name in ERROR_FIELDS
    }
    return {name: read for name, read in readers.items() if read is not None}


def _statuses(node: Node | None) -> tuple[int, ...]:
    return tuple(item.value for item in one_or_many(node) if isinstance(item, Scalar) and type(item.value) is int)
