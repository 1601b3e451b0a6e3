"""Finding the model that a request asks for, and checking access to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tollgate.catalog import CatalogModel, access_of, may_use, may_use_unlisted
from tollgate.errors import ModelNotFound
from tollgate.services import Inbound, Services

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NAMING = ("tools", "fallbacks", "models")
"""The fields of a request that may name further models."""


def model_of(services: Services, inbound: Inbound, name: str, kind: str = "chat") -> CatalogModel:
    """The model of this name and kind. Raises `ModelNotFound`: unknown and not permitted look the same (CLIENTS 3d)."""
    model = services.runtime.current.catalog.find(name, access_of(inbound.key))
    if model is None or model.type != kind:
        raise ModelNotFound(name[:200], kind=model.type if model else None)
    return model


def check_consulted(services: Services, inbound: Inbound, asked: CatalogModel, body: Mapping[str, Any]) -> None:
    """Check that the caller may use every further model that the provider of `asked` is asked to use. Raises
    `ModelNotFound`.

    Such models are named by the provider's own tools (`model`, also in their `parameters`), in `fallbacks`, and in
    `models`, from which resellers choose. This is done here and not in the format's mapping file because access must
    not depend on a file that operators may edit.
    """
    catalog, access = services.runtime.current.catalog, access_of(inbound.key)
    for name in _consulted(body):
        model = catalog.resolve_foreign(name)
        if not (may_use_unlisted(access, name, asked) if model is None else may_use(access, model)):
            raise ModelNotFound(name[:200])


def _consulted(body: Mapping[str, Any]) -> Iterator[str]:
    for field in _NAMING:
        entries = body.get(field)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, str):
                yield entry
            if not isinstance(entry, dict) or entry.get("type") in ("function", "custom"):
                continue
            parameters = entry.get("parameters")
            names = (entry.get("model"), parameters.get("model") if isinstance(parameters, dict) else None)
            yield from (name for name in names if isinstance(name, str))
