"""`$copy`: fields that keep their name."""

from __future__ import annotations

from collections.abc import Iterator

from tollgate.config.load import List, Map, Scalar
from tollgate.mapping.destinations import ToField, store
from tollgate.mapping.path_code import dict_view, read
from tollgate.mapping.paths import Path
from tollgate.mapping.scalars import lower_scalar, path_of
from tollgate.mapping.scope import Site, Spot


def emit(site: Site, node: Map, target: str) -> None:
    """Copy into the object `target`."""
    entry = node.entries["$copy"]
    if isinstance(entry, List):
        _names(site, "$", entry, target)
    elif isinstance(entry, Map):
        for source, names in entry.entries.items():
            if isinstance(names, List):
                _names(site, source, names, target, entry)
            else:
                site.unit.mistake(names, "`$copy` takes a list of names here", "{$x: [a, b]}")
    elif path_of(entry) is not None:
        value = lower_scalar(site, entry).take()
        view = dict_view(site, value, entry.mark.line)
        site.code.add(f"{target}.update({view})", entry.mark.line)
        if site.unit.trace:
            site.code.add(f"traced(C, {entry.mark.line}, {site.out + '.*'!r}, {view})", entry.mark.line)
    else:
        computed = isinstance(entry, Scalar) and "{{" in entry.text
        hint = f"name what is computed: $let: {{x: '{entry.text}'}}, $copy: $x" if computed else ""
        site.unit.mistake(entry, "`$copy` takes a list of names, {$x: [names]} or a path", hint)


def overlaps(node: Map) -> bool:
    """Whether the node's `$copy` may also bring a field that is written beside it; the written one wins."""
    return isinstance(node.entries["$copy"], Scalar) or any(name.value in node.entries for name in listed(node))


def listed(node: Map) -> Iterator[Scalar]:
    """The names that the node's `$copy` lists, if it has one."""
    entry = node.get("$copy")
    for names in entry.entries.values() if isinstance(entry, Map) else (entry,):
        if isinstance(names, List):
            yield from (name for name in names.items if isinstance(name, Scalar) and isinstance(name.value, str))


def whole(site: Site, node: Map, target: str) -> bool:
    """Begin the object as a copy of a whole value, if `$copy` asks for that; else return False."""
    entry = node.entries["$copy"]
    if site.unit.trace or path_of(entry) is None:
        return False
    view = dict_view(site, lower_scalar(site, entry).take(), entry.mark.line)  # type: ignore[arg-type]
    site.code.add(f"{target} = {view}.copy()", entry.mark.line)
    return True


def _names(site: Site, source: str, names: List, target: str, owner: Map | None = None) -> None:
    base = path_of(Scalar(source, source, False, names.mark))
    if base is None:
        site.unit.mistake(owner.keys[source] if owner else names, f"`{source}` is no path", "such as $x")
        return
    for name in names.items:
        if not isinstance(name, Scalar) or not isinstance(name.value, str) or not _is_name(name.value):
            site.unit.mistake(name, "`$copy` takes plain names", "a path is written as a field: key: $.a.b")
            continue
        where = Spot(site.unit, name)
        if owner is not None:
            where = Spot(site.unit, Scalar(source, source, False, owner.keys[source]))
        line = name.mark.line
        value = read(site, Path(base.base, (*base.steps, name.value), f"{source}.{name.value}"), where).take()
        store(site, site.under(name.value).traced(value, line), ToField(target, name.value), line)


def _is_name(text: str) -> bool:
    return text != "" and not any(char in text for char in "$.[]{} ")
