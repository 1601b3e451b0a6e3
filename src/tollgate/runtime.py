"""Everything compiled, immutable: what one version of the configuration is to a running gateway.

`build_runtime` collects every mistake of every file. A reload hands the previous runtime in, and what did not change is
taken over from it: mappings whose text is the same, providers whose text, secrets and mappings are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from tollgate.catalog import Catalog, CatalogModel, catalog_of, grouped, make_model
from tollgate.collecting import collector_resting
from tollgate.config.build import Loaded, needed_mappings
from tollgate.config.load import Problem
from tollgate.config.model import Gateway, Model, Provider
from tollgate.errors import ConfigErrors
from tollgate.mapping import Mapping as ProtocolMapping
from tollgate.mapping import compile_mapping
from tollgate.mapping.emit import keeping
from tollgate.mapping.functions import Filter
from tollgate.mapping.images import ImageOffers
from tollgate.mapping.kept import KeptCode
from tollgate.mapping.plugins import load_plugins
from tollgate.mapping.provider.compile import CompiledProvider, compile_provider
from tollgate.routing import Route, make_route

Discovered = Mapping[str, tuple[Model, ...]]
"""Models found in providers' own lists, by provider; a written model of the same id wins."""


@dataclass(frozen=True, slots=True, eq=False)
class Runtime:
    """One version of the configuration, compiled. `providers` lacks those that are off (`gateway.providers` has them);
    `fingerprints` say what each one was compiled from."""

    gateway: Gateway
    mappings: Mapping[str, ProtocolMapping]
    providers: Mapping[str, CompiledProvider]
    catalog: Catalog
    images: ImageOffers
    loaded: Loaded
    fingerprints: Mapping[str, Any] = field(default_factory=dict, repr=False)
    offered: Mapping[str, tuple[Route, ...]] = field(default_factory=dict, repr=False)
    """The routes of each provider."""
    made_from: Mapping[str, tuple[Route, ...]] = field(default_factory=dict, repr=False)
    """The routes each model of the catalog was made from, before they got the catalog's price."""

    @property
    def routes(self) -> Mapping[str, tuple[Route, ...]]:
        """The routes of each canonical model, first choice first."""
        return {name: model.routes for name, model in self.catalog.models.items()}

    def route_names(self) -> frozenset[str]:
        """Every route there is, for forgetting the health of removed ones."""
        return frozenset(route.key for model in self.catalog.models.values() for route in model.routes)


class RuntimeHolder:
    """The runtime in force. A request takes `current` once and keeps it; a reload replaces it in one assignment.

    Who builds another one holds `swapping` meanwhile, so that no change is lost to a build that began before it.
    """

    __slots__ = ("current", "swapping")

    def __init__(self, runtime: Runtime) -> None:
        self.current = runtime
        self.swapping = asyncio.Lock()


def build_runtime(loaded: Loaded, previous: Runtime | None = None, *, discovered: Discovered | None = None,
                  everything: bool = False, kept: KeptCode | None = None) -> Runtime:
    """Compile a loaded configuration. Raises `ConfigErrors` with the mistakes of all files at once.

    A provider that is off is compiled only for `everything` (`tollgate check`): a start need not pay for the twenty it
    will not use, and a slip in one of them is no reason not to serve. The same goes for mappings nobody then needs.
    `kept` is code from an earlier start.
    """
    with collector_resting(), keeping(kept):
        return _built(loaded, previous, discovered, everything)


