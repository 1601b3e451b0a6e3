"""Lowers comparisons, truth tests and the joining of text: operands that are lowered already in, Python out. Also
which function of `values.py` each arithmetic operator calls."""

from __future__ import annotations

from tollgate.mapping.grammar import nodes
from tollgate.mapping.scope import Lowered, Site
from tollgate.mapping.values import KIND_WORDS

ARITHMETIC = {
    nodes.Add: "add",
    nodes.Sub: "subtract",
    nodes.Mul: "multiply",
    nodes.Div: "divide",
    nodes.FloorDiv: "divide_whole",
    nodes.Mod: "remainder",
}
_VERBS = {"divide_whole": "divide", "remainder": "divide"}
"""The verbs of operations in messages, where they differ from the function's name."""
NOT_TAKEN = {"Pow": "`**`", "Pos": "a leading `+`", "TemplateData": "text without quotes"}
"""Parts of jinja2's grammar that this language does not have, for messages."""
_AS_IN_PYTHON = ("bool", "text", "list", "object")
"""Kinds of values that are true exactly where Python says so."""


def never_fits(call: str, left: str, right: str) -> str | None:
    """Why an arithmetic operation fails whatever its operands hold, by their kinds; None if it may work."""
    taken = {"number", "text", "list"} if call == "add" else {"number"}
    known = {kind for kind in (left, right) if kind in KIND_WORDS}
    if known <= taken and len(known) < 2:
        return None
    one, two = (KIND_WORDS.get(kind, "a value") for kind in (left, right))
    return f"cannot {_VERBS.get(call, call)} {one} and {two}"


def comparison(site: Site, operator: str, left: Lowered, right: Lowered, *, texts: bool) -> str:
    """The Python condition for `left operator right`, as short as the known kinds of the two allow. `texts`: the
    right side is a literal list of texts."""
    if operator in ("eq", "ne"):
        word, no = ("==", "") if operator == "eq" else ("!=", "not ")
        if left.py in ("None", "True", "False"):
            left, right = right, left
        written = left.atom and left.kind in ("number", "text")  # of which Python warns beside `is`
        if right.py in ("None", "True", "False") and not written:
            return f"{left.py} {'is' if operator == 'eq' else 'is not'} {right.py}"
        kinds = {left.kind, right.kind}
        if (left.present or right.present) and ("text" in kinds or kinds == {"number"}):
            return f"{left.py} {word} {right.py}"
        return f"{no}same({left.py}, {right.py})"
    if operator in ("in", "notin"):
        no = "" if operator == "in" else "not "
        if texts or left.present and left.kind == "text" and right.present and right.kind == "list":
            return f"{left.py} {no}in {right.py}"  # a text equals nothing but a text
        return f"{no}within({left.py}, {right.py})"
    word = {"lt": "<", "gt": ">", "lteq": "<=", "gteq": ">="}[operator]
    if right.kind == "number" and right.present and right.atom:
        bound, name = site.bound(left)
        return f"type({bound}) in NUMBERS and {name} {word} {right.py}"
    call = "less" if operator in ("lt", "gt") else "less_or_same"
    first, second = (left, right) if operator in ("lt", "lteq") else (right, left)
    return f"{call}({first.py}, {second.py})"


def one_text(site: Site, pieces: list[Lowered]) -> Lowered:
    """Pieces joined to one text; absent if a piece is absent."""
    guards: list[str] = []
    parts: list[str] = []
    for piece in pieces:
        if piece.present:
            parts.append(piece.py if piece.kind == "text" else f"text_of({piece.py})")
            continue
        bound, name = site.bound(piece)
        guards.append(f"{bound} is None")
        parts.append(f"({name} if type({name}) is str else text_of({name}))")
    text = f"joined({', '.join(parts)})" if len(parts) != 1 else parts[0]
    if not guards:
        return Lowered(text, True, "text")
    return Lowered(f"(None if {' or '.join(guards)} else {text})", kind="text")


def truth(site: Site, value: Lowered) -> str:
    """The Python condition for "this value counts as true"."""
    return value.py if value.kind in _AS_IN_PYTHON else true_of(site, value)[0]


def true_of(site: Site, value: Lowered) -> tuple[str, str]:
    """(condition, name): the condition for "this value counts as true", after which the local `name` holds the value.

    Most values are absent, so that is tested first.
    """
    first, name = site.bound(value)
    if value.kind in _AS_IN_PYTHON:
        return first, name
    if value.present:
        return f"({first} or {name} == 0 and {name} is not False)", name
    return f"({first} is not None and ({name} or {name} == 0 and {name} is not False))", name
