"""The addresses of an endpoint for one model, made from their templates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tollgate.addresses import with_query
from tollgate.config.load import Node
from tollgate.mapping.context import Context
from tollgate.mapping.mentions import mentions
from tollgate.mapping.pieces import Template
from tollgate.mapping.provider.endpoint import CompiledEndpoint
from tollgate.mapping.provider.offer import Address
from tollgate.mapping.provider.pieces import Pieces
from tollgate.mapping.values import texts_of

_ESCAPED = re.compile(r"(?:https?|app)%3A%2F%2F")
"""A variable with a whole address that was escaped like a part of a path."""


def address_of(pieces: Pieces, endpoint: CompiledEndpoint, facts: Mapping[str, Any]) -> Address | None:
    """The addresses for a model with these facts; None, with the mistake noted in `pieces`, if one is invalid."""
    values: dict[str, Any] = {"model": facts, "vars": pieces.variables}
    context = Context(model=facts)
    query = query_of(pieces, endpoint.query, facts)
    where = f"speaks.{endpoint.config.name}"

    def made(node: Node | None, template: Template | None) -> str | None:
        if node is None or template is None:
            return None
        address = template(None, context, **values)
        if address is None and pieces.provider.lacks_variables:
            return None
        if address is None:
            unset = [
                name for name, value in pieces.variables.items() if value is None and mentions(node, f"vars.{name}")
            ]
            why = f"`$vars.{unset[0]}` has no value" if unset else "something it reads has no value"
            pieces.mistake(node, f"the address is incomplete for {facts['id']}: {why}", where)
            return None
        if not isinstance(address, str) or not address.startswith(("http://", "https://", "app://")):
            found = "a map" if isinstance(address, dict) else f'"{pieces.redact(str(address))[:80]}"'
            hint = "what stands in braces is escaped: {{ $vars.x | raw }}" if _ESCAPED.match(str(address)) else ""
            pieces.mistake(node, f"found {found}, wanted an address like https://api.example/v1", where, hint)
            return None
        return with_query(address, query)

    config = endpoint.config
    whole = made(config.url, endpoint.url)
    stream = made(config.stream_url, endpoint.stream_url) if config.stream_url is not None else whole
    counting = made(config.count_tokens_url, endpoint.count_url)
    return Address(whole, stream, counting, query) if whole is not None and stream is not None else None


def query_of(pieces: Pieces, query: Mapping[str, Template], facts: Mapping[str, Any]) -> dict[str, str]:
    """The query parameters of calls for a model with these facts."""
    values: dict[str, Any] = {"model": facts, "vars": pieces.variables, "secret": pieces.secrets}
    context = Context(model=facts)
    return texts_of({name: template(None, context, **values) for name, template in query.items()})
