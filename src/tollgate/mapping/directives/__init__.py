"""The code generation of the directives, one file each; they are listed in `directive_table.py`."""

from __future__ import annotations

from tollgate.mapping.directives import copy, each, first, let, lost, match, refuse, value, when

BODIES = {"$match": match.emit, "$first": first.emit, "$value": value.emit, "$lost": lost.emit}
"""What generates the code of each directive that makes the whole value of its node."""

__all__ = ["BODIES", "copy", "each", "first", "let", "lost", "match", "refuse", "value", "when"]
