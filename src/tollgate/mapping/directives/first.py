"""`$first`: the first candidate that is present."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

from tollgate.config.load import List, Map, Node, Scalar
from tollgate.mapping import templates
from tollgate.mapping.destinations import Destination, ToList, ToLocal, named_places, store, used
from tollgate.mapping.emit import Code
from tollgate.mapping.reads import Places
from tollgate.mapping.scalars import NOTHING_WORD, lower_scalar, path_of
from tollgate.mapping.scope import Lowered, Site


def emit(site: Site, node: Map, dest: Destination) -> None:
    """The candidates in order; a literal null at the end is sent as null."""
    candidates = node.entries["$first"]
    if not isinstance(candidates, List) or not candidates.items:
        site.unit.mistake(candidates, "`$first` takes a list of candidates")
        return
    expression = lowered(site, node) if not site.unit.trace else None
    if expression is not None:
        store(site, used(expression, dest), dest, node.mark.line)
        return
    _check(site, candidates)
    if dest.spreads and any(_writes_items(item) for item in candidates.items):
        _emit_items(site, candidates, dest)
        return
    name = site.temp("first")
    held = ToLocal(name, dest.places if isinstance(dest, ToLocal) else None)
    last = candidates.items[-1]
    null = isinstance(last, Scalar) and last.value is None
    certain = null
    for number, item in enumerate(candidates.items[:-1] if null else candidates.items):
        if item is last:
            certain = templates.sure(site, item) or _written_empty(item)
        with site.code.block(f"if {name} is None", item.mark.line) if number else nullcontext():
            _candidate(site, item, held)
    store(site, Lowered(name, certain, atom=True), dest, node.mark.line)


def lowered(site: Site, node: Node) -> Lowered | None:
    """A `$first` of scalars as one expression, which keeps the places of its candidates; None for any other node."""
    candidates = node.get("$first") if isinstance(node, Map) and len(node.entries) == 1 else None
    if not isinstance(candidates, List) or not candidates.items:
        return None
    if not all(isinstance(item, Scalar) and item.value != NOTHING_WORD for item in candidates.items):
        return None
    _check(site, candidates)
    text = ""
    places: Places = ()
    last = len(candidates.items) - 1
    for number, item in enumerate(candidates.items):
        one = lower_scalar(site, item)  # type: ignore[arg-type]
        places += one.places
        if number == last or one.present:  # candidates after one that is always present are never reached
            return Lowered(f"{text}{one.py}{')' * number}", one.present, "any" if number else one.kind, places=places)
        bound, name = site.bound(one)
        text += f"({name} if {bound} is not None else "
    return None


def _emit_items(site: Site, candidates: List, dest: Destination) -> None:
    """The items of the first candidate that has some, for candidates that are lists written in a list."""
    written = any(isinstance(item, List) for item in candidates.items)
    if written and not all(map(_writes_items, candidates.items)):
        message = "in a list, the candidates of `$first` are all lists or all single values"
        site.unit.mistake(candidates, message, 'a list as one item: "{{ $.a or [] }}"')
        return
    items = ToList(site.temp("list"), named_places(dest))
    site.code.add(f"{items.target} = []", candidates.mark.line)
    for number, item in enumerate(candidates.items):
        with site.code.block(f"if not {items.target}", item.mark.line) if number else nullcontext():
            templates.emit(site, item, items)
    with site.code.block(f"for item_{items.target} in {items.target}", candidates.mark.line):
        site.code.add(dest.put(f"item_{items.target}"), candidates.mark.line)


def _writes_items(node: Node) -> bool:
    """Whether a candidate may be a list that is written out, which adds its items to the list it stands in."""
    if isinstance(node, List):
        return True
    if not isinstance(node, Map):
        return False
    values = ["$value", "$else"] if "$match" not in node.entries else list(node.entries)
    return any(key in node.entries and _writes_items(node.entries[key]) for key in values)


def _candidate(site: Site, item: Node, dest: ToLocal) -> None:
    if (
        isinstance(item, Scalar)
        and item.value == NOTHING_WORD
        or (not isinstance(item, Scalar) and not templates.sure(site, item))
    ):
        site.code.add(f"{dest.name} = None", item.mark.line)
    templates.emit(site, item, dest)


def _written_empty(item: Node) -> bool:
    return isinstance(item, List) and not item.items or isinstance(item, Map) and not item.entries


def _check(site: Site, candidates: List) -> None:
    """Note two kinds of mistakes: a candidate after one that is always present, and a condition without `$else`
    whose value may be absent."""
    for number, item in enumerate(candidates.items):
        last = number == len(candidates.items) - 1
        if isinstance(item, Scalar) and item.value is None and not last:
            site.unit.mistake(item, "null is present, so the candidates after it are never reached", "put it last")
        elif not last and templates.sure(site, item):
            site.unit.warn(candidates.items[number + 1], "never reached: the candidate before it is always present")
        if (
            not last
            and isinstance(item, Map)
            and "$when" in item.entries
            and "$else" not in item.entries
            and not _sure_when_chosen(site, item)
        ):
            site.unit.warn(
                item.keys["$when"],
                "when this holds and the value is absent, `$first` goes on to the next candidate",
                "for a choice write $when and $else",
            )


def _sure_when_chosen(site: Site, item: Map) -> bool:
    """Whether a candidate is always present once its condition holds."""
    scratch = replace(site, code=Code(site.unit.module, "", item.mark.line))  # this code is thrown away
    condition = item.entries["$when"]

    def certain(node: Node) -> bool:
        if templates.sure(scratch, node):
            return True
        if not isinstance(node, Scalar) or node.value == NOTHING_WORD:
            return False
        path = path_of(node)
        if path is not None and isinstance(condition, Scalar) and path.text in str(condition.value):
            return True  # the condition tests this value, or something inside it
        return lower_scalar(scratch, node).present

    if "$value" in item.entries:
        return certain(item.entries["$value"])
    return any(not key.startswith("$") and certain(value) for key, value in item.entries.items())
