"""Compiles a provider's configuration into offers: everything that a request needs, computed once.

All mistakes of the file are collected. A provider that is off is compiled (so that its mistakes are found) but offers
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from tollgate.config.load import Problem
from tollgate.config.model import Provider
from tollgate.config.secrets import Secrets
from tollgate.config.settings import DEFAULT_RETRY_STATUSES, Timeouts
from tollgate.errors import ConfigErrors
from tollgate.mapping.filter_table import Filter
from tollgate.mapping.images import ImageOffer, Surroundings, compile_images
from tollgate.mapping.provider.address import query_of
from tollgate.mapping.provider.auth import compile_auth
from tollgate.mapping.provider.discover import Discovery, compile_discovery
from tollgate.mapping.provider.endpoint import CompiledEndpoint, compile_endpoint, compile_query
from tollgate.mapping.provider.error_reading import compile_errors
from tollgate.mapping.provider.errors import ErrorRules
from tollgate.mapping.provider.headers import compile_headers, headers_without_request
from tollgate.mapping.provider.offer import Offer
from tollgate.mapping.provider.offers import Offers
from tollgate.mapping.provider.pieces import Pieces
from tollgate.mapping.provider.scopes import Scopes, compile_scopes
from tollgate.mapping.provider.signing import Signing, compile_signing
from tollgate.mapping.provider.token_request import TokenRequest, compile_token_request

if TYPE_CHECKING:
    from tollgate.mapping import CompiledMapping


@dataclass(frozen=True, slots=True, eq=False)
class CompiledProvider:
    """A provider ready to serve. `offers` has its chat and embedding offers by model (none while it is off),
    `images` its image models (also while it is off, for their examples)."""

    config: Provider
    errors: ErrorRules
    endpoints: Mapping[str, CompiledEndpoint]
    scopes: Scopes
    offers: Mapping[str, tuple[Offer, ...]]
    images: tuple[ImageOffer, ...]
    discovery: Discovery | None
    signing: Signing | None
    token_request: TokenRequest | None
    warnings: tuple[Problem, ...]
    """Warnings about its templates, edits and functions."""
    fingerprint: object = field(default=None, repr=False)
    """What it was compiled from, for the next build."""


def compile_provider(
    provider: Provider,
    mappings: Mapping[str, CompiledMapping],
    secrets: Secrets,
    *,
    timeouts: Timeouts | None = None,
    retry_statuses: frozenset[int] = DEFAULT_RETRY_STATUSES,
    plugins: Mapping[str, Filter] | None = None,
) -> CompiledProvider:
    """Compile all of a provider. `timeouts` and `retry_statuses` are the gateway's, where its file says no others.
    Raises `ConfigErrors` with every mistake of its file."""
    pieces = Pieces(provider, secrets, plugins, retry_statuses)
    budgets = replace(timeouts or Timeouts(), **provider.timeouts)
    errors = compile_errors(pieces, [provider.errors])
    scopes = compile_scopes(pieces)
    headers, query = compile_headers(pieces, provider.headers), compile_query(pieces, provider.query)
    endpoints = {
        name: compile_endpoint(pieces, endpoint, mappings.get(endpoint.mapping), headers, query)
        for name, endpoint in provider.endpoints.items()
    }
    signing = compile_signing(pieces, provider)
    token_request = compile_token_request(pieces)
    auth = compile_auth(pieces, provider, signing, token_request)
    discovery = compile_discovery(pieces, headers, query_of(pieces, query, {}), auth, errors)
    image_headers = partial(headers_without_request, headers, {"vars": pieces.variables, "secret": pieces.secrets})
    images = compile_images(
        pieces, Surroundings(errors, image_headers, budgets, auth, partial(query_of, pieces, query))
    )
    offers: dict[str, tuple[Offer, ...]] = {}
    if not provider.off and not pieces.problems:
        making = Offers(pieces, endpoints, scopes, budgets, auth)
        offers = {model.id: making.of(model) for model in provider.models if model.type != "image"}
    if pieces.problems:
        raise ConfigErrors(
            sorted(dict.fromkeys(pieces.problems), key=lambda problem: (problem.mark.line, problem.mark.column))
        )
    noted = [*(pieces.functions.warnings if pieces.functions is not None else ()), *pieces.warnings]
    return CompiledProvider(
        config=provider,
        errors=errors,
        endpoints=endpoints,
        scopes=scopes,
        offers=offers,
        images=tuple(images),
        discovery=discovery,
        signing=signing,
        token_request=token_request,
        warnings=tuple(dict.fromkeys(noted)),
    )
