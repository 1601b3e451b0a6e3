"""The model catalog: canonical ids, aliases, access rules, and the listings of models.

A canonical model has one entry, whatever the number of its routes. Its facts and its price are those of its first route
(lowest priority number, then weight, then name). `may_use` is the single rule for listing and calling. Image models are
resolved here too, but listed by their own endpoint.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from tollgate.config.model import Model, names_match, rank_of
from tollgate.model_entry import model_entry
from tollgate.routing import Route
from tollgate.tariff import Tariff

if TYPE_CHECKING:
    from tollgate.ledger import KeyRecord

_MAX_CACHED = 256
"""Most cached listings: one per set of visible models, not per key."""
_MOST_BYTES = 16 * 1024 * 1024
"""Total size limit of the cached listings. A thousand models take one megabyte, and each key may see different ones."""
_SNAPSHOT = re.compile(r"[-@]20\d{6}(?:-v\d+(?::\d+)?)?$")
"""The date suffix of a provider's model name, which identifies a snapshot: -20261101."""


@dataclass(frozen=True, slots=True)
class Access:
    """The models that a caller may use, as globs over canonical ids; a leading `!` excludes. None is every model, () is
    no model. `public_only` is set for callers without a key."""

    allowed: tuple[str, ...] | None = None
    public_only: bool = False


class Listing(NamedTuple):
    """The body of a catalog with its ETag, and the gzipped body with its own ETag, since it is another representation
    (RFC 9110, 8.8.3.3)."""

    body: bytes
    etag: bytes
    packed: bytes
    packed_etag: bytes


EVERYTHING = Access()
ANONYMOUS = Access(public_only=True)


def access_of(key: KeyRecord) -> Access:
    """The access of a key."""
    return EVERYTHING if key.allowed_models is None else Access(tuple(sorted(key.allowed_models)))


@dataclass(frozen=True, slots=True, eq=False)
class CatalogModel:
    """One canonical model with its routes. The first route determines the catalog entry and the price of a call."""

    id: str
    type: str
    facts: Model
    routes: tuple[Route, ...]
    tariff: Tariff | None
    aliases: tuple[str, ...]
    entry: Mapping[str, Any]
    """The `Model` resource."""


def may_use(access: Access, model: CatalogModel) -> bool:
    """Whether this caller may list and call this model. Nothing else decides that (PITFALLS 24)."""
    if access.public_only and not model.facts.public:
        return False
    allowed = access.allowed
    if not allowed:
        return allowed is None
    for glob in allowed:
        if glob[:1] == "!":
            return names_match(allowed, model.id)
    return any(fnmatchcase(model.id, glob) for glob in allowed)  # runs for every request: most lists exclude nothing


def may_use_unlisted(access: Access, name: str, asked: CatalogModel) -> bool:
    """Whether this caller may use a model that the catalog does not have, by its provider's name for it, in a request
    for the model `asked`: the globs are matched with the id that it would have.

    A key for acme/small may not use "large" of the same provider, which a key for acme/* may.
    """
    if access.allowed is None:
        return True
    return names_match(access.allowed, name if "/" in name else f"{asked.id.partition('/')[0]}/{name}")


