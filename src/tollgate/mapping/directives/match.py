"""`$match`: choose a case by its label."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tollgate.config.load import Map, Mark, Node, Scalar
from tollgate.mapping import templates
from tollgate.mapping.destinations import Destination, store, used
from tollgate.mapping.directive_table import BEFORE
from tollgate.mapping.expressions import lower
from tollgate.mapping.grammar import is_field, nodes, parse_expression
from tollgate.mapping.narrowing import chosen, field_of
from tollgate.mapping.paths import parse_path
from tollgate.mapping.scalars import NOTHING_WORD, is_literal, literal, lower_scalar, warn_of_nothing
from tollgate.mapping.scope import NOTHING, Lowered, Scope, Site, Spot, Unit, suggest
from tollgate.mapping.slips import quoted

_OWN = (*BEFORE, "$match")
"""Keys beside the labels."""
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_SEVERAL = re.compile(r"[\w.-]+(?:(?:\s*,\s*|\s+or\s+)[\w.-]+)+")
"""How labels that share a case are separated elsewhere."""


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a `$match`."""

    labels: tuple[str, ...]
    absent: bool
    other: bool
    value: Node
    mark: Mark


@dataclass(slots=True)
class Choice:
    """A `$match` once it is read: the subject in a local, the cases in order, and how a case narrows what is read."""

    subject: str
    cases: list[Case]
    scope: Scope
    field: tuple[str, tuple[str, ...]] | None

    def scope_of(self, case: Case) -> Scope:
        """The scope inside a case: reads of the object that is matched on count only for this label."""
        if self.field is None:
            return self.scope.losing(())
        name, path = self.field
        covered = any(other.absent for other in self.cases)
        places = []
        for place in self.scope.names[name].places:
            inner = place.case(path, case.labels) if case.labels else None
            absent = case.absent or case.other and not covered
            if absent or case.other:
                extra = place.otherwise(path, absent=absent, present=case.other)
                if inner is None:
                    inner = extra
                else:
                    extra.links.append(inner)
            if inner is not None:
                places.append(inner)
        return chosen(self.scope, name, path, tuple(places))


def emit(site: Site, node: Map, dest: Destination) -> None:
    """A table look-up if all cases are literals, else a chain of conditions."""
    choice = enter(site, node)
    if choice is None:
        return
    for case in choice.cases:
        if isinstance(case.value, Scalar):
            warn_of_nothing(site.unit, case.value)
        if isinstance(case.value, Scalar) and case.value.value is None:
            site.unit.mistake(
                case.value,
                "null in a choice can mean two things",
                "$nothing leaves it out, {$first: [null]} sends null",
            )
            return
    table = _table(site, node, choice)
    if table is not None:
        store(site, used(table, dest), dest, node.keys["$match"].line)
        return
    chain(site, choice, lambda inner, case: templates.emit(inner, case.value, dest))


def chain(site: Site, choice: Choice, emit_case: Callable[[Site, Case], None]) -> None:
    """if / elif / else over the cases."""
    word = "if"
    other = None
    for case in choice.cases:
        if case.other:
            other = case
            continue
        with site.code.block(f"{word} {_condition(choice.subject, case)}", case.mark.line):
            emit_case(site.inside(choice.scope_of(case)), case)
        word = "elif"
    if other is None:
        return
    if word == "if":
        emit_case(site.inside(choice.scope_of(other)), other)
        return
    with site.code.block("else", other.mark.line):
        emit_case(site.inside(choice.scope_of(other)), other)


def _condition(subject: str, case: Case) -> str:
    tests = []
    if len(case.labels) == 1:
        tests.append(f"{subject} == {case.labels[0]!r}")
    elif case.labels:
        tests.append(f"{subject} in {case.labels!r}")
    if case.absent:
        tests.append(f"{subject} is None")
    return " or ".join(tests)


