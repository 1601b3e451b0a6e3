"""Code compiled from mappings and provider files, kept in the store's folder so that the next start need not compile it.

Owns the file: `cache/code.bin`, readable by its owner alone. It is never needed: one that is missing, damaged, another
version's or not this user's own is passed over, and a new one is written once the gateway serves. Code from a file that
somebody else can write would be their code running here, so owner and permissions of folder and file are checked on
what was opened, and a checksum tells damage before anything is decoded.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
import tempfile
from pathlib import Path

from tollgate.mapping.kept import KeptCode, stamp

log = logging.getLogger("tollgate.cache")

FOLDER = "cache"
FILE = "code.bin"
_MAX_BYTES = 64 * 1024 * 1024
"""All shipped providers on come to 2 MB."""
_SUM = 32


def read_code(store: Path) -> KeptCode:
    """What an earlier start left below the store's folder; empty when it left nothing that can be used."""
    try:
        raw = _read(store / FOLDER)
    except FileNotFoundError:
        return KeptCode()
    except (OSError, ValueError) as error:
        log.info("compiled code from before is not used: %s", error)
        return KeptCode()
    marked = stamp()
    told, left, payload = raw[:_SUM], raw[_SUM:_SUM + len(marked)], raw[_SUM + len(marked):]
    if left != marked:
        log.info("compiled code from before is not used: it is another version's")
        return KeptCode()
    try:
        if hashlib.sha256(left + payload).digest() != told:
            raise ValueError("its checksum differs")
        return KeptCode.load(payload)
    except ValueError as error:
        log.info("compiled code from before is not used: %s", error)
        return KeptCode()


def write_code(store: Path, kept: KeptCode) -> bool:
    """Leave what this start used for the next one. False when there was nothing new, or it cannot be written."""
    if not kept.changed:
        return False
    folder = store / FOLDER
    body = stamp() + kept.dump()
    temporary = None
    try:
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        _check(folder.stat(follow_symlinks=False), folder)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f"{FILE}.")  # readable by its owner alone
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(body).digest() + body)
        os.replace(temporary, folder / FILE)
    except (OSError, ValueError) as error:
        log.info("compiled code is not kept: %s", error)
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return False
    return True


def _read(folder: Path) -> bytes:
    """The file's bytes, if file and folder are this user's alone."""
    _check(folder.stat(follow_symlinks=False), folder)
    path = folder / FILE
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(handle)
        _check(about, path)
        if not stat.S_ISREG(about.st_mode) or about.st_size > _MAX_BYTES:
            raise ValueError(f"{path.name} is no file of a size that could be right")
        return file.read()


def _check(about: os.stat_result, path: Path) -> None:
    if hasattr(os, "geteuid") and about.st_uid != os.geteuid():
        raise ValueError(f"{path.name} belongs to another user")
    if stat.S_ISLNK(about.st_mode) or about.st_mode & 0o022:
        raise ValueError(f"{path.name} can be written by others")
