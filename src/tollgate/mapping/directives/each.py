"""`$each`: one result per item of a list."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from tollgate.config.load import Map, Scalar, text_in
from tollgate.mapping import templates
from tollgate.mapping.destinations import Destination, ToList, store_built
from tollgate.mapping.directive_table import BEFORE
from tollgate.mapping.expressions import lower
from tollgate.mapping.names import may_define
from tollgate.mapping.scope import NOTHING, Lowered, Scope, Site, Spot, Var

_NAME = re.compile(r"\$(\w+)")
FORM = re.compile(r"\$(\w+)(?:\s*,\s*\$(\w+))?\s+in\s+(?=\S)")


@dataclass(frozen=True, slots=True)
class Loop:
    """A `$each` once it is read: the condition under which there is something to iterate over (or none), the Python
    `for` header, the names inside, and the Python name of the item."""

    guard: str
    header: str
    scope: Scope
    line: int
    item: str
    name: str


def emit(site: Site, node: Map, dest: Destination) -> None:
    """The loop. The node without its `$each` is the template of one item."""
    loop = enter(site, node)
    if loop is not None:
        with guarded(site, loop):
            _repeat(site, loop, node, dest)


def emit_alone(site: Site, node: Map, items: ToList, dest: Destination, line: int) -> None:
    """A list with this one entry, built in the local that `items` names. No list is made if there is nothing to
    iterate over."""
    loop = enter(site, node)
    if loop is not None:
        with guarded(site, loop):
            site.code.add(f"{items.target} = []", line)
            _repeat(site, loop, node, items)
            store_built(site, items.target, dest, line, sure=False)


def guarded(site: Site, loop: Loop) -> AbstractContextManager[None]:
    """The block that contains the loop: under its condition, if it has one."""
    return site.code.block(f"if {loop.guard}", loop.line) if loop.guard else nullcontext()


def _repeat(site: Site, loop: Loop, node: Map, dest: Destination) -> None:
    if all(key in BEFORE for key in node.entries):  # the item itself
        item = Scalar(f"${loop.name}", f"${loop.name}", False, node.mark)
        node = Map({**node.entries, "$value": item}, {**node.keys, "$value": node.mark}, node.mark, node.flow)
    with walking(site, loop) as inner:
        templates.emit_node(inner, node, dest)


@contextmanager
def walking(site: Site, loop: Loop) -> Iterator[Site]:
    """The block that runs for each item; null items are skipped."""
    with site.code.block(loop.header, loop.line):
        site.code.add(f"if {loop.item} is None: continue", loop.line)
        yield site.inside(loop.scope)


def enter(site: Site, node: Map) -> Loop | None:
    """Read `$each`; None, with the mistake noted, if it is wrong."""
    entry = node.entries["$each"]
    line = node.keys["$each"].line
    text = text_in(entry) or ""
    found = FORM.match(text)
    if not isinstance(entry, Scalar) or not found:
        hint = (
            "inside { } a comma ends the value: put quotes around it"
            if node.flow and any(" in " in key for key in node.entries)
            else ""
        )
        site.unit.mistake(entry, "`$each` reads `$item in expression` or `$item, $i in expression`", hint)
        return None
    item, count = found[1], found[2]
    if any(not may_define(site.unit, name, site.scope.names, entry) for name in (item, count) if name):
        return None
    later = node.get("$let")
    for name in _NAME.findall(text, found.end()):
        if isinstance(later, Map) and name in later.entries and name not in site.scope.names:
            hint = "put it around the list, or write its value here"
            site.unit.mistake(entry, f"`$each` acts before the `$let` beside it: `${name}` is not named yet", hint)
            return None
    source = lower(site, text[found.end() :], Spot(site.unit, entry, found.end()))
    if source is NOTHING:
        return None
    local = site.temp(f"e_{item}_")
    places = tuple(place.each() for place in source.places)
    added = [Var(item, local, places, present=True, own=True)]
    guard, over = _items(site, source, line)
    inside = site.scope.losing(places)
    if not count:
        return Loop(guard, f"for {local} in {over}", inside.with_names(*added), line, local, item)
    counter = site.temp(f"n_{count}_")
    added.append(Var(count, counter, present=True, kind="number", own=True))
    return Loop(guard, f"for {counter}, {local} in enumerate({over})", inside.with_names(*added), line, local, item)


def _items(site: Site, source: Lowered, line: int) -> tuple[str, str]:
    """What to iterate over, and under which condition: a list; one value as a list of one; nothing if absent."""
    if source.kind == "list" and source.present:
        return "", source.py
    held = site.local(source, "s", line)
    if source.kind == "list":
        return held, held
    return "" if source.present else f"{held} is not None", f"{held} if type({held}) is list else ({held},)"
