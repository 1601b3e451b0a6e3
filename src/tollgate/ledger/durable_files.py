"""Files that are either complete after a power loss, or not there at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def keep_aside(path: Path, kept: Path) -> None:
    """Keep a file's content under a second name, whatever happens to the first: by a hard link, or a copy where the
    file system has no links (FAT, some network shares and container volumes). Durable on return; raises `OSError` when
    the disk refuses."""
    try:
        os.link(path, kept)
    except OSError:
        half = kept.with_name(f".{kept.name}.tmp")
        shutil.copyfile(path, half)
        with half.open("rb") as copied:
            os.fsync(copied.fileno())
        os.replace(half, kept)
    sync_directory(kept.parent)


def write_durably(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Create or replace a file as a whole; durable on return. `mode`, reduced by the umask, is that of a new file.
    Raises `OSError` when the disk refuses."""
    temporary = path.with_name(f"{path.name}.new")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make the creation and removal of files in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
