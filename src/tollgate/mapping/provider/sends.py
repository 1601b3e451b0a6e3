"""The parts of a request outside its body: method, path, query parameters and headers (`send:` of an endpoint).

Their templates read the finished request, after all edits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tollgate.addresses import with_query
from tollgate.config.load import Map, Node, entries_of, text_in
from tollgate.mapping.context import Context
from tollgate.mapping.failures import MappingFailure, UnfitRequest
from tollgate.mapping.pieces import Template
from tollgate.mapping.provider.pieces import Pieces
from tollgate.mapping.values import texts_of

_NAMES = ("$", "model", "vars", "stream")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*\Z")
"""RFC 9110, 5.5. Values may come from the client's request."""


class Sent(NamedTuple):
    """One request: its method, the additions to its URL and headers, and its body (None: no body)."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any

    def full_url(self, url: str) -> str:
        """`url` with the path appended, and with the query parameters."""
        base, mark, query = url.partition("?")
        return with_query(f"{base.rstrip('/')}{self.path}{mark}{query}" if self.path else url, self.query)

    def all_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """`headers` and those of this request, without a content type if there is no body."""
        kept = {name: value for name, value in headers.items() if self.body is not None or name != "content-type"}
        return {**kept, **self.headers}


@dataclass(frozen=True, slots=True)
class Sends:
    """The compiled `send:` of an endpoint."""

    method: str
    path: Template | None
    query: Mapping[str, Template]
    headers: Mapping[str, Template]
    body: Template | None
    variables: Mapping[str, Any]

    def of(self, document: Any, facts: Mapping[str, Any], *, stream: bool) -> Sent:
        """The parts of a finished request to a model with these facts. Raises `UnfitRequest` if a template cannot be
        computed."""
        context, values = Context(model=facts), {"model": facts, "vars": self.variables, "stream": stream}

        def texts(templates: Mapping[str, Template]) -> dict[str, str]:
            return texts_of({name: template(document, context, **values) for name, template in templates.items()})

        try:
            path = self.path(document, context, **values) if self.path is not None else ""
            if path is None:
                raise UnfitRequest("the request lacks a value for this model's URL")
            if self.body is not None:
                body = self.body(document, context, **values)
            else:
                body = None if self.method == "GET" else document
            headers = texts(self.headers)
            for name, value in headers.items():
                if not _HEADER_VALUE.match(value):
                    raise UnfitRequest(f"the value of the header {name} has characters that headers cannot have")
            return Sent(self.method, path, texts(self.query), headers, body)
        except UnfitRequest:
            raise
        except MappingFailure as failure:
            raise UnfitRequest(failure.message, failure.place) from None


def compile_sends(pieces: Pieces, node: Map | None, path: str) -> Sends | None:
    """The compiled `send:` of an endpoint; None without one. Mistakes are noted in `pieces`."""
    if node is None:
        return None
    names = pieces.names(*_NAMES)

    def made(at: Node | None) -> Template | None:
        if at is not None:
            pieces.warn_of_literal(at, names, answer=False)
        return pieces.template(at, names, answer=False)

    def table(key: str) -> dict[str, Template]:
        found = {name: made(value) for name, value in entries_of(node.get(key)).items()}
        return {name: template for name, template in found.items() if template is not None}

    method = text_in(node.get("method")) or "POST"
    if method == "GET" and "body" in node.entries:
        pieces.mistake(node.entries["body"], "a GET has no body", f"{path}.body", "write it under `query` or `path`")
    return Sends(
        method,
        pieces.url(node.get("path"), names),
        table("query"),
        {name.lower(): template for name, template in table("headers").items()},
        made(node.get("body")),
        pieces.variables,
    )
