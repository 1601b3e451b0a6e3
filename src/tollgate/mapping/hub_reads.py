"""Checks what the sections of a mapping read of the hub: the fields that the hub does not have, the words that a value
can never be, and filters that work on no value of its kind. `hub_words.py` says which sections, and why these are only
warnings."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from tollgate.config.load import Map, Node, Scalar, text_in, walk
from tollgate.mapping.call_checks import misfits, skipped_items
from tollgate.mapping.hub_shapes import ANYTHING, Shape, of_kind, shape
from tollgate.mapping.reads import Places, Reads
from tollgate.mapping.scalars import is_literal
from tollgate.mapping.scope import Unit, known_words
from tollgate.mapping.values import KIND_WORDS

_AS_NUMBER = "a number is compared without quotes, or as `$.x | text`"
ShapesAt = Mapping[Reads, set[Shape]]
"""The shapes of each place that is read."""


def check_reads(unit: Unit, root: Map, section: str, node: Node, reads: Reads, of: Shape) -> ShapesAt:
    """Warn of reads of what the hub does not have; returns the shapes of each place that is read."""
    found = _shapes_at(reads, of)
    if section == "request.from_hub":
        turns = of.fields.get("turns")
        _check_turns(unit, root, node, [place for place, shapes in found.items() if turns in shapes])
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


def _check_turns(unit: Unit, root: Map, node: Node, turns: list[Reads]) -> None:
    """Warn if single turns of a request are read and never all of them; `turns` are the places that stand for them."""
    all_seen = any(place.walked or place.whole or place.made for place in turns)
    if any(place.items for place in turns) and not all_seen:
        unit.warn(
            _where(root, node, "turns"),
            "one of the `turns` is read and never all of them: what the others say would be lost without a word",
            "{$each: $t in $.turns}, or $refuse more than one",
        )


def _shapes_at(reads: Reads, of: Shape) -> ShapesAt:
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


def check_compared(unit: Unit, root: Map, places: ShapesAt) -> None:
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


def check_filtered(unit: Unit, places: ShapesAt) -> None:
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


def _shapes_of(read: Places, places: ShapesAt) -> list[Shape]:
    """The shapes of these places, by name; none for places that are not of the hub."""
    return sorted({at for place in read for at in places.get(place, ())}, key=lambda at: at.name)


def _kinds_of(shapes: list[Shape]) -> list[str]:
    """The kinds of values that these shapes allow; none if one allows any."""
    return list(dict.fromkeys(kind for at in shapes for kind in at.kinds)) if all(at.kinds for at in shapes) else []


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
