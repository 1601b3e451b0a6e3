"""Determines how much memory this process may use, from the machine and the limits of its container or service."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_UNKNOWN = 1024**3
"""Used where the system does not report its memory."""
_OWN_BYTES = 128 * 1024**2
"""The memory of a gateway before its first request, with all shipped providers on: 100 to 120 MiB were measured."""
_TIMES_BODIES = 6
"""How many times their size request bodies need in memory while they are read, converted and sent. Measured: 4 to 5
for many bodies of 8 MB, 6 to 7 for a single one of the largest size."""
_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def allowed(groups: Path = _GROUPS, own: Path = _OWN) -> int:
    """The bytes that this process may use: the smallest of the machine's memory and the limits of its control groups.
    The groups are mounted at `groups`; the file `own` has the names of this process's groups."""
    found = []
    with contextlib.suppress(OSError, ValueError, AttributeError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for file in _limits(groups, own):
        with contextlib.suppress(OSError, ValueError):  # "max" means no limit
            found.append(int(file.read_text()))
    return min((each for each in found if each > 0), default=_UNKNOWN)


def needed(bodies: int) -> int:
    """The bytes that a gateway may need while it holds `bodies` bytes of request bodies."""
    return _OWN_BYTES + _TIMES_BODIES * bodies


def for_bodies(most: int) -> int:
    """How many bytes of request bodies to hold at once with `most` bytes of memory: an eighth of it, or less if that
    does not fit, down to 0."""
    return max(0, min(most // 8, (most - _OWN_BYTES) // _TIMES_BODIES))


def _limits(groups: Path, own: Path) -> list[Path]:
    """The files that may have a limit: of each group up to the root (version 2), and of the memory controller (version
    1), where a container sees its own group as the root."""
    files = [groups / "memory.max", groups / "memory" / "memory.limit_in_bytes"]
    with contextlib.suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                folder, name = groups, "memory.max"
            elif "memory" in controllers.split(","):
                folder, name = groups / "memory", "memory.limit_in_bytes"
            else:
                continue
            group = path.strip("/")
            while group:
                files.append(folder / group / name)
                group = group.rpartition("/")[0]
    return files
