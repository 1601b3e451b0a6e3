"""Checks what the templates of a mapping write into the hub: the fields and words that the hub does not have there, and
values of another kind. `hub_words.py` says which templates, and why these are only warnings."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from tollgate.config.load import List, Map, Mark, Node, Scalar, lookup, one_or_many, text_in
from tollgate.mapping import hub
from tollgate.mapping.answer_slips import count_slips
from tollgate.mapping.directives import copy
from tollgate.mapping.hub_shapes import Shape, shape
from tollgate.mapping.scalars import NOTHING_WORD, is_literal, kind_by_form, literal
from tollgate.mapping.scope import Unit, known_words
from tollgate.mapping.values import KIND_WORDS, KINDS

_CALL = re.compile(r"\{\{\s*([a-z_]\w*)\([^()]*\)\s*\}\}\Z")
_OF_DOCUMENT = re.compile(r"\$\.\w+(?:\.\w+)*\Z")
_MADE_BY_CALL = re.compile(r"\$(\w+)(?:\s*,\s*\$\w+)?\s+in\s+([a-z_]\w*)\(.*\)\s*\Z", re.DOTALL)
"""A `$each` over what a function gives."""
_INSIDE = ("$value", "$else", "$absent")
"""Directives whose value is the value of the node; `$first` has several."""


class HubWrites:
    """A walk over the templates that make hub values."""

    def __init__(self, unit: Unit, own_kinds: frozenset[str]) -> None:
        self._unit = unit
        self._own_kinds = own_kinds
        self._seen: dict[Node, set[Shape]] = defaultdict(set)
        """The shapes for which each node was checked."""
        self._unknown: dict[tuple[Node, str], list[tuple[Shape, Mark]]] = defaultdict(list)
        self._counts: list[Map] = []
        """Where token counts are written."""
        self._all_counts_known = True

    def visit(self, node: Node, of: Shape, *, item: bool = False) -> None:
        """Check what `node` writes to a place of this shape; `item`: into a list, where a list adds its own items."""
        if not of.known or of in self._seen[node]:
            return
        self._seen[node].add(of)
        if isinstance(node, Scalar):
            self._scalar(node, of, item)
        elif isinstance(node, List):
            if not item:
                self._kind(node, of, "list")
            for each in node.items:
                self.visit(each, of.one, item=True)
        else:
            self._map(node, of, item)

    def warn_of_unknown(self) -> None:
        """Warn of the fields that no shape of their place has."""
        for (node, word), found in self._unknown.items():
            if len(found) == len(self._seen[node]):
                of, mark = found[0]
                if of.words:
                    self._unit.warn(mark, f"the hub's `{of.name}` is never `{word}`", known_words(word, of.words))
                else:
                    self._unit.warn(mark, f"the hub's {of.name} has no field `{word}`", known_words(word, of.fields))

    def warn_of_uncounted(self, wanted: tuple[str, ...]) -> None:
        """Warn if some tokens are counted and those `wanted` are not, anywhere in the file."""
        written = {name for counts in self._counts for name in counts.entries if not name.startswith("$")}
        missing = [name for name in wanted if name not in written]
        misspelt = not written <= shape("usage").fields.keys()  # which has its own warning
        if written and missing and "total" not in written and self._all_counts_known and not misspelt:
            names = " and no ".join(f"`{name}`" for name in missing)
            self._unit.warn(self._counts[0], f"found no {names}: these tokens are estimated, and so is their cost")

    def _usage(self, counts: Map) -> None:
        self._counts.append(counts)
        self._all_counts_known &= not {"$copy", "$value", "$first"} & counts.entries.keys()
        for found in count_slips(counts):
            self._unit.warn(*found)

    def _kind(self, node: Node, of: Shape, kind: str) -> None:
        """Warn of a value of a kind that the place cannot have."""
        if not of.kinds or kind in of.kinds or kind not in KIND_WORDS or self._has_warning(node):
            return
        found, hint = KIND_WORDS[kind], ""
        if isinstance(node, Scalar):
            literally = is_literal(node)
            found = (
                f"the text `{node.text}`" if kind == "text" and literally else f"`{node.text}`" if literally else found
            )
            hint = f"a path begins with $, such as $.{node.text}" if kind == "text" and literally else ""
        elif "text" in of.kinds and not of.words:
            hint = 'as JSON text: "{{ $.value | json }}"'
        wanted = " or ".join(KIND_WORDS[each] for each in of.kinds)
        self._unit.warn(node, f"the hub's `{of.name}` is {wanted}, found {found}", hint)

    def _scalar(self, node: Scalar, of: Shape, item: bool) -> None:
        text = text_in(node)
        if text is None:
            self._kind(node, of, KINDS[type(literal(node))])
            if node.value is None:
                self._unit.warn(
                    node, f"the hub's `{of.name}` is never null", f"give it a value, or leave `{of.name}` out"
                )
            return
        if text == NOTHING_WORD or of is shape("part").fields["kind"] and text in self._own_kinds:
            return
        if is_literal(node):
            self._kind(node, of, "text")
            if of.words and text not in of.words:
                self._unknown[node, text].append((of, node.mark))
        elif call := _CALL.match(text.strip()):
            self._call(node, call[1], of, item)
        elif of is shape("usage"):
            self._all_counts_known = False
        if (kind := kind_by_form(text, self._unit.filters)) in KIND_WORDS:
            self._kind(node, of, kind)
        elif of.one.fields and _OF_DOCUMENT.match(text):
            self._unit.warn(
                node,
                f"`{text}` is copied as it stands: of the hub's `{of.name}` only its own fields are read",
                "write each of them: {" + ", ".join(f"{key}: ..." for key in list(of.one.fields)[:2]) + "}",
            )

    def _call(self, node: Scalar, name: str, of: Shape, item: bool) -> None:
        """Check what a function gives, if it is one of the file."""
        function = self._unit.functions.get(name)
        if function is None or function.node is None:
            return
        if of.fields and isinstance(lookup(function.node, "$value") or function.node, List):
            self._unit.warn(
                node,
                f"`{name}` gives a list where the hub has one {of.name}, so nothing of it would be read",
                f"to put its items here: {{$each: $x in {name}(...)}}",
            )
        self.visit(function.node, of, item=item or bool(of.fields))

    def _items_of_call(self, node: Map, name: str, called: str, of: Shape) -> None:
        """Check the items that a function gives, if the loop over them takes them as they are."""
        function = self._unit.functions.get(called)
        if function is not None and function.node is not None and text_in(node.get("$value")) in (None, f"${name}"):
            self.visit(function.node, of, item=True)

    def _has_warning(self, node: Node) -> bool:
        """Whether this value has a warning already, such as that it looks like a path."""
        return any(
            problem.mark.line == node.mark.line and problem.mark.column - node.mark.column in (0, 1)
            for problem in self._unit.problems
        )

    def _map(self, node: Map, of: Shape, item: bool) -> None:
        fields = {key: value for key, value in node.entries.items() if not key.startswith("$")}
        first = one_or_many(node.get("$first"))
        inside = [*first, *(node.entries[directive] for directive in _INSIDE if directive in node.entries)]
        if "$match" in node.entries:
            inside += fields.values()
        for value in inside:
            self.visit(value, of, item=item)
        if item and not fields and (loop := _MADE_BY_CALL.match(text_in(node.get("$each")) or "")):
            self._items_of_call(node, loop[1], loop[2], of)
        if "$match" in node.entries:
            return
        if of.items is not None and fields:
            self._unit.warn(
                node,
                f"the hub's `{of.name}` is a list, and this is one of its items",
                "put it into [ ], or a dash before it",
            )
        of = of.one
        if fields or "$copy" in node.entries:
            self._kind(node, of, "object")
        if of.fields and (of.name != "part" or self._part(node, of, fields)):
            self._fields(node, of, fields)

    def _part(self, node: Map, of: Shape, fields: Mapping[str, Node]) -> bool:
        """Check the kind of a part, and whether it has what parts of this kind need. False for one of the mapping's own
        kind, which may have any fields."""
        kind = fields.get("kind")
        if isinstance(kind, Scalar) and is_literal(kind) and kind.value not in hub.KINDS:
            self.visit(kind, of.fields["kind"])
            return False
        if not fields or "$copy" in node.entries:
            return True
        if kind is None:
            self._unit.warn(node, "a part without a `kind` is none, so nothing of it is sent", "such as kind: text")
        elif isinstance(kind, Scalar) and fields.keys() <= of.fields.keys():  # a misspelt one has its own warning
            for name in hub.PARTS.get(str(kind.value), {}).get("required", ()):
                if name not in fields:
                    self._unit.warn(node, f"found no `{name}`: a part of kind `{kind.value}` has one")
        return True

    def _fields(self, node: Map, of: Shape, fields: Mapping[str, Node]) -> None:
        """Check the fields of an object, and note those that the hub does not have here."""
        if of is shape("usage"):
            self._usage(node)
        for key, value in fields.items():
            if key in of.fields:
                self.visit(value, of.fields[key])
            elif not _only_lost(value):
                self._unknown[node, key].append((of, node.keys[key]))
        for name in copy.listed(node):
            if name.value not in of.fields:
                self._unknown[node, str(name.value)].append((of, name.mark))


def _only_lost(node: Node | None) -> bool:
    """Whether a value is never present: the place only reports a loss."""
    if isinstance(node, Map):
        return (
            "$lost" in node.entries
            or "$value" in node.entries
            and _only_lost(node.entries["$value"])
            and _only_lost(node.get("$else"))
        )
    return node is None or isinstance(node, Scalar) and node.value == NOTHING_WORD
