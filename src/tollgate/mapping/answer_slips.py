"""Slips in how answers are read (`to_hub`) that no single template shows: token counts from the wrong field, an item
of a list whose index was forgotten, parts without a name or a key, and a stream that never says why it ended.

These are warnings: a provider may use any name for anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tollgate.config.load import Map, Mark, Node, Scalar, entries_of, lookup, text_in, walk
from tollgate.mapping.filter_table import FILTERS
from tollgate.mapping.hub import USAGE_FIELDS
from tollgate.mapping.hub_shapes import shape
from tollgate.mapping.scalars import kind_by_form
from tollgate.mapping.scope import Unit
from tollgate.mapping.streams.operations import OPERATIONS
from tollgate.mapping.values import KIND_WORDS

_SAID_BY = {
    "input": re.compile(r"input|prompt", re.IGNORECASE),
    "output": re.compile(r"output|completion|generated", re.IGNORECASE),
}
"""The words of a count's name that say whether it is about the prompt or the answer."""
_OTHER = {"input": "output", "output": "input"}
_ITEM = re.compile(r"(\$\w*(?:\.\w+)+)\[(?:-?\d+|\*)\]")
"""A path as far as the list of which it reads one item, or all."""
_FIELD = re.compile(r"\$\w*(?:\.\w+)+")
_FIELDS = re.compile(r"\$\w*(?:\.\w+){2,}")

OF_PARTS = ("open", "delta", "close", "part")
"""The operations of a stream that are about a part."""

Slip = tuple[Node, str, str]
"""The node, what is wrong with it, and a hint."""


def check_answers(unit: Unit, root: Map) -> None:
    """Warn of all such slips in a mapping file."""
    for section in ("response", "stream", "error"):
        node = lookup(root, section, "to_hub")
        for found in _forgotten_indexes(node) if node is not None else ():
            unit.warn(*found)
    stream = root.get("stream")
    if isinstance(stream, Map) and "to_hub" in stream.entries:
        operations = list(operations_in(stream.entries["to_hub"]))
        _check_named_calls(unit, operations)
        _check_keys(unit, operations)
        _check_said(unit, stream.keys["to_hub"], {name for name, _ in operations}, root)


def _check_said(unit: Unit, at: Mark, said: set[str], root: Map) -> None:
    """Warn if no rule of a stream says why it ended, or how many tokens it took where whole answers say that."""
    if "stop" not in said:
        unit.warn(
            at,
            "no rule says `stop`: an answer whose stream does not end with [DONE] counts as broken off",
            "such as {$when: $.done, stop: {reason: end}}",
        )
    if "usage" not in said and lookup(root, "response", "to_hub", "usage") is not None:
        unit.warn(
            at,
            "no rule says `usage`, which whole answers have: the tokens of every stream are estimated",
            "such as {$when: $.usage, usage: {input: $.usage.in, output: $.usage.out}}",
        )


def _check_named_calls(unit: Unit, operations: list[tuple[str, Node]]) -> None:
    """Warn if stream rules make calls of tools and never say which tool."""
    parts = [value for name, value in operations if name in OF_PARTS]
    calls = [value for value in parts if text_in(lookup(value, "kind")) == "tool_call"]
    if calls and not any(lookup(value, "name") for value in parts):
        unit.warn(calls[0], "no rule gives the `name` of a call, so nobody knows which tool it is", "name: $.name")


def _check_keys(unit: Unit, operations: list[tuple[str, Node]]) -> None:
    """Warn of a part that is opened without the `key` by which other rules speak of such parts: these would open
    another one."""
    keyed = {
        text_in(lookup(value, "kind"))
        for name, value in operations
        if name in ("delta", "close") and lookup(value, "key")
    }
    for name, value in operations:
        kind = text_in(lookup(value, "kind"))
        if name == "open" and kind in keyed and kind is not None and lookup(value, "key") is None:
            unit.warn(value, f"found no `key`, which other rules for `{kind}` have: to them this part is another one")


def operations_in(node: Node) -> Iterator[tuple[str, Node]]:
    """The operations of stream rules with their values, wherever they are."""
    for rule in walk(node):
        names = {key for key in entries_of(rule) if not key.startswith("$")}
        if names <= OPERATIONS.keys() and "$match" not in entries_of(rule):
            yield from ((name, entries_of(rule)[name]) for name in names)


def count_slips(counts: Map) -> Iterator[Slip]:
    """The slips in a hub usage as it is written, a map of counts."""
    read: dict[str, str] = {}
    for name, node in counts.entries.items():
        text = text_in(node) or ""
        kinds = shape("usage").fields[name].kinds if name in USAGE_FIELDS else ()
        if (kind := kind_by_form(text, FILTERS)) in KIND_WORDS and kinds == ("number",) and kind != "number":
            yield node, f"`{name}` is a number, found {KIND_WORDS[kind]}", ""
        if name.startswith("$") or not _FIELD.fullmatch(text):
            continue
        if (first := read.setdefault(text, name)) != name and "total" not in (first, name):
            yield node, f"`{name}` is read from the field of `{first}`, so these tokens are counted twice", ""
        field = text.rpartition(".")[2]
        other = _OTHER.get(name)
        if other and _SAID_BY[other].search(field) and not _SAID_BY[name].search(field):
            yield node, f"`{name}` is read from `{field}`, which by its name counts the {other}", ""


def _forgotten_indexes(section: Node) -> Iterator[Slip]:
    """Fields read of what other lines of a section read as a list: `$.choices.message` beside `$.choices[0].delta`."""
    texts = [(node, text) for node in walk(section) if isinstance(node, Scalar) and (text := text_in(node))]
    lists = {path for _, text in texts for path in _ITEM.findall(text)}
    for node, text in texts if lists else ():
        for path in _FIELDS.findall(text):
            steps = path.split(".")
            for length in range(2, len(steps)):
                held = ".".join(steps[:length])
                if held in lists:
                    message = f"`{held}` is a list elsewhere, so `{path}` finds nothing there"
                    yield node, message, f"of its first item: {held}[0].{steps[length]}"
