"""Warnings about `can:`: names that nothing reads, and text where true or false was meant.

Any name is allowed, because a mapping may read any: `$can.word` or `$can['word']` in a mapping or provider file defines
it. The names that the gateway's own code reads are listed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tollgate.config.load import Document, Map, Node, Problem, entries_of, items_of, lookup, text_in
from tollgate.config.model import Gateway
from tollgate.wording import did_you_mean

READ_BY_CODE = frozenset(
    {
        "always_searches",
        "cache_write_apart",
        "client_tools",
        "files",
        "schema",
        "signatures_of",
        "streams",
        "threads",
        "token_ids",
        "tokens_percent",
        "tools",
        "tools_with_effort",
        "whole",
    }
)
"""Names that `routing.py`, `completions/`, `embeddings/` and `mapping/provider/` read."""
_READ = re.compile(r"\$can(?:\.(\w+)|\['([^']+)'\])")
_TRUTH = frozenset({"true", "false", "y", "yes", "on", "n", "no", "off"})
"""Texts that were probably meant as true or false: quoted, or written as in YAML 1.1. All of them, also "false",
count as true."""


def check_can(gateway: Gateway) -> list[Problem]:
    """All warnings about the `can:` of every provider. `gateway` must have been loaded with `everything`, so that
    all reads are known."""
    known = words_read(gateway)
    return [
        problem
        for provider in gateway.providers.values()
        for path, node in _places(provider.document.root)
        for problem in _slips(provider.document, path, node, known)
    ]


def words_read(gateway: Gateway) -> set[str]:
    """Every name in `can:` that a mapping, a provider file or the gateway's code reads."""
    known = set(READ_BY_CODE)
    providers = [provider.document for provider in gateway.providers.values()]
    for document in (*gateway.mappings.values(), *providers, *(other for each in providers for other in each.included)):
        known.update(dotted or quoted for dotted, quoted in _READ.findall(document.text))
    return known


def _places(root: Node) -> Iterator[tuple[str, Map]]:
    """Every `can:` of a provider file, with its path."""
    holders = [("", root)]
    for key in ("speaks", "models"):
        holders += [(f"{key}.{name}.", node) for name, node in entries_of(lookup(root, key)).items()]
    holders += [(f"policies[{index}].", node) for index, node in enumerate(items_of(lookup(root, "policies")))]
    for path, holder in holders:
        can = lookup(holder, "can")
        if isinstance(can, Map):
            yield f"{path}can", can


def _slips(document: Document, path: str, can: Map, known: set[str]) -> Iterator[Problem]:
    for word, node in can.entries.items():
        if word not in known:
            yield document.warning(
                can.keys[word],
                f'found "{word}", which no mapping and no edit reads, wanted a word that one does',
                path=f"{path}.{word}",
                hint=did_you_mean(word, known) or "docs/conversion.md has those of the shipped mappings",
            )
        elif (text := text_in(node)) is not None and text.lower() in _TRUTH:
            yield document.warning(
                node, f'found the text "{text}", which counts as true, wanted true or false', path=f"{path}.{word}"
            )