def _built(loaded: Loaded, previous: Runtime | None, discovered: Discovered | None, everything: bool) -> Runtime:
    gateway = loaded.gateway
    problems: list[Problem] = []
    plugins: dict[str, Filter] = {}
    try:
        plugins = load_plugins(gateway.plugins)
    except ConfigErrors as errors:
        problems.extend(errors.problems)
    same_plugins = previous is not None and previous.gateway.plugins == gateway.plugins
    mappings: dict[str, ProtocolMapping] = {}
    needed = needed_mappings(gateway.providers.values()) if not everything else None
    for name, document in gateway.mappings.items():
        if needed is not None and name not in needed:
            continue
        old = previous.mappings.get(name) if previous is not None and same_plugins else None
        if old is not None and previous is not None and _same_text(previous.gateway.mappings.get(name), document):
            mappings[name] = old
            continue
        try:
            mappings[name] = compile_mapping(document, plugins=plugins)
        except ConfigErrors as errors:
            problems.extend(errors.problems)
    secrets = hash(frozenset((name, loaded.secrets.get(name)) for name in loaded.secrets.names()))
    providers: dict[str, CompiledProvider] = {}
    fingerprints: dict[str, Any] = {}
    for name, written in gateway.providers.items():
        if written.off and not everything:
            continue
        provider = _with_discovered(written, (discovered or {}).get(name, ()))
        made_from = _fingerprint(provider, len(written.models), loaded, secrets, mappings)
        fingerprints[name] = made_from
        if previous is not None and same_plugins and previous.fingerprints.get(name) == made_from and name in previous.providers:
            providers[name] = previous.providers[name]
            continue
        try:
            providers[name] = compile_provider(provider, mappings, loaded.secrets, timeouts=gateway.timeouts, plugins=plugins)
        except ConfigErrors as errors:
            problems.extend(errors.problems)
    if problems:
        raise ConfigErrors(sorted(dict.fromkeys(problems), key=lambda problem: (problem.mark.file, problem.mark.line, problem.mark.column)))
    offered = {name: _offered(provider, previous) for name, provider in providers.items()}
    groups = grouped(route for routes in offered.values() for route in routes)
    catalog = catalog_of([_model(name, routes, previous) for name, routes in groups.items()], gateway.aliases)
    images = ImageOffers(offer for provider in providers.values() if not provider.config.off for offer in provider.images)
    return Runtime(gateway, MappingProxyType(mappings), MappingProxyType(providers), catalog, images, loaded, MappingProxyType(fingerprints),
                   offered, groups)


def routes_of(provider: CompiledProvider) -> Iterable[Route]:
    """The routes a provider offers: one for each model, none while it is off."""
    if provider.config.off:
        return
    pictures = {offer.model.id for offer in provider.images}
    for model in provider.config.models:
        offers = provider.offers.get(model.id, ())
        if offers or model.id in pictures:
            yield make_route(model, offers, priority=model.priority, weight=model.weight)


def _offered(provider: CompiledProvider, previous: Runtime | None) -> tuple[Route, ...]:
    name = provider.config.name
    if previous is not None and previous.providers.get(name) is provider:
        return previous.offered[name]
    return tuple(routes_of(provider))


def _model(name: str, routes: tuple[Route, ...], previous: Runtime | None) -> CatalogModel:
    """A model of the catalog, taken over when its routes are the same ones. Every offer bills at the price the model has
    in the catalog, whichever route serves it (SPEC service 1)."""
    if previous is not None and previous.made_from.get(name) == routes:
        return previous.catalog.models[name]
    model = make_model(name, routes)
    first = next(iter(routes[0].offers), None)
    if len(routes) > 1 and first is not None:
        model = replace(model, routes=tuple(_at(route, model, first.prices_text) for route in routes))
    return model


def _at(route: Route, model: CatalogModel, prices_text: str) -> Route:
    offers = tuple(offer if offer.tariff is model.tariff else replace(offer, tariff=model.tariff, prices_text=prices_text) for offer in route.offers)
    return make_route(route.model, offers, priority=route.priority, weight=route.weight)


def _with_discovered(provider: Provider, found: tuple[Model, ...]) -> Provider:
    written = {model.id for model in provider.models}
    new = tuple(model for model in found if model.id not in written)
    return replace(provider, models=(*provider.models, *new)) if new else provider


def _same_text(one: Any, other: Any) -> bool:
    return one is not None and one.text == other.text and one.file == other.file


def _fingerprint(provider: Provider, written: int, loaded: Loaded, secrets: int, mappings: Mapping[str, ProtocolMapping]) -> tuple[Any, ...]:
    """What a compiled provider depends on; equal means it can be taken over."""
    used = tuple(sorted((endpoint.mapping, id(mappings.get(endpoint.mapping))) for endpoint in provider.endpoints.values()))
    texts = tuple((document.file, document.text) for document in (provider.document, *provider.document.included))
    return texts, provider.off, loaded.gateway.timeouts, used, secrets, provider.models[written:]
