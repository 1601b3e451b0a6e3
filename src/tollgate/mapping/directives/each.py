"""`$each`: one result per item of a list."""

from __future__ import annotations

import re

from tollgate.config.load import Map, Scalar
from tollgate.mapping import templates
from tollgate.mapping.destinations import Destination
from tollgate.mapping.expressions import lower
from tollgate.mapping.scope import NOTHING, Ex, Scope, Site, Spot, Var

_NO_BODY = frozenset({"$each", "$let", "$when", "$refuse"})
FORM = re.compile(r"\$(\w+)(?:\s*,\s*\$(\w+))?\s+in\s+(?=\S)")


def emit(site: Site, node: Map, dest: Destination) -> None:
    """The loop; the node without its `$each` is the item."""
    loop = enter(site, node)
    if loop is None:
        return
    header, scope, line = loop
    if all(key in _NO_BODY for key in node.entries):  # the item as it is
        item = f"${FORM.match(node.entries['$each'].value)[1]}"  # type: ignore[union-attr, index]
        node = Map({**node.entries, "$value": Scalar(item, item, False, node.mark)}, {**node.keys, "$value": node.mark}, node.mark, node.flow)
    with site.code.block(header, line):
        site.code.add(f"if {scope.names[FORM.match(node.entries['$each'].value)[1]].py} is None: continue", line)  # type: ignore[union-attr, index]
        templates.emit_node(site.inside(scope), node, dest)


def enter(site: Site, node: Map) -> tuple[str, Scope, int] | None:
    """(loop header, scope inside, line), or None when `$each` does not read well."""
    entry = node.entries["$each"]
    line = node.keys["$each"].line
    found = FORM.match(entry.value) if isinstance(entry, Scalar) and isinstance(entry.value, str) else None
    if not found:
        hint = "inside { } a comma ends the value: put quotes around it" if node.flow and any(" in " in key for key in node.entries) else ""
        site.unit.mistake(entry, "`$each` reads `$item in expression` or `$item, $i in expression`", hint)
        return None
    item, count = found[1], found[2]
    spot = Spot(site.unit, entry, found.end())  # type: ignore[arg-type]
    for name in (item, count):
        if name is not None and name in RESERVED:
            Spot(site.unit, entry).mistake(f"`${name}` is a name of the engine", 0, "choose another name")  # type: ignore[arg-type]
            return None
    text = entry.value[found.end():]  # type: ignore[index]
    source = lower(site, text, spot)
    if source is NOTHING:
        return None
    name = site.temp(f"e_{item}_")
    places = tuple(place.each() for place in source.places)
    added = [Var(item, name, places, present=True)]
    over = _items(site, source, line)
    if count:
        counter = site.temp(f"n_{count}_")
        added.append(Var(count, counter, present=True, kind="number"))
        header = f"for {counter}, {name} in enumerate({over})"
    else:
        header = f"for {name} in {over}"
    return header, site.scope.with_names(*added), line


def _items(site: Site, source: Ex, line: int) -> str:
    """What to walk over: a list, one value as a list of one, absent as nothing."""
    if source.kind == "list" and source.present:
        return source.py
    if source.atom:
        held = source.py
    else:
        held = site.temp("s")
        site.code.add(f"{held} = {source.py}", line)
    if source.kind == "list":
        return f"{held} or ()"
    return f"() if {held} is None else {held} if type({held}) is list else ({held},)"


RESERVED = frozenset({"model", "can", "request", "run", "part", "delta", "seq", "whole", "seen", "error", "nothing", "secret", "job", "vars", "old", "parent"})
"""Names the engine gives a meaning; no mapping may take them."""
