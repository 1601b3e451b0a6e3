"""Merges other files into a provider's document: those it names under `shared` and `models_from`.

A shared file holds what several providers have in common, under the keys of a provider file. It is the base that the
provider's own file overrides: maps are merged key by key; lists of edits, policies, error rules and examples are
joined, the file's own first; of anything else the file's own is used. Shared files are merged before the shape is
checked, also for a provider that is off, because they may refer to secrets. Models files are generated, long and seldom
read by people; only providers that are on need them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from tollgate.config.fields import Fields
from tollgate.config.files import shown
from tollgate.config.load import Document, List, Map, Mark, Node, Problem, one_or_many, read_file, text_in
from tollgate.config.provider_schema import OWN
from tollgate.config.shape import Kind, found

Read = Callable[[Path], Document]
Shaped = Callable[[Document, Kind], Map | None]

JOINED = frozenset({"policies", "request", "response", "stream", "rules", "examples"})
"""Lists that are joined; of any other, such as `retry:` or `aliases:`, the file's own is used."""


def share(document: Document, folder: Path, read: Read) -> tuple[list[Problem], bool]:
    """Merge the files that a provider's document names under `shared` into its tree.

    Returns the problems with them, and whether all of them could be read: if not, nothing else about the provider
    should be reported. `read` reads a file and reports the problems inside it.
    """
    tree = document.root
    if not isinstance(tree, Map) or "shared" not in tree.entries:
        return [], True
    others, problems = _read(document, tree, "shared", folder, read)
    whole = not problems and all(isinstance(other.root, Map) and not other.problems for other in others)
    for other in others:
        if not isinstance(other.root, Map):
            message = f"found {found(other.root)}, wanted a map: parts of a provider file"
            problems.append(other.problem(other.root, message))
            continue
        for key in OWN & other.root.entries.keys():
            message = f"found `{key}`, which stands in the provider's own file, wanted no such key in a shared one"
            problems.append(other.problem(other.root.keys[key], message, path=key))
    document.shared = tuple(others)
    document.root = over_shared(tree, [other.root for other in others])
    return problems, whole


def over_shared(tree: Map, others: Iterable[Node]) -> Map:
    """A provider's tree merged with those of its shared files: its own keys win, then those of the first file named."""
    for other in others:
        if isinstance(other, Map):
            shared = {key: node for key, node in other.entries.items() if key not in OWN}
            tree = _over(tree, replace(other, entries=shared), one_value=False)
    return tree


def _over(own: Map, other: Map, *, one_value: bool) -> Map:
    """Two maps as one. A map with directives is one value and is not merged, as is each function of `define:`
    (`one_value`)."""
    entries = dict(own.entries)
    for key, node in other.entries.items():
        mine = entries.get(key)
        if key not in entries:
            entries[key] = node
        elif isinstance(mine, Map) and isinstance(node, Map) and not (one_value or _directed(mine) or _directed(node)):
            entries[key] = _over(mine, node, one_value=key == "define")
        elif isinstance(mine, List) and isinstance(node, List) and key in JOINED:
            entries[key] = replace(mine, items=(*mine.items, *node.items))
    return replace(own, entries=entries, keys={**other.keys, **own.keys})


def _directed(node: Map) -> bool:
    return any(key.startswith("$") for key in node.entries)


def include(document: Document, tree: Map, folder: Path, read: Read, shaped: Shaped) -> tuple[Map, list[Problem]]:
    """The checked tree with the models of the files it names under `models_from`, and problems with those names.
    `document` gets the same tree.

    `read` reads a file, `shaped` returns its checked tree; both report the problems inside the file.
    """
    others, problems = _read(document, tree, "models_from", folder, read)
    if not others:
        return tree, problems
    merged = with_models(tree, [shaped(other, "models") for other in others])
    document.root = merged
    document.models = tuple(others)
    return merged, problems


def with_models(tree: Map, others: Iterable[Node | None]) -> Map:
    """The tree with the models of the trees of other files: its own entries win, then those of the last file."""
    own = Fields(tree).map("models")
    entries: dict[str, Node] = {}
    keys: dict[str, Mark] = {}
    for models in (*(Fields(other).map("models") for other in others), own):
        if models is not None:
            entries |= models.entries
            keys |= models.keys
    if not entries:
        return tree
    mark = own.mark if own is not None else tree.mark
    at = tree.keys.get("models") or tree.keys.get("models_from", tree.mark)
    return replace(tree, entries={**tree.entries, "models": Map(entries, keys, mark)}, keys={**tree.keys, "models": at})


def read_whole(path: Path) -> Document:
    """A provider file with what it shares, for callers that read one file alone; all problems are in the document's
    own."""
    document = read_file(path)

    def read(other: Path) -> Document:
        made = read_file(other)
        document.problems += made.problems
        return made

    document.problems += share(document, path.parent, read)[0]
    return document


def absent(tree: Map, key: str, folder: Path) -> list[Path]:
    """The files named under a key of a provider's tree that are not there."""
    return [path for _, _, path in _named(tree, key, folder) if not path.is_file()]


def _named(tree: Map, key: str, folder: Path) -> list[tuple[Node, str, Path]]:
    """The files named under a key: the node, the name, and the path."""
    names = ((item, text_in(item)) for item in one_or_many(tree.get(key)))
    return [(node, name, Path(os.path.normpath(folder / name))) for node, name in names if name is not None]


def _read(document: Document, tree: Map, key: str, folder: Path, read: Read) -> tuple[list[Document], list[Problem]]:
    """The documents of the files named under a key, and problems with the names."""
    others, problems = [], []
    for index, (node, name, path) in enumerate(_named(tree, key, folder)):
        if shown(path) == document.file:
            problems.append(
                document.problem(node, f'found "{name}", which is this file itself', path=f"{key}[{index}]")
            )
        elif path.is_file():
            others.append(read(path))
        else:
            message, where = f'found no file "{name}"', f"{key}[{index}]"
            problems.append(document.problem(node, message, path=where, hint="relative to this file"))
    return others, problems
