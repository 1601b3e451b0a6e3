"""The model catalog: canonical ids, aliases, who may use what, and the `Model` resource of the specification.

One canonical model is one entry, however many routes serve it; its facts and its price are those of its first route
(lowest priority number, then weight, then name). `may_use` is the one rule for listing and for calling. Image models
are resolved here too but listed by their own endpoint.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from threading import Lock
from typing import Any, NamedTuple, Protocol

import orjson

from tollgate.config.model import Model, Rank, names_match, rank_of
from tollgate.config.pricing import VOLUME_CONDITIONS, Pricing, Volume
from tollgate.money import decimal_text
from tollgate.routing import Route
from tollgate.tariff import Tariff

_MAX_CACHED = 256
"""Distinct lists kept as bytes: one per set of visible models, not per key."""
_MOST_BYTES = 16 * 1024 * 1024
"""What these may come to: the list of a thousand models is one megabyte, and each key may leave out others."""
_SNAPSHOT = re.compile(r"[-@]20\d{6}(?:-v\d+(?::\d+)?)?$")
"""The date at the end of a provider's name for a model, by which it names one state of it: -20261101."""


class _Key(Protocol):
    @property
    def allowed_models(self) -> tuple[str, ...] | None: ...


@dataclass(frozen=True, slots=True)
class Access:
    """What a caller may use: globs over canonical ids, those with a `!` in front leave out. None is everything, () is
    nothing; `public_only` is a caller without a key."""

    allowed: tuple[str, ...] | None = None
    public_only: bool = False


class Listing(NamedTuple):
    """The body of a catalog with its ETag, and the same packed by gzip, which is another representation (RFC 9110,
    8.8.3.3)."""

    body: bytes
    etag: bytes
    packed: bytes
    packed_etag: bytes


EVERYTHING = Access()
ANONYMOUS = Access(public_only=True)


def access_of(key: _Key) -> Access:
    """The access of a key."""
    return EVERYTHING if key.allowed_models is None else Access(tuple(sorted(key.allowed_models)))


@dataclass(frozen=True, slots=True, eq=False)
class CatalogModel:
    """One canonical model with its routes, the first of which decides what the catalog says and what a call costs."""

    id: str
    type: str
    facts: Model
    routes: tuple[Route, ...]
    tariff: Tariff | None
    aliases: tuple[str, ...]
    entry: Mapping[str, Any]
    """The `Model` resource, ready to be sent."""


def may_use(access: Access, model: CatalogModel) -> bool:
    """Whether this caller may list and call this model; the only place where that is decided (PITFALLS 24)."""
    if access.public_only and not model.facts.public:
        return False
    allowed = access.allowed
    if not allowed:
        return allowed is None
    for glob in allowed:
        if glob[:1] == "!":
            return names_match(allowed, model.id)
    return any(fnmatchcase(model.id, glob) for glob in allowed)  # asked at every request: most lists leave nothing out


class Catalog:
    """All models by canonical id and alias; immutable but for its memo of rendered lists."""

    def __init__(self, models: Iterable[CatalogModel], aliases: Mapping[str, str]) -> None:
        self.models: Mapping[str, CatalogModel] = {
            model.id: model for model in sorted(models, key=lambda model: model.id)
        }
        self.aliases = {
            alias: target for alias, target in aliases.items() if target in self.models and alias not in self.models
        }
        self._names = {**{alias: self.models[target] for alias, target in self.aliases.items()}, **self.models}
        self._upstream: dict[str, dict[str, CatalogModel]] = {}
        """By a provider's name for a model, the model it means, by provider."""
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
        """The model meant by a canonical id, an alias, or the name that `provider` (or any provider, if None) has for
        it; the date at the end of a provider's name does not matter.

        For models that providers name themselves: those for their tools, and those in their usage.
        """
        for each in dict.fromkeys((name, _SNAPSHOT.sub("", name))):
            owners = self._upstream.get(each, {})
            found = owners.get(provider) or self._names.get(each) or next(iter(owners.values()), None)
            if found is not None:
                return found
        return None

    def example(self) -> str:
        """A chat model to show in examples: the sandbox's, else the first; MODEL when there is none."""
        return (
            "sandbox/echo"
            if "sandbox/echo" in self.models
            else next((model.id for model in self.models.values() if model.type == "chat"), "MODEL")
        )

    def find(self, name: str, access: Access) -> CatalogModel | None:
        """As `resolve`, when this caller may use the model; an unknown one and one that is not permitted look alike."""
        model = self._names.get(name)
        return model if model is not None and may_use(access, model) else None

    def model(self, name: str, access: Access) -> Mapping[str, Any] | None:
        """One entry of the list, by id or alias; None also when the caller may not use it."""
        found = self.find(name, access)
        return found.entry if found is not None and found.type != "image" else None

    def image_models(self, access: Access) -> list[CatalogModel]:
        """The image models a caller sees, sorted by id."""
        return [model for model in self.models.values() if model.type == "image" and may_use(access, model)]

    def listed(self, access: Access) -> Listing | None:
        """What `listing` gave for this access before; None when it has not been asked yet."""
        return self._listings.get(access)

    def listing(self, access: Access) -> Listing:
        """The body of `GET /v1/models`; rendered once for each set of visible models. A thousand models take 10 ms:
        from any thread."""
        with self._rendering:
            names = self._visible(access)
            found = self._by_names.get(names)
            if found is None:
                found = listing_of({"object": "list", "data": [self.models[name].entry for name in names]})
                _remember(self._by_names, names, found)
            _remember(self._listings, access, found)
        return found

    def _visible(self, access: Access) -> tuple[str, ...]:
        return tuple(model.id for model in self.models.values() if model.type != "image" and may_use(access, model))


