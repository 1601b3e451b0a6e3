"""Finds text that is probably a path whose `$` was forgotten, such as `error.message` where an answer is read. It
loads, and gives the same text for every answer.

The caller knows which names are in reach there, and whether `$` is an answer. Names of files (`input.png`) are not
reported.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from tollgate.config.load import Map, Node, Problem, Scalar, entries_of, items_of, lookup, text_in, walk
from tollgate.config.model import Provider
from tollgate.config.provider_schema import ERROR_FIELDS
from tollgate.wire import GENERATION_STATUSES

_PATH = re.compile(r"\.?([a-z_]\w*)((?:\.[A-Za-z_]\w*|\[(?:\d+|\*)\])*)")
_FILE = re.compile(r".*\.(png|jpe?g|webp|gif|json|txt|pdf|bin|mp[34]|wav|zip)")
_NAMES = ("secret", "vars", "headers", "answer_headers", "job", "input", "http", "call", "last")
"""The names that templates of a provider file read beside `$`, without those that constants often begin with
(`model.x`)."""
_REQUEST_KEYS = ("headers", "query", "auth", "vars")
"""Keys of a provider and of an endpoint that hold single texts; larger templates are checked while they compile."""


def forgotten_path(text: str, names: Collection[str], *, answer: bool) -> str:
    """The path that a text without `$` was probably meant to be, or "". It begins with a dot, with one of `names`, or,
    for an `answer`, with a field of `$`.

    't.role', ['t'] -> '$t.role'; 'error.message', [], answer -> '$.error.message'
    """
    found = _PATH.fullmatch(text)
    if found is None or not found[2] and not found[0].startswith(".") or _FILE.fullmatch(found[0]):
        return ""
    if found[0].startswith("."):
        return f"${found[0]}"
    return f"${found[0]}" if found[1] in names else f"$.{found[0]}" if answer else ""


def forgotten_dollars(provider: Provider) -> Iterator[Problem]:
    """Warnings about such texts in a provider's file."""
    root = provider.document.root
    endpoints = entries_of(lookup(root, "speaks")).items()
    for path, holder in (("", root), *((f"speaks.{name}.", endpoint) for name, endpoint in endpoints)):
        for key in _REQUEST_KEYS:
            yield from _below(provider, lookup(holder, key), f"{path}{key}")
        yield from _answers(provider, holder, path)
    for key in ("id", "upstream"):
        node = lookup(root, "discover", "model", key)
        if node is not None and (text := text_in(node)) is not None and "$" not in text:
            message = f"found the text `{text}`, which every entry of the list would have"
            field = "{{ $." + key + " }}"
            hint = f"write {text.partition('/')[0]}/{field}" if "/" in text else f"write $.{text.lstrip('.')}"
            yield provider.document.warning(node, message, f"discover.model.{key}", hint)
    images = lookup(root, "images")
    if isinstance(images, Map):
        yield from _steps(provider, images, images, "images.")
        for name, model in entries_of(lookup(root, "models")).items():
            yield from _steps(provider, model, images, f"models.{name}.")


def _answers(provider: Provider, holder: Node, path: str) -> Iterator[Problem]:
    """The places under a provider or endpoint where one text reads an answer."""
    errors = lookup(holder, "errors")
    words = lookup(errors, "message")
    if isinstance(words, Scalar) and str(words.value).isidentifier():
        message = f"found the text `{words.value}`, which every error would have"
        yield provider.document.warning(words, message, f"{path}errors.message", f"write $.{words.value}")
    rules = ((f"errors.rules[{n}]", rule) for n, rule in enumerate(items_of(lookup(errors, "rules"))))
    for name, block in (("errors", errors), *rules):
        for key in ERROR_FIELDS:
            yield from _below(provider, lookup(block, key), f"{path}{name}.{key}", answer=True)


def _steps(provider: Provider, holder: Node, images: Map, path: str) -> Iterator[Problem]:
    known = {*GENERATION_STATUSES, *entries_of(images.get("statuses"))}
    for name, step in entries_of(holder).items():
        node = lookup(step, "result", "status")
        text = text_in(node)
        if node is not None and text is not None and "$" not in text and text not in known:
            message = f"found the text `{text}`, which is the same for every job and no word of `statuses`"
            yield provider.document.warning(node, message, f"{path}{name}.result.status", f"write $.{text.lstrip('.')}")


def _below(provider: Provider, node: Node | None, path: str, *, answer: bool = False) -> Iterator[Problem]:
    for inner in walk(node):
        text = text_in(inner) or ""
        if suggested := forgotten_path(text, _NAMES, answer=answer):
            message = f"found the text `{text}`, which stays as it stands"
            yield provider.document.warning(inner, message, path, f"write {suggested}")
