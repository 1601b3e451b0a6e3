"""Checks across files: names, aliases, protocols, mappings, currencies. One file alone cannot show these."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from tollgate.config.load import Document, Map, Problem, find, items_of, lookup, reported_missing, text_in
from tollgate.config.model import Gateway, Model, Provider
from tollgate.money import is_currency
from tollgate.wire import CLIENT_FORMATS
from tollgate.wording import did_you_mean, path_text


def check_across(
    gateway: Gateway,
    providers: Sequence[Provider],
    document: Document,
    root: Map,
    *,
    sound: bool,
    fresh: Collection[str],
) -> list[Problem]:
    """All problems between files. `sound` is False if a file is broken: then no name is reported as unknown. `fresh`
    has the providers read in this load; the checks of one provider alone are run for these only."""
    problems: list[Problem] = []
    seen: dict[str, Provider] = {}
    known = sorted({*gateway.mappings, *CLIENT_FORMATS})
    for provider in providers:
        problems += _name(provider, seen)
        problems += _protocols(provider, known)
        if provider.name in fresh:
            for model in provider.models:
                problems += _reachable(provider, model, known)
        problems += _currencies(gateway, provider)
    problems += _model_aliases(providers)
    problems += _gateway_aliases(gateway, providers, document, root, sound)
    return problems


def _name(provider: Provider, seen: dict[str, Provider]) -> Iterator[Problem]:
    """Problems with a provider's name: it must be unique, and should be the name of its file."""
    document, stem = provider.document, Path(provider.document.file).stem
    first = seen.setdefault(provider.name, provider) if provider.name else provider
    if first is not provider:
        at, message = find(document.root, ["provider"]), f'provider "{provider.name}" is also in {first.document.file}'
        yield document.problem(at, message, path="provider")
    elif provider.name not in ("", stem):
        at = find(document.root, ["provider"])
        message = f'found "{provider.name}", which is not the file\'s own name "{stem}"'
        yield document.warning(at, message, path="provider", hint=f"or name the file {provider.name}.yaml")


def _protocols(provider: Provider, known: Sequence[str]) -> Iterator[Problem]:
    document = provider.document
    for endpoint in provider.endpoints.values():
        if endpoint.mapping not in known:
            speaks = find(document.root, ["speaks"])
            own = endpoint.mapping != endpoint.name
            path = f"speaks.{endpoint.name}.mapping" if own else "speaks"
            at = (
                find(document.root, ["speaks", endpoint.name, "mapping"])
                if own
                else (speaks.keys.get(endpoint.name, speaks.mark) if isinstance(speaks, Map) else speaks)
            )
            message = f'found "{endpoint.mapping}", wanted a protocol with a mapping file: {", ".join(known)}'
            yield document.problem(at, message, path=path, hint=did_you_mean(endpoint.mapping, known))
    for index, policy in enumerate(provider.policies):
        unknown = [name for name in policy.protocols if name not in provider.endpoints]
        if not unknown or _endpoints_missing(provider, known):
            continue
        # a shared file is also for endpoints of other providers
        shared = find(document.root, ["policies", index]).mark.file != document.file
        for name in unknown:
            if not (shared and name in known):
                yield _not_spoken(provider, ["policies", index, "protocols"], name)


def _reachable(provider: Provider, model: Model, known: Collection[str]) -> Iterator[Problem]:
    unknown = [name for name in model.protocols if name not in provider.endpoints]
    if unknown and not _endpoints_missing(provider, known):
        for name in unknown:
            yield _not_spoken(provider, ["models", model.id, "protocols"], name)
    document, path = provider.document, f"models.{model.id}"
    if model.type == "image":
        if not provider.images and not reported_missing(document.root, "images"):
            message = "found an image model, but this provider has no `images`"
            yield document.problem(model.mark, message, path=path)
        return
    if unknown or provider.serving(model) or _endpoints_missing(provider, known):
        return
    spoken = ", ".join(provider.endpoints) or "nothing"
    yield document.problem(
        model.mark,
        f"found a model of type {model.type}, but no endpoint serves it (this provider speaks {spoken})",
        path=path,
        hint="add one to `speaks`, or set `type`"
        if model.type != "embedding"
        else "embedding models are served by the endpoint `embeddings`, or one whose name ends in `-embeddings`",
    )


