"""One version of the configuration, compiled and immutable, as a running gateway uses it.

`build_runtime` collects every mistake of every file. A reload passes the previous runtime, and what did not change is
taken from it: mappings whose text is the same, providers whose text, secrets and mappings are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from tollgate.catalog import Catalog, CatalogModel, catalog_of, grouped, make_model
from tollgate.config.build import Loaded, examine_gateway, in_order
from tollgate.config.file_reader import needed_mappings
from tollgate.config.load import Document, Map, Problem
from tollgate.config.model import Gateway, Model, Provider, currency_of
from tollgate.config.reusable import Reusable
from tollgate.errors import ConfigErrors
from tollgate.mapping import CompiledMapping, compile_mapping
from tollgate.mapping.code_cache import CodeCache
from tollgate.mapping.emit import using_code_cache
from tollgate.mapping.filter_table import Filter
from tollgate.mapping.images import ImageOffers
from tollgate.mapping.plugins import load_plugins
from tollgate.mapping.provider.compile import CompiledProvider, compile_provider
from tollgate.process.garbage_collector import collector_paused
from tollgate.routing import Route, make_route
from tollgate.wire import CLIENT_FORMATS

_Made = TypeVar("_Made")
Discovered = Mapping[str, tuple[Model, ...]]
"""Models found in providers' own lists, by provider. A model in the provider file with the same id has precedence."""


@dataclass(frozen=True, slots=True, eq=False)
class Runtime:
    """One version of the configuration, compiled. `providers` has those that are on (`gateway.providers` has all)."""

    gateway: Gateway
    mappings: Mapping[str, CompiledMapping]
    providers: Mapping[str, CompiledProvider]
    catalog: Catalog
    images: ImageOffers
    loaded: Loaded
    offered: Mapping[str, tuple[Route, ...]] = field(default_factory=dict, repr=False)
    """The routes of each provider, for the next build."""
    made_from: Mapping[str, tuple[Route, ...]] = field(default_factory=dict, repr=False)
    """The routes from which each model of the catalog was made, before they got the catalog's price; for the next
    build."""
    several_minters: bool = False
    """Whether some upstreams cannot read what others encrypt (`Offer.minter`)."""

    def route_names(self) -> frozenset[str]:
        """The names of all routes; the health of others can be forgotten."""
        return frozenset(route.key for model in self.catalog.models.values() for route in model.routes)


@dataclass(frozen=True, slots=True)
class CompiledFiles:
    """The mappings and providers of a configuration that compile, by name, and the mistakes of those that do not."""

    mappings: dict[str, CompiledMapping]
    providers: dict[str, CompiledProvider]
    problems: tuple[Problem, ...]


class RuntimeHolder:
    """The current runtime. A request takes `current` once and keeps it; a reload replaces it in one assignment.

    Hold `swapping` while you build a runtime and `swap` it in, so that no change is overwritten by a build that began
    before. `stale` is True when newer files were refused because of mistakes in them.
    """

    __slots__ = ("current", "discovered", "on_swap", "stale", "swapping")

    def __init__(self, runtime: Runtime) -> None:
        self.current = runtime
        self.discovered: Discovered = {}
        """The lists in force, for every build. Replaced as a whole, because builds run in threads."""
        self.on_swap: Callable[[Runtime], None] = lambda runtime: None
        """Passes the settings of a new runtime to what outlives it."""
        self.stale = False
        self.swapping = asyncio.Lock()

    def swap(self, runtime: Runtime) -> None:
        """Use this runtime from now on."""
        self.current = runtime
        self.on_swap(runtime)


