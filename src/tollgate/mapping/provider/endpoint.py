"""An endpoint of a provider, compiled: what all models served through it share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tollgate.config.load import Node, find
from tollgate.config.model import Endpoint, model_type_of
from tollgate.mapping.pieces import Template
from tollgate.mapping.provider.error_reading import compile_errors
from tollgate.mapping.provider.errors import ErrorRules
from tollgate.mapping.provider.headers import Headers, compile_headers
from tollgate.mapping.provider.pieces import Pieces
from tollgate.mapping.provider.polling import Polling, compile_polling
from tollgate.mapping.provider.prepares import Prepare, compile_prepares
from tollgate.mapping.provider.reported_usage import ReportedUsage, compile_reported_usage
from tollgate.mapping.provider.sends import Sends, compile_sends

if TYPE_CHECKING:
    from tollgate.mapping import CompiledMapping
    from tollgate.mapping.edits import EditList


@dataclass(frozen=True, slots=True)
class CompiledEndpoint:
    """One endpoint with all its parts compiled."""

    config: Endpoint
    mapping: CompiledMapping | None
    errors: ErrorRules
    url: Template | None
    stream_url: Template | None
    count_url: Template | None
    headers: Headers
    query: Mapping[str, Template]
    usage: ReportedUsage
    unwrap: Template | None
    inner_of: Template | None
    polling: Polling | None
    prepares: tuple[Prepare, ...]
    sends: Sends | None

    def sparing(self, edits: EditList | None) -> EditList | None:
        """Edits of requests, which report no loss of what has no effect in this endpoint's format."""
        return edits if edits is None or self.mapping is None else replace(edits, harmless=self.mapping.harmless)


def compile_endpoint(
    pieces: Pieces, endpoint: Endpoint, mapping: CompiledMapping | None, headers: Headers, query: Mapping[str, Template]
) -> CompiledEndpoint:
    """Compile one endpoint; its headers and query override those of the provider. Mistakes are noted in `pieces`."""
    provider = pieces.provider
    polling = compile_polling(pieces, endpoint.poll, f"speaks.{endpoint.name}.poll")
    if mapping is not None:
        _check_mapping(pieces, endpoint, mapping, polling)
    return CompiledEndpoint(
        config=endpoint,
        mapping=mapping,
        errors=compile_errors(pieces, [endpoint.errors, provider.errors], mapping),
        url=pieces.url(endpoint.url),
        stream_url=pieces.url(endpoint.stream_url),
        count_url=pieces.url(endpoint.count_tokens_url),
        headers={**headers, **compile_headers(pieces, endpoint.headers)},
        query={**query, **compile_query(pieces, endpoint.query)},
        usage=compile_reported_usage(pieces, endpoint.usage, provider.usage),
        unwrap=pieces.expression(endpoint.unwrap),
        inner_of=pieces.expression(endpoint.inner_of),
        polling=polling,
        prepares=compile_prepares(pieces, endpoint.prepare, f"speaks.{endpoint.name}.prepare"),
        sends=compile_sends(pieces, endpoint.send, f"speaks.{endpoint.name}.send"),
    )


def compile_query(pieces: Pieces, written: Mapping[str, Node]) -> dict[str, Template]:
    """The templates of `query:`; those that do not compile are noted in `pieces` and left out."""
    names = pieces.names("model", "vars", "secret")
    made = {name: pieces.template(node, names) for name, node in written.items()}
    return {name: template for name, template in made.items() if template is not None}


def _check_mapping(pieces: Pieces, endpoint: Endpoint, mapping: CompiledMapping, polling: Polling | None) -> None:
    """Note an endpoint whose mapping is for something else, or lacks sections."""
    where = f"speaks.{endpoint.name}"
    at = find(pieces.document.root, ["speaks", endpoint.name])
    if (model_type_of(endpoint.name) == "embedding") != (mapping.hub == "embeddings"):
        difference = "is not for embeddings, as its endpoint" if not mapping.hub else "is for embeddings"
        hint = "hub: embeddings" if not mapping.hub else "their endpoint is `embeddings` or ends in `-embeddings`"
        pieces.mistake(at, f"mapping `{endpoint.mapping}` {difference}", where, hint)
    if missing := _missing(mapping, polling):
        pieces.mistake(
            at,
            f"mapping `{endpoint.mapping}` has no {' and no '.join(missing)}, which a provider that speaks it needs",
            where,
        )


def _missing(mapping: CompiledMapping, polling: Polling | None) -> list[str]:
    """The sections that a format lacks to be used with an upstream. If it answers in streams only, `stream.to_hub`
    replaces `response.to_hub`, unless the answer is polled, which gives a whole one."""
    wanted = ["request.from_hub"]
    if polling is not None and polling.again is not None or mapping.stream_in is None or mapping.hub:
        wanted.append("response.to_hub")
    missing = [name for name in wanted if name not in mapping.sections]
    streams = polling is not None and polling.stream is not None
    return [*missing, "stream.to_hub"] if streams and mapping.stream_in is None else missing