def listing_of(document: Any) -> Listing:
    """A catalog as it is sent."""
    body = orjson.dumps(document)
    tag = hashlib.blake2b(body, digest_size=16).hexdigest().encode()
    return Listing(body, b'"%b"' % tag, gzip.compress(body, 6, mtime=0), b'"%b-gzip"' % tag)


def _remember(memo: dict[Any, Listing], key: Any, value: Listing) -> None:
    memo[key] = value
    while len(memo) > 1 and (len(memo) > _MAX_CACHED or sum(len(each.body) for each in memo.values()) > _MOST_BYTES):
        memo.pop(next(iter(memo)))


def grouped(routes: Iterable[Route]) -> dict[str, tuple[Route, ...]]:
    """The routes of each canonical model, first choice first."""
    by_id: dict[str, list[Route]] = {}
    for route in routes:
        by_id.setdefault(route.model.id, []).append(route)
    return {name: tuple(sorted(found, key=_first)) if len(found) > 1 else (found[0],) for name, found in by_id.items()}


def make_model(name: str, routes: tuple[Route, ...]) -> CatalogModel:
    """One canonical model from its routes, first choice first."""
    facts = routes[0].model
    aliases = tuple(dict.fromkeys(alias for route in routes for alias in route.model.aliases))
    tariff = next((offer.own_tariff for offer in routes[0].offers), None)
    entry = model_entry(facts)
    if not facts.context:  # what one provider does not publish, another one may: 0 looks like a limit to clients
        entry["context_length"] = next((route.model.context for route in routes if route.model.context), 0)
    return CatalogModel(name, facts.type, facts, routes, tariff, aliases, entry)


def catalog_of(models: Iterable[CatalogModel], own: Mapping[str, str]) -> Catalog:
    """The catalog of some models (of providers that are on) and the gateway's `own` aliases, whose chains are followed.

    A canonical id wins over every alias, a gateway alias over a provider's; of two providers' aliases the one of the
    smaller canonical id wins (the configuration check refuses such a pair before).
    """
    by_id = {model.id: model for model in models}
    names: dict[str, str] = {}
    for model in sorted(by_id.values(), key=lambda model: model.id, reverse=True):
        names.update(dict.fromkeys(model.aliases, model.id))
    for alias in own:
        target, seen = own[alias], {alias}
        while target not in by_id and target in own and target not in seen:
            seen.add(target)
            target = own[target]
        names[alias] = target if target in by_id else names.get(target, target)
    return Catalog(by_id.values(), names)


def _first(route: Route) -> Rank:
    return rank_of(route.priority, route.weight, route.provider)


_LAST_SECOND = 253402300799
"""Of the year 9999, the last that can be written so (RFC 3339)."""


def model_entry(model: Model) -> dict[str, Any]:
    """The `Model` resource of the specification for one model; prices as they are written in its file.

    `object` and `owned_by` stand in no table of the specification: typed clients of the chat API (Rust's, Swift's and
    PHP's) fail on a list of models without them. The owner is the vendor of the canonical id. `display_name` and
    `created_at` say `name` and `created` to clients of the messages API, in whose lists they are.
    """
    inputs, outputs = list(model.input_modalities), list(model.output_modalities)
    entry: dict[str, Any] = {
        "id": model.id,
        "object": "model",
        "canonical_slug": model.canonical_slug or model.id,
        "hugging_face_id": model.hugging_face_id,
        "name": model.name or model.id,
        "display_name": model.name or model.id,
        "type": model.type,
        "created": model.created,
        "created_at": datetime.fromtimestamp(min(model.created, _LAST_SECOND), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "description": model.description,
        "context_length": model.context,
        "architecture": {
            "modality": f"{'+'.join(inputs)}->{'+'.join(outputs)}",
            "input_modalities": inputs,
            "output_modalities": outputs,
            "tokenizer": model.tokenizer,
            "instruct_type": model.instruct_type,
        },
        "pricing": pricing_entry(model.price),
        "supported_parameters": list(model.parameters),
        "model_provider": model.provider,
        "owned_by": model.id.partition("/")[0],
    }
    if model.type == "embedding":
        entry["dimensions"] = list(model.dimensions)
        largest = model.max_dimension or max(model.dimensions, default=None)
        if largest is not None:
            entry["max_dimension"] = largest
    return entry


def pricing_entry(price: Pricing | None) -> dict[str, Any]:
    """The `pricing` object. An unpriced flat fee is "0"; a price that falls back to another one is "" (SPEC allows it),
    because "0" would say that cached or reasoning tokens are free."""
    written = price.written if price is not None else {}
    entry: dict[str, Any] = {
        name: written.get(name, default)
        for name, default in (
            ("prompt", "0"),
            ("completion", "0"),
            ("input_cache_read", ""),
            ("input_cache_write", ""),
            ("request", "0"),
            ("image", "0"),
            ("web_search", "0"),
            ("internal_reasoning", ""),
        )
    }
    entry["unit"] = price.unit if price is not None else 1
    entry["currency"] = price.currency if price is not None else "USD"
    entry["volumes"] = [_volume_entry(row) for row in price.volumes] if price is not None else []
    return entry


def _volume_entry(row: Volume) -> dict[str, Any]:
    """A tier as its file says it: the bounds that are set, and the prices it replaces."""
    bounds = {name: value for name in VOLUME_CONDITIONS if (value := getattr(row, name)) is not None}
    return bounds | {name: row.written.get(name, decimal_text(value)) for name, value in row.prices.items()}
