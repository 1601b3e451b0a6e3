"""File descriptors: how many this process may have open, and how many it has.

A stream takes two, its client's connection and its provider's.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource

_MOST = 65_536
"""30,000 streams are more than one process answers. Some containers have a hard limit of a billion."""


def allow_many() -> None:
    """Raise the limit as far as any process may: shells and services begin with 1,024, which is enough for 500
    streams."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):  # the kernel may have a lower limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def none_left() -> bool:
    """Whether no more can be opened, by this process or on the whole machine; found by trying."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return is_exhaustion(error)
    return False


def is_exhaustion(error: Exception) -> bool:
    """Whether an error means that no more can be opened, be it a connection, a file, or a module that is imported
    late."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def in_use() -> tuple[int, int] | None:
    """How many are open, and how many may be; None if the system does not report it."""
    if not os.path.isdir("/proc/self/fd"):
        return None
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        return len(os.listdir("/proc/self/fd")) - 1, most  # one is that of this listing
    except OSError:  # none is left for this listing
        return most, most
