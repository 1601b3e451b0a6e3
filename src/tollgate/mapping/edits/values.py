"""The verbs that replace one value by another: default, set, clamp, values."""

from __future__ import annotations

from tollgate.config.load import List, Map, Node, Scalar, plain
from tollgate.mapping.edits.place import Slot
from tollgate.mapping.scalars import NOTHING_WORD, is_literal, literal
from tollgate.mapping.scope import Lowered, Var
from tollgate.mapping.templates import value_of


def write(slot: Slot, verb: str, node: Node) -> None:
    """The verb's work on one value; `node` is the value in the file. Mistakes are noted in the unit."""
    _WRITERS[verb](slot, node)


def _default(slot: Slot, node: Node) -> None:
    with slot.place.block(f"if {slot.value} is None"):
        _assign(slot, node)


def _assign(slot: Slot, node: Node) -> None:
    if isinstance(node, Scalar) and node.value is None:
        slot.put("None")  # a literal null is sent as null
        return
    made = _lowered(slot, node)
    if made.present:
        slot.put(made.py)
        return
    name = slot.place.temp("s")
    slot.place.add(f"{name} = {made.py}")
    # The value that is there already is not written: the client's own bytes are sent where no edit changes anything.
    with slot.place.block(f"if {name} is not None and {name} is not {slot.value}"):
        slot.put(name)


def _lowered(slot: Slot, node: Node) -> Lowered:
    site = slot.place.site
    scope = site.scope.with_names(Var("old", slot.value), Var("parent", slot.parent, slot.parent_places))
    return value_of(site.inside(scope), node).take()


def _clamp(slot: Slot, node: Node) -> None:
    place, value, mistake = slot.place, slot.value, slot.place.site.unit.mistake
    if not isinstance(node, List) or len(node.items) != 2:
        hint = "such as `clamp: {temperature: [0, 2]}`; null leaves an end open"
        mistake(node, "`clamp` takes [lowest, highest]", hint)
        return
    ends = [plain(end, floats=True) for end in node.items]
    for end, at in zip(ends, node.items, strict=True):
        if not (end is None or type(end) in (int, float) or isinstance(end, str) and end.startswith(("$", "{{"))):
            mistake(at, "an end of `clamp` is a number, null or a value", "such as `clamp: {temperature: [0, 2]}`")
            return
    numbers = [end for end in ends if isinstance(end, int | float)]
    if len(numbers) == 2 and numbers[0] > numbers[1]:
        mistake(node, f"the lowest ({numbers[0]}) is above the highest ({numbers[1]})")
        return
    with place.block(f"if type({value}) in NUMBERS"):
        for end, at, sign in zip(ends, node.items, "<>", strict=True):
            if end is None:
                continue
            if isinstance(end, str):
                limit = place.temp("s")
                place.add(f"{limit} = {_lowered(slot, at).py}")
                test = f"type({limit}) in NUMBERS and {value} {sign} {limit}"
            else:
                limit, test = repr(end), f"{value} {sign} {end!r}"
            with place.block(f"if {test}"):
                place.add(f"{value} = {limit}")
                slot.put(value)


def _values(slot: Slot, node: Node) -> None:
    place, value, unit = slot.place, slot.value, slot.place.site.unit
    if not isinstance(node, Map) or not node.entries:
        hint = 'such as `values: {"$.messages[*].role": {developer: system}}`'
        unit.mistake(node, "`values` takes {from: to} for each path", hint)
        return
    table: dict[str, object] = {}
    others: list[tuple[tuple[str, ...], Node]] = []
    for labels, to in node.entries.items():
        names = tuple(label.strip() for label in labels.split("|"))
        if isinstance(to, Scalar) and is_literal(to) and to.value is not None:
            table.update(dict.fromkeys(names, literal(to)))
        else:
            others.append((names, to))
    label = place.temp("l")
    place.add(f"{label} = {value} if type({value}) is str else label_of({value})")
    word = "if"
    if table:
        known = unit.module.constant(table, "T")
        with place.block(f"if {label} in {known}"):
            slot.put(f"{known}[{label}]")
        word = "elif"
    for names, to in others:
        with place.block(f"{word} {label} in {names!r}"):
            if not isinstance(to, Scalar) or to.value != NOTHING_WORD:
                _assign(slot, to)
            elif slot.take_out is not None:
                slot.take_out()
            else:
                unit.mistake(to, "`$nothing` takes out a field, not an item of a list", "use `drop` with a filter")
        word = "elif"


_WRITERS = {"default": _default, "set": _assign, "clamp": _clamp, "values": _values}
