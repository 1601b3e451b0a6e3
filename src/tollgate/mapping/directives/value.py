"""`$value`: the node is this value; and `$join_by`, which merges neighbours of a literal list."""

from __future__ import annotations

from tollgate.config.load import List, Map, Scalar
from tollgate.mapping import templates
from tollgate.mapping.destinations import Destination, store_built
from tollgate.mapping.scope import Site


def emit(site: Site, node: Map, dest: Destination) -> None:
    """The value itself, joined when `$join_by` says so."""
    inner = node.entries["$value"]
    key = node.get("$join_by")
    if key is None:
        templates.emit(site, inner, dest)
        return
    line = node.keys["$join_by"].line
    if not isinstance(key, Scalar) or not isinstance(key.value, str) or not key.value or key.value.startswith("$"):
        site.unit.mistake(key, "`$join_by` takes the name of a field of the items")
        return
    if not isinstance(inner, List):
        site.unit.mistake(inner, "`$join_by` joins the items of a written list", "$value: [...]")
        return
    name = templates.build_list(site, inner)
    site.code.add(f"{name} = join_by({name}, {key.value!r})", line)
    if dest.spreads:
        with site.code.block(f"for item_{name} in {name}", line):
            site.code.add(dest.put(f"item_{name}"), line)
        return
    store_built(site, name, dest, line, sure=False)
