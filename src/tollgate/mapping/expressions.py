"""Lowers an expression to Python: takes jinja2's syntax tree, gives one Python expression.

The Python calls only filters, declared functions and the functions of `values.py`, and an attribute is a dict read, so
no sandbox is needed. Truth: absent, false, "", [], {} are false, 0 is true. `==` with an absent value is false, and
`!=` is its opposite; the word `none` tests whether a value is absent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from jinja2.visitor import NodeVisitor

from tollgate.mapping.call_checks import filter_called, function_called, misfits, skipped_items
from tollgate.mapping.expression_reads import ExpressionReads
from tollgate.mapping.filter_table import TESTS
from tollgate.mapping.grammar import Expression, decided, is_field, nodes, parse_expression, words_in
from tollgate.mapping.narrowing import Tested, chooses_plain, narrowing_of
from tollgate.mapping.operators import ARITHMETIC, NOT_TAKEN, comparison, never_fits, one_text, true_of, truth
from tollgate.mapping.path_code import read_by_filter, read_text, reads_of
from tollgate.mapping.paths import ParseError
from tollgate.mapping.scope import NOTHING, Lowered, Site, Spot, suggest, written
from tollgate.mapping.values import KIND_WORDS

BEYOND_NUMBERS = (float("inf"), float("-inf"))
"""What Python makes of a number that is too large for a float. Neither JSON nor Python code can write it."""
TOO_LARGE = "this number is larger than numbers can be (1.8e308)"
_LIST_ALREADY = "a path with [*] is a list already: no brackets around it; two lists are joined by +"


def lower(site: Site, text: str, spot: Spot, *, named: bool = False) -> Lowered:
    """Lower an expression to Python that computes its value. Mistakes are noted in the unit and give an absent value.

    `named`: `$let` gives the value a name. What the value is computed from then counts as read only if the name is
    used as a whole somewhere.
    """
    with _mistakes_noted(spot):
        parsed = parse_expression(text)
        lowering = _Lowering(site, parsed, spot, named=named)
        value = lowering.value(parsed.tree)
        return replace(value, places=value.places + lowering.reads.of_name()) if named else value
    return NOTHING


def lower_test(site: Site, text: str, spot: Spot) -> Tested:
    """Lower an expression to a Python condition, with what is known of the data where it holds. Mistakes are noted in
    the unit and give a condition that never holds."""
    with _mistakes_noted(spot):
        parsed = parse_expression(text)
        lowering = _Lowering(site, parsed, spot)
        condition = lowering.test(parsed.tree)
        return Tested(condition, narrowing_of(parsed.tree, parsed.paths, site.scope), lowering.reads.looked)
    return Tested("False")


@contextmanager
def _mistakes_noted(spot: Spot) -> Iterator[None]:
    """A block that ends early, with the mistake noted, if the expression cannot be parsed or is too long."""
    try:
        yield
    except ParseError as error:
        spot.mistake(error.message, error.offset, error.hint)
    except RecursionError:
        spot.mistake("the expression is too long to compile", 0, "name parts of it with $let")


class _Lowering(NodeVisitor):
    """Lowers one expression. `value`, `taken` and `looked_at` give the same Python; they differ in what counts as
    read, for the loss list: `value` leaves that to its caller, `taken` counts all that is in the value, `looked_at`
    nothing in it."""

    def __init__(self, site: Site, parsed: Expression, spot: Spot, *, named: bool = False) -> None:
        self.site = site
        self.paths = parsed.paths
        self.spot = spot
        self.reads = ExpressionReads(named=named)

    # -- entry points

    def value(self, node: nodes.Node) -> Lowered:
        """A node's value: what the method `visit_...` for its type returns."""
        value: Lowered = self.visit(node)
        return value

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Lowered:
        """Note a node of any other type as a mistake."""
        self._wrong(node, f"{NOT_TAKEN.get(type(node).__name__, type(node).__name__)} is not part of this language")
        return NOTHING

    def taken(self, node: nodes.Node) -> Lowered:
        """A node's value that becomes part of the result as it is, so that everything in it counts as read."""
        return self.used(self.value(node))

    def used(self, value: Lowered) -> Lowered:
        """The same value, with everything in it counted as read."""
        self.reads.take(value.places)
        return value

    def test(self, node: nodes.Node) -> str:
        """A Python condition: whether a node's value counts as true."""
        if isinstance(node, nodes.Not):
            return f"(not {self.test(node.node)})"
        if isinstance(node, nodes.Or):
            self._note_decided(node)
            return f"({self.test(node.left)} or {self.test(node.right)})"
        if isinstance(node, nodes.And):
            self._note_decided(node)
            left, looked = self.test(node.left), self.reads.looked
            with self.assuming(node.left):
                right = self.test(node.right)
            # a `$lost` under this test is about the left side; the right one only restricts it
            self.reads.looked = looked or self.reads.looked
            return f"({left} and {right})"
        return truth(self.site, self.looked_at(node))

    def looked_at(self, node: nodes.Node) -> Lowered:
        """A node's value that is only tested or compared."""
        with self.reads.looking():
            value = self.value(node)
        self.reads.looked += value.places
        return value

    @contextmanager
    def assuming(self, test: nodes.Node, *, holds: bool = True) -> Iterator[None]:
        """Inside this block the test is known to hold (or not to hold). Reads of the field it tests count only for
        such data."""
        before = self.site
        if narrowing := narrowing_of(test, self.paths, before.scope):
            self.site = before.inside((narrowing.inside if holds else narrowing.outside)(before.scope))
        yield
        self.site = before

    # -- leaves

    def visit_Const(self, node: nodes.Const) -> Lowered:
        value = node.value
        if value is None:
            return NOTHING
        if value in BEYOND_NUMBERS:
            self._wrong(node, TOO_LARGE)
            return NOTHING
        return written(value)

    def visit_Name(self, node: nodes.Name) -> Lowered:
        text = self.paths.get(node.name)
        if text is None:
            self._wrong(node, f"unknown word `{node.name}`", _unknown_word_hint(self.site, node.name))
            return NOTHING
        return read_text(self.site, text, self.spot, node.lineno - 1)

    def visit_List(self, node: nodes.List | nodes.Tuple) -> Lowered:
        items = [self.taken(item) for item in node.items]
        kinds = tuple(item.kind for item in items)
        return Lowered("[" + ", ".join(item.py for item in items) + "]", True, "list", items=kinds)

    visit_Tuple = visit_List

    def visit_Dict(self, node: nodes.Dict) -> Lowered:
        pairs = []
        for pair in node.items:
            if not isinstance(pair.key, nodes.Const) or not isinstance(pair.key.value, str):
                self._wrong(pair.key, "a key here must be text in quotes")
                return NOTHING
            pairs.append(f"{pair.key.value!r}: {self.taken(pair.value).py}")
        return Lowered("{" + ", ".join(pairs) + "}", True, "object")

    # -- reads of computed values

    def visit_Getattr(self, node: nodes.Getattr) -> Lowered:
        return self._member(self.value(node.node), node.attr)

    def _member(self, base: Lowered, key: str) -> Lowered:
        name = self.site.temp()
        return Lowered(
            f"({name}.get({key!r}) if type({name} := {base.py}) is dict else None)",
            places=reads_of(base.places, (key,)),
        )

    def visit_Getitem(self, node: nodes.Getitem) -> Lowered:
        base = self.value(node.node)
        if isinstance(node.arg, nodes.Slice):
            if node.arg.step is not None:
                self._wrong(node, "a slice has no step here")
            bounds = [self.taken(bound).py if bound else "None" for bound in (node.arg.start, node.arg.stop)]
            return Lowered(f"part_of({base.py}, {bounds[0]}, {bounds[1]})", places=base.places)
        if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
            return self._member(base, node.arg.value)
        key = self.taken(node.arg)
        if key.kind == "number":  # an item of a list; any other key may name any field
            return Lowered(f"at({base.py}, {key.py})", places=tuple(place.each(one=True) for place in base.places))
        return Lowered(f"at({self.used(base).py}, {key.py})")

    # -- calls

    def visit_Call(self, node: nodes.Call) -> Lowered:
        function = function_called(self.site.unit, self.paths, node, self._wrong)
        if function is None:
            return NOTHING
        function.used = True
        caller = self.site.scope.function
        if caller is not None:
            caller.calls.add(function.name)
        request = self.site.scope.names.get("request")
        if request is not None:
            self.reads.hand_over(request.places, function.request)
        arguments = []
        for argument, reads in zip(node.args, function.reads, strict=True):
            value = self.value(argument)
            self.reads.hand_over(value.places, reads)
            if caller is not None and not isinstance(argument, nodes.Name | nodes.Const):
                caller.computed_calls.append((function.name, self.spot.mark(argument.lineno - 1)))
            arguments.append(value.py)
        call = f"{function.py}({''.join(argument + ', ' for argument in arguments)}C)"
        if self.site.unit.trace:
            call = f"left(C, entered(C, {self.site.out!r}), {call})"
        return Lowered(call)

    def visit_Filter(self, node: nodes.Filter) -> Lowered:
        entry = filter_called(self.site.unit, node, self._wrong)
        if entry is None:
            return NOTHING
        assert node.node is not None  # None only in jinja2's filter blocks, which are not expressions
        value = self.value(node.node)
        places = read_by_filter(entry, value, node.args, self.reads.take)
        given = [self.taken(argument) for argument in node.args]
        for misfit in misfits(entry, [value.kind, *(each.kind for each in given)]):
            self.spot.warn(misfit, (node.lineno or 1) - 1)
        for misfit in skipped_items(entry, value.items):
            self.spot.warn(misfit, (node.lineno or 1) - 1, _LIST_ALREADY if "list" in value.items else "")
        if is_field(node.node, self.paths):
            self.site.unit.filtered.append((value.places, entry, self.spot.mark((node.lineno or 1) - 1)))
        arguments = [each.py for each in given]
        if entry.takes_context:
            arguments.append("C")
        call = self.site.unit.module.constant(entry.run, f"f_{node.name}_")
        if value.present or entry.takes_absent:
            present = entry.total and value.present
            return Lowered(f"{call}({', '.join([value.py, *arguments])})", present, entry.kind, places=places)
        name = self.site.temp()
        kept = f"{name} if type({name}) is {entry.keeps.__name__} else " if entry.keeps is not None else ""
        return Lowered(
            f"(None if ({name} := {value.py}) is None else {kept}{call}({', '.join([name, *arguments])}))",
            kind=entry.kind,
            places=places,
        )

    def visit_Test(self, node: nodes.Test) -> Lowered:
        entry = TESTS.get(node.name)
        if entry is None:
            self._wrong(
                node,
                f"unknown test `is {node.name}`",
                suggest(node.name, TESTS, "is {}") or f"there are {', '.join(TESTS)}; a value is compared with ==",
            )
            return NOTHING
        value = self.looked_at(node.node)
        return Lowered(f"({entry.condition.format(value.py)})", True, "bool")

    # -- operators

    def visit_Compare(self, node: nodes.Compare) -> Lowered:
        if len(node.ops) != 1:
            self._wrong(node, "comparisons are not chained here", "write `a < b and b < c`")
            return NOTHING
        operator, wanted = node.ops[0].op, node.ops[0].expr
        left, right = self.looked_at(node.expr), self.looked_at(wanted)
        if operator in ("in", "notin") and not isinstance(node.expr, nodes.Const):  # compares every item
            for place in right.places:
                place.each()
        self._note_unlike(node, left, right)
        for word in words_in(wanted) if is_field(node.expr, self.paths) else ():
            self.site.unit.compared.append((left.places, word, self.spot.mark(node.expr.lineno - 1)))
        texts = isinstance(wanted, nodes.List) and len(words_in(wanted)) == len(wanted.items)
        return Lowered(f"({comparison(self.site, operator, left, right, texts=texts)})", True, "bool")

    def visit_CondExpr(self, node: nodes.CondExpr) -> Lowered:
        test = self.test(node.test)
        with self.assuming(node.test):
            one = self.value(node.expr1)
        if chooses_plain(node.test, node.expr1, self.paths) and not any(place.computed for place in one.places):
            one = replace(one, places=())
        two = NOTHING
        if node.expr2 is not None:
            with self.assuming(node.test, holds=False):
                two = self.value(node.expr2)
        kind = one.kind if one.kind == two.kind or two is NOTHING else "any"
        return Lowered(
            f"({one.py} if {test} else {two.py})", one.present and two.present, kind, places=one.places + two.places
        )

    def visit_Or(self, node: nodes.Or) -> Lowered:
        self._note_decided(node)
        values = [self.value(operand) for operand in _operands(node)]
        if all(value.kind == "bool" and value.present for value in values):
            return Lowered(f"({' or '.join(value.py for value in values)})", True, "bool")
        *before, last = values
        text = last.py
        for value in reversed(before):  # nested, so that no value is tested twice
            condition, name = true_of(self.site, value)
            text = f"({name} if {condition} else {text})"
        kind = last.kind if all(value.kind == last.kind for value in before) else "any"
        return Lowered(text, last.present, kind, places=tuple(place for value in values for place in value.places))

    def visit_And(self, node: nodes.And) -> Lowered:
        self._note_decided(node)
        left = self.value(node.left)
        with self.assuming(node.left):
            right = self.value(node.right)
        if left.kind == right.kind == "bool" and left.present and right.present:
            return Lowered(f"({left.py} and {right.py})", True, "bool")
        condition, name = true_of(self.site, left)
        return Lowered(f"({right.py} if {condition} else {name})", left.present and right.present, places=right.places)

    def visit_Not(self, node: nodes.Not) -> Lowered:
        return Lowered(f"(not {self.test(node.node)})", True, "bool")

    def visit_Concat(self, node: nodes.Concat) -> Lowered:
        return one_text(self.site, [self.taken(part) for part in node.nodes])

    def visit_Add(self, node: nodes.BinExpr) -> Lowered:
        call = ARITHMETIC[type(node)]
        left, right = self.taken(node.left), self.taken(node.right)
        if misfit := never_fits(call, left.kind, right.kind):
            filtered = left.kind == "list" and isinstance(node.right, nodes.Filter)
            self._wrong(node, misfit, _OF_BOTH if filtered else _AS_TEXT if "text" in (left.kind, right.kind) else "")
        return Lowered(
            f"{call}({left.py}, {right.py})",
            left.present and right.present and call in ("add", "subtract", "multiply"),
            "any" if call == "add" and not left.kind == right.kind == "number" else "number",
        )

    visit_Sub = visit_Mul = visit_Div = visit_FloorDiv = visit_Mod = visit_Add

    def visit_Neg(self, node: nodes.Neg) -> Lowered:
        value = self.taken(node.node)
        if misfit := never_fits("subtract", "number", value.kind):
            self._wrong(node, misfit)
        if isinstance(node.node, nodes.Const) and value.kind == "number":
            return written(-node.node.value)
        return Lowered(f"negative({value.py})", value.present, "number")

    def _note_decided(self, node: nodes.And | nodes.Or) -> None:
        """Warn of a condition that is the same for all data."""
        if (name := decided(node, self.paths)) is not None:
            path, both = self.paths[name.name], isinstance(node, nodes.And)
            message = f"this {'never' if both else 'always'} holds: `{path}` cannot have both values"
            hint = f"write {path} {'in' if both else 'not in'} ['a', 'b']"
            self.spot.warn(message, name.lineno - 1, hint)

    def _note_unlike(self, node: nodes.Compare, left: Lowered, right: Lowered) -> None:
        """Warn of a comparison whose two sides are of different kinds whatever the data, and of one of a value with
        itself."""
        one, two = KIND_WORDS.get(left.kind), KIND_WORDS.get(right.kind)
        if node.ops[0].op in ("eq", "ne") and one and two and one != two:
            self.spot.warn(f"{one} and {two} are never equal", node.expr.lineno - 1, _AS_NUMBER)
        elif isinstance(node.expr, nodes.Name) and isinstance(same := node.ops[0].expr, nodes.Name):
            path = self.paths.get(node.expr.name)
            if path is not None and path == self.paths.get(same.name):
                self.spot.warn(f"`{path}` is compared with itself", same.lineno - 1)

    def _wrong(self, node: nodes.Node, message: str, hint: str = "") -> None:
        self.spot.mistake(message, (node.lineno or 1) - 1, hint)


_OF_BOTH = "a filter takes only what stands right before it: for both write (a + b) | filter"
_AS_NUMBER = "a number, true and false are written without quotes"
_AS_TEXT = "`~` joins values as text, `| number` reads a number"


def _unknown_word_hint(site: Site, word: str) -> str:
    names = site.scope.names
    if word == "null":
        return "write `none`, or test with `is absent`"
    if word in names:
        return f"data names start with $: did you mean `${word}`?"
    if word in site.unit.functions:
        return f"a function is called: `{word}(...)`"
    return suggest(word, filter(None, names), "${}") or "data names start with $; text stands in quotes"


def _operands(node: nodes.Node) -> list[nodes.Node]:
    """The operands of a chain of `or`: a or b or c -> [a, b, c]"""
    return [*_operands(node.left), node.right] if isinstance(node, nodes.Or) else [node]
