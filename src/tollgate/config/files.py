"""Finds the files of a configuration: the gateway file, its provider and mapping files, the embedded defaults.

Also decides how files are named in messages. A folder may hold a whole configuration, only a `gateway.yaml`, or
nothing: what is missing comes from the defaults in the package (in a checkout, the repository's own files).
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

from tollgate.config.fields import Fields
from tollgate.config.load import Document, List, Map, Mark, Problem, items_of, text_in

GATEWAY_FILE = "gateway.yaml"
PROVIDER_GLOBS = ("providers/*.yaml",)
MAPPING_GLOBS = ("mappings/*.yaml",)

_WILD = frozenset("*?[")


Found = Mapping[str, Sequence[Path]]
"""The files of each pattern."""


def defaults_root() -> Path:
    """The folder with the embedded `gateway.yaml`, `providers/` and `mappings/`: in a wheel `tollgate/defaults`."""
    package = Path(__file__).resolve().parent.parent
    shipped = package / "defaults"
    return shipped if (shipped / GATEWAY_FILE).is_file() else package.parent.parent


def built_in_mappings() -> Path:
    """The folder of the embedded mappings."""
    return defaults_root() / "mappings"


def shown(path: Path) -> str:
    """The name of a file in messages: relative to the working directory if it is below it, so that editors can open
    it."""
    here = os.getcwd().rstrip(os.sep) + os.sep
    plain = os.path.abspath(path)
    if plain.startswith(here):
        return plain[len(here) :]
    try:
        return str(path.resolve().relative_to(here))  # a link may point below it
    except (ValueError, OSError):
        return str(path)


def matches(root: Path, patterns: Sequence[str]) -> Found:
    """The files of each pattern (relative to `root`, or absolute), ordered by name; a folder stands for its
    `*.yaml`."""
    found = {}
    for pattern in patterns:
        wanted, plain = pattern, os.path.join(root, pattern)
        if not _WILD & set(pattern):
            if not os.path.isdir(plain):
                found[pattern] = [Path(plain)] if os.path.isfile(plain) else []
                continue
            wanted = os.path.join(pattern, "*.yaml")
        names = sorted(glob.glob(_absolute(root, wanted), recursive=True))
        found[pattern] = [Path(name) for name in names if os.path.isfile(name)]
    return found


def _absolute(root: Path, pattern: str) -> str:
    """A pattern that may be relative to `root`. Only the pattern may have wildcards: in the root the same characters
    are part of a name."""
    return pattern if os.path.isabs(pattern) else os.path.join(glob.escape(str(root)), os.path.normpath(pattern))


def unique(found: Found) -> list[Path]:
    """All files of several patterns, each once, in pattern order."""
    seen: dict[str, Path] = {}
    for path in chain(*found.values()):
        seen.setdefault(os.path.realpath(path), path)
    return list(seen.values())


def gateway_file(path: Path | None) -> tuple[Path | None, Path]:
    """The gateway file to read (None: all defaults), and the folder that relative paths start from. What has its name
    and is no file (a link to nothing, a folder that a container's mount made) is returned, too: reading it fails."""
    if path is None:
        own = Path.cwd() / GATEWAY_FILE
        if os.path.lexists(own):
            return own, own.parent
        shipped = defaults_root() / GATEWAY_FILE
        return (shipped if shipped.is_file() else None), Path.cwd()
    if path.is_dir():
        own = path / GATEWAY_FILE
        return (own if os.path.lexists(own) else None), path.resolve()
    return path, path.resolve().parent


def provider_files(document: Document, root: Map, folder: Path) -> tuple[list[Path], list[Problem]]:
    """The provider files named by a gateway file (its `document`, checked tree `root` and `folder`), and problems
    with those names. If it names none: those in the folder, else the embedded ones."""
    found = matches(folder, Fields(root).texts("providers", PROVIDER_GLOBS))
    files = unique(found)
    if not isinstance(root.get("providers"), List):
        files = files or unique(matches(defaults_root(), PROVIDER_GLOBS))
    return files, [*_missing(document, root, found, "providers"), *_passed_over(folder, found)]


def mapping_files(document: Document, root: Map, folder: Path) -> tuple[list[Path], list[Problem]]:
    """As `provider_files`: the folder's own mappings, and the embedded ones for all other names, so that every
    protocol has one."""
    found = matches(folder, Fields(root).texts("mappings", MAPPING_GLOBS))
    own = unique(found)
    names = {path.stem for path in own}
    of_ours = [path for path in unique(matches(defaults_root(), MAPPING_GLOBS)) if path.stem not in names]
    return own + of_ours, [*_missing(document, root, found, "mappings"), *_passed_over(folder, found)]


def unmatched(root: Map, folder: Path) -> list[Path]:
    """The names and patterns of a gateway file's tree that match nothing: what they mean may come."""
    named = (matches(folder, Fields(root).texts(key)) for key in ("providers", "mappings"))
    return [folder / pattern for found in named for pattern, files in found.items() if not files]


def folder_patterns(root: Map, folder: Path) -> tuple[str, ...]:
    """Absolute patterns of the folders that a gateway file's tree names by wildcards: more may come."""
    texts = (text for key in ("providers", "mappings") for text in Fields(root).texts(key))
    places = dict.fromkeys(place for text in texts if _WILD & set(place := os.path.dirname(text)))
    return tuple(os.path.join(_absolute(folder, place), "") for place in places)


def _passed_over(folder: Path, patterns: Iterable[str]) -> list[Problem]:
    """Problems with what a pattern seems to mean and that is not read: broken links, folders, files that do not end in
    `.yaml`, and all of a folder that must not be read."""
    problems = []
    for pattern in patterns:
        place = pattern.removesuffix("*.yaml")
        if _WILD & set(place) or not os.path.isdir(folder / place):
            continue
        if not os.access(folder / place, os.R_OK | os.X_OK):
            mark = Mark(shown(folder / place), 1, 1)
            problems.append(Problem(mark, "cannot be read: Permission denied, wanted a folder this process may read"))
            continue
        for path in sorted((folder / place).glob("[!.]*")):
            mark = Mark(shown(path), 1, 1)
            if path.suffix == ".yaml" and path.is_symlink() and (why := _not_followed(path)):
                problems.append(Problem(mark, f'found a link to "{os.readlink(path)}", which {why}'))
            elif path.suffix == ".yaml" and os.path.isdir(path):
                empty = os.access(path, os.R_OK) and not os.listdir(path)
                hint = "mounting a file that is not there makes one" if empty else ""
                problems.append(Problem(mark, "not read: found a folder, wanted a file", hint=hint, level="warning"))
            elif path.suffix.lower() in (".yml", ".yaml") and path.suffix != ".yaml" and os.path.isfile(path):
                problems.append(
                    Problem(
                        mark,
                        f"not read: found a name that ends in {path.suffix}, wanted .yaml",
                        hint=f"rename it to {path.stem}.yaml",
                        level="warning",
                    )
                )
    return problems


def _not_followed(link: Path) -> str:
    """Why a link leads nowhere; empty if it leads somewhere."""
    try:
        os.stat(link)
    except PermissionError:
        return "this process may not read"
    except OSError:
        return "is not there"
    return ""


def _missing(document: Document, root: Map, found: Found, key: str) -> list[Problem]:
    """One problem for each name in the list under `key` that matches no file."""
    return [
        document.problem(node, f'found no file "{name}"', path=f"{key}[{index}]", hint="relative to this file")
        for index, node in enumerate(items_of(root.get(key)))
        if (name := text_in(node)) is not None and not found[name]
    ]
