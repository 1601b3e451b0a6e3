"""The verbs that put a value in the place of another: default, set, clamp, values."""

from __future__ import annotations

from collections.abc import Callable

from tollgate.config.load import List, Map, Node, Scalar, plain
from tollgate.mapping.edits.place import Place
from tollgate.mapping.edits.reading import Edit, Entry
from tollgate.mapping.scalars import NOTHING_WORD, is_literal, literal
from tollgate.mapping.scope import Lowered, Site, Unit, Var
from tollgate.mapping.templates import value_of

Put = Callable[[str], None]
"""Writes the statements that store a Python expression where the old value stood."""


class ValueVerbs:
    """Writes these verbs. `lose` writes what tells a loss (with a condition), or nothing where none is told."""

    def __init__(self, unit: Unit, lose: Callable[[Place, Entry, str], None]) -> None:
        self.unit = unit
        self._lose = lose

    def write(
        self,
        place: Place,
        value: str,
        parent: str,
        edit: Edit,
        entry: Entry,
        put: Put,
        take_out: Callable[[], None] | None,
    ) -> None:
        """The verb's work on the value in local `value`; `parent` is the local that holds it,
        `put` and `take_out` change it there."""
        assert entry.value is not None
        if edit.verb == "values":
            self._values(place, value, parent, entry, put, take_out)
            return
        if edit.verb == "clamp":
            self._clamp(place, value, parent, entry, put)
            return
        if edit.verb == "default":
            with place.block(f"if {value} is None"):
                self._assign(place, value, parent, entry.value, put)
            return
        if edit.why:
            plainly = put

            def put(made: str) -> None:  # what the caller had asked for is gone
                self._lose(place, entry, f"{value} is not None and {value} != {made}")
                plainly(made)

        self._assign(place, value, parent, entry.value, put)

    def _assign(self, place: Place, value: str, parent: str, node: Node, put: Put) -> None:
        if isinstance(node, Scalar) and node.value is None:
            put("None")  # a written null is sent as null
            return
        made = self._lowered(place, value, parent, node)
        if made.present:
            put(made.py)
            return
        name = place.code.temp("s")
        place.add(f"{name} = {made.py}")
        with place.block(f"if {name} is not None"):
            put(name)

    def _lowered(self, place: Place, value: str, parent: str, node: Node) -> Lowered:
        scope = place.scope.with_names(Var("old", value), Var("parent", parent))
        return value_of(Site(self.unit, place.code, scope), node).take()

    def _clamp(self, place: Place, value: str, parent: str, entry: Entry, put: Put) -> None:
        node = entry.value
        if not isinstance(node, List) or len(node.items) != 2:
            self.unit.mistake(
                node or entry.mark,
                "`clamp` takes [lowest, highest]",
                "such as `clamp: {temperature: [0, 2]}`; null leaves an end open",
            )
            return
        ends = [plain(end, floats=True) if isinstance(end, Scalar) else None for end in node.items]
        numbers = [end for end in ends if isinstance(end, (int, float)) and not isinstance(end, bool)]
        for end, node_end in zip(ends, node.items, strict=True):
            if (
                isinstance(end, bool)
                or not isinstance(end, (int, float, type(None)))
                and not str(end).startswith(("$", "{{"))
                or not isinstance(node_end, Scalar)
            ):
                self.unit.mistake(
                    node_end, "an end of `clamp` is a number, null or a value", "such as `clamp: {temperature: [0, 2]}`"
                )
                return
        if len(numbers) == 2 and numbers[0] > numbers[1]:
            self.unit.mistake(node, f"the lowest ({numbers[0]}) is above the highest ({numbers[1]})")
            return
        with place.block(f"if type({value}) in NUMBERS"):
            for end, node_end, sign in zip(ends, node.items, "<>", strict=True):
                if end is None:
                    continue
                if isinstance(end, str):
                    limit = place.code.temp("s")
                    place.add(f"{limit} = {self._lowered(place, value, parent, node_end).py}")
                    test = f"type({limit}) in NUMBERS and {value} {sign} {limit}"
                else:
                    limit, test = repr(end), f"{value} {sign} {end!r}"
                with place.block(f"if {test}"):
                    place.add(f"{value} = {limit}")
                    put(value)

    def _values(
        self, place: Place, value: str, parent: str, entry: Entry, put: Put, take_out: Callable[[], None] | None
    ) -> None:
        node = entry.value
        if not isinstance(node, Map) or not node.entries:
            self.unit.mistake(
                node or entry.mark,
                "`values` takes {from: to} for each path",
                'such as `values: {"$.messages[*].role": {developer: system}}`',
            )
            return
        table: dict[str, object] = {}
        others: list[tuple[tuple[str, ...], Node]] = []
        for labels, to in node.entries.items():
            names = tuple(label.strip() for label in labels.split("|"))
            if isinstance(to, Scalar) and is_literal(to) and to.value is not None:
                table.update(dict.fromkeys(names, literal(to)))
            else:
                others.append((names, to))
        label = place.code.temp("l")
        place.add(f"{label} = {value} if type({value}) is str else label_of({value})")
        word = "if"
        if table:
            known = self.unit.module.constant(table, "T")
            with place.block(f"if {label} in {known}"):
                put(f"{known}[{label}]")
            word = "elif"
        for names, to in others:
            with place.block(f"{word} {label} in {names!r}"):
                if not isinstance(to, Scalar) or to.value != NOTHING_WORD:
                    self._assign(place, value, parent, to, put)
                elif take_out is not None:
                    take_out()
                else:
                    self.unit.mistake(
                        to, "`$nothing` takes out a field, not an item of a list", "use `drop` with a filter"
                    )
            word = "elif"
