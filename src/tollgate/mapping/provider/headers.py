"""The headers of a provider's calls: those that are the same for all calls, and those that are computed for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tollgate.config.load import Node
from tollgate.mapping.context import Context
from tollgate.mapping.mentions import mentions
from tollgate.mapping.pieces import Template
from tollgate.mapping.provider.pieces import Pieces
from tollgate.mapping.values import text_of

Headers = Mapping[str, tuple[frozenset[str], Template]]
"""By lower-case name: the names it reads that are only known for a call, and its template."""
MadeHeader = Callable[..., Any]
"""A header with the values that are known at start: of (context, headers=, stream=, native=), its value for one call,
or None if it is absent. All headers of a call get the same context, and so the same time and nonce."""

_OF_A_REQUEST = ("headers", "stream", "native")
"""Known only with the client's request."""
_OF_A_MOMENT = ("now", "nonce")
"""Different for every call."""


def compile_headers(
    pieces: Pieces, nodes: Mapping[str, Node], reads: tuple[str, ...] = ("model", "can", *_OF_A_REQUEST)
) -> dict[str, tuple[frozenset[str], Template]]:
    """A `headers:` block of a provider file; its templates may read these names and those that are always known.
    Mistakes are noted in `pieces`."""
    names = pieces.names("vars", "secret", *reads, *_OF_A_MOMENT)
    made = {}
    for name, node in nodes.items():
        template = pieces.template(node, names)
        if template is not None:
            read = (word for word in (*_OF_A_REQUEST, *_OF_A_MOMENT) if mentions(node, word, pieces.functions))
            made[name.lower()] = (frozenset(read), template)
    return made


def _made_header(reads: frozenset[str], template: Template, values: Mapping[str, Any]) -> MadeHeader:
    reads_nonce = "nonce" in reads

    def made(context: Context, *, headers: Mapping[str, str], stream: bool, native: bool) -> Any:
        nonce = context.nonce if reads_nonce else None
        return template(
            None, context, headers=headers, stream=stream, native=native, now=context.now, nonce=nonce, **values
        )

    return made


def split_headers(
    headers: Headers, values: Mapping[str, Any]
) -> tuple[dict[str, str], tuple[tuple[str, MadeHeader], ...]]:
    """The headers that are the same for every call, and those to be computed for each, with these values."""
    context = Context(model=values["model"], can=values["can"])
    fixed, made = {}, []
    for name, (reads, template) in headers.items():
        if reads:
            made.append((name, _made_header(reads, template, values)))
        elif (value := template(None, context, **values)) is not None:
            fixed[name] = text_of(value)
    return fixed, tuple(made)


def headers_without_request(headers: Headers, values: Mapping[str, Any]) -> dict[str, str]:
    """The headers of a call that does not come from a client's completion, such as an image job's; absent ones are
    left out."""
    fixed, made = split_headers(headers, {"model": {}, "can": {}, **values})
    context = Context()
    for name, header in made:
        if (value := header(context, headers={}, stream=False, native=False)) is not None:
            fixed[name] = text_of(value)
    return fixed
