"""Texts that are probably paths whose `$` was forgotten, such as `error.message` where an answer is read: they load,
and every answer would have the very same text there.

Which names a text may begin with, and whether `$` itself is an answer, is known to who asks. Left out of what is found
are names of files (`input.png`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from tollgate.config.load import Map, Node, Problem, Scalar, entries_of, items_of, lookup, text_in, walk
from tollgate.config.model import Provider
from tollgate.wire import GENERATION_STATUSES

_PATH = re.compile(r"\.?([a-z_]\w*)((?:\.[A-Za-z_]\w*|\[(?:\d+|\*)\])*)")
_FILE = re.compile(r".*\.(png|jpe?g|webp|gif|json|txt|pdf|bin|mp[34]|wav|zip)")
_NAMES = ("secret", "vars", "headers", "answer_headers", "job", "input", "http", "call", "last")
"""What templates of a provider file read beside `$`, but for words that constants begin with (`model.x`)."""
_TOLD = ("message", "type", "code", "param", "retry_after")
_SENT = ("headers", "query", "auth", "vars")
"""Keys of a provider and of an endpoint whose texts are single; larger templates are looked into as they compile."""


def meant(text: str, names: Collection[str], *, answer: bool) -> str:
    """The path that a text without `$` was probably meant to be, or nothing. It begins with one of these names, or with
    a field of `$` where that is an `answer`.

    't.role', ['t'] -> '$t.role'; 'error.message', [], answer -> '$.error.message'
    """
    found = _PATH.fullmatch(text)
    if found is None or not found[2] and not found[0].startswith(".") or _FILE.fullmatch(found[0]):
        return ""
    if found[0].startswith("."):
        return f"${found[0]}" if answer else ""
    return f"${found[0]}" if found[1] in names else f"$.{found[0]}" if answer else ""


def forgotten_dollars(provider: Provider) -> Iterator[Problem]:
    """Warnings of such texts in a provider's file."""
    root = provider.document.root
    endpoints = entries_of(lookup(root, "speaks")).items()
    for path, holder in (("", root), *((f"speaks.{name}.", endpoint) for name, endpoint in endpoints)):
        for key in _SENT:
            if (node := lookup(holder, key)) is not None:
                yield from _below(provider, node, f"{path}{key}")
        yield from _answers(provider, holder, path)
    for key in ("id", "upstream"):
        node = lookup(root, "discover", "model", key)
        if node is not None and (said := text_in(node)) is not None and "$" not in said:
            message = f"found the text `{said}`, which every entry of the list would have"
            yield provider.document.warning(node, message, f"discover.model.{key}", f"write $.{said.lstrip('.')}")
    images = lookup(root, "images")
    if isinstance(images, Map):
        yield from _steps(provider, images, images, "images.")
        for name, model in entries_of(lookup(root, "models")).items():
            yield from _steps(provider, model, images, f"models.{name}.")


def _answers(provider: Provider, holder: Node, path: str) -> Iterator[Problem]:
    """Places under a provider or endpoint that read an answer, a text each."""
    errors = lookup(holder, "errors")
    words = lookup(errors, "message")
    if isinstance(words, Scalar) and str(words.value).isidentifier():
        message = f"found the text `{words.value}`, which every error would have"
        yield provider.document.warning(words, message, f"{path}errors.message", f"write $.{words.value}")
    rules = ((f"errors.rules[{n}]", rule) for n, rule in enumerate(items_of(lookup(errors, "rules"))))
    for name, block in (("errors", errors), *rules):
        for key in _TOLD:
            if (node := lookup(block, key)) is not None:
                yield from _below(provider, node, f"{path}{name}.{key}", answer=True)


def _steps(provider: Provider, holder: Node, images: Map, path: str) -> Iterator[Problem]:
    known = {*GENERATION_STATUSES, *entries_of(images.get("statuses"))}
    for name, step in entries_of(holder).items():
        node = lookup(step, "result", "status")
        said = text_in(node)
        if node is not None and said is not None and "$" not in said and said not in known:
            message = f"found the text `{said}`, which is the same for every job and no word of `statuses`"
            yield provider.document.warning(node, message, f"{path}{name}.result.status", f"write $.{said.lstrip('.')}")


def _below(provider: Provider, node: Node, path: str, *, answer: bool = False) -> Iterator[Problem]:
    for inner in walk(node):
        text = text_in(inner) or ""
        if path_meant := meant(text, _NAMES, answer=answer):
            message = f"found the text `{text}`, which stays as it stands"
            yield provider.document.warning(inner, message, path, f"write {path_meant}")
