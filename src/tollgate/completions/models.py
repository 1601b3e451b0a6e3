"""Which model a completion request asks for."""

from __future__ import annotations

from tollgate.catalog import CatalogModel, access_of
from tollgate.errors import ModelNotFound
from tollgate.services import Inbound, Services


def chat_model(services: Services, inbound: Inbound, name: str) -> CatalogModel:
    """The chat model of this name. Raises `ModelNotFound`: unknown and not permitted look the same (CLIENTS 3d)."""
    model = services.runtime.current.catalog.find(name, access_of(inbound.key))
    if model is None or model.type != "chat":
        raise ModelNotFound(name[:200])
    return model
