"""Files that a command writes for people to edit: complete, or as they were."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file in one step, so that on a full disk the one that was there stays whole; its owner and mode stay.
    Raises `OSError`, with the file's name."""
    target = path.resolve()
    made = target.with_name(f".{target.name}.new")
    try:
        made.write_text(text, "utf-8")
        if target.exists():
            if not os.access(target, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            shutil.copymode(target, made)
            with contextlib.suppress(PermissionError):
                os.chown(made, target.stat().st_uid, target.stat().st_gid)
        os.replace(made, target)
    except OSError as error:
        with contextlib.suppress(OSError):
            made.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from None
