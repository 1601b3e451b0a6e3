"""The files that a reload depends on, and whether they have changed since they were read."""

from __future__ import annotations

import contextlib
import glob
import os
from pathlib import Path
from typing import NamedTuple

from tollgate.config.files import GATEWAY_FILE
from tollgate.config.model import Gateway

Stamp = frozenset[tuple[str, int, int, int]]
"""Watched files: name, time of the last change of the text and of anything about the file (both in nanoseconds), size.
The second shows that a file may be read again, and that a link leads to another one of the same age and size."""


class WatchedFiles(NamedTuple):
    """The folders whose YAML files are watched, and single files."""

    folders: set[Path]
    files: set[str]

    @classmethod
    def of(cls, gateway: Gateway, refused: tuple[Path, ...]) -> WatchedFiles:
        """Those of the running configuration, with the files of a newer one that was refused."""
        files = (*gateway.files, *refused)
        folders = {file.parent for file in files} | {gateway.root / "providers", gateway.root / "mappings"}
        for pattern in gateway.folder_patterns:
            folders.update(map(Path, glob.glob(pattern, recursive=True)))
        return cls(folders, {str(file) for file in (*files, gateway.root / GATEWAY_FILE)})

    def has(self, file: str) -> bool:
        """Whether this file is watched."""
        return file in self.files or Path(file).parent in self.folders

    def stamp(self) -> Stamp:
        """The stamp of every file of the configuration, of new files beside them, and of files that would replace
        built-in ones. Call it off the event loop: the files may be on a slow or hanging disk."""
        found: dict[str, os.stat_result] = {}
        for folder in self.folders:
            found.update(_yaml_files(folder))
        for file in self.files - found.keys():
            with contextlib.suppress(OSError):
                found[file] = os.stat(file)
        return frozenset((file, about.st_mtime_ns, about.st_ctime_ns, about.st_size) for file, about in found.items())


def older(stamp: Stamp, than: float) -> Stamp:
    """The files that were not changed after this time, in seconds since 1970."""
    return frozenset(file for file in stamp if max(file[1:3]) <= than * 1e9)


def is_less(before: Stamp, now: Stamp) -> bool:
    """Whether a file is shorter than before, or gone."""
    sizes = {file: size for file, *_, size in now}
    return any(size > sizes.get(file, -1) for file, *_, size in before)


def _yaml_files(folder: Path) -> dict[str, os.stat_result]:
    """The YAML files of a folder; none if it is missing or may not be read."""
    try:
        with os.scandir(folder) as listed:
            entries = [entry for entry in listed if entry.name.endswith(".yaml")]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}
    found: dict[str, os.stat_result] = {}
    for entry in entries:
        with contextlib.suppress(OSError):
            found[str(folder / entry.name)] = entry.stat()
    return found
