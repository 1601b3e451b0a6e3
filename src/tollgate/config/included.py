"""Models and policies in files of their own: what a provider names under `models_from` and `policies_from` becomes part
of its document.

Models are generated, long and seldom read; the rest of a provider file is written by hand and read in a minute.
Policies may hold for the same models at several providers. Entries of the provider's own `models` win over those of a
file, and of two files the later; policies of a file come after the provider's own, which keep their numbers in
messages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from tollgate.config.fields import Fields
from tollgate.config.load import Document, List, Map, Mark, Node, Problem, Scalar
from tollgate.config.shape import Kind

Read = Callable[[Path], Document]
Shaped = Callable[[Document, Kind], Map | None]

_KINDS: tuple[Kind, ...] = ("models", "policies")


def names_others(tree: Map) -> bool:
    """Whether the provider has other files."""
    return any(f"{kind}_from" in tree.entries for kind in _KINDS)


def include(document: Document, tree: Map, folder: Path, read: Read, shaped: Shaped) -> tuple[Map, list[Problem]]:
    """The tree with what is in the files it names, and what is wrong with the names. `document` gets the same tree.

    `read` reads a file, `shaped` gives its checked tree; both note what they find themselves.
    """
    problems: list[Problem] = []
    included, trees = [], []
    for kind in _KINDS:
        for index, node in enumerate(_names(tree, f"{kind}_from")):
            path = folder / str(node.value)
            if not path.is_file():
                problems.append(
                    document.problem(
                        node,
                        f'found no file "{node.value}"',
                        path=f"{kind}_from[{index}]",
                        hint="relative to this file",
                    )
                )
                continue
            other = read(Path(os.path.normpath(path)))
            included.append(other)
            trees.append(shaped(other, kind))
    if not included:
        return tree, problems
    merged = with_others(tree, trees)
    document.root = merged
    document.included = tuple(included)
    return merged, problems


def with_others(tree: Map, others: Iterable[Node | None]) -> Map:
    """The tree with the models and policies of the trees of other files."""
    own, given = Fields(tree), [Fields(other) for other in others]
    entries: dict[str, Node] = {}
    keys: dict[str, Mark] = {}
    for models in (*(each.map("models") for each in given), own.map("models")):
        if models is not None:
            entries |= models.entries
            keys |= models.keys
    policies = [item for each in (own, *given) if (listed := each.list("policies")) for item in listed.items]
    merged: dict[str, Node] = {}
    if entries:
        merged["models"] = Map(entries, keys, _mark(tree, "models"))
    if policies:
        merged["policies"] = List(tuple(policies), _mark(tree, "policies"))
    marks = {name: tree.keys.get(name) or tree.keys.get(f"{name}_from", tree.mark) for name in merged}
    return replace(tree, entries={**tree.entries, **merged}, keys={**tree.keys, **marks})


def _mark(tree: Map, name: str) -> Mark:
    own = tree.get(name)
    return own.mark if own is not None else tree.mark


def _names(tree: Map, key: str) -> list[Scalar]:
    node = tree.get(key)
    items = node.items if isinstance(node, List) else (node,)
    return [item for item in items if isinstance(item, Scalar) and isinstance(item.value, str)]
