"""Memory: how much this process may have, of the machine's and of what its container or service is given."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_UNKNOWN = 1024**3
"""Where the system does not say."""
_OWN_BYTES = 128 * 1024**2
"""What a gateway takes before its first request, with all shipped providers on: 100 to 120 MiB were measured."""
_TIMES_BODIES = 6
"""Times their size that bodies take at the most, as they are read, converted and sent: 4 to 5 were measured for many of
8 MB, 6 to 7 for the largest alone."""
_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def allowed(groups: Path = _GROUPS, own: Path = _OWN) -> int:
    """The bytes this process may use: the least of the machine's memory and the limits of its control groups (`groups`
    is where those are mounted, `own` the file that names this process's)."""
    found = []
    with contextlib.suppress(OSError, ValueError, AttributeError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for file in _limits(groups, own):
        with contextlib.suppress(OSError, ValueError):  # "max" is no number: no limit there
            found.append(int(file.read_text()))
    return min((each for each in found if each > 0), default=_UNKNOWN)


def needed(bodies: int) -> int:
    """The bytes a gateway may come to take that holds so many bytes of request bodies at once."""
    return _OWN_BYTES + _TIMES_BODIES * bodies


def for_bodies(most: int) -> int:
    """The bytes of request bodies to hold at once in `most` bytes of memory: an eighth, or as many as fit into less;
    none where there is no room for any."""
    return max(0, min(most // 8, (most - _OWN_BYTES) // _TIMES_BODIES))


def _limits(groups: Path, own: Path) -> list[Path]:
    """The files that may hold a limit: of each group up to the root (version 2), and of the memory controller
    (version 1), where a container sees its own group as the root."""
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