def build_runtime(
    loaded: Loaded,
    previous: Runtime | None = None,
    *,
    discovered: Discovered | None = None,
    everything: bool = False,
    code_cache: CodeCache | None = None,
) -> Runtime:
    """Compile a loaded configuration. Raises `ConfigErrors` with the mistakes of all files at once.

    A provider that is off is compiled only with `everything` (`tollgate check`): a start need not spend time on it, and
    must not fail because of a mistake in it. The same is true for mappings that no provider needs then. `code_cache` is
    code from an earlier start.
    """
    with collector_paused(), using_code_cache(code_cache):
        files = compile_files(loaded, previous, discovered=discovered, everything=everything)
        if files.problems:
            raise ConfigErrors(files.problems)
        providers = files.providers
        offered = {name: _offered(provider, previous) for name, provider in providers.items()}
        every_route = [route for routes in offered.values() for route in routes]
        groups = grouped(every_route)
        models = [_model(name, routes, previous) for name, routes in groups.items()]
        pictures = [each for provider in providers.values() if not provider.config.off for each in provider.images]
        return Runtime(
            loaded.gateway,
            MappingProxyType(files.mappings),
            MappingProxyType(providers),
            catalog_of(models, loaded.gateway.aliases, written_aliases(loaded.gateway)),
            ImageOffers(pictures),
            loaded,
            offered,
            groups,
            several_minters=len({offer.minter for route in every_route for offer in route.offers}) > 1,
        )


def written_aliases(gateway: Gateway) -> dict[str, str]:
    """The aliases in the files of providers that are on, and the canonical ids that they name."""
    on = (provider for provider in gateway.providers.values() if not provider.off)
    return {alias: model.id for provider in on for model in provider.models for alias in model.aliases}


def compile_files(
    loaded: Loaded, previous: Runtime | None = None, *, discovered: Discovered | None = None, everything: bool = False
) -> CompiledFiles:
    """Compile every file of a configuration by itself, as far as possible; see `build_runtime`."""
    build = _Build(loaded, previous, everything)
    mappings = build.mappings()
    providers = build.providers(mappings, discovered or {})
    return CompiledFiles(mappings, providers, tuple(in_order(build.problems)))


def load_or_report_all(
    path: Path | None = None, *, environ: Mapping[str, str], previous: Reusable | None = None
) -> Loaded:
    """Like `load_gateway`, for callers that compile next. If files do not load, it still compiles what it can, and
    raises one `ConfigErrors` with the mistakes of loading and compiling."""
    loaded, problems = examine_gateway(path, environ=environ, previous=previous)
    if loaded is not None and not any(problem.level == "error" for problem in problems):
        return loaded
    more = compile_files(loaded).problems if loaded is not None else ()
    raise ConfigErrors(in_order([*problems, *more]), loaded.gateway.files if loaded is not None else ())


class _Build:
    """Compiles one configuration: takes what has not changed from `previous`, and collects mistakes."""

    def __init__(self, loaded: Loaded, previous: Runtime | None, everything: bool) -> None:
        self.loaded = loaded
        self.gateway = loaded.gateway
        self.everything = everything
        self.problems: list[Problem] = []
        self.plugins: dict[str, Filter] = self._noting(lambda: load_plugins(self.gateway.plugins)) or {}
        self.previous = previous if previous is not None and previous.gateway.plugins == self.gateway.plugins else None

    def mappings(self) -> dict[str, CompiledMapping]:
        """The mappings by name: those that a provider needs, or all with `everything`."""
        needed = self.gateway.mappings if self.everything else needed_mappings(self.gateway.providers.values())
        found = {}
        for name, document in self.gateway.mappings.items():
            unread = document.problems and isinstance(document.root, Map) and not document.root.entries
            if name in needed and not unread and (mapping := self._mapping(name, document)) is not None:
                found[name] = mapping
        return found

    def _mapping(self, name: str, document: Document) -> CompiledMapping | None:
        if (
            self.previous is not None
            and name in self.previous.mappings
            and _same_text(self.previous.gateway.mappings.get(name), document)
        ):
            return self.previous.mappings[name]
        mapping = self._noting(lambda: compile_mapping(document, plugins=self.plugins))
        if mapping is not None and (missing := _missing(name, mapping)):
            message = f"mapping `{name}` has no {' and no '.join(missing)}, which clients of this format need"
            hint = "a file of this name replaces the one in the package: copy that one and edit the copy"
            self.problems.append(document.problem(document.root, message, hint=hint))
        return mapping

    def providers(self, mappings: Mapping[str, CompiledMapping], discovered: Discovered) -> dict[str, CompiledProvider]:
        """The providers by name."""
        secrets = hash(frozenset((name, self.loaded.secrets.get(name)) for name in self.loaded.secrets.names()))
        found: dict[str, CompiledProvider] = {}
        for name, written in self.gateway.providers.items():
            if written.off and not self.everything:
                continue
            found_there = discovered.get(name, ()) if written.discover is not None else ()  # it had a list before
            provider = _with_discovered(written, found_there, self.gateway.credits.rates)
            fingerprint = _fingerprint(provider, len(written.models), self.loaded, secrets, mappings)
            if (compiled := self._provider(provider, fingerprint, mappings)) is not None:
                found[name] = compiled
        return found

    def _provider(
        self, provider: Provider, fingerprint: object, mappings: Mapping[str, CompiledMapping]
    ) -> CompiledProvider | None:
        previous = self.previous.providers.get(provider.name) if self.previous is not None else None
        if previous is not None and previous.fingerprint == fingerprint:
            return previous
        compiled = self._noting(
            lambda: compile_provider(
                provider,
                mappings,
                self.loaded.secrets,
                timeouts=self.gateway.timeouts,
                retry_statuses=self.gateway.retry.statuses,
                plugins=self.plugins,
            )
        )
        return replace(compiled, fingerprint=fingerprint) if compiled is not None else None

    def _noting(self, compile_one: Callable[[], _Made]) -> _Made | None:
        try:
            return compile_one()
        except ConfigErrors as errors:
            self.problems.extend(errors.problems)
            return None


