"""The start cache in the store's folder, which makes the next start faster: compiled code, and parsed files.

Owns `cache/code.bin` and `cache/files.bin`, readable by their owner only. Both are optional: a file that is missing,
corrupt, of another version or of another user is ignored, and new ones are written after the start. A file that others
can write could make this process run their code, so owner and permissions of folder and file are checked on the open
file, and a checksum is verified before anything is decoded.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tollgate.config.build import Loaded
from tollgate.config.reusable import Reusable
from tollgate.config.reusable_bytes import dump_reusable, load_reusable, reusable_stamp
from tollgate.mapping.code_cache import CodeCache, stamp

log = logging.getLogger("tollgate.cache")

FOLDER = "cache"
CODE, FILES = "code.bin", "files.bin"
_MAX_BYTES = 64 * 1024 * 1024
"""With all shipped providers on, a file has 4 MB."""
_SUM, _STAMP = 32, 20

T = TypeVar("T")


class StartCache:
    """The cache of an earlier start in a store's folder, to be replaced by that of this start."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self.code: CodeCache = self._load(CODE, stamp, CodeCache.load) or CodeCache()
        self.reusable: Reusable | None = self._load(FILES, reusable_stamp, load_reusable)

    def write(self, loaded: Loaded) -> bool:
        """Write the cache for the next start. Returns False if nothing has changed, or if it cannot be written."""
        written = self.code.changed and self._write(CODE, lambda: stamp() + self.code.dump())
        reusable, before = loaded.reusable, self.reusable
        if before is None or not reusable.same(before):
            written = self._write(FILES, lambda: reusable_stamp() + dump_reusable(reusable)) or written
        self.code, self.reusable = CodeCache(), None
        return written

    def _load(self, name: str, stamp_of: Callable[[], bytes], load: Callable[[bytes], T]) -> T | None:
        try:
            raw = _read(self._store / FOLDER, name)
            checksum, version, payload = raw[:_SUM], raw[_SUM : _SUM + _STAMP], raw[_SUM + _STAMP :]
            if version != stamp_of():
                raise ValueError("it was written by another version")
            if hashlib.sha256(version + payload).digest() != checksum:
                raise ValueError("its checksum is wrong")
            return load(payload)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.info("start cache: %s is ignored: %s", name, error)
            return None

    def _write(self, name: str, make: Callable[[], bytes]) -> bool:
        folder = self._store / FOLDER
        temporary = None
        try:
            body = make()
            self._store.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            _check(folder.stat(follow_symlinks=False), folder)
            handle, temporary = tempfile.mkstemp(dir=folder, prefix=f"{name}.")  # readable by its owner only
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(body).digest() + body)
            os.replace(temporary, folder / name)
        except (OSError, ValueError) as error:
            log.info("start cache: %s cannot be written: %s", name, error)
            if temporary is not None:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            return False
        return True


def _read(folder: Path, name: str) -> bytes:
    """The file's bytes. Raises `ValueError` if others own or can write the file or the folder."""
    _check(folder.stat(follow_symlinks=False), folder)
    path = folder / name
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(handle)
        _check(about, path)
        if not stat.S_ISREG(about.st_mode) or about.st_size > _MAX_BYTES:
            raise ValueError(f"{path.name} is not a regular file, or is too large")
        return file.read()


def _check(about: os.stat_result, path: Path) -> None:
    if hasattr(os, "geteuid") and about.st_uid != os.geteuid():
        raise ValueError(f"{path.name} belongs to another user")
    if stat.S_ISLNK(about.st_mode) or about.st_mode & 0o022:
        raise ValueError(f"{path.name} can be written by others")
