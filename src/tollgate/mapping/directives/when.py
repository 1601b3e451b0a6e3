"""`$when` and its `$else`: include the node only under a condition."""

from __future__ import annotations

from collections.abc import Callable

from tollgate.config.load import Map, Node, Scalar
from tollgate.mapping.expressions import lower_test
from tollgate.mapping.narrowing import Tested
from tollgate.mapping.scope import Site, Spot


def emit(
    site: Site, node: Map, body: Callable[[Site], None], other: Callable[[Site, Node], None] | None = None
) -> None:
    """The body under its condition, followed by what `other` makes of `$else`. The `$else` belongs to `$match` if
    the node has one."""
    if "$when" not in node.entries:
        body(site)
        return
    condition = test(site, node.entries["$when"])
    with site.code.block(f"if {condition.py}", node.keys["$when"].line):
        body(site.inside(condition.inside(site.scope)))
    if other is not None and "$else" in node.entries and "$match" not in node.entries:
        with site.code.block("else", node.keys["$else"].line):
            other(site.inside(condition.outside(site.scope)), node.entries["$else"])


def test(site: Site, node: Node) -> Tested:
    """A node in a place that takes a condition -> the Python condition, and what it says about the data."""
    if isinstance(node, Scalar) and isinstance(node.value, bool):
        return Tested(repr(node.value))
    if not isinstance(node, Scalar) or not isinstance(node.value, str) or not node.value.strip():
        site.unit.mistake(node, "a condition is an expression", "such as $.stream, or $.n > 1")
        return Tested("False")
    return lower_test(site, node.value, Spot(site.unit, node))