def enter(site: Site, node: Map) -> Choice | None:
    """Lower the subject and read the labels; None, with the mistake noted, if the `$match` is wrong."""
    entry = node.entries["$match"]
    if not isinstance(entry, Scalar) or not isinstance(entry.value, str) or not entry.value:
        site.unit.mistake(entry, "`$match` takes an expression", "such as $.type")
        return None
    cases = _cases(site, node)
    if cases is None:
        return None
    subject = lower(site, entry.value, Spot(site.unit, entry))
    if subject.kind != "text":
        _warn_of_numbers(site, cases)
    field = None
    if subject.places:
        parsed = parse_expression(entry.value)
        if is_field(parsed.tree, parsed.paths):
            site.unit.compared += [(subject.places, label, case.mark) for case in cases for label in case.labels]
        if isinstance(parsed.tree, nodes.Name):
            field = field_of(site.scope, parse_path(parsed.paths[parsed.tree.name]))
    return Choice(site.local(subject, "m", node.keys["$match"].line), cases, site.scope, field)


def _cases(site: Site, node: Map) -> list[Case] | None:
    """The cases in order; None, with the mistakes noted, if there are none or a label is wrong."""
    unit = site.unit
    cases: list[Case] = []
    seen: dict[str, int] = {}
    good = True
    for key, value in node.entries.items():
        if key in _OWN:
            continue
        mark = node.keys[key]
        words = [word.strip() for word in key.split("|")]
        for word in words:
            good = _check_label(unit, word, mark) and good
            if _SEVERAL.fullmatch(word):
                unit.warn(mark, f"`{word}` is one label", "labels that share a case are written a|b")
            if word in seen:
                unit.mistake(mark, f"label `{word}` is used twice (first at line {seen[word]})")
                good = False
            seen.setdefault(word, mark.line)
        labels = (word.removeprefix("$") for word in words if word not in ("$absent", "$else"))
        cases.append(Case(tuple(labels), "$absent" in words, "$else" in words, value, mark))
    if not cases:
        unit.mistake(node.keys["$match"], "`$match` has no cases")
        return None
    return cases if good else None


def _check_label(unit: Unit, word: str, mark: Mark) -> bool:
    if word.startswith("$") and not word.startswith("$$") and word not in ("$absent", "$else"):
        hint = suggest(word, ("$absent", "$else", *_OWN)) or (
            f"no directive has this name; a label that starts with a dollar is written `${word}`"
        )
        unit.mistake(mark, f"unknown label `{word}`", hint)
        return False
    if word in ("true", "false", "null", "") and not quoted(unit.document, mark):
        hint = "true and false are tested with $when, null is $absent"
        unit.mistake(mark, f"a label is text, and `{word}` is not", hint)
        return False
    return True


def _warn_of_numbers(site: Site, cases: list[Case]) -> None:
    """Warn of a label that is an unquoted number: it matches text only, not a numeric code."""
    for case in cases:
        label = next((label for label in case.labels if _NUMBER.fullmatch(label)), None)
        if label is not None and not quoted(site.unit.document, case.mark):
            site.unit.warn(
                case.mark,
                f"a label is text: `{label}` does not choose the number {label}",
                "`$match: $.code | text` chooses both; a label in quotes says that texts are meant",
            )


def _table(site: Site, node: Map, choice: Choice) -> Lowered | None:
    """All cases literal: one dict look-up. `$else` and `$absent` may be any scalar."""
    table: dict[str, object] = {}
    other: Scalar | None = None
    absent: Scalar | None = None
    for case in choice.cases:
        if not isinstance(case.value, Scalar) or case.labels and not is_literal(case.value):
            return None
        for label in case.labels:
            table[label] = literal(case.value)
        if case.other:
            other = case.value
        if case.absent:
            absent = case.value
    if not table:
        return None
    one = _scalar(site, other)
    two = _scalar(site, absent) if absent is not None else one
    name = site.unit.module.constant(table, "table")
    subject = choice.subject
    miss = one.py if one.py == two.py else f"({two.py} if {subject} is None else {one.py})"
    kinds = {type(value) for value in table.values()}
    kind = (
        "text"
        if kinds == {str} and one.kind in ("text", "any") and one.present and two.kind == "text" and two.present
        else "any"
    )
    looked_up = Lowered(
        f"({name}[{subject}] if type({subject}) is str and {subject} in {name} else {miss})",
        one.present and two.present,
        kind,
        places=one.places + two.places,
    )
    return site.traced(looked_up, node.keys["$match"].line)


def _scalar(site: Site, node: Scalar | None) -> Lowered:
    if node is None or node.value == NOTHING_WORD:
        return NOTHING
    return lower_scalar(site, node)
