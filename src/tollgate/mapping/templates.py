"""Templates: a YAML node -> generated code that builds its value into a destination.

Owns the structure of a node (which directives it has, and the order in which they act) and the plain parts: fields,
lists, scalars. Each directive is one file in `directives/`. This must stay true: a node that is absent stores nothing,
and an object or list that ends up empty is absent, unless it is written empty.
"""

from __future__ import annotations

from collections.abc import Iterable

from tollgate.config.load import List, Map, Node, Scalar
from tollgate.mapping import directives
from tollgate.mapping.destinations import (
    Destination,
    ToField,
    ToList,
    ToLocal,
    ToReturn,
    named_places,
    store,
    store_built,
    used,
)
from tollgate.mapping.directive_table import BEFORE, DIRECTIVES, VALUES
from tollgate.mapping.reads import gathered
from tollgate.mapping.scalars import NOTHING_WORD, is_literal, lower_scalar, path_of
from tollgate.mapping.scope import Lowered, Scope, Site, Unit, suggest
from tollgate.mapping.slips import check_bare_name, check_directive


def emit(site: Site, node: Node, dest: Destination) -> None:
    """Generate code that builds `node` into `dest`."""
    if isinstance(node, Scalar):
        if node.value == NOTHING_WORD:
            return
        line = node.mark.line
        store(site, site.traced(used(lower_scalar(site, node), dest), line), dest, line)
    elif isinstance(node, List):
        _emit_list(site, node, dest)
    elif "$each" in node.entries:
        mark = node.keys["$each"]
        site.unit.mistake(mark, "`$each` makes list items, so it stands in a list", "put a dash before it")
    else:
        emit_node(site, node, dest)


def function(unit: Unit, header: str, node: Node, scope: Scope, out: str = "") -> None:
    """Generate a function, `name(arguments)`, that returns the value of the node."""
    emit(Site(unit, unit.module.function(header, node.mark.line), scope, out), node, ToReturn())


def leaf(site: Site, node: Scalar) -> Lowered:
    """A scalar used as a value."""
    return site.traced(lower_scalar(site, node).take(), node.mark.line)


def value_of(site: Site, node: Node) -> Lowered:
    """A node as one expression: in place if possible, else in a local."""
    if isinstance(node, Scalar) and node.value != NOTHING_WORD:
        return leaf(site, node)
    if sure(site, node):
        return display(site, node)
    if not site.unit.trace and (expression := directives.first.lowered(site, node)) is not None:
        return expression.take()
    name = site.temp("v")
    site.code.add(f"{name} = None", node.mark.line)
    emit(site, node, ToLocal(name))
    return Lowered(name, atom=True)


# -- nodes that are always present become Python displays: {'type': 'text', 'index': 0}


def sure(site: Site, node: Node) -> bool:
    """Whether the node is present for any data, and can be written as one Python display (`{...}` or `[...]`)."""
    if isinstance(node, Scalar):
        if is_literal(node):
            return True
        path = path_of(node)
        var = site.scope.names.get(path.base) if path is not None else None
        if path is None or var is None:
            return False
        if not path.steps:
            return var.present and not var.fields
        field = var.fields.get(path.steps[0]) if var.fields and isinstance(path.steps[0], str) else None
        return len(path.steps) == 1 and field is not None and field.present
    if isinstance(node, List):
        return all(not isinstance(item, List) and sure(site, item) for item in node.items)
    return all(_is_field(key) and sure(site, value) for key, value in node.entries.items())


def display(site: Site, node: Node) -> Lowered:
    """A node for which `sure` is true, as a Python display."""
    if isinstance(node, Scalar):
        return leaf(site, node)
    if isinstance(node, List):
        return Lowered("[" + ", ".join(display(site, item).py for item in node.items) + "]", True, "list")
    return Lowered("{" + _pairs(site, node.entries.items()) + "}", True, "object")


def _pairs(site: Site, entries: Iterable[tuple[str, Node]]) -> str:
    """Fields for which `sure` is true, as written in a display: `'type': 'text', 'index': 0`."""
    return ", ".join(f"{field_name(key)!r}: {display(site.under(field_name(key)), value).py}" for key, value in entries)


# -- lists


def _emit_list(site: Site, node: List, dest: Destination) -> None:
    line = node.mark.line
    if dest.spreads:
        for item in node.items:
            emit_item(site, item, dest)
        return
    if sure(site, node):
        store(site, display(site, node), dest, line)
        return
    named = named_places(dest)
    items = ToList(site.temp("list"), None if named is None else [])
    only = node.items[0] if len(node.items) == 1 else None
    if isinstance(only, Map) and "$each" in only.entries:
        directives.each.emit_alone(site, only, items, dest, line)
    else:
        _fill_list(site, node, items)
        store_built(site, items.target, dest, line, sure=False)
    if named is not None:
        named.extend(gathered(tuple(items.places or ())))


def build_list(site: Site, node: List) -> str:
    """A local that holds the items of a literal list."""
    name = site.temp("list")
    _fill_list(site, node, ToList(name))
    return name


