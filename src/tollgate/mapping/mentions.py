"""Which names (`$x`) a template contains, for decisions before it runs; looks at its texts only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tollgate.config.load import Map, Node, text_in, walk

if TYPE_CHECKING:
    from tollgate.mapping.pieces import Functions

_CALL = re.compile(r"\b([a-z_]\w*)\(")


def texts_in(node: Node) -> Iterator[str]:
    """All texts of a template that may read data: its scalars, and the values that `$copy: {$x: [name]}` copies
    from."""
    for inner in walk(node):
        copied = inner.get("$copy") if isinstance(inner, Map) else None
        if isinstance(copied, Map):
            yield from copied.entries
        elif (text := text_in(inner)) is not None:
            yield text


def mentions(node: Node, name: str, defines: Functions | None = None) -> bool:
    """Whether a template reads `$name`, itself or through the functions of `define:` that it calls."""
    functions = defines.functions if defines is not None else {}
    waiting, called = [node], set()
    while waiting:
        for text in texts_in(waiting.pop()):
            if f"${name}" in text:
                return True
            for found in _CALL.findall(text):
                function = functions.get(found)
                if function is not None and function.node is not None and found not in called:
                    called.add(found)
                    waiting.append(function.node)
    return False
