"""Models in files of their own: what a provider names under `models_from` becomes part of its document.

Models are generated, long and seldom read; the rest of a provider file is written by hand and read in a minute. Entries
of the provider's own `models` win over those of a file, and of two files the later.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from tollgate.config.fields import Fields
from tollgate.config.load import Document, List, Map, Mark, Node, Problem, Scalar

Read = Callable[[Path], Document]
Shaped = Callable[[Document, str], Map | None]


def include_models(document: Document, tree: Map, folder: Path, read: Read, shaped: Shaped) -> tuple[Map, list[Problem]]:
    """The tree with the models of the files it names, and what is wrong with the names. `document` gets the same tree.

    `read` reads a file, `shaped` gives its checked tree; both note what they find themselves.
    """
    problems: list[Problem] = []
    included, trees = [], []
    for index, node in enumerate(_names(tree)):
        path = folder / str(node.value)
        if not path.is_file():
            problems.append(document.problem(node, f'found no file "{node.value}"', path=f"models_from[{index}]", hint="relative to this file"))
            continue
        other = read(Path(os.path.normpath(path)))
        included.append(other)
        trees.append(shaped(other, "models"))
    if not included:
        return tree, problems
    merged = with_models(tree, trees)
    document.root = merged
    document.included = tuple(included)
    return merged, problems


def with_models(tree: Map, others: Iterable[Node | None]) -> Map:
    """The tree with the models of the trees of other files."""
    entries: dict[str, Node] = {}
    keys: dict[str, Mark] = {}
    for models in (*(Fields(other).map("models") for other in others), own := Fields(tree).map("models")):
        if models is not None:
            entries |= models.entries
            keys |= models.keys
    models = Map(entries, keys, own.mark if own is not None else tree.mark)
    return replace(tree, entries={**tree.entries, "models": models}, keys={**tree.keys, "models": tree.keys.get("models", tree.keys["models_from"])})


def _names(tree: Map) -> list[Scalar]:
    node = tree.get("models_from")
    items = node.items if isinstance(node, List) else (node,)
    return [item for item in items if isinstance(item, Scalar) and isinstance(item.value, str)]
