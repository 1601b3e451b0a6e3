"""Which model a completion request asks for."""

from __future__ import annotations

from typing import Any

from tollgate.catalog import CatalogModel, access_of
from tollgate.errors import ModelNotFound
from tollgate.services import Inbound, Services


def chat_model(services: Services, inbound: Inbound, name: str) -> CatalogModel:
    """The chat model of this name. Raises `ModelNotFound`: unknown and not permitted look the same (CLIENTS 3d)."""
    model = services.runtime.current.catalog.find(name, access_of(inbound.key))
    if model is None or model.type != "chat":
        raise ModelNotFound(name[:200])
    return model


def check_consulted(services: Services, inbound: Inbound, tools: Any) -> None:
    """A model that a tool of the provider's is to ask must be one that this caller may ask himself. Raises `ModelNotFound` as for any other."""
    catalog = services.runtime.current.catalog
    for tool in tools if isinstance(tools, list) else ():
        name = tool.get("model") if isinstance(tool, dict) else None
        if isinstance(name, str) and catalog.resolve(name) is not None and catalog.find(name, access_of(inbound.key)) is None:
            raise ModelNotFound(name[:200])
