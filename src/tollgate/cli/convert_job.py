"""What `tollgate convert` converts: the mappings, the provider's offer and the abilities that its options choose."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import orjson

from tollgate.cli.books import compiled, fail, json_text
from tollgate.config.build import load_mappings
from tollgate.config.can_words import words_read
from tollgate.config.model import Gateway
from tollgate.mapping import CompiledMapping, compile_mapping
from tollgate.mapping.in_text import InText
from tollgate.mapping.plugins import load_plugins
from tollgate.mapping.provider.offer import Offer
from tollgate.mapping.tracing import TraceContext
from tollgate.runtime import Runtime
from tollgate.wording import did_you_mean


@dataclass(frozen=True, slots=True)
class Options:
    """The options that choose what to convert, and how."""

    path: Path | None
    source: str
    target: str | None
    what: str | None
    model: str | None
    provider: str | None
    can: tuple[str, ...]
    strict: bool


@dataclass(frozen=True, slots=True)
class Job:
    """What kind of document to convert (`request`, `response`, `stream` or `error`), from which format to which.
    `offer` adds a provider's edits and marks."""

    what: str
    source: CompiledMapping
    target: CompiledMapping
    offer: Offer | None
    context: TraceContext

    @property
    def marks(self) -> InText | None:
        """The provider's marks in the text of its answers, instead of the format's own."""
        return self.offer.in_text if self.offer and self.what in ("response", "stream") else None

    def print(self, text: str, *, err: bool = False) -> None:
        """Print without our secrets: a provider's edits may write them."""
        click.echo(self._redacted(text), err=err)

    def print_json(self, value: object) -> None:
        """Print as `books.print_json`, without our secrets."""
        click.echo(self._redacted(json_text(value)).encode())

    def _redacted(self, text: str) -> str:
        return self.offer.errors.redact(text) if self.offer else text


def job_of(options: Options) -> Job:
    """The job of these options. Ends the command where they do not fit the configuration."""
    source, target, what, offer = options.source, options.target, options.what or "request", None
    if options.model is None:
        gateway, mappings = _mappings(options.path, {source, target}, read_all=bool(options.can))
    else:
        runtime = compiled(options.path, everything=True)
        gateway, mappings = runtime.gateway, runtime.mappings
        protocol = target if what == "request" else source
        offer = _offer(runtime, options.model, options.provider, protocol=protocol)
    if target is None:
        if offer is None or what != "request":
            raise click.UsageError("--to says what to convert to")
        target = offer.mapping.name
    facts = dict(offer.model_facts) if offer else {"upstream": "upstream-model"}
    declared = dict(_ability(entry) for entry in options.can)
    _warn_of_unread(gateway, declared)
    context = TraceContext(facts, {**(offer.can if offer else {}), **declared}, strict=options.strict)
    return Job(what, _known(mappings, source), _known(mappings, target), offer, context)


def _mappings(
    path: Path | None, needed: Container[str | None], *, read_all: bool
) -> tuple[Gateway, Mapping[str, CompiledMapping | None]]:
    """The configuration without its providers, and its mappings by name: those that are `needed` are compiled, the
    others None. With `read_all` the gateway has the texts of the others too."""
    gateway = load_mappings(path, environ=os.environ, needed=None if read_all else needed)
    plugins = load_plugins(gateway.plugins)
    mappings = {
        name: compile_mapping(document, plugins=plugins) if name in needed else None
        for name, document in gateway.mappings.items()
    }
    return gateway, mappings


def _offer(runtime: Runtime, model: str, provider: str | None, *, protocol: str | None) -> Offer:
    """The model's offer that is tried first, of those at `provider` and through `protocol` where these are given. Ends
    the command where there is none."""
    by_model = [entry for each in runtime.providers.values() for entry in each.offers.items()]
    offers = [offer for _, found in by_model for offer in found if model in (offer.model.id, *offer.model.aliases)]
    if not offers:
        off = [each for each in runtime.gateway.providers.values() if each.off]
        theirs = [each for each in off if any(model in (one.id, *one.aliases) for one in each.models)]
        if theirs:
            why = ", ".join(f"{each.name} ({each.off})" for each in theirs)
            fail(f"{model} is offered only by providers that are off: {why}; to convert, any value will do")
        known = [name for name, _ in by_model]
        fail(f"no model {model} ({did_you_mean(model, known) or 'tollgate models --routes lists them'})")
    fitting = [
        offer for offer in offers if provider in (None, offer.provider) and protocol in (None, offer.mapping.name)
    ]
    if not fitting:
        wanted = f"{f' at {provider}' if provider else ''}{f' through {protocol}' if protocol else ''}"
        there = ", ".join(sorted({f"{offer.mapping.name} at {offer.provider}" for offer in offers}))
        fail(f"{model} is not served{wanted}, but through {there}")
    return min(fitting, key=lambda offer: offer.model.priority)


def _known(mappings: Mapping[str, CompiledMapping | None], name: str) -> CompiledMapping:
    found = mappings.get(name)
    if found is None:
        hint = did_you_mean(name, mappings) or f"there are {', '.join(sorted(mappings))}"
        raise click.UsageError(f"no mapping is called {name} ({hint})")
    return found


def _warn_of_unread(gateway: Gateway, abilities: Iterable[str]) -> None:
    known = words_read(gateway)
    for word in abilities:
        if word not in known:
            hint = did_you_mean(word, known)
            click.echo(f"--can {word}: no mapping reads it{f' ({hint})' if hint else ''}", err=True)


def _ability(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    if not value:
        return name, True
    try:
        return name, orjson.loads(value)
    except orjson.JSONDecodeError:
        return name, value
