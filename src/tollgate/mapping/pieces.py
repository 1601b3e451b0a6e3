"""Single pieces of the mapping language for other files: a template, condition or URL of a provider file as a function.

`compile_template`, `compile_expression` and `compile_url` take the names that the piece may read (`$` itself, `$model`,
`$vars`, ...), so that a misspelt name is found when it is compiled. At run time it takes their values and returns a
value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from tollgate.config.load import Document, Node, Problem, Scalar, text_in
from tollgate.mapping import templates
from tollgate.mapping.context import Context
from tollgate.mapping.define import compile_functions, declare
from tollgate.mapping.destinations import ToReturn
from tollgate.mapping.expressions import lower
from tollgate.mapping.failures import clean
from tollgate.mapping.filter_table import Filter
from tollgate.mapping.names import document_var
from tollgate.mapping.scalars import is_literal, literal, lower_scalar, split
from tollgate.mapping.scope import Scope, Site, Spot, Unit, Var
from tollgate.mapping.values import text_of

Names = Iterable[str] | Mapping[str, frozenset[str] | None]
"""Names that a piece may read, without the dollar; `$` is the document. A mapping also gives the fields of each."""


_RAW = re.compile(r"\|\s*raw\s*\Z")


class Functions:
    """A compiled `define:`, for all pieces of one file."""

    def __init__(self, document: Document, node: Node | None, *, plugins: Mapping[str, Filter] | None = None) -> None:
        self.plugins = dict(plugins or {})
        unit = Unit(document, plugins=plugins)
        compile_functions(unit, declare(unit, node))
        built = unit.build()
        self.warnings: list[Problem] = []
        """Warnings about these functions, and about all pieces of the file that are compiled with them."""
        self.note(unit)
        self.functions = unit.functions
        self.callables = {function.py: built[function.py] for function in unit.functions.values()}

    def note(self, unit: Unit) -> None:
        """Add the warnings about a compiled piece of the file."""
        self.warnings += (problem for problem in unit.problems if problem.level != "error")


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """A compiled piece. Call it with the document and the named values; returns None for an absent value."""

    _call: Callable[..., Any]
    names: tuple[str, ...]
    file: str

    def __call__(self, doc: object = None, /, _context: Context | None = None, **values: object) -> Any:
        """`template(doc, model={...})` -> value.

        Raises only `MappingFailure`, if the data does not fit.
        """
        with clean((self.file,), request=False):
            return self._call(doc, _context or Context(), *[values.get(name) for name in self.names])

    def test(self, doc: object = None, /, _context: Context | None = None, **values: object) -> bool:
        """The value as a condition: absent, null, false, "", [] and {} are false."""
        value = self(doc, _context, **values)
        return bool(value) or (value == 0 and value is not False)


def compile_template(
    document: Document, node: Node, *, names: Names, defines: Functions | None = None, answer: bool = False
) -> Template:
    """A template over named values. `answer`: it reads a provider's answer. `ConfigErrors` with all mistakes in it."""
    if isinstance(node, Scalar) and is_literal(node):
        value = literal(node)
        return Template(lambda *_: value, (), document.file)
    unit = unit_with(document.holding(node.mark), defines)
    return _compile(unit, node, names, defines, lambda site: templates.emit(site, node, ToReturn()), answer=answer)


def compile_expression(document: Document, node: Node, *, names: Names, defines: Functions | None = None) -> Template:
    """An expression written without braces (`when:`, `unwrap:`); call `.test(...)` for a condition, or it for its
    value."""

    def body(site: Site) -> None:
        if isinstance(node, Scalar) and isinstance(node.value, bool):
            site.code.add(f"return {node.value!r}", node.mark.line)
        elif isinstance(node, Scalar) and (text := text_in(node)) and text.strip():
            site.code.add(f"return {lower(site, text, Spot(site.unit, node)).take().py}", node.mark.line)
        else:
            site.unit.mistake(node, "an expression is wanted here", "such as $.stream, or $.n > 1")

    return _compile(unit_with(document.holding(node.mark), defines), node, names, defines, body)


def compile_url(document: Document, node: Node, *, names: Names, defines: Functions | None = None) -> Template:
    """Text with path-escaped holes, so that a value cannot change the rest of the path; `{{ value | raw }}` is not
    escaped.

    Absent (None) if any hole is absent.
    """

    def body(site: Site) -> None:
        line = node.mark.line
        if not isinstance(node, Scalar) or not isinstance(node.value, str) or not node.value:
            site.unit.mistake(node, "an address is wanted here", "such as https://host/path/{{ $model.upstream }}")
            return
        spot = Spot(site.unit, node)
        if node.value.startswith("$"):
            site.code.add(f"return {lower_scalar(site, node).take().py}", line)
            return
        site.code.add("out = ['']", line)
        for plain, text, offset in split(node.value, spot) or []:
            if plain:
                site.code.add(f"out.append({text!r})", line)
                continue
            raw = _RAW.search(text)
            value = lower(site, text[: raw.start()] if raw else text, spot.moved(offset)).take()
            name = site.temp("hole")
            site.code.add(f"{name} = {value.py}", line)
            site.code.add(f"if {name} is None: return None", line)
            site.code.add(f"out.append({'text_of' if raw else 'escaped'}({name}))", line)
        site.code.add("return ''.join(out)", line)

    unit = unit_with(document.holding(node.mark), defines)
    unit.escape_holes = True
    return _compile(unit, node, names, defines, body)


def _compile(
    unit: Unit,
    node: Node,
    names: Names,
    functions: Functions | None,
    body: Callable[[Site], None],
    *,
    answer: bool = False,
) -> Template:
    known = names if isinstance(names, Mapping) else dict.fromkeys(names)
    order = tuple(name for name in known if name != "$")
    variables = {name: Var(name, f"x_{name}", known=known[name]) for name in order}
    if "$" in known:
        variables[""] = replace(document_var(), known=known["$"])
    code = unit.module.function(f"piece(D, C, {', '.join(f'x_{name}' for name in order)})", node.mark.line)
    body(Site(unit, code, Scope(variables, of_answer=answer)))
    piece = built_with(unit, functions, {"escaped": _escaped})["piece"]
    return Template(piece, order, unit.document.file)  # type: ignore[arg-type]


def unit_with(document: Document, functions: Functions | None) -> Unit:
    """A new unit whose pieces can call these functions and use their filters."""
    if functions is None:
        return Unit(document)
    return Unit(document, functions=functions.functions, plugins=functions.plugins)


def built_with(unit: Unit, functions: Functions | None, more: Mapping[str, object] | None = None) -> dict[str, object]:
    """`Unit.build` of a unit that can call these functions; its warnings are added to theirs."""
    if functions is None:
        return unit.build(more)
    built = unit.build({**functions.callables, **(more or {})})
    functions.note(unit)
    return built


def _escaped(value: object) -> str:
    return quote(text_of(value), safe="")
