"""Finds fields and words of the hub that a mapping misspells: those it writes or reads and the hub does not have.

The compiler cannot see this in a single path or template, because any field is possible. These are warnings, because a
hub value may also carry fields of a mapping's own. If a value can be at several places, a field is unknown only if none
of them has it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from tollgate.config.load import List, Map, Mark, Node, Scalar, entries_of, lookup, one_or_many, text_in, walk
from tollgate.mapping import hub
from tollgate.mapping.answer_slips import OF_PARTS, count_slips, operations_in
from tollgate.mapping.call_checks import misfits, skipped_items
from tollgate.mapping.directives import copy
from tollgate.mapping.hub_shapes import ANYTHING, Shape, of_kind, shape
from tollgate.mapping.reads import Places, Reads
from tollgate.mapping.scalars import NOTHING_WORD, is_literal, kind_by_form, literal
from tollgate.mapping.scope import Unit, known_words
from tollgate.mapping.values import KIND_WORDS, KINDS

_CALL = re.compile(r"\{\{\s*([a-z_]\w*)\([^()]*\)\s*\}\}\Z")
_OF_DOCUMENT = re.compile(r"\$\.\w+(?:\.\w+)*\Z")
_MADE_BY_CALL = re.compile(r"\$(\w+)(?:\s*,\s*\$\w+)?\s+in\s+([a-z_]\w*)\(.*\)\s*\Z", re.DOTALL)
"""A `$each` over what a function gives."""
_INSIDE = ("$value", "$else", "$absent")
"""Directives whose value is the value of the node; `$first` has several."""
_AS_NUMBER = "a number is compared without quotes, or as `$.x | text`"
_ShapesAt = Mapping[Reads, set[Shape]]


def check_hub_words(unit: Unit, root: Map, reads: Mapping[str, Reads], family: str) -> None:
    """Warn of every hub field that a mapping file writes or reads and the hub does not have."""
    kind = f"{family}_" if family else ""
    shapes = {"request": shape(f"{kind}request"), "response": shape(f"{kind}response"), "error": shape("error")}
    writes = _Writes(unit, _kinds_read(unit, root))
    places: dict[Reads, set[Shape]] = defaultdict(set)
    for section, of in shapes.items():
        if (node := lookup(root, section, "to_hub")) is not None:
            writes.visit(node, of)
        if (node := lookup(root, section, "from_hub")) is not None:
            name = f"{section}.from_hub"
            for place, found in _check_reads(unit, root, name, node, reads[name], of).items():
                places[place] |= found
    _check_compared(unit, root, places)
    _check_filtered(unit, places)
    stream = root.get("stream")
    if isinstance(stream, Map) and "to_hub" in stream.entries:
        _check_rules(unit, stream, writes)
    writes.warn_of_unknown()
    writes.warn_of_uncounted(("input",) if family else ("input", "output"))


def _check_rules(unit: Unit, stream: Map, writes: _Writes) -> None:
    """Check what the rules of a stream write into the hub."""
    operations = list(operations_in(stream.entries["to_hub"]))
    answer, part = shape("response").fields, shape("part").fields
    fields = {"start": answer, "stop": {"reason": answer["stop"], "text": answer["stop_text"]}}
    fields |= {"error": shape("error").fields, **dict.fromkeys(OF_PARTS, part)}
    for name, value in operations:
        if name == "usage":
            writes.visit(value, shape("usage"))
        for key, each in entries_of(value).items() if name in fields else ():
            if key in fields[name]:
                writes.visit(each, fields[name][key])


class _Writes:
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

    def _usage(self, counts: Map) -> None:
        self._counts.append(counts)
        self._all_counts_known &= not {"$copy", "$value", "$first"} & counts.entries.keys()
        for found in count_slips(counts):
            self._unit.warn(*found)

    def warn_of_uncounted(self, wanted: tuple[str, ...]) -> None:
        """Warn if some tokens are counted and those `wanted` are not, anywhere in the file."""
        written = {name for counts in self._counts for name in counts.entries if not name.startswith("$")}
        missing = [name for name in wanted if name not in written]
        misspelt = not written <= shape("usage").fields.keys()  # which has its own warning
        if written and missing and "total" not in written and self._all_counts_known and not misspelt:
            names = " and no ".join(f"`{name}`" for name in missing)
            self._unit.warn(self._counts[0], f"found no {names}: these tokens are estimated, and so is their cost")

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

    def warn_of_unknown(self) -> None:
        """Warn of the fields that no shape of their place has."""
        for (node, word), found in self._unknown.items():
            if len(found) == len(self._seen[node]):
                of, mark = found[0]
                if of.words:
                    self._unit.warn(mark, f"the hub's `{of.name}` is never `{word}`", known_words(word, of.words))
                else:
                    self._unit.warn(mark, f"the hub's {of.name} has no field `{word}`", known_words(word, of.fields))

    def _scalar(self, node: Scalar, of: Shape, item: bool) -> None:
        text = text_in(node)
        if text is None:
            self._kind(node, of, KINDS[type(literal(node))])
            return
        if text == NOTHING_WORD or of is shape("part").fields["kind"] and text in self._own_kinds:
            return
        if is_literal(node):
            self._kind(node, of, "text")
            if of.words and text not in of.words:
                self._unknown[node, text].append((of, node.mark))
        elif call := _CALL.match(text.strip()):
            function = self._unit.functions.get(call[1])
            if function is not None and function.node is not None:
                if of.fields and isinstance(lookup(function.node, "$value") or function.node, List):
                    self._unit.warn(
                        node,
                        f"`{call[1]}` gives a list where the hub has one {of.name}, so nothing of it would be read",
                        f"to put its items here: {{$each: $x in {call[1]}(...)}}",
                    )
                self.visit(function.node, of, item=item or bool(of.fields))
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


def _check_reads(unit: Unit, root: Map, section: str, node: Node, reads: Reads, of: Shape) -> _ShapesAt:
    """Warn of reads of what the hub does not have; returns the shapes of each place that is read."""
    found = _shapes_at(reads, of)
    if section == "request.from_hub":
        turns = [place for place, shapes in found.items() if of.fields.get("turns") in shapes]
        all_seen = any(place.walked or place.whole or place.made for place in turns)
        if any(place.items for place in turns) and not all_seen:
            unit.warn(
                _where(root, node, "turns"),
                "one of the `turns` is read and never all of them: what the others say would be lost without a word",
                "{$each: $t in $.turns}, or $refuse more than one",
            )
    for place, shapes in found.items():
        if all(at.items is not None and not place.gathered for at in shapes):
            name = next(iter(shapes)).name
            for key in place.fields:
                unit.warn(
                    _where(root, node, f"{name}.{key}"),
                    f"{section} reads `{key}` of `{name}`, which is a list, so nothing is found",
                    f"of each of them: {name}[*].{key}",
                )
        elif all(at.one.fields for at in shapes):
            first = min(shapes, key=lambda at: at.one.of_kind).one
            name = f"{first.name} of kind `{first.of_kind}`" if first.of_kind else first.name
            is_answer_part = section == "response.from_hub" and first.name == "part"  # one of `$whole`: see `Run.whole`
            for key in place.fields:
                if not (is_answer_part and key in ("item", "cut")) and not any(key in at.one.fields for at in shapes):
                    unit.warn(
                        _where(root, node, key, first.of_kind),
                        f"{section} reads `{key}`, which the hub's {name} does not have",
                        known_words(key, first.fields),
                    )
    return found


def _shapes_at(reads: Reads, of: Shape) -> _ShapesAt:
    """The shapes of each place that a section reads; its document has the shape `of`."""
    found: dict[Reads, set[Shape]] = defaultdict(set)
    waiting = [(reads, of)]
    while waiting:
        place, at = waiting.pop()
        if at in found[place]:
            continue
        found[place].add(at)
        waiting += [(other, at) for other in (*place.links, *place.looks)]
        for switch in place.switches:
            by_kind = at.one is shape("part") and switch.path == ("kind",)
            waiting += [(case, of_kind(label) if by_kind else at) for label, case in switch.cases.items()]
            waiting += [(case, at) for case in (switch.absent, switch.other) if case is not None]
        waiting += [(child, at.one.fields.get(key, ANYTHING)) for key, child in place.fields.items()]
        if place.items is not None:
            waiting.append((place.items, at.one))
    return found


def _check_compared(unit: Unit, root: Map, places: _ShapesAt) -> None:
    """Warn of words that a hub value is compared with and can never be."""
    for read, word, mark in unit.compared:
        shapes = _shapes_of(read, places)
        kinds = _kinds_of(shapes)
        if kinds and "text" not in kinds:
            hint = f"{word} without quotes" if word in ("true", "false") else _AS_NUMBER if word.isdigit() else ""
            wanted = " or ".join(KIND_WORDS[kind] for kind in kinds)
            unit.warn(mark, f"the hub's `{shapes[0].name}` is {wanted}, never the text `{word}`", hint)
            continue
        unknown = shapes and all(at.words and word not in at.words for at in shapes)
        if unknown and not _is_written(root, shapes[0].name, word):
            unit.warn(mark, f"the hub's `{shapes[0].name}` is never `{word}`", known_words(word, shapes[0].words))


def _check_filtered(unit: Unit, places: _ShapesAt) -> None:
    """Warn of filters that work on no value that a place of the hub can have."""
    for read, entry, mark in unit.filtered:
        shapes = _shapes_of(read, places)
        kinds = _kinds_of(shapes)
        found = [misfit for kind in kinds for misfit in misfits(entry, [kind])]
        if found and len(found) == len(kinds):
            unit.warn(mark, f"{found[0]}: the hub's `{shapes[0].name}`")
            continue
        items = [at.items for at in shapes if at.items is not None]
        skipped = [skip for kind in _kinds_of(items) for skip in skipped_items(entry, [kind])]
        if skipped and len(items) == len(shapes) and len(skipped) == len(_kinds_of(items)):
            hint = "read a field of each, such as `[*].text`" if items[0].fields else ""
            unit.warn(mark, f"{skipped[0]}: the hub's `{shapes[0].name}`", hint)


def _shapes_of(read: Places, places: _ShapesAt) -> list[Shape]:
    """The shapes of these places, by name; none for places that are not of the hub."""
    return sorted({at for place in read for at in places.get(place, ())}, key=lambda at: at.name)


def _kinds_of(shapes: list[Shape]) -> list[str]:
    """The kinds of values that these shapes allow; none if one allows any."""
    return list(dict.fromkeys(kind for at in shapes for kind in at.kinds)) if all(at.kinds for at in shapes) else []


def _kinds_read(unit: Unit, root: Map) -> frozenset[str]:
    """Words that the file may use as kinds of its own, because it handles them."""
    events = lookup(root, "stream", "from_hub")
    return frozenset(word for _, word, _ in unit.compared) | frozenset(entries_of(events))


def _is_written(root: Map, name: str, word: str) -> bool:
    """Whether a file sets a field to this word itself: `kind: word`, or `{'kind': 'word'}` in an expression."""
    inside = re.compile(rf"(['\"]){re.escape(name)}\1\s*:\s*(['\"]){re.escape(word)}\2")
    for node in walk(root):
        given = text_in(node.get(name) if isinstance(node, Map) else node) or ""
        if isinstance(node, Map) and given == word or inside.search(given):
            return True
    return False


def _where(root: Map, node: Node, key: str, label: str = "") -> Node:
    """The line that reads a field: in a case with this label, else in the section, else in a function, else the section
    itself."""
    word = re.compile(rf"(?<![\w-]){re.escape(key)}(?![\w-])")
    functions = root.get("define")
    trees = [node, functions] if functions is not None else [node]
    maps = [inner.entries for tree in trees for inner in walk(tree) if isinstance(inner, Map)]
    cases = [each for entries in maps if label for words, each in entries.items() if label in words.split("|")]
    for tree in (*cases, *trees):
        for inner in walk(tree):
            text = text_in(inner) or ""
            if isinstance(inner, Scalar) and word.search(text) and (text == key or not is_literal(inner)):
                return inner
    return node
