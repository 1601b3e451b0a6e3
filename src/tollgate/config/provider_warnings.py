"""Warnings about parts of a provider file that load, and have no effect or another one than was meant.

A name of the data outside `{{ }}` is sent literally, and so are a place holder in single braces and a base address to
which nothing is appended. A glob that matches no model never takes effect. Warnings about the larger blocks are in
modules of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from tollgate.config.error_warnings import error_warnings
from tollgate.config.forgotten_dollar import forgotten_dollars
from tollgate.config.image_schema import IMAGE_STEPS
from tollgate.config.image_warnings import image_warnings
from tollgate.config.improbable_values import improbable_values
from tollgate.config.load import (
    Map,
    Node,
    Problem,
    Scalar,
    entries_of,
    find,
    items_of,
    lookup,
    one_or_many,
    text_in,
    walk,
)
from tollgate.config.model import Provider, names_match
from tollgate.wording import did_you_mean

_HOLE = re.compile(r"\{\{.*?(\}\}|\Z)", re.DOTALL)
_NAME = re.compile(r"\$(?:\{\w+\}|\.?[A-Za-z_][\w.]*)")
_BRACE = re.compile(r"(?<!\{)\{([A-Za-z_]\w*)\}")
"""A place holder of an API's documentation, as in `/jobs/{id}`."""
_BASE = re.compile(r"https?://[^/?]+(/[^?]*)?(?<=/)v\d+/?|https?://[^/?]+/?")
"""An address without a path, or one that ends in a version: what documentation calls the base URL."""
_TEMPLATES = ("url", "headers", "query", "vars", "auth")
_OF_ENDPOINTS = ("url", "stream_url", "path", "headers", "query", "count_tokens", "count_tokens_url")
"""The keys of an endpoint whose texts are sent. Its edits and rules hold expressions, which are full of names."""
_ADDRESSES = ("url", "stream_url", "path", "count_tokens", "call", "fetch", "stream", "cancel")
"""Keys with an address, of an endpoint, of the calls below it and of the steps of an image job."""
_KEYS_OF: Mapping[str, tuple[tuple[str, ...], str]] = {
    "image": (("bill", *IMAGE_STEPS), "write input_schema, or type: image"),
    "embedding": (("dimensions", "max_dimension", "max_inputs"), "write type: embedding"),
    "chat": (("in_text",), ""),
    "chat or embedding": (("request", "response", "stream", "can", "protocols", "encoding"), ""),
}
"""Keys of a model that have an effect only for some types, and what would make it one of these."""
_INPUTS = ("text", "image", "audio", "video", "file")
"""Input modalities. A model where one is misspelt would not be used for requests that have it."""


def loose_name(text: str) -> str:
    """A name of the data that a text has outside of `{{ }}`, or "".

    'Bearer $secret.KEY' -> '$secret.KEY'
    """
    found = _NAME.search(_HOLE.sub("", text), 1)
    return found[0].rstrip(".") if found else ""


def provider_warnings(provider: Provider) -> Iterator[Problem]:
    """All warnings about a provider's file. Use them before the file's tree is dropped."""
    root = provider.document.root
    yield from _modalities(provider, root)
    yield from _of_other_models(provider, root)
    yield from _loose_under(provider, root, _TEMPLATES, "")
    yield from error_warnings(provider, lookup(root, "errors"), "errors")
    speaks = lookup(root, "speaks")
    yield from _unread_usage(provider, root, speaks)
    yield from _place_holders(provider, [lookup(root, "url"), speaks, lookup(root, "images")])
    yield from _cut_short(provider, lookup(root, "url"), speaks)
    for name, endpoint in entries_of(speaks).items():
        if isinstance(endpoint, Scalar):
            yield from _loose(provider, endpoint, "speaks")
        path = f"speaks.{name}"
        yield from _loose_under(provider, endpoint, _OF_ENDPOINTS, f"{path}.")
        yield from error_warnings(provider, lookup(endpoint, "errors"), f"{path}.errors")
        yield from _unmatched(provider, lookup(endpoint, "models"), f"{path}.models")
    for place, policy in enumerate(items_of(lookup(root, "policies"))):
        yield from _unmatched(provider, lookup(policy, "match"), f"policies[{place}].match")
    yield from image_warnings(provider.document)
    yield from forgotten_dollars(provider)
    yield from improbable_values(provider)


def _modalities(provider: Provider, root: Node) -> Iterator[Problem]:
    for model in provider.models:
        for place, word in enumerate(model.input_modalities):
            if word not in _INPUTS:
                at = find(root, ["models", model.id, "modalities", "input", place])
                yield provider.document.warning(
                    at,
                    f'found "{word}", wanted {", ".join(_INPUTS[:-1])} or {_INPUTS[-1]}',
                    f"models.{model.id}.modalities.input[{place}]",
                    did_you_mean(word, _INPUTS),
                )