class Catalog:
    """All models by canonical id and alias. Immutable, except for its cache of rendered listings."""

    def __init__(self, models: Iterable[CatalogModel], aliases: Mapping[str, str]) -> None:
        self.models: Mapping[str, CatalogModel] = {
            model.id: model for model in sorted(models, key=lambda model: model.id)
        }
        self.aliases = {
            alias: target for alias, target in aliases.items() if target in self.models and alias not in self.models
        }
        self._names = {**{alias: self.models[target] for alias, target in self.aliases.items()}, **self.models}
        self._upstream: dict[str, dict[str, CatalogModel]] = {}
        """Upstream model name -> provider -> model."""
        for model in self.models.values():
            for route in model.routes:
                self._upstream.setdefault(route.model.upstream, {}).setdefault(route.provider, model)
        self._listings: dict[Access, Listing] = {}
        self._by_names: dict[tuple[str, ...], Listing] = {}
        self._rendering = Lock()

    def resolve(self, name: str) -> CatalogModel | None:
        """The model of a canonical id or alias."""
        return self._names.get(name)

    def resolve_foreign(self, name: str, provider: str = "") -> CatalogModel | None:
        """The model with this canonical id, alias, or upstream name at `provider` (else at any provider). The date
        suffix of an upstream name is ignored.

        For model names that providers send: in tool definitions, and in usage reports.
        """
        for each in dict.fromkeys((name, _SNAPSHOT.sub("", name))):
            owners = self._upstream.get(each, {})
            found = owners.get(provider) or self._names.get(each) or next(iter(owners.values()), None)
            if found is not None:
                return found
        return None

    def example(self) -> str:
        """A chat model for examples: the sandbox's, else the first one, else MODEL."""
        if "sandbox/echo" in self.models:
            return "sandbox/echo"
        return next((model.id for model in self.models.values() if model.type == "chat"), "MODEL")

    def find(self, name: str, access: Access) -> CatalogModel | None:
        """As `resolve`, but None for a model that this caller may not use, so that it looks unknown."""
        model = self._names.get(name)
        return model if model is not None and may_use(access, model) else None

    def model(self, name: str, access: Access) -> Mapping[str, Any] | None:
        """The catalog entry with this id or alias; None if it is unknown, not permitted, or an image model."""
        found = self.find(name, access)
        return found.entry if found is not None and found.type != "image" else None

    def image_models(self, access: Access) -> list[CatalogModel]:
        """The image models that a caller may use, sorted by id."""
        return [model for model in self.models.values() if model.type == "image" and may_use(access, model)]

    def listed(self, access: Access) -> Listing | None:
        """The cached result of `listing` for this access; None if it is not cached."""
        return self._listings.get(access)

    def listing(self, access: Access) -> Listing:
        """The body of `GET /v1/models`, rendered once per set of visible models. Thread-safe; rendering a thousand
        models takes 10 ms."""
        with self._rendering:
            visible = (model for model in self.models.values() if model.type != "image" and may_use(access, model))
            names = tuple(model.id for model in visible)
            found = self._by_names.get(names)
            if found is None:
                found = listing_of({"object": "list", "data": [self.models[name].entry for name in names]})
                _remember(self._by_names, names, found)
            _remember(self._listings, access, found)
        return found


def listing_of(document: Any) -> Listing:
    """Serialise a catalog, plain and gzipped."""
    body = orjson.dumps(document)
    tag = hashlib.blake2b(body, digest_size=16).hexdigest().encode()
    return Listing(body, b'"%b"' % tag, gzip.compress(body, 6, mtime=0), b'"%b-gzip"' % tag)


def _remember(memo: dict[Any, Listing], key: Any, value: Listing) -> None:
    memo[key] = value
    while len(memo) > 1 and (len(memo) > _MAX_CACHED or sum(len(each.body) for each in memo.values()) > _MOST_BYTES):
        memo.pop(next(iter(memo)))


def grouped(routes: Iterable[Route]) -> dict[str, tuple[Route, ...]]:
    """The routes by canonical model, in order of preference."""
    by_id: dict[str, list[Route]] = {}
    for route in routes:
        by_id.setdefault(route.model.id, []).append(route)
    for found in by_id.values():
        found.sort(key=lambda route: rank_of(route.priority, route.weight, route.provider))
    return {name: tuple(found) for name, found in by_id.items()}


def make_model(name: str, routes: tuple[Route, ...]) -> CatalogModel:
    """One canonical model from its routes, which are in order of preference."""
    facts = routes[0].model
    aliases = tuple(dict.fromkeys(alias for route in routes for alias in route.model.aliases))
    tariff = next((offer.own_tariff for offer in routes[0].offers), None)
    # limits that the first provider does not publish, another one may
    context = next((route.model.context for route in routes if route.model.context), 0)
    max_output = next((route.model.max_output for route in routes if route.model.max_output), None)
    entry = model_entry(replace(facts, context=context, max_output=max_output))
    return CatalogModel(name, facts.type, facts, routes, tariff, aliases, entry)


def catalog_of(
    models: Iterable[CatalogModel], own: Mapping[str, str], written: Mapping[str, str] = MappingProxyType({})
) -> Catalog:
    """The catalog of the models of all enabled providers, with the gateway's `own` aliases, which may refer to each
    other. `written` has the aliases in provider files.

    A canonical id takes precedence over every alias, a gateway alias over a provider's, and one that is written in a
    file over one from a provider's list: a list must not change what a written name means. If the lists of two
    providers define the same alias, the smaller canonical id wins (for files the configuration check rejects that).
    """
    by_id = {model.id: model for model in models}
    names: dict[str, str] = {}
    for model in sorted(by_id.values(), key=lambda model: model.id, reverse=True):
        names.update(dict.fromkeys(model.aliases, model.id))
    names.update((alias, target) for alias, target in written.items() if target in by_id)
    for alias in own:
        target, seen = own[alias], {alias}
        while target not in by_id and target in own and target not in seen:
            seen.add(target)
            target = own[target]
        names[alias] = target if target in by_id else names.get(target, target)
    return Catalog(by_id.values(), names)
