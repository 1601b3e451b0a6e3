"""Warnings about single values of a provider's file that are valid and hardly what was meant: a time in milliseconds, a
context length in thousands, an `Authorization` without a blank behind its scheme, a path that repeats the end of the
base address.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tollgate.config.load import Node, Problem, Scalar, entries_of, items_of, lookup, text_in
from tollgate.config.model import Provider
from tollgate.wording import nearest_word

_LONGEST = {"connect": 3600, "first_byte": 10_000, "idle": 10_000}
"""Seconds that nobody waits for the next byte; ten of them in milliseconds are as many."""
_SHORTEST = 256
"""The fewest tokens of a context: the smallest embedding models have 512."""
_HOLE = re.compile(r"\{\{.*?\}\}")
_SCHEME = re.compile(r"[A-Za-z][\w-]*( |=)")
"""What stands before the key in `Authorization`: a scheme and a blank; a signature also has names with `=`."""
_AUTHORIZATION = "authorization"


def improbable_values(provider: Provider) -> Iterator[Problem]:
    """All such warnings about a provider's file."""
    root = provider.document.root
    speaks, models = lookup(root, "speaks"), entries_of(lookup(root, "models"))
    yield from _times(provider, root, "")
    yield from _headers(provider, lookup(root, "headers"), "headers")
    for name, endpoint in entries_of(speaks).items():
        yield from _headers(provider, lookup(endpoint, "headers"), f"speaks.{name}.headers")
        path = endpoint if isinstance(endpoint, Scalar) else lookup(endpoint, "path")
        yield from _repeated(provider, lookup(root, "url"), path, f"speaks.{name}")
    for name, model in models.items():
        yield from _times(provider, model, f"models.{name}.")
        yield from _lengths(provider, model, f"models.{name}")


def _times(provider: Provider, holder: Node, path: str) -> Iterator[Problem]:
    for name, node in entries_of(lookup(holder, "timeouts")).items():
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, int) and name in _LONGEST and value >= _LONGEST[name]:
            message, hint = f"found {value} seconds, over {value // 3600} h", "are these milliseconds?"
            yield provider.document.warning(node, message, f"{path}timeouts.{name}", hint)


def _lengths(provider: Provider, model: Node, path: str) -> Iterator[Problem]:
    """Lengths that somebody wrote in this file; those in models files are as their provider lists them."""
    own = provider.document.file
    context, most = (_number(lookup(model, key), own) for key in ("context", "max_output"))
    for name, value in (("context", context), ("max_output", most)):
        if value is not None and 0 < value < _SHORTEST:
            message, hint = f"found {value} tokens, fewer than any model has", f"{value}k are {value * 1024}"
            yield provider.document.warning(entries_of(model)[name], message, f"{path}.{name}", hint)
    if context is not None and most is not None and most > context >= _SHORTEST:
        message = f"found {most}, which is more than the whole `context` of {context} tokens"
        yield provider.document.warning(entries_of(model)["max_output"], message, f"{path}.max_output")
    longest = max((_number(item, own) or 0 for item in items_of(lookup(model, "dimensions"))), default=0)
    if (limit := _number(lookup(model, "max_dimension"), own)) is not None and limit < longest:
        message = f"found {limit}, which is below {longest} of `dimensions`"
        yield provider.document.warning(entries_of(model)["max_dimension"], message, f"{path}.max_dimension")


def _number(node: Node | None, file: str) -> int | None:
    """A whole number that is written in this file."""
    return node.value if isinstance(node, Scalar) and node.mark.file == file and type(node.value) is int else None


def _headers(provider: Provider, headers: Node | None, path: str) -> Iterator[Problem]:
    for name, node in entries_of(headers).items():
        text = (text_in(node) or "").strip()
        lower = name.lower()
        if lower != _AUTHORIZATION and nearest_word(lower, (_AUTHORIZATION,)) and len(lower) > 10 and lower[:2] == "au":
            message = f"found the header `{name}`"
            yield provider.document.warning(node, message, path, "did you mean `Authorization`?")
        before, hole, _ = text.partition("{{")
        if lower == _AUTHORIZATION and hole and before and not _SCHEME.match(before):
            message = f"found `{before.strip()}` before the key, wanted one word and a blank"
            yield provider.document.warning(node, message, f"{path}.{name}", 'such as "Bearer {{ $secret.KEY }}"')


def _repeated(provider: Provider, url: Node | None, path: Node | None, at: str) -> Iterator[Problem]:
    """A path whose beginning is the end of the base address: both together would have it twice."""
    base, tail = ((text_in(node) or "").split("?")[0].strip("/").split("/") for node in (url, path))
    if url is None or path is None or text_in(path) is None or _HOLE.search(text_in(url) or ""):
        return
    for count in range(1, min(len(base) - 2, len(tail)) + 1):
        if base[-count:] == tail[:count]:
            twice = "/".join(tail[:count])
            message = f"found `/{twice}`, with which `url` ends already"
            rest = "/".join(tail[count:])
            hint = f"without it: /{rest}" if rest else "take it out of `url`"
            yield provider.document.warning(path, message, at, hint)
            return