def _of_other_models(provider: Provider, root: Node) -> Iterator[Problem]:
    """Keys of a model that are for models of another type, and are never read."""
    for model in provider.models:
        entry = lookup(root, "models", model.id)
        for types, (keys, hint) in _KEYS_OF.items():
            if not isinstance(entry, Map) or model.type in types.split(" or "):
                continue
            for key in (key for key in keys if key in entry.entries):
                message = f"has no effect for a model of type {model.type}, only for those of type {types}"
                yield provider.document.warning(entry.keys[key], message, f"models.{model.id}.{key}", hint)


def _unread_usage(provider: Provider, root: Node, speaks: Node | None) -> Iterator[Problem]:
    """Conditions of `usage:` without anything that they decide about: neither the block itself nor one that it is
    combined with, of the provider or of an endpoint, has a `read`."""
    shared = lookup(root, "usage")
    blocks = {f"speaks.{name}.usage": lookup(each, "usage") for name, each in entries_of(speaks).items()}
    for path, block in {"usage": shared, **blocks}.items():
        beside = blocks.values() if path == "usage" else (shared,)
        when = lookup(block, "when")
        if when is not None and not any(lookup(each, "read") for each in (block, *beside)):
            hint = "read: {input: $.usage.in, output: $.usage.out}"
            yield provider.document.warning(when, "has no effect without `read`", f"{path}.when", hint)


def _loose_under(provider: Provider, holder: Node, keys: tuple[str, ...], path: str) -> Iterator[Problem]:
    for key in keys:
        yield from _loose(provider, lookup(holder, key), f"{path}{key}")


def _loose(provider: Provider, node: Node | None, path: str) -> Iterator[Problem]:
    for inner in walk(node):
        if name := loose_name(text_in(inner) or ""):
            word = name.strip("${}")
            secret = f"$secret.{word}" if word.isupper() else name
            yield provider.document.warning(
                inner, f"found `{name}` inside a text, which is sent as it stands", path, f"write {{{{ {secret} }}}}"
            )


def _place_holders(provider: Provider, nodes: Iterable[Node | None]) -> Iterator[Problem]:
    """Addresses with place holders in single braces, and called addresses with a name outside of braces."""
    texts = list(nodes)
    for holder in (inner for node in texts for inner in walk(node) if isinstance(inner, Map)):
        texts += (holder.get(key) for key in _ADDRESSES)
    for node in texts:
        text = text_in(node) or ""
        if node is not None and (found := _BRACE.search(_HOLE.sub("", text))):
            value = f"$.{found[1]}" if " " in text else f"$vars.{found[1]}"  # only a call reads an answer
            hint = f"a value is written in two braces, such as {{{{ {value} }}}}"
            yield provider.document.warning(node, f"found `{found[0]}`, which is sent as it stands", hint=hint)
        elif node is not None and " " in text and (name := loose_name(text)):
            hint = f"write {{{{ {name} }}}}"
            yield provider.document.warning(node, f"found `{name}`, which is sent as it stands", hint=hint)


def _cut_short(provider: Provider, url: Node | None, speaks: Node | None) -> Iterator[Problem]:
    """A base address where `speaks` is one word, so that no path is appended."""
    if url is not None and isinstance(speaks, Scalar) and _BASE.fullmatch(text_in(url) or ""):
        yield provider.document.warning(
            url,
            f'found "{text_in(url)}", which is called as it stands where `speaks` is one word; '
            "wanted the complete address",
            "url",
            f"or write speaks: {{{speaks.value}: /the/path}} to have a path put behind it",
        )


def _unmatched(provider: Provider, node: Node | None, path: str) -> Iterator[Problem]:
    """Globs that match no model of the file. Not reported where models are discovered while running, or imported
    again."""
    if provider.off or not provider.models or "discover" in entries_of(provider.document.root):
        return
    if any("from" in entries_of(listed.root) for listed in provider.document.models):
        return
    if node is not None and node.mark.file != provider.document.file:
        return  # a shared file is also for the models of other providers
    for item in one_or_many(node):
        glob = text_in(item) or "!"
        if not glob.startswith("!") and not any(
            names_match((glob,), model.id, model.upstream) for model in provider.models
        ):
            yield provider.document.warning(
                item,
                f'found "{glob}", which fits no model of this provider',
                path,
                "globs are over the canonical or the upstream id",
            )
