"""Which model a request asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tollgate.catalog import CatalogModel, access_of, may_use
from tollgate.errors import ModelNotFound
from tollgate.services import Inbound, Services

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def model_of(services: Services, inbound: Inbound, name: str, kind: str = "chat") -> CatalogModel:
    """The model of this name and kind. Raises `ModelNotFound`: unknown and not permitted look the same (CLIENTS 3d)."""
    model = services.runtime.current.catalog.find(name, access_of(inbound.key))
    if model is None or model.type != kind:
        raise ModelNotFound(name[:200], kind=model.type if model else None)
    return model


def check_consulted(services: Services, inbound: Inbound, body: Mapping[str, Any]) -> None:
    """Every model that a provider is to ask besides the one asked for must be one that this caller may ask himself.
    Raises `ModelNotFound` as for any other.

    A tool of the provider's names it (`model`, also among its `parameters`), or a list of those that are to stand in
    (`fallbacks`). That is looked for here and not in the format's mapping file: an operator may keep an older one, and
    what a key may spend on must not depend on it.
    """
    catalog = services.runtime.current.catalog
    for name in _consulted(body):
        model = catalog.resolve_foreign(name)
        if model is not None and not may_use(access_of(inbound.key), model):
            raise ModelNotFound(name[:200])


def _consulted(body: Mapping[str, Any]) -> Iterator[str]:
    for field in ("tools", "fallbacks"):
        entries = body.get(field)
        for entry in entries if isinstance(entries, list) else ():
            if not isinstance(entry, dict) or entry.get("type") in ("function", "custom"):
                continue
            parameters = entry.get("parameters")
            names = (entry.get("model"), parameters.get("model") if isinstance(parameters, dict) else None)
            yield from (name for name in names if isinstance(name, str))
