"""The repository's own providers, all enabled with made-up secrets, and compiled once for all tests here."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from typing import Any

from support.places import ROOT
from tollgate.config.build import Loaded, load_gateway
from tollgate.mapping.provider import CompiledProvider, Offer
from tollgate.runtime import Runtime, build_runtime, compile_files

CANARY = "sk-canary-0123456789"
PROVIDERS = tuple(sorted(path.stem for path in (ROOT / "providers").glob("*.yaml")))
"""The names of all providers, for parameters of tests. `runtime()` has the same ones, but takes seconds, which each
process of a run would spend on collecting."""


@functools.cache
def secrets() -> dict[str, str]:
    """A value for every secret that a provider file names."""
    names = {
        name
        for path in (ROOT / "providers").glob("*.yaml")
        for name in re.findall(r"\$secret\.([A-Z][A-Z0-9_]*)", path.read_text("utf-8"))
    }
    values = {name: CANARY for name in names}
    return (
        values
        | {name: "http://127.0.0.1:9" for name in names if name.endswith("_URL")}
        | {"AWS_REGION": "us-east-1", "AZURE_RESOURCE_NAME": "acme"}
    )


@functools.cache
def loaded() -> Loaded:
    return load_gateway(ROOT / "gateway.yaml", environ=secrets(), everything=True)


@functools.cache
def runtime() -> Runtime:
    return build_runtime(loaded(), everything=True)


@functools.cache
def _compiled_alone(provider: str) -> CompiledProvider:
    gateway = replace(loaded().gateway, providers={provider: loaded().gateway.providers[provider]})
    return compile_files(replace(loaded(), gateway=gateway)).providers[provider]


def offers(provider: str) -> list[Offer]:
    """Every offer of a provider. Compiling all providers takes seconds: only those who need them all pay for it."""
    compiled = runtime().providers[provider] if runtime.cache_info().currsize else _compiled_alone(provider)
    return [offer for found in compiled.offers.values() for offer in found]


def offer_for(provider: str, endpoint: str, model: str | None) -> Offer:
    """The offer of a recorded model name, or else any offer of the endpoint, as old models are no longer on sale."""
    fitting = [offer for offer in offers(provider) if offer.endpoint == endpoint]
    wanted = (model or "").rpartition("/")[2].lower()
    for offer in fitting:
        if model and model in (offer.model.upstream, offer.model.id, *offer.model.aliases):
            return offer
    for offer in fitting:
        if wanted and offer.model.upstream.lower().endswith(wanted):
            return offer
    return fitting[0]


def mapping(name: str) -> Any:
    return runtime().mappings[name]
