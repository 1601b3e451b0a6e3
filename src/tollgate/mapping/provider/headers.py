"""The headers of a provider's calls: which of them are the same for all calls, and which are made for each."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tollgate.config.load import Node
from tollgate.mapping.context import new_nonce
from tollgate.mapping.pieces import Template, mentions
from tollgate.mapping.provider.pieces import Pieces

Headers = Mapping[str, tuple[Node, Template]]
"""By lower-case name, each as it is written and compiled."""

_OF_A_REQUEST = ("headers", "stream", "native")
"""What only the client's request tells."""
_OF_A_MOMENT = ("now", "nonce")
"""What is another for every call."""


def compile_headers(
    pieces: Pieces, nodes: Mapping[str, Node], reads: tuple[str, ...] = ("model", "can", *_OF_A_REQUEST)
) -> dict[str, tuple[Node, Template]]:
    """A `headers:` block of a provider file, which may read these names beside those that are always there. Mistakes
    are noted in `pieces`."""
    names = pieces.names("vars", "secret", *reads, *_OF_A_MOMENT)
    return {
        name.lower(): (node, template)
        for name, node in nodes.items()
        if (template := pieces.template(node, names)) is not None
    }


class MadeHeader:
    """A header with what is known at start filled in; what the request says and the moment are missing."""

    __slots__ = ("_moment", "_template", "_values")

    def __init__(self, node: Node, template: Template, values: Mapping[str, Any]) -> None:
        self._template = template
        self._values = values
        self._moment = tuple(name for name in _OF_A_MOMENT if mentions(node, name))

    def __call__(self, *, headers: Mapping[str, str], stream: bool, native: bool) -> Any:
        """Its value for one call, or None where it is absent."""
        moment: dict[str, Any] = {name: int(time.time()) if name == "now" else new_nonce() for name in self._moment}
        return self._template(headers=headers, stream=stream, native=native, **moment, **self._values)


def split_headers(
    headers: Headers, values: Mapping[str, Any]
) -> tuple[dict[str, str], tuple[tuple[str, MadeHeader], ...]]:
    """The headers that are the same for every call, and those to be made for each, over these values."""
    fixed, made = {}, []
    for name, (node, template) in headers.items():
        if any(mentions(node, said) for said in (*_OF_A_REQUEST, *_OF_A_MOMENT)):
            made.append((name, MadeHeader(node, template, values)))
        elif (value := template(**values)) is not None:
            fixed[name] = str(value)
    return fixed, tuple(made)


def unasked_headers(headers: Headers, values: Mapping[str, Any]) -> dict[str, str]:
    """The headers of one call that no client's completion is behind, such as an image job's; what is absent is left
    out."""
    fixed, made = split_headers(headers, {"model": {}, "can": {}, **values})
    for name, header in made:
        if (value := header(headers={}, stream=False, native=False)) is not None:
            fixed[name] = str(value)
    return fixed