def _missing(name: str, mapping: CompiledMapping) -> list[str]:
    """The sections without which a client of this format cannot be served, such as those of a file that is half
    written yet: what loads must run."""
    if name not in CLIENT_FORMATS:
        return []
    wanted = ["request.to_hub"] if mapping.hub else ["request.to_hub", "response.from_hub"]
    missing = [section for section in wanted if section not in mapping.sections]
    return missing if mapping.hub or mapping.writer is not None else [*missing, "stream.from_hub"]


def routes_of(provider: CompiledProvider) -> Iterable[Route]:
    """The routes of a provider: one for each model, none while it is off."""
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
    """A model of the catalog, taken from `previous` if its routes are the same objects.

    Every offer bills at the price the model has in the catalog, whichever route serves it (SPEC service 1).
    """
    if previous is not None and previous.made_from.get(name) == routes:
        return previous.catalog.models[name]
    model = make_model(name, routes)
    first = next(iter(routes[0].offers), None)
    if len(routes) > 1 and first is not None:
        model = replace(model, routes=tuple(_at(route, model, first.prices_text) for route in routes))
    return model


def _at(route: Route, model: CatalogModel, prices_text: str) -> Route:
    offers = tuple(
        offer if offer.tariff is model.tariff else replace(offer, tariff=model.tariff, prices_text=prices_text)
        for offer in route.offers
    )
    return make_route(route.model, offers, priority=route.priority, weight=route.weight)


def _with_discovered(provider: Provider, found: tuple[Model, ...], rates: Collection[str]) -> Provider:
    """The provider with the models of its list. Those whose price is in a currency without an exchange rate are left
    out, because no request of them could be billed: a list changes its prices, and a reload the rates, at any time."""
    written = {model.id for model in provider.models}
    new = tuple(model for model in found if model.id not in written and currency_of(model) in (None, *rates))
    return replace(provider, models=(*provider.models, *new)) if new else provider


def _same_text(one: Any, other: Any) -> bool:
    return one is not None and one.text == other.text and one.file == other.file


def _fingerprint(
    provider: Provider, written: int, loaded: Loaded, secrets: int, mappings: Mapping[str, CompiledMapping]
) -> tuple[Any, ...]:
    """What a compiled provider depends on. If it is equal to that of an earlier one, that one can be used."""
    used = tuple(
        sorted((endpoint.mapping, id(mappings.get(endpoint.mapping))) for endpoint in provider.endpoints.values())
    )
    texts = tuple((document.file, document.text) for document in (provider.document, *provider.document.included))
    gateway = loaded.gateway
    return texts, provider.off, gateway.timeouts, gateway.retry.statuses, used, secrets, provider.models[written:]