def _endpoints_missing(provider: Provider, known: Collection[str]) -> bool:
    """Whether a reported mistake has removed an endpoint: its address is invalid, or its name is none of the `known`
    mappings."""
    if any(endpoint.mapping not in known for endpoint in provider.endpoints.values()):
        return True
    root = provider.document.root
    speaks = lookup(root, "speaks")
    if speaks is None:
        return reported_missing(root, "speaks")
    if isinstance(speaks, Map):
        return speaks.incomplete or speaks.entries.keys() != provider.endpoints.keys()
    return not provider.endpoints


def _not_spoken(provider: Provider, path: list[str | int], name: str) -> Problem:
    node = find(provider.document.root, path)
    return provider.document.problem(
        next((item for item in items_of(node) if text_in(item) == name), node),
        f'found "{name}", wanted a protocol this provider speaks: {", ".join(provider.endpoints) or "none"}',
        path=path_text(path),
        hint=did_you_mean(name, provider.endpoints),
    )


def _currencies(gateway: Gateway, provider: Provider) -> Iterator[Problem]:
    for model in provider.models:
        if model.image is None and (model.price is None or model.price.currency in gateway.credits.rates):
            continue
        # an image model has its own node: the whole tree may have been let go, and would be parsed again
        entry = model.image if model.image is not None else lookup(provider.document.root, "models", model.id)
        node = lookup(entry, "price", "currency")
        currency = text_in(node) or ""
        if node is not None and currency not in gateway.credits.rates and is_currency(currency):
            yield provider.document.problem(
                node,
                f'found "{currency}", wanted a currency with a rate: {", ".join(sorted(gateway.credits.rates))}',
                path=f"models.{model.id}.price.currency",
                hint=f"credits.rates.{currency} in gateway.yaml",
            )


def _model_aliases(providers: Sequence[Provider]) -> Iterator[Problem]:
    """An alias names one canonical id, whichever providers declare it, and is not itself a canonical id."""
    canonical = {model.id: provider for provider in providers for model in provider.models}
    meaning: dict[str, tuple[str, Provider]] = {}
    given = [
        (provider, model, index, alias)
        for provider in providers
        for model in provider.models
        for index, alias in enumerate(model.aliases)
        if alias != model.id
    ]
    for provider, model, index, alias in given:
        if alias in canonical:
            what = f"is a model of {canonical[alias].document.file}"
        elif alias in meaning and meaning[alias][0] != model.id:
            other, owner = meaning[alias]
            what = f"already means {other} ({owner.document.file})"
        else:
            meaning.setdefault(alias, (model.id, provider))
            continue
        yield provider.document.problem(
            find(provider.document.root, ["models", model.id, "aliases", index]),
            f'found "{alias}", which {what}, wanted a name of its own',
            path=f"models.{model.id}.aliases[{index}]",
        )


def _gateway_aliases(
    gateway: Gateway, providers: Sequence[Provider], document: Document, root: Map, sound: bool
) -> Iterator[Problem]:
    canonical = {model.id for provider in providers for model in provider.models}
    meaning = {alias: model.id for provider in providers for model in provider.models for alias in model.aliases}
    discovers = any(provider.discover for provider in providers)
    known = canonical | set(meaning) | set(gateway.aliases)
    for name, target in gateway.aliases.items():
        node = find(root, ["aliases", name])
        path = f"aliases.{name}"
        if name in canonical:
            yield document.problem(node, f'found "{name}", which is a canonical id, wanted another name', path=path)
            continue
        chain = [name]
        while target in gateway.aliases and target not in chain:
            chain.append(target)
            target = gateway.aliases[target]
        if target in chain:
            if target == name and name == min(chain):  # a cycle is reported once, at one of its names
                circle = " -> ".join([*chain, target])
                yield document.problem(node, f"found a circle: {circle}, wanted a canonical id at its end", path=path)
            continue
        end = meaning.get(target, target)
        if end not in canonical and sound:
            level = "warning" if discovers else "error"
            hint = did_you_mean(target, known - {name})
            message = f'found "{target}", wanted a model or another alias'
            yield document.problem(node, message, path=path, hint=hint, level=level)
        elif name in meaning and meaning[name] != end:
            message = f'found "{name}", which already means {meaning[name]}, wanted another name'
            yield document.problem(node, message, path=path)
