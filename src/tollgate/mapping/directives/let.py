"""`$let`: names for values, for this node and everything below it."""

from __future__ import annotations

import re
from dataclasses import replace

from tollgate.config.load import Map, Node, Scalar, lookup, walk
from tollgate.mapping import templates
from tollgate.mapping.destinations import ToLocal
from tollgate.mapping.directives import first
from tollgate.mapping.mentions import texts_in
from tollgate.mapping.names import may_define
from tollgate.mapping.reads import Reads
from tollgate.mapping.scalars import NOTHING_WORD, lower_scalar
from tollgate.mapping.scope import Lowered, Site, Unit, Var

_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_MENTIONED = re.compile(r"\$(\w+)")


def enter(site: Site, node: Map) -> Site:
    """The site with the names of the node's `$let`, if it has one."""
    names = node.get("$let")
    if names is None:
        return site
    if not isinstance(names, Map):
        site.unit.mistake(names, "`$let` takes names and their values", "$let: {name: value}")
        return site
    inner = site
    for name, value in names.entries.items():
        if not _NAME.match(name):
            site.unit.mistake(
                names.keys[name],
                f"`{name}` is no name",
                "letters, digits and _; without the $" if name.startswith("$") else "letters, digits and _",
            )
            if _NAME.match(name[1:]):
                inner = inner.inside(inner.scope.with_names(_named(inner, name[1:], value)))
            continue
        if may_define(site.unit, name, inner.scope.names, names.keys[name]):
            inner = inner.inside(inner.scope.with_names(_named(inner, name, value)))
    return inner


def check_read(unit: Unit, root: Node) -> None:
    """Warn of names that are never used: what they stand for counts as read, so the loss list would not report it."""
    for node in walk(root):
        names = lookup(node, "$let")
        if not isinstance(names, Map):
            continue
        read = _read_in(node)
        for name, mark in names.keys.items():
            if name not in read:
                unit.warn(mark, f"`${name}` is never read", "what it stands for would be lost without a word")


def only(node: Map, field: str) -> Map:
    """The map with nothing but this field, and those names of its `$let` that the field reads."""
    kept: dict[str, Node] = {field: node.entries[field]}
    names = node.get("$let")
    if isinstance(names, Map):
        read = _read_in(node.entries[field])
        for name, value in reversed(names.entries.items()):  # a value may read the names before it
            if name in read:
                read |= _read_in(value)
        needed = {name: value for name, value in names.entries.items() if name in read}
        kept["$let"] = Map(needed, {name: names.keys[name] for name in needed}, names.mark)
    return Map(kept, {key: node.keys[key] for key in kept}, node.mark)


def _read_in(node: Node) -> set[str]:
    return {name for text in texts_in(node) for name in _MENTIONED.findall(text)}


def _named(site: Site, name: str, value: Node) -> Var:
    local = site.temp(f"w_{name}_")
    site = replace(site, out=f"${name}")
    line = value.mark.line
    lowered = _lowered(site, value)
    if lowered is not None:
        site.code.add(f"{local} = {lowered.py}", line)
        site.hold(lowered, local)
        return Var(name, local, lowered.places, lowered.present and lowered.kind != "null", kind=lowered.kind, own=True)
    site.code.add(f"{local} = None", line)
    places: list[Reads] = []
    templates.emit(site, value, ToLocal(local, places))
    return Var(name, local, tuple(places), own=True)


def _lowered(site: Site, value: Node) -> Lowered | None:
    """A value that is a path (or a `$first` of paths) keeps its places: what is read through the name counts as read
    there."""
    if isinstance(value, Scalar) and value.value != NOTHING_WORD:
        return lower_scalar(site, value, named=True)
    return first.lowered(site, value)
