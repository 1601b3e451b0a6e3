"""`define:`: named templates with parameters, compiled to Python functions.

A function reads its parameters and the engine's values, not the caller's document. It may call itself, but only with
parts of its data: functions that call each other in a circle may only pass paths on, so that every conversion ends.
"""

from __future__ import annotations

import re
from dataclasses import replace

from tollgate.config.load import Map, Node
from tollgate.mapping import templates
from tollgate.mapping.destinations import ToReturn
from tollgate.mapping.names import ENGINE, may_define
from tollgate.mapping.reads import Reads
from tollgate.mapping.scope import Function, Scope, Site, Unit, Var

FORM = re.compile(r"([a-z_]\w*)\(\s*((?:\$\w+\s*(?:,\s*\$\w+\s*)*)?)\)\s*\Z")


def declare(unit: Unit, node: Node | None) -> list[Function]:
    """Read the headers of all functions first, so that they can call each other in any order."""
    if node is None:
        return []
    if not isinstance(node, Map):
        unit.mistake(node, "`define` takes functions", "define: {name($a): value}")
        return []
    made = []
    for header, value in node.entries.items():
        mark = node.keys[header]
        found = FORM.match(header)
        if not found:
            unit.mistake(mark, f"`{header}` is no function header", "name($a, $b), in small letters")
            continue
        name = found[1]
        parameters = tuple(part.strip()[1:] for part in found[2].split(",") if part.strip())
        reads = tuple(Reads() for _ in parameters)
        if len(set(parameters)) != len(parameters):
            unit.mistake(mark, f"`{name}` has two parameters of one name")
            continue
        if not all(may_define(unit, parameter, ENGINE, mark) for parameter in parameters):
            unit.functions.setdefault(name, Function(name, name, parameters, reads, mark))
            continue
        if name in unit.functions:
            before = unit.functions[name].mark
            if before:
                unit.mistake(mark, f"`{name}` is defined twice", f"first at line {before.line}")
            else:
                unit.mistake(mark, f"`{name}` is a function of the engine", "choose another name")
            continue
        if name in unit.filters:
            hint = "`f($x)` and `$x | f` would be two things: choose another name"
            unit.warn(mark, f"`{name}` is also a filter", hint)
        function = unit.functions[name] = Function(
            name, unit.module.fresh(f"fn_{name}_"), parameters, reads, mark, value
        )
        made.append(function)
    return made


def compile_functions(unit: Unit, made: list[Function]) -> None:
    """Generate the bodies; then find recursive calls and check their arguments."""
    bodies = {}
    for function in made:
        line = function.mark.line  # type: ignore[union-attr]
        names = [f"a_{parameter}" for parameter in function.parameters]
        code = unit.module.function(f"{function.py}({''.join(name + ', ' for name in names)}C)", line)
        variables = {
            parameter: Var(parameter, name, (reads,), own=True)
            for parameter, name, reads in zip(function.parameters, names, function.reads, strict=True)
        }
        request = replace(ENGINE["request"], places=(function.request,))
        site = Site(unit, code, Scope({**ENGINE, "request": request, **variables}, function))
        templates.emit(site, function.node, ToReturn())  # type: ignore[arg-type]
        bodies[function.name] = code
    for circle in _circles({function.name: function.calls for function in made}):
        for name in circle:
            function = unit.functions[name]
            bodies[name].lines.insert(0, (1, "C.count()", function.mark.line))  # type: ignore[union-attr]
            for callee, mark in function.computed_calls:
                if callee in circle:
                    whom = "itself" if callee == name else f"`{callee}` in a circle"
                    hint = "hand on a part of the data: a path, a parameter or an item"
                    unit.mistake(mark, f"`{name}` calls {whom} with a computed value", hint)


def _circles(calls: dict[str, set[str]]) -> set[frozenset[str]]:
    """Groups of functions that (directly or not) call each other."""
    reach: dict[str, set[str]] = {}
    for name, called in calls.items():
        seen = reach[name] = set()
        waiting = list(called)
        while waiting:
            here = waiting.pop()
            if here not in seen and here in calls:
                seen.add(here)
                waiting.extend(calls[here])
    return {frozenset(other for other in reach[name] if name in reach[other]) for name in calls}