def _fill_list(site: Site, node: List, dest: ToList) -> None:
    site.code.add(f"{dest.target} = []", node.mark.line)
    for item in node.items:
        emit_item(site, item, dest)


def emit_item(site: Site, node: Node, dest: Destination) -> None:
    """One entry of a literal list: `$each` makes several items of it, a list inside adds its items."""
    if isinstance(node, Map) and "$each" in node.entries:
        directives.each.emit(site, node, dest)
    else:
        emit(site, node, dest)


# -- maps


def emit_node(site: Site, node: Map, dest: Destination) -> None:
    """A map without its `$each`: `$let`, then `$when`, then the body."""
    if check_keys(site, node):
        directives.when.emit(
            directives.let.enter(site, node),
            node,
            lambda inner: _body(inner, node, dest),
            lambda inner, other: emit(inner, other, dest),
        )


def _body(site: Site, node: Map, dest: Destination) -> None:
    """The value of a node whose conditions hold: a choice, a fallback, a plain value, a loss, or fields."""
    entries = node.entries
    if "$refuse" in entries:
        directives.refuse.emit(site, entries["$refuse"])
        if all(key in BEFORE or key == "$else" for key in entries):
            return
    for directive, emit_directive in directives.BODIES.items():
        if directive in entries:
            emit_directive(site, node, dest)
            return
    _emit_fields(site, node, dest)


def _emit_fields(site: Site, node: Map, dest: Destination) -> None:
    line = node.mark.line
    entries = [(key, value) for key, value in node.entries.items() if key == "$copy" or _is_field(key)]
    if not entries and len(node.entries) > 0:
        key, mark = next(iter(node.keys.items()))
        site.unit.mistake(mark, f"`{key}` has nothing to act on", "add fields, or $value")
        return
    for key, value in entries:
        check_bare_name(site, key, value)
    if "$copy" in node.entries and directives.copy.overlaps(node):
        entries.sort(key=lambda entry: entry[0] != "$copy")  # written fields come after it, and win
    first = 0
    while first < len(entries) and entries[first][0] != "$copy" and sure(site, entries[first][1]):
        first += 1
    start = _pairs(site, entries[:first])
    if first == len(entries):
        store(site, Lowered("{" + start + "}", True, "object"), dest, line)
        return
    name = site.temp("o")
    if site.scope.lost:  # a lost field is not the whole object
        site = site.inside(site.scope.losing(()))
    certain = first > 0
    if entries[0][0] == "$copy" and directives.copy.whole(site, node, name):
        entries = entries[1:]
    else:
        site.code.add(f"{name} = {{{start}}}", line)
    for key, value in entries[first:]:
        if key == "$copy":
            directives.copy.emit(site, node, name)
            continue
        certain = certain or sure(site, value)
        emit(site.under(field_name(key)), value, ToField(name, field_name(key)))
    store_built(site, name, dest, line, sure=certain)


# -- keys


def _is_field(key: str) -> bool:
    return not key.startswith("$") or key.startswith("$$")


def field_name(key: str) -> str:
    """`$$ref` is the field `$ref`."""
    return key[1:] if key.startswith("$$") else key


def check_keys(site: Site, node: Map) -> bool:
    """Check that every `$` key is a directive that may be used with the others; False if the node makes no sense."""
    good = True
    for key, mark in node.keys.items():
        check_directive(site.unit, node, key)
        good = _check_key(site, node, key) and good
        directive = DIRECTIVES.get(key)
        if directive is not None and directive.beside and node.entries.keys().isdisjoint(directive.beside):
            others = " or ".join(f"`{other}`" for other in directive.beside)
            site.unit.mistake(mark, f"`{key}` stands beside {others}")
            good = False
    return _check_body(site, node) and good


def _check_key(site: Site, node: Map, key: str) -> bool:
    """Whether a key is a field or a directive; beside `$match` it may be a label, which is checked there."""
    if "$match" in node.entries:
        return True
    if "{{" in key:
        site.unit.mistake(node.keys[key], "a field's name is literal", "write the name out")
    if _is_field(key) or key in DIRECTIVES:
        return True
    hint = suggest(key, DIRECTIVES)
    also = f"{hint}{' ' if hint else ''}a field of that name is written `${key}`"
    site.unit.mistake(node.keys[key], f"unknown directive `{key}`", also)
    return False


def _check_body(site: Site, node: Map) -> bool:
    """A node has either one directive that gives its value, or fields."""
    bodies = [key for key in VALUES if key in node.entries]
    if len(bodies) > 1:
        message = f"`{bodies[1]}` and `{bodies[0]}` cannot stand in one node"
        site.unit.mistake(node.keys[bodies[1]], message, "put one below the other")
        return False
    fields = [key for key in node.entries if key == "$copy" or _is_field(key)]
    if not bodies or not fields or bodies == ["$match"]:
        return True
    message = f"a field cannot stand beside `{bodies[0]}`"
    site.unit.mistake(node.keys[fields[0]], message, f"`{bodies[0]}` is all that its node makes")
    return False
