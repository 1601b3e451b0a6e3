"""`$when` and its `$else`: include if."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollgate.config.load import Map, Node, Scalar
from tollgate.mapping import templates
from tollgate.mapping.destinations import Destination
from tollgate.mapping.expressions import lower_test
from tollgate.mapping.narrowing import Tested
from tollgate.mapping.scope import Site, Spot

if TYPE_CHECKING:
    from tollgate.mapping.templates import Body


def emit(site: Site, node: Map, dest: Destination, body: Body) -> None:
    """The body under its condition. `$else` belongs to `$match` when the node has one."""
    if "$when" not in node.entries:
        body(site, node, dest)
        return
    line = node.keys["$when"].line
    condition = test(site, node.entries["$when"])
    otherwise = node.entries.get("$else") if "$match" not in node.entries else None
    with site.code.block(f"if {condition.py}", line):
        body(site.inside(condition.inside(site.scope)), node, dest)
    if otherwise is not None:
        with site.code.block("else", node.keys["$else"].line):
            templates.emit(site.inside(condition.outside(site.scope)), otherwise, dest)


def test(site: Site, node: Node) -> Tested:
    """A node in a place that takes a condition -> Python condition, and what it tells."""
    if isinstance(node, Scalar) and isinstance(node.value, bool):
        return Tested(repr(node.value))
    if not isinstance(node, Scalar) or not isinstance(node.value, str) or not node.value.strip():
        site.unit.mistake(node, "a condition is an expression", "such as $.stream, or $.n > 1")
        return Tested("False")
    return lower_test(site, node.value, Spot(site.unit, node))
